"""Small builders of histories, a scripted summariser, and exact snapshots of prompts.

Everything is made of pydantic-ai's own message types, so a test reads like the history it is about.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.usage import RequestUsage

from sidequest.core.budget import ContextBudget
from sidequest.core.outcome import Usage
from sidequest.core.summary import SummaryFailed, SummaryReply, SummaryRequest
from sidequest.core.tokens import estimate_message, estimate_text
from sidequest.core.transcript import brief_request, mark_of, user_text

SMALL = ContextBudget.of(4_096, 1_024)
"""The model of most acceptance cases: a request must stay below 2,048 tokens."""
BRIEF = "Find out where the limit is set."

SNAPSHOTS = Path(__file__).parent / "snapshots"


def repeatable(examples: int) -> settings:
    """Settings that make a property run the same examples each time, without a clock."""
    return settings(
        derandomize=True,
        database=None,
        deadline=None,
        max_examples=examples,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )


def user(text: str) -> ModelRequest:
    """A message that a person wrote: it carries no mark."""
    return ModelRequest(parts=[UserPromptPart(text)])


def brief(text: str = BRIEF) -> ModelRequest:
    return brief_request(text)


def call(call_id: str = "c1", tool: str = "Read", **args: Any) -> ToolCallPart:
    return ToolCallPart(tool, args or {"path": "a.py"}, tool_call_id=call_id)


def says(
    text: str = "", *calls: ToolCallPart, thinking: str = "", reported: int = 0, **facts: Any
) -> ModelResponse:
    """A response; `reported` is the usage that the provider told with it, in tokens."""
    parts: list[ModelResponsePart] = []
    if thinking:
        parts.append(ThinkingPart(thinking))
    if text:
        parts.append(TextPart(text))
    usage = RequestUsage(input_tokens=reported)
    return ModelResponse(parts=[*parts, *calls], usage=usage, **facts)


def result(content: Any = "done", call_id: str = "c1", tool: str = "Read") -> ToolReturnPart:
    return ToolReturnPart(tool, content, tool_call_id=call_id)


def results(*parts: ToolReturnPart) -> ModelRequest:
    return ModelRequest(parts=list(parts))


def exchange(content: Any = "done", call_id: str = "c1", **facts: Any) -> list[ModelMessage]:
    """One round: a call of Read, and what it gave."""
    return [says("", call(call_id), **facts), results(result(content, call_id))]


def image(size: int = 64) -> BinaryContent:
    return BinaryContent(data=b"\x89PNG" + bytes(size), media_type="image/png")


def prose(chars: int) -> str:
    """Plain words of exactly `chars` characters: text that the script weights leave alone."""
    return ("the quick brown fox jumps over the lazy dog\n" * (chars // 44 + 1))[:chars]


def file_of(lines: int, first: str = "FIRST LINE", last: str = "LAST LINE") -> str:
    """A file with a fact on its first and on its last line."""
    body = [f"line {number} of a file that was read" for number in range(lines)]
    return "\n".join([first, *body, last])


def texts_of(messages: Sequence[ModelMessage], mark: str | None) -> list[str]:
    """The texts of all user-role parts with `mark`."""
    return [
        user_text(part)
        for message in messages
        for part in message.parts
        if isinstance(part, UserPromptPart) and mark_of(part) == mark
    ]


def heuristic(messages: Sequence[ModelMessage]) -> int:
    """The size of a list without any reported usage, in tokens."""
    return sum(map(estimate_message, messages))


def request_tokens(request: SummaryRequest) -> int:
    """The size of a summary request by our own estimate."""
    return estimate_text(request.instructions) + estimate_text(request.prompt)


def stored(messages: Sequence[ModelMessage]) -> bytes:
    """A history as bytes: equal before and after means that nothing in it was modified."""
    return ModelMessagesTypeAdapter.dump_json(list(messages))


@dataclass
class Summariser:
    """Answers with one scripted reply, or fails with `error`, and keeps what it was asked."""

    text: str = "## Goal\nFind the limit."
    truncated: bool = False
    error: BaseException | None = None
    usage: Usage = field(default_factory=lambda: Usage(1, 900, 100))
    asked: list[SummaryRequest] = field(default_factory=list)

    async def __call__(self, request: SummaryRequest) -> SummaryReply:
        self.asked.append(request)
        if self.error is not None:
            raise self.error
        return SummaryReply(self.text, self.truncated, self.usage)

    @property
    def prompt(self) -> str:
        """The only prompt it was given."""
        (request,) = self.asked
        return request.prompt


def failing(reason: str = "invalid key") -> Summariser:
    return Summariser(error=SummaryFailed(reason))


def assert_snapshot(name: str, text: str) -> None:
    """Compare `text` exactly with a reviewed file; SIDEQUEST_UPDATE_SNAPSHOTS=1 writes the file instead."""
    path = SNAPSHOTS / name
    if os.environ.get("SIDEQUEST_UPDATE_SNAPSHOTS") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text + "\n"
