"""Events are facts, numbered without gaps, and plain JSON for a screen (DESIGN; specification 5.4, X6)."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidequest.core import events
from sidequest.core.errors import ErrorCode, Failure
from sidequest.core.events import Event, EventLog, Notice, Numbered, event_as_dict, outcome_as_dict
from sidequest.core.outcome import ModelFailure, Outcome, Status, StopReason, Usage
from sidequest.core.shares import Shares
from tests.core.builders import repeatable

ENDED = Outcome(
    "d1", "explorer", Status.COMPLETED, StopReason.STOP, "The limit is 7.", "openai:gpt", "fork", 1.2345
)
FULL = dataclasses.replace(
    ENDED,
    status=Status.PARTIAL,
    stop_reason=StopReason.TURN_LIMIT,
    turns=4,
    tool_calls=9,
    usage=Usage(5, 900, 80, 0.25),
    failure=Failure(ErrorCode.SUBAGENT_TURN_LIMIT, "The limit struck.", details={"turns": 4}),
    model_failures=(ModelFailure("a:one", ErrorCode.TIMEOUT, "No answer."),),
    compactions=2,
    degradations=1,
    unfinished_tool="Bash",
)
SAMPLES = {
    "str": "x",
    "int": 1,
    "float": 1.5,
    "bool": True,
    "str | None": None,
    "Outcome": FULL,
    "Shares": Shares(user=3),
}
KINDS = [kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, Event)]


def a_log(count: int = 0) -> EventLog:
    log = EventLog(now_ms=iter(range(1_000, 2_000)).__next__)
    for number in range(count):
        log.emit(Notice(None, f"n{number}"))
    return log


def sample(kind: type[Event]) -> Event:
    return kind(*(SAMPLES[field.type] for field in dataclasses.fields(kind)))


class TestNumbers:
    def test_they_start_at_one_and_have_no_gaps(self):
        assert [entry.number for entry in a_log(4).after()] == [1, 2, 3, 4]

    def test_each_event_has_the_time_of_the_callers_clock(self):
        assert [entry.at_ms for entry in a_log(2).after()] == [1_000, 1_001]

    def test_emit_gives_back_what_it_kept(self):
        log = a_log()
        assert log.emit(Notice("d1", "hello")) == Numbered(1, 1_000, Notice("d1", "hello"))

    @repeatable(60)
    @given(st.integers(0, 9), st.integers(-3, 12))
    def test_a_screen_gets_exactly_what_it_missed(self, count, seen):
        assert [entry.number for entry in a_log(count).after(seen)] == [*range(max(0, seen) + 1, count + 1)]

    def test_what_is_asked_for_is_what_was_there_then(self):
        log = a_log(2)
        missed = log.after(0)
        log.emit(Notice(None, "late"))
        assert len(list(missed)) == 2


class TestListeners:
    def test_a_listener_hears_each_event_once_until_it_leaves(self):
        log, heard = a_log(1), []
        leave = log.subscribe(heard.append)
        log.emit(Notice(None, "a"))
        leave()
        log.emit(Notice(None, "b"))
        assert [entry.number for entry in heard] == [2]

    def test_a_listener_may_leave_while_it_is_told(self):
        log, heard = a_log(), []
        leave = log.subscribe(lambda entry: leave())
        log.subscribe(heard.append)
        log.emit(Notice(None, "a"))
        assert len(heard) == 1

    def test_an_event_that_a_listener_emits_gets_the_next_number(self):
        log = a_log()
        log.subscribe(lambda entry: log.emit(Notice(None, "echo")) if entry.number == 1 else None)
        log.emit(Notice(None, "a"))
        assert [(entry.number, entry.event.text) for entry in log.after()] == [(1, "a"), (2, "echo")]


class TestJson:
    @pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
    def test_every_event_is_plain_json(self, kind):
        data = event_as_dict(Numbered(7, 1_000, sample(kind)))
        assert json.loads(json.dumps(data)) == data
        assert [data["number"], data["atMs"], data["type"]] == [7, 1_000, kind.type]
        assert len(data) == 3 + len(dataclasses.fields(kind))

    def test_every_event_has_a_type_of_its_own(self):
        assert len({kind.type for kind in KINDS}) == len(KINDS) > 10

    def test_events_cannot_be_changed(self):
        with pytest.raises(dataclasses.FrozenInstanceError):
            Notice(None, "a").text = "b"

    def test_names_are_camel_case(self):
        data = event_as_dict(Numbered(1, 5, sample(events.ContextCompacted)))
        assert {"delegationId", "tokensBefore", "tokensAfter", "hardLimit"} < set(data)

    def test_X6_an_outcome_as_plain_values(self):
        assert outcome_as_dict(FULL) == {
            "delegationId": "d1",
            "agent": "explorer",
            "model": "openai:gpt",
            "contextMode": "fork",
            "status": "partial",
            "stopReason": "turn_limit",
            "elapsedMs": 1_234,
            "turns": 4,
            "toolCalls": 9,
            "usage": {"requests": 5, "inputTokens": 900, "outputTokens": 80, "costUsd": 0.25},
            "report": "The limit is 7.",
            "error": {
                "code": "SUBAGENT_TURN_LIMIT",
                "message": "The limit struck.",
                "retriable": False,
                "details": {"turns": 4},
            },
            "modelFailures": [{"model": "a:one", "code": "TIMEOUT", "message": "No answer."}],
            "contextCompactions": 2,
            "contextDegraded": True,
            "contextDegradations": 1,
            "unfinishedTool": "Bash",
        }

    def test_parts_that_are_empty_are_left_out(self):
        optional = {"error", "modelFailures", "contextCompactions", "contextDegraded", "unfinishedTool"}
        data = outcome_as_dict(ENDED)
        assert optional & set(data) == set()
        assert data["usage"]["costUsd"] is None

    def test_an_outcome_inside_an_event_is_plain_too(self):
        settled = event_as_dict(Numbered(1, 5, events.DelegationSettled("d1", FULL)))
        assert settled["outcome"] == outcome_as_dict(FULL)


def test_a_listener_that_raises_is_dropped_and_ends_nothing():
    log = EventLog(lambda: 0)
    heard = []

    def broken(numbered):
        raise RuntimeError("screen gone")

    log.subscribe(broken)
    log.subscribe(heard.append)
    log.emit(Notice(None, "one"))
    log.emit(Notice(None, "two"))
    assert [n.number for n in heard] == [1, 2]
    assert [type(error) for _, error in log.failed_listeners] == [RuntimeError]
