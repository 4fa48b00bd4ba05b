"""What was written of an event gives the same event again."""

from __future__ import annotations

import json

import pytest

from sidequest.core.errors import ErrorCode, Failure
from sidequest.core.event_reading import event_from_dict, outcome_from_dict
from sidequest.core.events import (
    ContextCompacted,
    ContextDegraded,
    DelegationSettled,
    DelegationStarted,
    Event,
    ModelSwitched,
    Notice,
    Numbered,
    PromptReceived,
    RetryScheduled,
    RunEnded,
    TextProduced,
    ToolEnded,
    ToolStarted,
    TurnStarted,
    event_as_dict,
    outcome_as_dict,
)
from sidequest.core.outcome import ModelFailure, Outcome, Status, StopReason, Usage
from sidequest.core.shares import Shares

OUTCOME = Outcome(
    "d1",
    "explorer",
    Status.PARTIAL,
    StopReason.TURN_LIMIT,
    "What I found.",
    "test/b",
    "fork",
    1.5,
    3,
    4,
    Usage(5, 600, 70, 0.25),
    Failure(ErrorCode.SUBAGENT_TURN_LIMIT, "It was long.", details={"turns": 3}),
    (ModelFailure("test/a", ErrorCode.TIMEOUT, "Too slow."),),
    2,
    1,
    "Read",
)
EVENTS: list[Event] = [
    PromptReceived(None, "Where?"),
    TurnStarted("d1", 1, 10, 100, Shares(1, 2, 3, 4, 5, 6)),
    TextProduced(None, "Here"),
    ToolStarted(None, "c1", "Read", "a.py"),
    ToolEnded(None, "c1", "Read", True, 12),
    ToolEnded(None, "c1", "Read", False, 0, "There is no such file."),
    ContextCompacted("d1", 90, 20, 100),
    ContextDegraded("d1", 90, 20, 100, "no summary"),
    DelegationStarted("d1", "explorer", "Look", "Look for it", "test/a", "fork", 100, 1_000),
    ModelSwitched("d1", "test/b", "test/a", "TIMEOUT", "Too slow.", 200),
    RetryScheduled("d1", 1, 2.5, "TIMEOUT"),
    DelegationSettled("d1", OUTCOME),
    RunEnded(None, False, "", "TURN_ABORTED"),
    Notice(None, "By the way."),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.type)
def test_an_event_comes_back_as_it_was(event: Event) -> None:
    told = Numbered(7, 1_700_000_000_000, event)
    assert event_from_dict(json.loads(json.dumps(event_as_dict(told)))) == told


def test_every_kind_of_event_is_among_them() -> None:
    assert {event.type for event in EVENTS} == {kind.type for kind in Event.__subclasses__()}


def test_a_kind_that_a_newer_version_wrote_is_nothing() -> None:
    assert event_from_dict({"number": 1, "atMs": 1, "type": "of_tomorrow", "delegationId": None}) is None


def test_a_field_that_an_older_version_did_not_write_has_its_default() -> None:
    old = event_as_dict(Numbered(1, 1, TurnStarted(None, 1, 10, 100)))
    del old["shares"]
    assert event_from_dict(old) == Numbered(1, 1, TurnStarted(None, 1, 10, 100))


def test_an_outcome_without_its_optional_parts_comes_back() -> None:
    plain = Outcome("d", "a", Status.COMPLETED, StopReason.STOP, "r", "m", "independent", 0.0)
    assert outcome_from_dict(outcome_as_dict(plain)) == plain


def test_an_outcome_with_a_code_of_a_newer_version_comes_back_as_a_failure() -> None:
    data = outcome_as_dict(OUTCOME)
    data["error"] = {"code": "OF_TOMORROW", "message": "New.", "retriable": False}
    read = outcome_from_dict(data)
    assert read.failure is not None
    assert (read.failure.code, read.failure.message) == (ErrorCode.INTERNAL, "New.")
