"""What the three wire formats have in common: a request as the server saw it, and what may be answered.

A script speaks only these words, so one script serves OpenAI chat completions, OpenAI Responses and
Anthropic Messages alike.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

WireFormat = Literal["openai-chat", "openai-responses", "anthropic"]
Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True)
class ToolCall:
    """A tool call of an assistant message; `arguments` is the JSON text exactly as it was sent back."""

    id: str
    name: str
    arguments: str

    @property
    def args(self) -> Any:
        """The arguments parsed; raises `json.JSONDecodeError` when they are not JSON."""
        return json.loads(self.arguments)


@dataclass(frozen=True)
class ToolResult:
    """A tool result; `call_id` is the id of the call it answers."""

    call_id: str
    text: str


@dataclass(frozen=True)
class SeenMessage:
    """One message of a request. Adjacent tool results are one message of role "tool" in every format."""

    role: Role
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_results: tuple[ToolResult, ...] = ()
    thinking: str = ""
    images: int = 0


@dataclass(frozen=True)
class Tool:
    """A tool on offer. `wire` is its JSON as sent, which is what is counted."""

    name: str
    schema: Mapping[str, Any]
    wire: str


@dataclass(frozen=True, kw_only=True)
class ParsedRequest:
    """The body of a request, read from one of the wire formats."""

    format: WireFormat
    model: str
    system: str
    """Instructions and leading system messages, joined by an empty line; "" when there are none."""
    messages: tuple[SeenMessage, ...]
    tools: tuple[Tool, ...]
    max_tokens: int | None
    """The output cap that was asked for, None when the request has none."""
    max_tokens_field: str | None
    """The name under which the cap was sent, for example `max_completion_tokens`."""
    stream: bool
    wants_usage: bool = True
    """False when a streamed chat request did not ask for usage: then none is sent, as OpenAI does."""


@dataclass(frozen=True, kw_only=True)
class Seen(ParsedRequest):
    """A request as the server saw it."""

    index: int
    """Position among all requests of this provider, from 0."""
    headers: Mapping[str, str]
    """Names in lower case."""
    raw: bytes
    json: Mapping[str, Any]
    tokens: int
    """Input tokens by `counting.count_request`; for a truncated request what was kept."""
    truncated: bool = False
    """True in what a script sees of a request that was cut silently."""

    @property
    def api_key(self) -> str | None:
        """The key from `x-api-key` or a bearer `authorization` header."""
        bearer = self.headers.get("authorization", "")
        return self.headers.get("x-api-key") or bearer.removeprefix("Bearer ") or None

    @property
    def tool_names(self) -> tuple[str, ...]:
        """Names of the tools on offer, in the order sent."""
        return tuple(tool.name for tool in self.tools)

    @property
    def tool_schemas(self) -> dict[str, Mapping[str, Any]]:
        """JSON schema of the parameters, by tool name."""
        return {tool.name: tool.schema for tool in self.tools}

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """Every tool call in the history, oldest first."""
        return tuple(call for message in self.messages for call in message.tool_calls)

    @property
    def tool_results(self) -> tuple[ToolResult, ...]:
        """Every tool result in the history, oldest first."""
        return tuple(result for message in self.messages for result in message.tool_results)

    @property
    def user_texts(self) -> tuple[str, ...]:
        """Texts of the user messages, oldest first."""
        return tuple(message.text for message in self.messages if message.role == "user")

    @property
    def text(self) -> str:
        """All text a model would read: system, messages, arguments and results, joined by new lines."""
        parts = [self.system]
        for message in self.messages:
            parts += [message.thinking, message.text, *(call.arguments for call in message.tool_calls)]
            parts += [result.text for result in message.tool_results]
        return "\n".join(part for part in parts if part)


@dataclass(frozen=True)
class Usage:
    """Tokens to report. `input` includes `cached`, as OpenAI does; the Anthropic wire subtracts it."""

    input: int
    output: int
    cached: int = 0


@dataclass(frozen=True)
class Reply:
    """An answer of the model.

    `tool_calls` are pairs of a name and its arguments, a dict or a raw text (which may be broken JSON).
    `finish` is "stop", "length", "tool_calls", "content_filter" or any word of the wire format itself; None
    means "tool_calls" if there are calls and "stop" otherwise. `usage` None is computed by the counter, with
    `cached_tokens` of the input reported as read from a cache.
    """

    text: str | None = None
    tool_calls: Sequence[tuple[str, dict[str, Any] | str]] = ()
    finish: str | None = None
    usage: Usage | None = None
    thinking: str | None = None
    cached_tokens: int = 0

    @property
    def finish_reason(self) -> str:
        """`finish`, or what follows from the content."""
        return self.finish or ("tool_calls" if self.tool_calls else "stop")


@dataclass(frozen=True)
class Reject:
    """An HTTP error. A dict body is sent as JSON, a text as it is, and None or b"" as no body at all."""

    status: int
    body: Mapping[str, Any] | str | bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class InStreamError:
    """A 200 answer that carries an error.

    Streamed: the events of `after` without its ending (none when None), then the error event. Responses sends
    `response.failed`, or the `error` event with `event="error"`; chat an error chunk, Anthropic `error`.
    Not streamed: a 200 whose body is the error. `code` is the error type for Anthropic.
    """

    message: str
    code: str = "server_error"
    after: Reply | None = None
    event: Literal["failed", "error"] = "failed"


@dataclass(frozen=True)
class Drop:
    """The connection is cut: after the events of `after` without its ending, or before the headers if None.

    A request that is not streamed gets the headers and half of the body of `after`.
    """

    after: Reply | None = None


class Waitable(Protocol):
    """`Gate` and `asyncio.Event`."""

    async def wait(self) -> object: ...


@dataclass(frozen=True)
class Hang:
    """Hold the request for `until` seconds or until the event or gate opens, then answer `then`.

    With `mid_stream` a streamed `Reply` in `then` is sent at once except for its ending, which is held.
    """

    until: float | Waitable
    then: Answer = field(default_factory=Drop)
    mid_stream: bool = False


Answer: TypeAlias = Reply | Reject | InStreamError | Drop | Hang
ANSWERS = (Reply, Reject, InStreamError, Drop, Hang)
Responder: TypeAlias = Callable[[Seen], "Answer | str | Awaitable[Answer | str]"]
Script: TypeAlias = Responder | Sequence["Answer | str | Responder"]
"""One function for all requests, or answers used up in order. A text stands for a `Reply` of that text."""
