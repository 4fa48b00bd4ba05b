"""A turn as it happens: what was said, called and delegated, in an order that does not depend on luck."""

from __future__ import annotations

from sidequest.core.events import (
    ContextCompacted,
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
from sidequest.surfaces.app.entries import Answer, Delegated, Divider, Line, Prompt, ToolLine, Trouble
from sidequest.surfaces.app.turn import Turn, follow_turn


def after(*events: Event) -> Turn:
    turn = Turn()
    for number, event in enumerate(events, 1):
        turn = follow_turn(turn, Numbered(number, number * 1_000, event))
    return turn


def delegated(key: str) -> DelegationStarted:
    return DelegationStarted(key, "explorer", "Look", "Look.", "m", "independent", 100, 1)


def test_text_grows_in_one_answer_until_something_else_happens() -> None:
    turn = after(PromptReceived(None, "Hi"), TurnStarted(None, 1, 5, 100), TextProduced(None, "He"))
    turn = follow_turn(turn, Numbered(4, 4_000, TextProduced(None, "llo")))
    prompt, answer = turn.entries()
    assert isinstance(prompt, Prompt)
    assert answer == Answer("event:2:text", 2_000, "Hello", growing=True)
    ended = follow_turn(turn, Numbered(5, 5_000, RunEnded(None, True, "Hello")))
    assert ended.entries()[-1] == Answer("event:2:text", 2_000, "Hello", growing=False)
    assert not ended.running


def test_an_answer_stands_before_its_calls_and_these_before_the_delegations() -> None:
    turn = after(
        TurnStarted(None, 1, 5, 100),
        delegated("d1"),
        ToolStarted(None, "c1", "Read", "a"),
        TextProduced(None, "Late text"),
    )
    assert [type(entry) for entry in turn.entries()] == [Answer, ToolLine, Delegated]


def test_a_call_that_started_a_delegation_has_no_line_and_a_refused_one_has() -> None:
    begun = (TurnStarted(None, 1, 5, 100), ToolStarted(None, "c1", "Task", "x"))
    assert after(*begun).entries() == ()
    assert after(*begun, ToolEnded(None, "c1", "Task", True, 9)).entries() == ()
    (line,) = after(*begun, ToolEnded(None, "c1", "Task", False, 0)).entries()
    assert isinstance(line, ToolLine)
    assert line.ended == "failed"


def test_a_call_that_was_denied_says_so_while_the_turn_goes_on() -> None:
    told = "TOOL_DENIED: Bash was denied by the user."
    denied = (ToolStarted(None, "c1", "Bash", "make"), ToolEnded(None, "c1", "Bash", False, 0, told))
    (line,) = after(TurnStarted(None, 1, 5, 100), *denied).entries()
    assert isinstance(line, ToolLine)
    assert line.ended == "denied"


def test_calls_with_one_id_in_two_rounds_end_each_by_itself() -> None:
    call = (ToolStarted(None, "c1", "Read", "a"), ToolEnded(None, "c1", "Read", True, 9))
    turn = after(TurnStarted(None, 1, 5, 9), *call, TurnStarted(None, 2, 5, 9), call[0])
    assert [entry.ended for entry in turn.entries() if isinstance(entry, ToolLine)] == ["success", ""]


def test_a_request_that_is_sent_again_takes_the_place_of_the_one_that_broke_off() -> None:
    turn = after(
        PromptReceived(None, "Hi"),
        TurnStarted(None, 1, 5, 100),
        TextProduced(None, "Half an ans"),
        RetryScheduled(None, 1, 4.0, "STREAM_FAILED"),
    )
    assert turn.waiting_for == "STREAM_FAILED, trying again in 4s"
    assert [type(entry) for entry in turn.entries()] == [Prompt]
    turn = follow_turn(turn, Numbered(5, 5_000, TurnStarted(None, 1, 5, 100)))
    turn = follow_turn(turn, Numbered(6, 6_000, TextProduced(None, "A whole answer")))
    assert turn.waiting_for == ""
    assert [entry.text for entry in turn.entries() if isinstance(entry, Answer)] == ["A whole answer"]


def test_what_a_request_said_before_it_was_sent_again_is_gone() -> None:
    turn = after(
        TurnStarted(None, 1, 5, 100),
        TextProduced(None, "Half an ans"),
        TurnStarted(None, 1, 4, 100),
        TextProduced(None, "A whole answer"),
    )
    assert [entry.text for entry in turn.entries() if isinstance(entry, Answer)] == ["A whole answer"]


def test_notices_compactions_and_failures_have_their_places() -> None:
    turn = after(
        PromptReceived(None, "Hi"),
        Notice(None, "By the way."),
        ContextCompacted(None, 90, 20, 100),
        TurnStarted(None, 1, 5, 100),
        RunEnded(None, False, "", "NETWORK_ERROR"),
    )
    assert [type(entry) for entry in turn.entries()] == [Prompt, Line, Divider, Trouble]


def test_what_delegations_do_has_no_place_here() -> None:
    turn = after(TurnStarted("d1", 1, 5, 9), TextProduced("d1", "x"), ContextCompacted("d1", 9, 2, 9))
    assert turn == Turn()
