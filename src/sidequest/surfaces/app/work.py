"""What is seen of one delegation: how far it is, how its context filled and shrank, how it ended; pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sidequest.core.errors import ErrorCode
from sidequest.core.event_reading import outcome_from_dict
from sidequest.core.events import (
    ContextCompacted,
    ContextDegraded,
    DelegationSettled,
    DelegationStarted,
    ModelSwitched,
    Notice,
    Numbered,
    RetryScheduled,
    ToolEnded,
    ToolStarted,
    TurnStarted,
)
from sidequest.core.outcome import ModelFailure, Status, Usage
from sidequest.surfaces.view_state import AgentView, DelegationView, reduce_delegation, started

if TYPE_CHECKING:
    from sidequest.core.outcome import Outcome
    from sidequest.store import DelegationRow

WORK_EVENTS = frozenset(
    kind.type
    for kind in (
        ContextCompacted,
        ContextDegraded,
        DelegationSettled,
        DelegationStarted,
        ModelSwitched,
        Notice,
        RetryScheduled,
        ToolEnded,
        ToolStarted,
        TurnStarted,
    )
)
"""Types of the events that `follow_work` reads."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment at which history was replaced; sizes in tokens."""

    at_ms: int
    turn: int
    """The request before which it happened."""
    tokens_before: int
    tokens_after: int
    hard_limit: int
    reason: str | None = None
    """Why there is no summary, when history was lost; None when a summary took its place."""

    @property
    def degraded(self) -> bool:
        """Whether history was lost without a summary."""
        return self.reason is not None


@dataclass(frozen=True, slots=True)
class Work:
    """A delegation as its card shows it."""

    view: DelegationView
    status: Status = Status.RUNNING
    task: str = ""
    """The instruction of this run."""
    asked_model: str = ""
    """Key of the model it started on."""
    switches: tuple[ModelFailure, ...] = ()
    """Models that failed or were skipped, in order."""
    marks: tuple[Mark, ...] = ()
    notices: tuple[str, ...] = ()
    report: str = ""
    asking: bool = False
    """Whether a call of it waits for a person; set where it is shown, as is what follows."""
    resumable: bool = False
    """Whether its work can be gone on with now."""

    @property
    def id(self) -> str:
        """Id of the delegation."""
        return self.view.id

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.status is Status.RUNNING

    @property
    def outcome(self) -> Outcome | None:
        """How it ended; None while it runs and when its process died."""
        return self.view.outcome

    @property
    def usage(self) -> Usage | None:
        """What it used; None while that is not known."""
        return self.outcome.usage if self.outcome else None

    @property
    def degraded(self) -> bool:
        """Whether its history was lost without a summary."""
        return self.view.at.degradations > 0


def begin_work(numbered: Numbered, number: int) -> Work:
    """Return a delegation as its start tells of it; `number` is its place among those of the session.

    Raises:
        TypeError: another event than `DelegationStarted`.
    """
    event = numbered.event
    if not isinstance(event, DelegationStarted):
        raise TypeError(f"no delegation begins with {event.type}")
    return Work(started(event, number), task=event.task, asked_model=event.model)


def follow_work(work: Work, numbered: Numbered) -> Work:
    """Return a delegation after one more event; those of others change nothing."""
    event = numbered.event
    if event.delegation_id != work.id or isinstance(event, DelegationStarted):
        return work
    work = replace(work, view=reduce_delegation(work.view, event, numbered.at_ms))
    turn = work.view.at.turns + 1
    match event:
        case ContextCompacted(tokens_before=before, tokens_after=after, hard_limit=limit):
            return _marked(work, Mark(numbered.at_ms, turn, before, after, limit))
        case ContextDegraded(tokens_before=before, tokens_after=after, hard_limit=limit, reason=reason):
            return _marked(work, Mark(numbered.at_ms, turn, before, after, limit, reason))
        case ModelSwitched(after=model, code=code, message=message):
            failed = ModelFailure(model, ErrorCode(code), message)
            return replace(work, switches=(*work.switches, failed))
        case Notice(text=text):
            return replace(work, notices=(*work.notices, text))
        case DelegationSettled(outcome=outcome):
            return replace(
                work,
                status=outcome.status,
                report=outcome.report,
                switches=outcome.model_failures or work.switches,
            )
        case _:
            return work


def _marked(work: Work, mark: Mark) -> Work:
    return replace(work, marks=(*work.marks, mark))


def stored_work(row: DelegationRow, status: Status, events: Iterable[Numbered]) -> Work:
    """Return a stored delegation; `events` are its own, or none where they are not kept, as in a copy.

    `status` is where it stands: a row may say that it runs although its process died.
    """
    work: Work | None = None
    newest_ms = row.started_at_ms
    for numbered in events:
        newest_ms = max(newest_ms, numbered.at_ms)
        if work is not None:
            work = follow_work(work, numbered)
        elif isinstance(numbered.event, DelegationStarted):
            work = begin_work(numbered, row.number)
    if work is None:
        work = _of_row(row)
    if work.outcome is None and row.outcome is not None:
        outcome = outcome_from_dict({**row.outcome, "report": row.report})
        settled = Numbered(0, row.completed_at_ms or row.started_at_ms, DelegationSettled(row.id, outcome))
        work = follow_work(work, settled)
    view = work.view
    if status is not Status.RUNNING and view.ended_at_ms is None:
        view = replace(view, ended_at_ms=row.completed_at_ms or newest_ms)
    return replace(
        work,
        view=view,
        status=work.status if work.outcome is not None else status,
        report=work.report or row.report,
    )


def _of_row(row: DelegationRow) -> Work:
    view = DelegationView(
        row.number,
        row.id,
        row.agent,
        row.label,
        row.model,
        row.context_mode,
        row.started_at_ms,
        AgentView(turns=row.turns, tools=row.tool_calls, tokens=row.tokens, tool=row.last_tool or ""),
    )
    return Work(view, task=row.task, asked_model=row.model)
