"""A conversation as plain values: who said what, which tool was used and what came back.

The same values are made from a provider-neutral history (by the adapter) and from the serialised text that
a summariser is given (specification 2.5), so one reader of facts serves both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from sidequest.core.labels import ASSISTANT, CALLS, LABELS, REMARK, REPORTS, RESULT, USER, USER_FILE


@dataclass(frozen=True, slots=True)
class UserText:
    """Something in the user's role: a question, a brief, a summary, a delivered report, a reminder."""

    text: str


@dataclass(frozen=True, slots=True)
class AssistantText:
    """Something the assistant wrote."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolUse:
    """One tool call and its result."""

    name: str
    args: Mapping[str, object]
    result: str | None = None
    """Text of the result; None while there is none."""
    failed: bool = False
    """The tool refused or raised; `result` says why."""

    @property
    def kind(self) -> str:
        """The tool's name in lower case without underscores: `TaskWait` and `task_wait` are one tool."""
        return tool_kind(self.name)

    def text_arg(self, name: str, default: str = "") -> str:
        """Return a string argument, or `default` when it is absent or not a string."""
        value = self.args.get(name)
        return value if isinstance(value, str) else default

    def int_arg(self, name: str) -> int | None:
        """Return a whole-number argument, or None when it is absent or not a number."""
        value = self.args.get(name)
        return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


Entry: TypeAlias = UserText | AssistantText | ToolUse


def tool_kind(name: str) -> str:
    """Return the spelling-independent form of a tool's name."""
    return name.lower().replace("_", "")


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that was offered with the request."""

    name: str
    """As it must be called."""
    description: str = ""
    parameters: frozenset[str] = frozenset()
    """Names it accepts; arguments outside are not sent."""
    agents: tuple[str, ...] = ()
    """Allowed values of its `agent` parameter, when its schema lists them."""


@dataclass(frozen=True, slots=True)
class Request:
    """Everything one request shows to the engine."""

    entries: tuple[Entry, ...]
    """Oldest first."""
    tools: Mapping[str, Tool] = field(default_factory=dict)
    """By `tool_kind`."""
    max_chars: int = 8_000
    """Most characters the answer may have; what is longer is cut by the adapter."""
    window: int = 32_000
    """Context window in tokens."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call to make; `tool` is the name as offered."""

    tool: str
    args: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Reply:
    """What the engine answers: text, and the calls that follow it (none when it is done)."""

    text: str
    calls: tuple[Call, ...] = ()


_LABEL = re.compile(rf"(?:\A|\n\n)\[({'|'.join(LABELS)})\]: ")
_CALL_NAME = re.compile(r"\s*;?\s*([A-Za-z_][\w.-]*)\(")
_ARG_NAME = re.compile(r"\s*,?\s*([A-Za-z_]\w*)=")
_JSON = json.JSONDecoder()


def parse_serialised(text: str) -> tuple[Entry, ...]:
    """Read a conversation as specification 2.5 serialises it; unknown text is passed over.

    Results belong to the calls before them in order. A call whose result is missing stays without one.
    """
    entries: list[Entry] = []
    open_uses: list[int] = []
    pieces = _LABEL.split(text.strip())
    for label, body in zip(pieces[1::2], pieces[2::2], strict=True):
        if label in (USER, REPORTS):
            entries.append(UserText(body))
        elif label == ASSISTANT:
            entries.append(AssistantText(body))
        elif label == CALLS:
            open_uses = []
            for call in _calls(body):
                open_uses.append(len(entries))
                entries.append(call)
        elif label == RESULT and open_uses:
            at = open_uses.pop(0)
            use = entries[at]
            if isinstance(use, ToolUse):
                entries[at] = ToolUse(use.name, use.args, body, looks_failed(body))
        elif label in (RESULT, REMARK, USER_FILE):
            entries.append(ToolUse("unknown", {}, body, looks_failed(body)))
    return tuple(entries)


def looks_failed(result: str) -> bool:
    """Say whether a result is the error object that stands for a failed tool."""
    return result.startswith('{"error":')


def _calls(text: str) -> Iterator[ToolUse]:
    at = 0
    while name := _CALL_NAME.match(text, at):
        args, at = _arguments(text, name.end())
        yield ToolUse(name[1], args)


def _arguments(text: str, at: int) -> tuple[dict[str, object], int]:
    """Read `k=json, ...)` from `at`; a value that was cut ends the reading at the next call, if any."""
    args: dict[str, object] = {}
    while key := _ARG_NAME.match(text, at):
        try:
            args[key[1]], at = _JSON.raw_decode(text, key.end())
        except ValueError:
            following = text.find("); ", key.end())
            return args, len(text) if following < 0 else following + 1
    closing = text.find(")", at)
    return args, len(text) if closing < 0 else closing + 1
