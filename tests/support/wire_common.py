"""What the wire formats share: content blocks, arguments, server-sent events."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tests.support.neutral import InStreamError, ParsedRequest, Reply, Seen, SeenMessage, Usage, WireFormat


@dataclass(frozen=True)
class Answered:
    """A reply on its way to the wire, with what the wire needs besides: the request and the usage."""

    seen: Seen
    reply: Reply
    usage: Usage
    serial: int
    """Number of the provider in this process: ids of a history that met several providers stay apart."""

    @property
    def id(self) -> str:
        """Distinguishes this answer from all others of the process."""
        return f"{self.serial}_{self.seen.index}"

    def call_id(self, position: int) -> str:
        """The id of the tool call at `position`, unique in the process."""
        return f"call_{self.id}_{position}"


@dataclass(frozen=True)
class EventStream:
    """A reply as server-sent events: `head` carries the content, `tail` the finish reason and the usage."""

    head: list[bytes]
    tail: list[bytes]


class Wire(Protocol):
    """One wire format; each `wire_*` module is one."""

    FORMAT: WireFormat

    def parse(self, payload: Mapping[str, Any]) -> ParsedRequest: ...
    def body(self, answered: Answered) -> dict[str, Any]: ...
    def stream(self, answered: Answered) -> EventStream: ...
    def error_body(self, seen: Seen, error: InStreamError) -> dict[str, Any]: ...
    def error_events(self, seen: Seen, error: InStreamError, sent: int) -> list[bytes]:
        """The error as events, when `sent` events have already gone out."""
        ...


def compact(value: object) -> str:
    """Return JSON without spaces and without escapes for letters."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def sse(data: object, event: str | None = None) -> bytes:
    """Return one server-sent event; a text is sent as it is, anything else as JSON."""
    name = f"event: {event}\n" if event else ""
    payload = data if isinstance(data, str) else compact(data)
    return f"{name}data: {payload}\n\n".encode()


def pieces(text: str, most: int = 8) -> list[str]:
    """Cut `text` into at most `most` deltas of at least four characters; none for an empty text."""
    size = max(4, -(-len(text) // most))
    return [text[start : start + size] for start in range(0, len(text), size)]


def argument_text(arguments: dict[str, Any] | str) -> str:
    """Return arguments as the text that is sent; a text is sent as it is, even when it is broken JSON."""
    return arguments if isinstance(arguments, str) else compact(arguments)


def flatten(content: object, joint: str = "\n") -> tuple[str, int]:
    """Return the text of a content field, its blocks joined by `joint`, and how many images it holds.

    A block that is neither text nor image counts as the text of its JSON, so that nothing is free.
    """
    if content is None or isinstance(content, str):
        return content or "", 0
    texts: list[str] = []
    images = 0
    for block in content if isinstance(content, list) else [content]:
        fields = block if isinstance(block, dict) else {}
        text = fields.get("text", fields.get("refusal"))
        if "image" in str(fields.get("type")):
            images += 1
        else:
            texts.append(text if isinstance(text, str) else compact(block))
    return joint.join(texts), images


def first_cap(payload: Mapping[str, Any], *names: str) -> tuple[int | None, str | None]:
    """Return the output cap and the first of `names` under which the request has one."""
    for name in names:
        if payload.get(name) is not None:
            return payload[name], name
    return None, None


def split_system(messages: Iterable[SeenMessage]) -> tuple[str, list[SeenMessage]]:
    """Take the leading system messages off a list; later ones stay where they are."""
    rest = list(messages)
    system: list[str] = []
    while rest and rest[0].role == "system":
        system.append(rest.pop(0).text)
    return "\n\n".join(system), rest


def merge(messages: Iterable[SeenMessage], *roles: str) -> tuple[SeenMessage, ...]:
    """Join neighbours of the same role, for the roles that a wire format splits into several items."""
    merged: list[SeenMessage] = []
    for message in messages:
        if message.role in roles and merged and merged[-1].role == message.role:
            before = merged.pop()
            message = SeenMessage(
                message.role,
                "\n".join(text for text in (before.text, message.text) if text),
                before.tool_calls + message.tool_calls,
                before.tool_results + message.tool_results,
                "\n".join(text for text in (before.thinking, message.thinking) if text),
                before.images + message.images,
            )
        merged.append(message)
    return tuple(merged)
