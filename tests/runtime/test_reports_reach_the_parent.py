"""Every report reaches the parent: in a small window, after a pause, with a late end, behind a lost round."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.tools import DeferredToolRequests

from sidequest.core.compaction import Overflow
from sidequest.core.outcome import Outcome, Status, StopReason
from sidequest.core.recovery import MAX_RETRY_AFTER_S
from sidequest.runtime import records
from sidequest.runtime.endings import broken_off
from sidequest.runtime.gate import ModelGate
from sidequest.runtime.guard import ContextOverflow
from sidequest.runtime.limits import Limits
from sidequest.runtime.tools import Delegation
from sidequest.subagents.catalog import Catalog
from tests.support.fast_clock import run_fast
from tests.support.scripted_model import ScriptedModel, calling
from tests.support.sessions import session
from tests.support.team import Doors, FixedModels, Team, lookup, worker

LONG = "words of a long report " * 2_000
TASK = calling(("Task", {"agent": "helper", "task": "Help."}))


class TestSmallWindows:
    def test_a_parent_with_a_small_window_is_given_each_report_once_and_ends(self) -> None:
        child = ScriptedModel(LONG, repeat=True)
        model = ScriptedModel(
            calling(*[("Task", {"agent": "worker", "task": "Do it."})] * 3), "Wait.", *["Go on."] * 3
        )
        model.profile = {**model.profile, "context_window": 9_000}  # type: ignore[assignment]
        delegation: Delegation[Any] = Delegation(
            Catalog.from_definitions([worker()]), tools=[lookup], models=FixedModels(child)
        )
        run_fast(Agent(model, capabilities=[delegation]).run("Go."))
        reports = "".join(model.asked[-1].marked_texts("report"))
        assert reports.count('<delegation-report agent="worker">') == 3


class TestAPausedRun:
    def test_a_run_that_asks_its_caller_for_results_is_handed_out_as_it_is(self) -> None:
        doors = Doors("Late.")
        model = ScriptedModel(
            calling(("Task", {"agent": "worker", "task": "Do it."})), calling(("outside", {})), "Never."
        )
        delegation: Delegation[Any] = Delegation(
            Catalog.from_definitions([worker()]), tools=[lookup], models=FixedModels(ScriptedModel(doors))
        )
        agent: Agent[None, Any] = Agent(
            model, capabilities=[delegation], output_type=[str, DeferredToolRequests]
        )

        @agent.tool_plain
        def outside() -> str:
            """Wait for somebody else."""
            from pydantic_ai.exceptions import CallDeferred

            raise CallDeferred

        result = run_fast(agent.run("Go."))
        assert isinstance(result.output, DeferredToolRequests)
        assert len(model.asked) == 2


class TestForgetting:
    def test_an_unread_report_is_never_forgotten(self) -> None:
        async def case() -> None:
            team = Team(ScriptedModel("Done.", repeat=True), options={"max_total": 1_000})
            for _ in range(records.MAX_RETAINED + 3):
                await team.outcome()
            assert len(team.delegations.records.undelivered()) == records.MAX_RETAINED + 3

        asyncio.run(case())


class TestTime:
    def test_a_tool_that_swallows_the_end_of_the_time_holds_nobody_up(self) -> None:
        released = asyncio.Event()

        async def stubborn(key: str) -> str:
            """Look."""
            while not released.is_set():
                try:
                    await released.wait()
                except asyncio.CancelledError:
                    continue
            return key

        async def case() -> Outcome:
            team = Team(
                ScriptedModel(calling(("stubborn", {"key": "a"}), text="So far."), "Done.", repeat=True),
                [worker(max_seconds=0.5, tools=("stubborn",))],
                tools=[stubborn],
                options={"grace_s": 0.05},
            )
            record = team.start()
            await asyncio.wait_for(record.settled.wait(), 60)
            released.set()
            assert record.outcome is not None
            if record.job is not None:
                record.job.cancel()
            return record.outcome

        ended = asyncio.run(case())
        assert (ended.status, ended.stop_reason) == (Status.PARTIAL, StopReason.TIME_LIMIT)
        assert ended.report == "So far."


class TestSessions:
    def test_a_report_whose_round_was_lost_by_a_stop_is_handed_over_in_the_next_turn(
        self, tmp_path: Path
    ) -> None:
        doors = Doors()

        async def case() -> None:
            parent = ScriptedModel(TASK, calling(("TaskWait", {})), doors, "I wait.", "Thanks.")
            async with session(tmp_path, parent, ScriptedModel("THE-REPORT")) as opened:
                turn = asyncio.create_task(opened.prompt("Go."))
                await doors.arrived(1)
                await opened.stop()
                await turn
                (record,) = opened.delegations.records.all()
                given = any("THE-REPORT" in str(message) for message in opened.messages)
                assert record.delivered is given
                await opened.prompt("And?")
                asked = parent.asked[-1]
                assert "THE-REPORT" in asked.text or any("THE-REPORT" in text for text in asked.results)

        asyncio.run(case())

    def test_text_that_was_said_before_a_late_report_is_no_failure(self, tmp_path: Path) -> None:
        async def case() -> None:
            parent = ScriptedModel(TASK, "My answer.", "Never.")
            opened = session(tmp_path, parent, ScriptedModel("Late."))
            opened.options = replace(opened.options, limits=Limits(turns=2))
            async with opened:
                result = await opened.prompt("Go.")
            assert (result.ok, result.text, result.stop_reason) == (True, "My answer.", StopReason.TURN_LIMIT)

        asyncio.run(case())

    @pytest.mark.parametrize(
        ("finish", "reason"), [("length", StopReason.LENGTH), ("content_filter", StopReason.CONTENT_FILTER)]
    )
    def test_an_answer_that_was_cut_says_so(self, tmp_path: Path, finish: Any, reason: StopReason) -> None:
        async def case() -> None:
            half = ModelResponse(parts=[TextPart("Half an ans")], finish_reason=finish)
            async with session(tmp_path, ScriptedModel(half)) as opened:
                result = await opened.prompt("Go.")
            assert (result.text, result.stop_reason) == ("Half an ans", reason)

        asyncio.run(case())

    def test_an_answer_that_the_provider_broke_off_is_a_failure(self, tmp_path: Path) -> None:
        async def case() -> None:
            half = ModelResponse(parts=[TextPart("Half")], finish_reason="error")
            async with session(tmp_path, ScriptedModel(half)) as opened:
                result = await opened.prompt("Go.")
            assert (result.ok, result.text, result.stop_reason) == (False, "Half", StopReason.ERROR)

        asyncio.run(case())

    def test_a_closed_session_takes_no_prompt(self, tmp_path: Path) -> None:
        async def case() -> None:
            opened = session(tmp_path, ScriptedModel())
            await opened.close()
            with pytest.raises(Exception, match="This session is closed"):
                await opened.prompt("Go.")

        asyncio.run(case())


class TestEndsOfAnswers:
    @pytest.mark.parametrize(
        ("reason", "raw", "word"),
        [
            ("stop", "stop", ""),
            ("tool_call", "tool_calls", ""),
            ("length", "max_tokens", ""),
            (None, None, ""),
            (None, "eos_token", ""),
            ("error", None, "error"),
            ("error", "MALFORMED_FUNCTION_CALL", "MALFORMED_FUNCTION_CALL"),
            (None, "insufficient_system_resource", "insufficient_system_resource"),
            (None, "network_error", "network_error"),
            (None, "overloaded", "overloaded"),
            (None, "something nobody knows", "something nobody knows"),
            (None, "max_length", ""),
        ],
    )
    def test_a_trouble_of_the_provider_is_no_good_end(self, reason: Any, raw: Any, word: str) -> None:
        details = {"finish_reason": raw} if raw else None
        response = ModelResponse(parts=[TextPart("x")], finish_reason=reason, provider_details=details)
        assert broken_off(response) == word

    @pytest.mark.parametrize("raw", ["max_length", "token_limit", "truncated", "MAX_TOKENS"])
    def test_a_cut_that_only_the_raw_word_tells_of_is_a_cut(self, raw: str) -> None:
        cut = ModelResponse(parts=[TextPart("Half")], provider_details={"finish_reason": raw})
        outcome = asyncio.run(Team(ScriptedModel(cut, repeat=True)).outcome())
        assert (outcome.status, outcome.stop_reason) == (Status.PARTIAL, StopReason.LENGTH)

    @pytest.mark.parametrize(("text", "status"), [("Half", Status.PARTIAL), ("", Status.FAILED)])
    def test_an_answer_that_the_provider_broke_off_is_not_a_complete_report(
        self, text: str, status: Status
    ) -> None:
        parts = [TextPart(text)] if text else []
        broken = ModelResponse(parts=parts, finish_reason="error")
        outcome = asyncio.run(Team(ScriptedModel(broken, repeat=True)).outcome())
        assert outcome.status is status
        assert outcome.failure is not None


class TestToolsOfAHost:
    def test_an_overflow_inside_a_tool_is_that_tools_failure_and_not_the_runs(self) -> None:
        def nested(key: str) -> str:
            """Ask another agent."""
            raise ContextOverflow(Overflow(tokens=900, hard_limit=500, fixed=100), "inner")

        model = ScriptedModel(calling(("nested", {"key": "a"})), "I go on.")
        team = Team(model, [worker(tools=("nested",))], tools=[nested])
        outcome = asyncio.run(team.outcome())
        assert (outcome.status, outcome.report, outcome.model_failures) == (Status.COMPLETED, "I go on.", ())


class TestGates:
    def test_a_pause_that_nobody_waits_for_is_not_imposed_on_others(self) -> None:
        async def case() -> None:
            gate = ModelGate(lambda: 0.0)
            gate.rate_limited(MAX_RETRY_AFTER_S + 1)
            await asyncio.wait_for(gate.enter(), 30)

        asyncio.run(case())

    def test_a_sleep_that_does_not_move_the_clock_ends_the_pause(self) -> None:
        slept: list[float] = []

        async def sleep(seconds: float) -> None:
            slept.append(seconds)

        async def case() -> None:
            gate = ModelGate(lambda: 0.0, sleep)
            gate.rate_limited(10.0)
            await asyncio.wait_for(gate.enter(), 30)

        asyncio.run(case())
        assert slept == [10.0]
