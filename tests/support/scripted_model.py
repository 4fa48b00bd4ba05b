"""A model in this process that follows a script: for cases that need no wire and no window of a provider."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from sidequest.core.tokens import compact_json, estimate_message, estimate_text
from sidequest.core.transcript import mark_of, user_text

SHORT_SUMMARY = "## Goal\nGo on with the task."


@dataclass(frozen=True)
class Asked:
    """One request as the model got it."""

    messages: list[ModelMessage]
    info: AgentInfo

    @property
    def is_summary(self) -> bool:
        """Whether a summary is asked for instead of work."""
        return bool(self.user_texts) and self.user_texts[-1].startswith("<conversation>")

    @property
    def tokens(self) -> int:
        """The size of the request by our own heuristic, without any reported usage."""
        schemas = (
            estimate_text(f"{t.name}{t.description or ''}{compact_json(t.parameters_json_schema)}")
            for t in self.info.function_tools
        )
        fixed = estimate_text(self.info.instructions or "") + sum(schemas)
        return fixed + sum(map(estimate_message, self.messages))

    @property
    def tool_names(self) -> list[str]:
        """Names of the tools on offer."""
        return [tool.name for tool in self.info.function_tools]

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that came with the request."""
        return dict(self.info.model_settings or {})

    @property
    def user_texts(self) -> list[str]:
        """Texts of all user-role parts, oldest first."""
        return [user_text(part) for part in self._parts() if isinstance(part, UserPromptPart)]

    def marked_texts(self, mark: str) -> list[str]:
        """Texts of the user-role parts that carry `mark`."""
        parts = [part for part in self._parts() if isinstance(part, UserPromptPart)]
        return [user_text(part) for part in parts if mark_of(part) == mark]

    @property
    def results(self) -> list[str]:
        """Texts of all tool results, oldest first."""
        return [p.model_response_str() for p in self._parts() if isinstance(p, ToolReturnPart)]

    @property
    def text(self) -> str:
        """Everything a model would read, and all arguments of calls."""
        said = [p.content for p in self._parts() if isinstance(p, TextPart)]
        args = [p.args_as_json_str() for p in self._parts() if isinstance(p, ToolCallPart)]
        return "\n".join([self.info.instructions or "", *self.user_texts, *said, *args, *self.results])

    def _parts(self) -> list[Any]:
        return [part for message in self.messages for part in message.parts]


def calling(*calls: tuple[str, dict[str, Any]], text: str = "", finish: Any = None) -> ModelResponse:
    """Return an answer with tool calls, pairs of a name and its arguments."""
    parts: list[ModelResponsePart] = [TextPart(text)] if text else []
    parts += [ToolCallPart(name, args) for name, args in calls]
    return ModelResponse(parts=parts, finish_reason=finish)


def saying(text: str, finish: Any = None) -> ModelResponse:
    """Return an answer of text."""
    return ModelResponse(parts=[TextPart(text)], finish_reason=finish)


Step: TypeAlias = (
    "str | ModelResponse | BaseException | Callable[[Asked], Step] | Callable[[Asked], Awaitable[Step]]"
)


class ScriptedModel(FunctionModel):
    """Answers work requests with `steps` in order, the last one again and again when `repeat`.

    A step is a text, a response, an exception to raise, or a function of the request that returns one.
    Summaries are asked of `summary`, a step that is never used up.
    """

    def __init__(
        self,
        *steps: Step,
        name: str = "scripted",
        summary: Step = SHORT_SUMMARY,
        repeat: bool = False,
    ) -> None:
        super().__init__(self._answer, model_name=name)
        self._steps: Sequence[Step] = steps
        self._repeat = repeat
        self._summary = summary
        self.asked: list[Asked] = []
        """Work requests, in order."""
        self.summaries: list[Asked] = []

    async def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked = Asked(list(messages), info)
        response = await _resolved(self._next_step(asked), asked)
        if response.usage.has_values():
            return response
        # What our own estimate says: FunctionModel would count words, which looks like a prompt that was cut.
        usage = RequestUsage(input_tokens=asked.tokens, output_tokens=estimate_message(response))
        return replace(response, usage=usage)

    def _next_step(self, asked: Asked) -> Any:
        if asked.is_summary:
            self.summaries.append(asked)
            return self._summary
        self.asked.append(asked)
        index = len(self.asked) - 1
        if index >= len(self._steps) and not self._repeat:
            raise AssertionError(f"{self.model_name} has only {len(self._steps)} answers")
        return self._steps[min(index, len(self._steps) - 1)]


async def _resolved(step: Any, asked: Asked) -> ModelResponse:
    while callable(step):
        step = step(asked)
        if inspect.isawaitable(step):
            step = await step
    if isinstance(step, BaseException):
        raise step
    return saying(step) if isinstance(step, str) else step
