"""What is shown while a session works: recorded events in, data, lines and pictures out."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from sidequest.core.errors import ErrorCode, Failure
from sidequest.core.events import (
    ContextCompacted,
    ContextDegraded,
    DelegationSettled,
    DelegationStarted,
    Event,
    EventLog,
    ModelSwitched,
    Notice,
    Numbered,
    RetryScheduled,
    RunEnded,
    TextProduced,
    ToolEnded,
    ToolStarted,
    TurnStarted,
)
from sidequest.core.outcome import Outcome, Status, StopReason, Usage
from sidequest.surfaces.cli.live import Frame, LiveView, picture, settled_block
from sidequest.surfaces.cli.narration import Line, Tone, narrate
from sidequest.surfaces.cli.plain import PlainView
from sidequest.surfaces.text import ASCII
from sidequest.surfaces.view_state import ViewState, reduce

STARTED = DelegationStarted("a", "explorer", "Find the limit", "task", "m/one", "independent", 8000, 1000)
DONE = Outcome(
    delegation_id="a",
    agent="explorer",
    status=Status.COMPLETED,
    stop_reason=StopReason.STOP,
    report="Found it:\n- a.py:1",
    model="m/one",
    context_mode="independent",
    elapsed_s=2.5,
    turns=3,
    tool_calls=2,
    usage=Usage(3, 12_000, 300, 0.0),
    compactions=2,
)
WORK = (
    STARTED,
    TurnStarted("a", 1, 1200, 8000),
    ToolStarted("a", "c1", "Grep", "limit"),
    ToolEnded("a", "c1", "Grep", True, 900),
    TurnStarted("a", 2, 7900, 8000),
    ContextCompacted("a", 8100, 2400, 8000),
    ContextCompacted("a", 8050, 2300, 8000),
    TurnStarted("a", 3, 4512, 8000),
    ToolStarted("a", "c2", "Read", "src/limits.py"),
)


def recorded(*events: Event) -> list[Numbered]:
    return [Numbered(number, 1000 + 100 * number, event) for number, event in enumerate(events, 1)]


def state_after(*events: Event) -> ViewState:
    state = ViewState()
    for numbered in recorded(*events):
        state = reduce(state, numbered)
    return state


def told(*events: Event) -> list[Line]:
    state, lines = ViewState(), []
    for numbered in recorded(*events):
        after = reduce(state, numbered)
        lines += narrate(state, numbered, after)
        state = after
    return lines


def drawn(state: ViewState, width: int = 80, height: int = 40, now_ms: int = 5000) -> list[str]:
    return [line.plain for line in picture(state, Frame(width, height, now_ms))]


class TestReducer:
    def test_a_delegation_that_runs(self):
        (view,) = state_after(*WORK).delegations
        assert (view.number, view.status, view.at.turns, view.at.tools) == (1, Status.RUNNING, 3, 2)
        assert (view.at.tokens, view.at.hard_limit, view.at.compactions) == (4512, 8000, 2)
        assert (view.at.tool, view.at.tool_summary, view.at.tool_running) == ("Read", "src/limits.py", True)
        assert view.elapsed_s(3500) == 2.5

    def test_after_a_compaction_the_gauge_shows_what_is_left(self):
        (view,) = state_after(*WORK[:6]).delegations
        assert view.at.tokens == 2400

    def test_the_outcome_has_the_last_word(self):
        (view,) = state_after(*WORK, DelegationSettled("a", DONE)).delegations
        assert (view.status, view.at.turns, view.at.tools, view.at.tool_running) == (
            Status.COMPLETED,
            3,
            2,
            False,
        )
        assert view.elapsed_s(9_999_999) == view.elapsed_s(0) > 0

    def test_another_model_brings_its_own_limit_and_ends_the_waiting(self):
        waiting = state_after(STARTED, RetryScheduled("a", 1, 4.0, "TIMEOUT"))
        assert waiting.delegations[0].at.waiting_for == "TIMEOUT, trying again in 4s"
        switched = ModelSwitched("a", "m/two", "m/one", "TIMEOUT", "too slow", 90_000)
        (view,) = state_after(STARTED, RetryScheduled("a", 1, 4.0, "TIMEOUT"), switched).delegations
        assert (view.model, view.at.hard_limit, view.at.waiting_for) == ("m/two", 90_000, "")

    def test_text_of_the_parent_grows_until_a_tool_or_a_turn(self):
        first = (TurnStarted(None, 1, 10, 100), TextProduced(None, "I "), TextProduced(None, "look"))
        assert state_after(*first).text == "I look"
        assert state_after(*first, ToolStarted(None, "c", "Grep", "x")).text == ""
        assert state_after(*first, TurnStarted(None, 2, 10, 100)).text == ""

    def test_a_retry_of_the_parent_takes_its_unfinished_text_back(self):
        events = (TextProduced(None, "half"), RetryScheduled(None, 1, 2.0, "STREAM_FAILED"))
        assert state_after(*events).text == ""
        assert [line.text for line in told(*events)] == ["STREAM_FAILED: Attempt 1 failed, next in 2s"]

    def test_text_of_a_delegation_is_not_the_parents(self):
        assert state_after(STARTED, TextProduced("a", "thinking aloud")).text == ""

    def test_events_of_an_unknown_delegation_change_nothing(self):
        assert state_after(TurnStarted("ghost", 1, 1, 2)).delegations == ()


class TestNarration:
    def test_a_compaction_names_both_sizes_and_the_limit(self):
        assert told(STARTED, ContextCompacted("a", 8100, 2400, 8000)) == [
            Line("context compacted  8,100 -> 2,400 tokens (limit 8,000)", Tone.QUIET, "#1 explorer")
        ]

    def test_a_degradation_is_a_warning_with_its_reason(self):
        (line,) = told(STARTED, ContextDegraded("a", 8100, 2400, 8000, "no summary"))
        assert (line.tone, line.text) == (Tone.WARN, "context degraded  8,100 -> 2,400 tokens: no summary")

    def test_what_the_parent_wrote_stays_when_it_calls_a_tool(self):
        lines = told(TextProduced(None, "I look."), ToolStarted(None, "c", "Grep", "limit, path=src"))
        assert [line.text for line in lines] == ["I look.", "Grep  limit, path=src"]

    def test_the_final_text_is_left_to_the_answer(self):
        assert told(TextProduced(None, "The answer."), RunEnded(None, True, "The answer.")) == []

    def test_ids_of_delegations_become_names(self):
        started = DelegationStarted(
            "0a0fe2f5-d4ed-47ae-a971-44f8b179c9a1", "explorer", "l", "t", "m", "independent", 1, 1
        )
        waits = ToolStarted(None, "c", "TaskWait", '["0a0fe2f5-d4ed-47ae-a971-44f8b179c9a1","1b0fe2f5-d4e…')
        assert told(started, waits)[-1].text == "TaskWait  #1 explorer, …"

    def test_a_tool_that_failed_is_said(self):
        (line,) = told(ToolEnded(None, "c", "Bash", False, 0))
        assert (line.text, line.tone) == ("Bash failed", Tone.WARN)
        (line,) = told(
            ToolEnded(None, "c", "Bash", False, 0, "TOOL_DENIED: Bash (ls) was denied by the user.")
        )
        assert line.text == "Bash failed: TOOL_DENIED: Bash (ls) was denied by the user."

    def test_a_stop_is_no_error(self):
        assert told(RunEnded(None, False, "", "TURN_ABORTED")) == [Line("stopped", Tone.WARN)]
        assert told(RunEnded(None, False, "", "TIMEOUT")) == [Line("the run ended with TIMEOUT", Tone.BAD)]

    def test_no_line_carries_control_codes(self):
        lines = told(
            Notice(None, "\x1b[2Jcleared"),
            TextProduced(None, "\x1b[31mred"),
            ToolStarted(None, "c", "Read", "a\x1b[0m.py"),
        )
        assert not any("\x1b" in line.text for line in lines)


class TestPicture:
    def test_a_block_for_each_delegation_and_a_line_for_the_parent(self):
        lines = drawn(state_after(TurnStarted(None, 1, 2500, 112_000), *WORK))
        assert lines == [
            "",
            "▸ #1 explorer  Find the limit",
            "    running   turn 3   2 tools   4.0s   m/one",
            "    ▮▮▮▮▮▯▯▯ 4,512 / 8,000   compacted 2x",
            "    Read  src/limits.py",
            "",
            "▸ parent  turn 1   0 tools   3.9s   ▮▯▯▯▯▯▯▯ 2,500 / 112,000",
        ]

    @pytest.mark.parametrize("width", [40, 80, 120])
    def test_no_line_is_wider_than_the_terminal(self, width: int):
        long = ToolStarted("a", "c", "Grep", "very long argument " * 20)
        state = state_after(TurnStarted(None, 1, 1, 2), *WORK, long, TextProduced(None, "word " * 200))
        assert max(map(len, drawn(state, width))) <= width

    def test_a_wide_terminal_has_a_longer_gauge(self):
        state = state_after(*WORK)
        assert "▮▮▮▮▮▯▯▯ 4,512" in "\n".join(drawn(state, 99))
        assert "▮▮▮▮▮▮▮▮▮▯▯▯▯▯▯▯ 4,512" in "\n".join(drawn(state, 100))

    @pytest.mark.parametrize("height", [12, 24, 60])
    def test_many_delegations_fit_the_height(self, height: int):
        starts = [
            DelegationStarted(str(n), "explorer", "label", "t", "m", "independent", 8000, 1000)
            for n in range(10)
        ]
        lines = drawn(state_after(TurnStarted(None, 1, 1, 2), *starts), height=height)
        assert len(lines) <= height
        if height == 24:
            assert sum(line.startswith("▸ #") for line in lines) == 10

    def test_only_the_end_of_a_growing_answer_is_shown(self):
        lines = drawn(state_after(TextProduced(None, "\n".join(f"line {n}" for n in range(30)))))
        assert lines == ["", *(f"line {n}" for n in range(22, 30))]

    def test_a_settled_delegation_leaves_its_facts_and_its_report(self):
        (view,) = state_after(*WORK, DelegationSettled("a", DONE)).delegations
        lines = [line.plain for line in settled_block(view, DONE, Frame(80, 40, 0, ASCII))]
        assert lines == [
            "+ #1 explorer  Find the limit",
            "    completed   3 turns   2 tools   2.5s   m/one",
            "    #####--- 4,512 / 8,000   compacted 2x   12,000 in + 300 out tokens",
            "    | Found it:",
            "    | - a.py:1",
        ]


class TestViews:
    def test_the_plain_view_writes_lines_without_control_codes(self):
        stream = io.StringIO()
        view = PlainView(Console(file=stream, width=200, color_system=None), reports=True)
        log = EventLog(lambda: 1000)
        log.subscribe(view)
        for event in (*WORK, DelegationSettled("a", DONE)):
            log.emit(event)
        assert stream.getvalue().splitlines() == [
            "#1 explorer  started on m/one: Find the limit",
            "#1 explorer  Grep  limit",
            "#1 explorer  context compacted  8,100 -> 2,400 tokens (limit 8,000)",
            "#1 explorer  context compacted  8,050 -> 2,300 tokens (limit 8,000)",
            "#1 explorer  Read  src/limits.py",
            "#1 explorer  completed in 2.5s: 3 turns, 2 tools, 12,000 in + 300 out tokens",
            "  | Found it:",
            "  | - a.py:1",
        ]

    def test_the_live_view_scrolls_what_ended_and_erases_what_ran(self):
        stream = io.StringIO()
        console = Console(file=stream, width=80, height=40, force_terminal=True, color_system=None)
        log = EventLog(lambda: 1000)
        with LiveView(console, reports=True) as view:
            log.subscribe(view)
            for event in WORK:
                log.emit(event)
            view.say("draws at once")
            log.emit(DelegationSettled("a", DONE))
        before, _, after = stream.getvalue().partition("✓ #1 explorer  Find the limit")
        assert "  #1 explorer  context compacted  8,100 -> 2,400 tokens (limit 8,000)" in before
        assert "▸ #1 explorer" in before
        assert "│ - a.py:1" in after
        assert "▸ #1 explorer" not in after
        assert "\x1b[?25h" in after

    def test_a_failed_delegation_says_why(self):
        failed = Outcome(
            "a",
            "explorer",
            Status.FAILED,
            StopReason.ERROR,
            "",
            "m/one",
            "independent",
            1.0,
            failure=Failure(ErrorCode.TIMEOUT, "Too slow."),
        )
        (view,) = state_after(STARTED, DelegationSettled("a", failed)).delegations
        lines = [line.plain for line in settled_block(view, failed, Frame(80, 40, 0))]
        assert lines[0].startswith("✗ #1 explorer")
        assert lines[-1] == "    Too slow."
