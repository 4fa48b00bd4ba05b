"""Real requests with scripted words: a model of 135M parameters can be counted on for protocol only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

from sidequest.core.provider_errors import Meaning, classify, facts_from_exception

Words = Callable[[int], TextPart | ToolCallPart]
"""What is said in place of the answer with that number, counted from 0."""


class WordedModel(WrapperModel):
    """Sends everything to the server, keeps its usage and its refusals, and puts words into its mouth."""

    def __init__(self, wrapped: Model, words: Words) -> None:
        super().__init__(wrapped)
        self.log: list[int | Meaning] = []
        """For each request in order: the prompt tokens the server counted, or what its refusal meant."""
        self._words = words

    @property
    def counted(self) -> list[int]:
        """Prompt tokens of the answered requests."""
        return [entry for entry in self.log if isinstance(entry, int)]

    @property
    def refusals(self) -> list[Meaning]:
        """What the refusals meant."""
        return [entry for entry in self.log if isinstance(entry, Meaning)]

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Ask the server; only the parts of its answer are replaced."""
        try:
            answer = await self.wrapped.request(messages, model_settings, model_request_parameters)
        except Exception as error:
            self.log.append(classify(facts_from_exception(error)))
            raise
        said = self._words(len(self.counted))
        self.log.append(answer.usage.input_tokens)
        reason = "tool_call" if isinstance(said, ToolCallPart) else "stop"
        return replace(answer, parts=[said], finish_reason=reason)


def fetches(count: int) -> Words:
    """Return words that call `fetch` for the first `count` keys, one at a time, and then report."""

    def words(number: int) -> TextPart | ToolCallPart:
        return ToolCallPart("fetch", {"key": f"k{number}"}) if number < count else TextPart("Done.")

    return words


def reports(number: int) -> TextPart:
    """Words that report at once."""
    return TextPart("Done.")
