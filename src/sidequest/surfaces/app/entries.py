"""What a conversation on a page consists of: one value for each thing that is shown, in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

RUNNING = ""
"""How a tool call ended that has not ended yet."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a person asked, or the brief that a subagent was given."""

    key: str
    at_ms: int
    text: str
    message_id: str | None = None
    """Id of its stored row; None while its turn runs."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What an agent said."""

    key: str
    at_ms: int
    text: str
    growing: bool = False
    """Whether more of it may come."""
    message_id: str | None = None
    last: bool = False
    """Whether no tool was called with it, so that a copy of the session may end here."""


@dataclass(frozen=True, slots=True)
class ToolLine:
    """A tool call and how it ended."""

    key: str
    at_ms: int
    call_id: str
    tool: str
    summary: str
    """Its arguments, in one line."""
    ended: str
    """`RUNNING`, `success`, `failed`, `denied`, `interrupted` or `no result`."""
    message_id: str | None = None
    """Id of the stored answer that made the call; None while its turn runs."""


@dataclass(frozen=True, slots=True)
class Line:
    """Something a person should know."""

    key: str
    at_ms: int
    text: str


@dataclass(frozen=True, slots=True)
class Divider:
    """The history above was replaced for the model; everything of it can still be read. Sizes in tokens."""

    key: str
    at_ms: int
    tokens_before: int
    tokens_after: int | None
    degraded: bool
    """Whether it happened without a summary."""
    summary: str | None = None
    """What the model reads instead; None while its turn runs."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """How a turn failed or was stopped."""

    key: str
    at_ms: int
    code: str
    text: str
    """What happened, in the words of who refused; empty when only the code is known."""


@dataclass(frozen=True, slots=True)
class Delegated:
    """The place of a delegation; what there is to see of it is kept beside the conversation."""

    key: str
    at_ms: int
    id: str


Entry: TypeAlias = Prompt | Answer | ToolLine | Line | Divider | Trouble | Delegated


def place_of(delegation_id: str, at_ms: int) -> Delegated:
    """Return the place of a delegation; it has one key however it became known."""
    return Delegated(f"delegation:{delegation_id}", at_ms, delegation_id)


@dataclass(frozen=True, slots=True)
class Group:
    """Two or more delegations in a row; one is a group of its own."""

    key: str
    ids: tuple[str, ...]


Block: TypeAlias = Prompt | Answer | ToolLine | Line | Divider | Trouble | Group


def blocks(entries: tuple[Entry, ...]) -> list[Block]:
    """Return the entries with neighbouring delegations put together.

    A group keeps the key of its first delegation, so that it is the same group when more join it.
    """
    found: list[Block] = []
    for entry in entries:
        if not isinstance(entry, Delegated):
            found.append(entry)
            continue
        before = found[-1] if found else None
        if isinstance(before, Group):
            found[-1] = Group(before.key, (*before.ids, entry.id))
        else:
            found.append(Group(f"group:{entry.id}", (entry.id,)))
    return found
