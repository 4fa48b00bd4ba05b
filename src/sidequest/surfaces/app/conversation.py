"""A conversation as a page shows it: what is over from stored rows, what happens now from events; pure.

`view_of` makes the view at a moment from what was read of the store, `follow_view` what it is after one more
event. Loading at any moment and following the rest gives the same as following from the beginning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from sidequest.core.events import (
    ContextCompacted,
    ContextDegraded,
    DelegationStarted,
    Numbered,
    PromptReceived,
    RunEnded,
)
from sidequest.core.transcript import mark_of
from sidequest.surfaces.app.entries import Entry
from sidequest.surfaces.app.history import history
from sidequest.surfaces.app.resuming import resumable_rows
from sidequest.surfaces.app.turn import Turn, follow_turn
from sidequest.surfaces.app.work import Work, begin_work, follow_work, stored_work
from sidequest.surfaces.stored_rows import status_of
from sidequest.surfaces.view_state import AgentView, reduce_agent

if TYPE_CHECKING:
    from sidequest.store import CheckpointRow, DelegationRow, SessionRow, StoredMessage


@dataclass(frozen=True, slots=True)
class Stored:
    """What was read of a session at one moment."""

    row: SessionRow
    messages: Sequence[StoredMessage]
    """The newest rows of the session's own agent."""
    complete: bool
    """Whether `messages` are all there are."""
    delegations: Sequence[DelegationRow]
    """All of them."""
    checkpoints: Sequence[CheckpointRow]
    told: Sequence[Numbered]
    """Prompts, ends of turns, notices and starts of delegations, oldest first."""
    worked: Sequence[Numbered]
    """Events of delegations that `messages` reach."""
    recent: Sequence[Numbered]
    """Every event from the prompt of the turn that runs on; empty when none runs."""
    number: int
    """Number of the newest event that is part of this; 0 when there is none."""
    held: bool
    """Whether a process works on the session."""
    parent: AgentView = field(default_factory=AgentView)
    """How far the session's own agent was before `recent`."""


@dataclass(frozen=True, slots=True)
class View:
    """What is shown of a session."""

    row: SessionRow
    past: tuple[Entry, ...] = ()
    turn: Turn = field(default_factory=Turn)
    works: Mapping[str, Work] = field(default_factory=lambda: MappingProxyType({}))
    """Delegations that have a place in it, by their ids."""
    parent: AgentView = field(default_factory=AgentView)
    complete: bool = True
    """Whether `past` begins with the first message."""
    number: int = 0
    """Number of the newest event that is part of it."""
    begun: int = 0
    """How many delegations were started so far."""
    resumable: frozenset[str] = frozenset()
    """Delegations that could be resumed when the session was read, if nobody had it open."""
    stale: bool = False
    """Whether something is over that is to be read from the store now."""

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Everything that is shown, in order; what is in both parts is shown once."""
        seen = {entry.key for entry in self.past}
        return (*self.past, *(entry for entry in self.turn.entries() if entry.key not in seen))

    @property
    def working(self) -> bool:
        """Whether the session's own agent or a delegation works."""
        return self.turn.running or any(work.running for work in self.works.values())


def open_prompt(told: Sequence[Numbered]) -> Numbered | None:
    """Return the prompt of the turn that has not ended, or None."""
    for numbered in reversed(told):
        if isinstance(numbered.event, RunEnded):
            return None
        if isinstance(numbered.event, PromptReceived):
            return numbered
    return None


def view_of(stored: Stored) -> View:
    """Return what is shown at the moment at which `stored` was read."""
    prompt = stored.recent[0] if stored.recent else None
    begun_now = {n.event.delegation_id for n in stored.recent if isinstance(n.event, DelegationStarted)}
    messages = _before(stored.messages, prompt)
    since = 0 if stored.complete or not messages else messages[0].created_at_ms
    rows = [row for row in stored.delegations if row.id not in begun_now and row.started_at_ms >= since]
    first = messages[0].position if messages else 0
    told = [
        numbered
        for numbered in stored.told
        if numbered.at_ms >= since and (prompt is None or numbered.number < prompt.number)
    ]
    checkpoints = [c for c in stored.checkpoints if c.through_position >= first and _is_before(c, prompt)]
    past = history(messages, rows, checkpoints, told)
    works = {row.id: _work(row, stored) for row in rows}
    view = View(
        stored.row,
        past,
        works=MappingProxyType(works),
        parent=stored.parent,
        complete=stored.complete,
        number=prompt.number - 1 if prompt else stored.number,
        begun=sum(row.id not in begun_now for row in stored.delegations),
        resumable=resumable_rows(stored.delegations),
    )
    for numbered in stored.recent:
        view = follow_view(view, numbered)
    return replace(view, number=stored.number)


def _before(messages: Sequence[StoredMessage], prompt: Numbered | None) -> Sequence[StoredMessage]:
    """Return the rows of the turns that are over; the row of a prompt is written after it was told."""
    if prompt is None:
        return messages
    for number, message in enumerate(messages):
        if message.created_at_ms >= prompt.at_ms and _is_prompt(message):
            return messages[:number]
    return messages


def _is_prompt(stored: StoredMessage) -> bool:
    parts = stored.message.parts
    return stored.message.kind == "request" and any(
        part.part_kind == "user-prompt" and mark_of(part) is None for part in parts
    )


def _is_before(checkpoint: CheckpointRow, prompt: Numbered | None) -> bool:
    return prompt is None or checkpoint.created_at_ms < prompt.at_ms


def _work(row: DelegationRow, stored: Stored) -> Work:
    held = frozenset({row.session_id}) if stored.held else frozenset()
    mine = [numbered for numbered in stored.worked if numbered.event.delegation_id == row.id]
    return stored_work(row, status_of(row, held), mine)


def follow_view(view: View, numbered: Numbered) -> View:
    """Return what is shown after one more event; one that is part of it already changes nothing."""
    if numbered.number <= view.number:
        return view
    event = numbered.event
    stale = view.stale or _is_over(view, numbered)
    view = replace(view, number=numbered.number, stale=stale)
    if event.delegation_id is None:
        return replace(view, turn=follow_turn(view.turn, numbered), parent=reduce_agent(view.parent, event))
    if isinstance(event, DelegationStarted):
        begun = view.begun + 1
        works = {**view.works, event.delegation_id: begin_work(numbered, begun)}
        return replace(
            view, turn=follow_turn(view.turn, numbered), works=MappingProxyType(works), begun=begun
        )
    known = view.works.get(event.delegation_id)
    if known is None:
        return view
    works = {**view.works, event.delegation_id: follow_work(known, numbered)}
    return replace(view, works=MappingProxyType(works))


def _is_over(view: View, numbered: Numbered) -> bool:
    """Say whether a turn has ended, or something happened between turns that is stored as a row."""
    event = numbered.event
    if event.delegation_id is not None:
        return False
    if isinstance(event, RunEnded):
        return True
    return isinstance(event, ContextCompacted | ContextDegraded) and not view.turn.running
