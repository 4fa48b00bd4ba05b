"""Long delegates, and the ends that a limit brings: turns, output caps, answers that were cut."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart

from sidequest.core.errors import ErrorCode
from sidequest.core.events import ContextDegraded, ToolEnded, ToolStarted, TurnStarted
from sidequest.core.outcome import Outcome, Status, StopReason, report_text
from sidequest.core.transcript import validate
from sidequest.runtime.prompts import LAST_TURN_NOTICE
from tests.support.acts import Acts, call
from tests.support.delegating import Bench
from tests.support.neutral import Reply
from tests.support.provider import LoopbackProvider
from tests.support.scripted_model import Asked, ScriptedModel, calling, saying

UNAVAILABLE = ModelHTTPError(503, "m", {"error": {"message": "try later"}})
APIS = ("chat_model", "responses_model", "anthropic_model")
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


def fetch(key: str) -> str:
    """Fetch what is stored under a key."""
    return f"{key}: " + "plain words of a result " * 30


def fetching(*keys: str, text: str = "", finish: Any = None) -> ModelResponse:
    return calling(*[("fetch", {"key": key}) for key in keys], text=text, finish=finish)


def ran(model: ScriptedModel, bench: Bench | None = None, **options: Any) -> Outcome:
    """Run one delegation; every history that was sent is valid and has the brief once."""
    outcome = asyncio.run((bench or Bench()).outcome(model, "Find it.", **{"tools": [fetch], **options}))
    for asked in model.asked:
        validate(asked.messages)
        assert asked.marked_texts("brief") == ["Find it."]
    return outcome


class TestLength:
    def test_a_delegate_of_200_turns_is_not_ended_at_its_50th_request(self) -> None:
        model = ScriptedModel(*[fetching(f"key-{number}") for number in range(199)], "All 199 keys.")
        bench = Bench()
        outcome = ran(model, bench, window=16_000)
        assert (outcome.status, outcome.report) == (Status.COMPLETED, "All 199 keys.")
        assert (outcome.turns, outcome.tool_calls) == (200, 199)
        assert [event.turn for event in bench.of(TurnStarted)] == list(range(1, 201))
        assert outcome.compactions == len(model.summaries) > 2
        assert outcome.usage.requests == 200 + len(model.summaries)
        assert max(len(asked.messages) for asked in model.asked) < 100

    def test_calls_and_ends_of_tools_are_told_in_pairs_and_in_order(self) -> None:
        bench = Bench()
        ran(ScriptedModel(fetching("a", "b"), fetching("c"), "Done."), bench)
        told = [e for e in bench.events if isinstance(e, ToolStarted | ToolEnded)]
        assert [type(event) for event in told] == [ToolStarted, ToolEnded] * 3
        assert [event.call_id for event in told[::2]] == [event.call_id for event in told[1::2]]


class TestTurnLimit:
    @pytest.mark.parametrize("api", APIS)
    def test_the_last_turn_is_asked_for_a_report_without_tools(self, api: str) -> None:
        async def case() -> None:
            script = Acts(call("fetch", key="a"), call("fetch", key="b"), "Found half of it.")
            async with LoopbackProvider(script) as provider:
                model = getattr(provider, api)()
                outcome = await Bench().outcome(model, "Find it.", tools=[fetch], max_turns=3)
            assert (outcome.status, outcome.stop_reason) == (Status.PARTIAL, StopReason.TURN_LIMIT)
            assert outcome.report == "Found half of it."
            first, _, last = script.worked
            assert LAST_TURN_NOTICE not in first.text
            assert last.user_texts[-1].endswith(LAST_TURN_NOTICE)
            choice = last.json["tool_choice"]
            assert choice in ("none", {"type": "none"})
            assert len(last.tool_results) == 2

        asyncio.run(case())

    def test_the_report_says_that_a_limit_struck(self) -> None:
        outcome = ran(ScriptedModel(fetching("a"), "Half."), max_turns=2)
        assert report_text(outcome).startswith("Partial report: The subagent reached its turn limit")
        assert outcome.failure is not None
        assert outcome.failure.code is ErrorCode.SUBAGENT_TURN_LIMIT

    def test_one_turn_is_a_report_at_once(self) -> None:
        model = ScriptedModel("What I know.")
        assert ran(model, max_turns=1).report == "What I know."
        assert model.asked[0].user_texts == ["Find it.", LAST_TURN_NOTICE]

    def test_a_report_before_the_limit_is_complete(self) -> None:
        outcome = ran(ScriptedModel(fetching("a"), "All."), max_turns=3)
        assert (outcome.status, outcome.failure) == (Status.COMPLETED, None)

    def test_a_model_that_calls_a_tool_all_the_same_is_not_obeyed(self) -> None:
        bench = Bench()
        outcome = ran(ScriptedModel(fetching("a"), fetching("b", text="Half.")), bench, max_turns=2)
        assert (outcome.status, outcome.report) == (Status.PARTIAL, "Half.")
        assert len(bench.of(ToolStarted)) == 1

    def test_without_any_text_the_run_has_failed_and_says_why(self) -> None:
        outcome = ran(ScriptedModel(fetching("a"), fetching("b")), max_turns=2)
        assert (outcome.status, outcome.stop_reason) == (Status.FAILED, StopReason.TURN_LIMIT)
        assert outcome.failure is not None
        assert outcome.failure.code is ErrorCode.SUBAGENT_TURN_LIMIT
        assert outcome.turns == 2

    def test_an_earlier_text_is_kept_when_the_last_turn_gives_none(self) -> None:
        outcome = ran(ScriptedModel(fetching("a", text="I saw a."), fetching("b")), max_turns=2)
        assert (outcome.status, outcome.report) == (Status.PARTIAL, "I saw a.")

    def test_a_request_that_is_sent_again_is_the_same_turn(self) -> None:
        model = ScriptedModel(UNAVAILABLE, fetching("a"), UNAVAILABLE, UNAVAILABLE, "Half.")
        bench = Bench()
        outcome = ran(model, bench, max_turns=2)
        assert (outcome.status, outcome.report, outcome.turns) == (Status.PARTIAL, "Half.", 2)
        assert [event.turn for event in bench.of(TurnStarted)] == [1, 1, 2, 2, 2]
        last = [asked.user_texts[-1] == LAST_TURN_NOTICE for asked in model.asked]
        assert last == [False, False, True, True, True]

    def test_the_notice_survives_a_compaction_of_the_last_turn(self) -> None:
        steps = [fetching(*"abcdef"), fetching(*"ghijkl"), "Half."]
        model = ScriptedModel(*steps)
        outcome = ran(model, max_turns=3, window=4_096, max_tokens=1_024)
        assert outcome.compactions == 1
        assert model.asked[-1].user_texts[-1] == LAST_TURN_NOTICE
        assert LAST_TURN_NOTICE not in model.summaries[0].text


class TestCutAnswers:
    def test_a_cut_tool_call_is_never_executed_and_the_model_is_told(self) -> None:
        bench = Bench()
        model = ScriptedModel(
            fetching("half of a k", text="I look.", finish="length"), fetching("a"), "Done."
        )
        outcome = ran(model, bench, cap=500)
        assert (outcome.status, outcome.tool_calls) == (Status.COMPLETED, 1)
        assert [event.summary for event in bench.of(ToolStarted)] == ["a"]
        notice = model.asked[1].user_texts[-1]
        assert "output limit of 500 tokens" in notice
        assert "the call was not executed" in notice
        assert "I look." in model.asked[1].text
        assert not any(isinstance(part, ToolCallPart) for m in model.asked[1].messages for part in m.parts)

    @pytest.mark.parametrize("api", APIS)
    def test_a_cut_call_with_broken_arguments_on_the_wire(self, api: str) -> None:
        async def case() -> None:
            cut = Reply("I look.", tool_calls=[("fetch", '{"key": "half of a')], finish="length")
            script = Acts(cut, call("fetch", key="a"), "Done.")
            async with LoopbackProvider(script) as provider:
                outcome = await Bench().outcome(getattr(provider, api)(), "Find it.", tools=[fetch])
            assert (outcome.status, outcome.tool_calls) == (Status.COMPLETED, 1)
            assert provider.rejections == []

        asyncio.run(case())

    def test_twice_in_a_row_ends_the_run_with_the_cap_as_the_cause(self) -> None:
        cut = fetching("half of a k", text="I look.", finish="length")
        bench = Bench()
        outcome = ran(ScriptedModel(cut, cut), bench, cap=500)
        assert outcome.status is Status.FAILED
        assert outcome.failure is not None
        assert outcome.failure.code is ErrorCode.SUBAGENT_OUTPUT_TRUNCATED
        assert outcome.failure.details["maxTokens"] == 500
        assert "Last output:\nI look." in report_text(outcome)
        assert bench.of(ToolStarted) == []

    def test_a_good_answer_in_between_starts_the_count_afresh(self) -> None:
        cut = fetching("half of a k", finish="length")
        assert ran(ScriptedModel(cut, fetching("a"), cut, fetching("b"), "Done.")).status is Status.COMPLETED

    def test_reasoning_without_text_is_not_kept_of_a_cut_answer(self) -> None:
        """Providers refuse an assistant message that ends in reasoning."""
        parts = [ThinkingPart("Let me see.", signature="s"), ToolCallPart("fetch", {"key": "h"})]
        model = ScriptedModel(ModelResponse(parts=parts, finish_reason="length"), "Done.")
        assert ran(model).status is Status.COMPLETED
        assert [message.kind for message in model.asked[1].messages] in (["request"], ["request", "request"])

    def test_a_report_that_was_cut_is_partial(self) -> None:
        outcome = ran(ScriptedModel(saying("It is in a.py, line 4, and also in", finish="length")))
        assert (outcome.status, outcome.stop_reason) == (Status.PARTIAL, StopReason.LENGTH)
        assert report_text(outcome).startswith("Partial report: The report was cut by the output cap.")

    def test_an_answer_that_was_cut_before_any_text_has_failed_by_the_cap(self) -> None:
        model = ScriptedModel(ModelResponse(parts=[ThinkingPart("Hm.")], finish_reason="length"))
        outcome = ran(model)
        assert (outcome.status, outcome.stop_reason) == (Status.FAILED, StopReason.LENGTH)
        assert outcome.failure is not None
        assert outcome.failure.code is ErrorCode.SUBAGENT_OUTPUT_TRUNCATED


class TestHonestEnds:
    def test_a_call_without_text_does_not_clear_an_earlier_text(self) -> None:
        model = ScriptedModel(fetching("a", text="I saw a."), fetching("b"), ModelHTTPError(401, "m"))
        outcome = ran(model)
        assert (outcome.status, outcome.report) == (Status.FAILED, "I saw a.")

    def test_text_before_the_last_tool_result_is_no_complete_report(self) -> None:
        model = ScriptedModel(fetching("a", text="I saw a."), *[ModelResponse(parts=[])] * 3)
        outcome = ran(model)
        assert (outcome.status, outcome.stop_reason) == (Status.PARTIAL, StopReason.NO_REPORT)

    def test_no_text_at_all_is_a_failure(self) -> None:
        outcome = ran(ScriptedModel(fetching("a"), *[ModelResponse(parts=[TextPart("  \n")])] * 3))
        assert (outcome.status, outcome.stop_reason) == (Status.FAILED, StopReason.NO_REPORT)

    def test_a_tool_that_breaks_ends_the_run_as_our_own_failure_without_a_retry(self) -> None:
        def fetch(key: str) -> str:
            """Fetch what is stored under a key."""
            raise RuntimeError("the disk is gone")

        model = ScriptedModel(fetching("a"))
        outcome = ran(model, tools=[fetch])
        assert outcome.failure is not None
        assert outcome.failure.code is ErrorCode.INTERNAL
        assert outcome.failure.details["origin"] == "local"
        assert "the disk is gone" in outcome.failure.message

    def test_a_small_image_is_not_taken_for_a_prompt_that_the_server_cut(self, tmp_path: Path) -> None:
        """Its flat price of 1,200 tokens is many times what a provider takes for a few pixels."""
        (tmp_path / "icon.png").write_bytes(PIXEL)
        bench = Bench(tmp_path)

        def small(response: ModelResponse) -> Any:
            def answer(asked: Asked) -> ModelResponse:
                response.usage.input_tokens = 300
                return response

            return answer

        look = calling(("Read", {"path": "icon.png"}))
        model = ScriptedModel(small(look), small(saying("An icon.")))
        outcome = asyncio.run(bench.outcome(model, "What is it?", window=128_000))
        assert (outcome.status, outcome.report, outcome.degraded) == (Status.COMPLETED, "An icon.", False)
        assert bench.of(ContextDegraded) == []
