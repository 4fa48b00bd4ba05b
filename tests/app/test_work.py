"""The card of a delegation: live from its events, later from its row, and both agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sidequest.core.errors import ErrorCode
from sidequest.core.events import (
    ContextCompacted,
    ContextDegraded,
    DelegationSettled,
    DelegationStarted,
    Event,
    ModelSwitched,
    Notice,
    Numbered,
    TurnStarted,
    outcome_as_dict,
)
from sidequest.core.outcome import ModelFailure, Outcome, Status, StopReason, Usage
from sidequest.store import DelegationRow
from sidequest.surfaces.app.work import Work, begin_work, follow_work, stored_work

STARTED = DelegationStarted("d1", "explorer", "Look", "Look for it.", "test/a", "fork", 100, 1_000)
FAILED = ModelFailure("test/a", ErrorCode.TIMEOUT, "Too slow.")
OUTCOME = Outcome(
    "d1",
    "explorer",
    Status.COMPLETED,
    StopReason.STOP,
    "Found.",
    "test/b",
    "fork",
    4.0,
    2,
    1,
    Usage(3, 500, 60, None),
    None,
    (FAILED,),
    1,
    1,
)
EVENTS: tuple[Event, ...] = (
    STARTED,
    TurnStarted("d1", 1, 60, 100),
    ModelSwitched("d1", "test/b", "test/a", "TIMEOUT", "Too slow.", 200),
    ContextCompacted("d1", 210, 50, 200),
    ContextDegraded("d1", 220, 40, 200, "no summary"),
    Notice("d1", "No price is known."),
    TurnStarted("d1", 2, 70, 200),
    DelegationSettled("d1", OUTCOME),
)


def numbered(events: Sequence[Event]) -> list[Numbered]:
    return [Numbered(number, number * 1_000, event) for number, event in enumerate(events, 1)]


def live(events: Sequence[Event] = EVENTS) -> Work:
    first, *rest = numbered(events)
    work = begin_work(first, 1)
    for event in rest:
        work = follow_work(work, event)
    return work


def row(status: Status, outcome: Outcome | None = OUTCOME) -> DelegationRow:
    data = None if outcome is None else {k: v for k, v in outcome_as_dict(outcome).items() if k != "report"}
    return DelegationRow(
        id="d1",
        session_id="s",
        number=1,
        chain_id="d1",
        resumed_from=None,
        agent="explorer",
        label="Look",
        task="Look for it.",
        brief="The brief.",
        model="test/b",
        context_mode="fork",
        definition={},
        parent_message_id=None,
        parent_tool_call_id=None,
        started_after=0,
        status=status,
        turns=2,
        tool_calls=1,
        tokens=70,
        last_tool="Read",
        report="Found.",
        outcome=data,
        delivered=False,
        delivered_by=None,
        started_at_ms=1_000,
        completed_at_ms=8_000,
    )


def test_models_that_failed_are_named_in_order_with_the_one_that_ran() -> None:
    work = live(EVENTS[:3])
    assert (work.asked_model, work.view.model) == ("test/a", "test/b")
    assert work.switches == live().switches == (FAILED,)


def test_marks_say_where_the_context_was_compacted_and_degraded() -> None:
    compacted, degraded = live().marks
    assert (compacted.tokens_before, compacted.tokens_after, compacted.hard_limit) == (210, 50, 200)
    assert (compacted.degraded, degraded.degraded) == (False, True)
    assert live().degraded


def test_a_stored_delegation_is_what_it_was_live() -> None:
    assert stored_work(row(Status.COMPLETED), Status.COMPLETED, numbered(EVENTS)) == live()


def test_a_copy_without_events_still_says_how_it_ended() -> None:
    work = stored_work(row(Status.COMPLETED), Status.COMPLETED, ())
    assert (work.status, work.report, work.view.at.compactions) == (Status.COMPLETED, "Found.", 1)
    assert work.usage == OUTCOME.usage
    assert work.view.elapsed_s(99_000) == 7.0
    assert work.marks == ()


def test_one_whose_process_died_is_interrupted() -> None:
    running = replace(row(Status.RUNNING, None), completed_at_ms=None)
    work = stored_work(running, Status.INTERRUPTED, numbered(EVENTS[:5]))
    assert work.status is Status.INTERRUPTED
    assert not work.running
    assert work.usage is None
    assert work.view.ended_at_ms == numbered(EVENTS[:5])[-1].at_ms
    reopened = replace(OUTCOME, status=Status.INTERRUPTED, elapsed_s=4.0, tool_calls=0)
    told = follow_work(live(EVENTS[:5]), Numbered(9, 86_400_000, DelegationSettled("d1", reopened)))
    assert (told.view.elapsed_s(99_000_000), told.view.at.tools) == (4.0, live(EVENTS[:5]).view.at.tools)


def test_events_of_others_change_nothing() -> None:
    work = live(EVENTS[:2])
    assert follow_work(work, Numbered(9, 9_000, TurnStarted("d2", 1, 1, 1))) == work
