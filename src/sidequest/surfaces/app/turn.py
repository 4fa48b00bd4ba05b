"""The part of a conversation that is happening: events in, entries out; pure.

An answer of the model and what it called belong together: its text, its tool calls, its delegations, in that
order, whichever way their events interleave. So it looks the same when it is read from the store later.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from sidequest.core.errors import ErrorCode
from sidequest.core.events import (
    ContextCompacted,
    ContextDegraded,
    DelegationStarted,
    Event,
    Notice,
    Numbered,
    PromptReceived,
    RetryScheduled,
    RunEnded,
    TextProduced,
    ToolEnded,
    ToolStarted,
    TurnStarted,
)
from sidequest.surfaces.app.entries import (
    RUNNING,
    Answer,
    Delegated,
    Divider,
    Entry,
    Line,
    Prompt,
    ToolLine,
    Trouble,
    place_of,
)

TASK_TOOL = "Task"
"""The tool whose calls are shown as the delegations they start."""


@dataclass(frozen=True, slots=True)
class Round:
    """One answer of the model and what came of it."""

    key: str
    at_ms: int
    turn: int = 0
    """Number of the request; 0 for what came before any."""
    text: str = ""
    tools: tuple[ToolLine, ...] = ()
    delegations: tuple[Delegated, ...] = ()

    def entries(self, *, growing: bool) -> tuple[Entry, ...]:
        """Return what is seen of it."""
        text = self.text.strip()
        said = (Answer(f"{self.key}:text", self.at_ms, text, growing),) if text else ()
        tools = tuple(tool for tool in self.tools if is_seen(tool))
        return (*said, *tools, *self.delegations)


Item: TypeAlias = Prompt | Round | Line | Divider | Trouble
_Change: TypeAlias = Callable[[Round], Round]


def is_seen(tool: ToolLine) -> bool:
    """Say whether a call has a line: a delegation that was started stands for its own."""
    return tool.tool != TASK_TOOL or tool.ended not in (RUNNING, "success")


@dataclass(frozen=True, slots=True)
class Turn:
    """What has happened since a moment of the session."""

    items: tuple[Item, ...] = ()
    running: bool = False
    """Whether the session's own agent works."""
    waiting_for: str = ""
    """Why nothing happens at the moment, or empty."""

    def entries(self) -> tuple[Entry, ...]:
        """Return what is seen, in order."""
        found: list[Entry] = []
        for number, item in enumerate(self.items):
            if isinstance(item, Round):
                newest = number == len(self.items) - 1
                found += item.entries(growing=self.running and newest and not item.tools)
            else:
                found.append(item)
        return tuple(found)


def follow_turn(turn: Turn, numbered: Numbered) -> Turn:
    """Return the turn after one more event; of delegations only their start has a place here."""
    event = numbered.event
    if isinstance(event, DelegationStarted):
        place = place_of(event.delegation_id or "", event.started_at_ms)
        return _in_round(turn, numbered, lambda r: replace(r, delegations=(*r.delegations, place)))
    if event.delegation_id is not None:
        return turn
    return _own(turn, numbered, event)


def _own(turn: Turn, numbered: Numbered, event: Event) -> Turn:
    key, at_ms = f"event:{numbered.number}", numbered.at_ms
    match event:
        case PromptReceived(text=text):
            return replace(turn, items=(*turn.items, Prompt(key, at_ms, text)), running=True, waiting_for="")
        case TurnStarted(turn=number):
            return _new_round(replace(turn, waiting_for=""), Round(key, at_ms, number))
        case TextProduced(text=text):
            return _in_round(turn, numbered, lambda r: replace(r, text=r.text + text))
        case ToolStarted(call_id=call, tool=tool, summary=summary):
            line = ToolLine(key, at_ms, call, tool, summary, RUNNING)
            return _in_round(turn, numbered, lambda r: replace(r, tools=(*r.tools, line)))
        case ToolEnded(call_id=call):
            return _in_round(turn, numbered, lambda r: _with_end(r, call, end_of(event)))
        case ContextCompacted(tokens_before=before, tokens_after=after):
            return _with(turn, Divider(key, at_ms, before, after, degraded=False))
        case ContextDegraded(tokens_before=before, tokens_after=after):
            return _with(turn, Divider(key, at_ms, before, after, degraded=True))
        case Notice(text=text):
            return _with(turn, Line(key, at_ms, text))
        case RetryScheduled(delay_s=delay, code=code):
            return replace(
                _in_round(turn, numbered, lambda r: replace(r, text="")),
                waiting_for=f"{code}, trying again in {delay:.0f}s",
            )
        case RunEnded(ok=ok, code=code):
            ended = replace(turn, running=False, waiting_for="")
            return ended if ok else _with(ended, Trouble(key, at_ms, code or "INTERNAL", ""))
        case _:
            return turn


def _with(turn: Turn, item: Item) -> Turn:
    return replace(turn, items=(*turn.items, item))


def _new_round(turn: Turn, new: Round) -> Turn:
    """Begin a round; a request that is sent again takes the place of the one that failed."""
    for number in range(len(turn.items) - 1, -1, -1):
        item = turn.items[number]
        if isinstance(item, Prompt):
            break
        if isinstance(item, Round):
            if item.turn == new.turn and not item.tools and not item.delegations:
                rest = (*turn.items[:number], *turn.items[number + 1 :])
                return replace(turn, items=(*rest, new))
            break
    return _with(turn, new)


def _in_round(turn: Turn, numbered: Numbered, change: _Change) -> Turn:
    for number in range(len(turn.items) - 1, -1, -1):
        item = turn.items[number]
        if isinstance(item, Round):
            changed = change(item)
            return replace(turn, items=(*turn.items[:number], changed, *turn.items[number + 1 :]))
        if isinstance(item, Prompt):
            break
    return _with(turn, change(Round(f"event:{numbered.number}:round", numbered.at_ms)))


def end_of(event: ToolEnded) -> str:
    """Return how a call ended, in the word that its stored line has later."""
    if event.ok:
        return "success"
    return "denied" if event.reason.startswith(f"{ErrorCode.TOOL_DENIED}:") else "failed"


def _with_end(found: Round, call_id: str, ended: str) -> Round:
    tools = list(found.tools)
    for number, tool in enumerate(tools):
        if tool.call_id == call_id and tool.ended == RUNNING:
            tools[number] = replace(tool, ended=ended)
            break
    return replace(found, tools=tuple(tools))
