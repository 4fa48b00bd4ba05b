"""What the summariser accepts, what it learns, and how long it waits (needs.md 1 and 4)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.usage import RequestUsage

from sidequest.core.events import ContextDegraded
from sidequest.core.outcome import Outcome, Status
from sidequest.core.summary import SummaryFailed, SummaryReply, SummaryRequest
from sidequest.runtime.delegation import DelegationRun
from sidequest.runtime.summariser import model_summariser
from tests.support.delegating import Bench, no_sleep
from tests.support.scripted_model import Asked, ScriptedModel, calling, saying

REQUEST = SummaryRequest("Summarise.", "<conversation>" + "words " * 4_000, 500)
SUMMARY = "## Goal\nGo on."
MIDDLE = {"window": 16_000, "max_tokens": 2_000}
OVERFLOW = (
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."
)


def summarised(step: Any, **options: Any) -> SummaryReply:
    """Ask a model that answers with `step`; failures are not transient unless `is_transient` says so."""
    model = ScriptedModel(summary=step)
    transient = options.pop("is_transient", lambda error: False)
    return asyncio.run(model_summariser(model, None, transient, no_sleep, **options)(REQUEST))


async def look(i: int) -> str:
    """Look at something long."""
    return f"result {i} " + "word " * 2_600


def ran(model: ScriptedModel, **options: Any) -> tuple[Outcome, Bench, DelegationRun]:
    """Run a delegation that compacts on its way."""
    bench = Bench()
    run = bench.run_of(model, tools=[look], **{**MIDDLE, **options})
    return asyncio.run(run.run()), bench, run


def looking(times: int) -> list[Any]:
    return [calling(("look", {"i": number})) for number in range(times)]


class TestSoundness:
    @pytest.mark.parametrize("reason", ["content_filter", "error"])
    def test_what_the_provider_broke_off_is_not_used(self, reason: Any) -> None:
        assert summarised(saying("## Goal\nHalf a summ", reason)).unsound
        broken = saying("## Goal\nHalf a summ", reason)
        outcome, bench, _ = ran(ScriptedModel(*looking(4), "Done.", summary=broken))
        assert (outcome.compactions, outcome.degraded) == (0, True)
        assert "cannot be relied on" in bench.of(ContextDegraded)[0].reason

    def test_a_word_that_pydantic_ai_does_not_know_counts_too(self) -> None:
        told = replace(saying(SUMMARY), provider_details={"finish_reason": "insufficient_system_resource"})
        assert "insufficient_system_resource" in summarised(told).unsound

    def test_a_prompt_that_the_server_cut_without_a_word_is_noticed_and_teaches_the_window(self) -> None:
        def cut(asked: Asked) -> Any:
            """As Ollama does with 4,096 tokens."""
            usage = RequestUsage(input_tokens=min(2_050, asked.tokens), output_tokens=8)
            return replace(saying(SUMMARY), usage=usage)

        model = ScriptedModel(*looking(4), "Done.", summary=cut)
        outcome, _, run = ran(model)
        assert run.knowledge.of("test/primary").window == 4_096
        assert model.summaries[1].tokens < 4_096 < model.summaries[0].tokens
        assert outcome.status is Status.COMPLETED

    def test_a_good_one_is_sound(self) -> None:
        assert summarised(SUMMARY) == replace(summarised(SUMMARY), unsound="", truncated=False)


class TestRefusals:
    def test_the_window_that_a_refusal_states_is_learned_and_the_summary_made_to_fit(self) -> None:
        def refuse(asked: Asked) -> Any:
            body = {"error": {"message": OVERFLOW, "code": "context_length_exceeded"}}
            return ModelHTTPError(400, "m", body) if asked.tokens > 6_000 else SUMMARY

        outcome, _, run = ran(ScriptedModel(*looking(5), "Done.", summary=refuse), window=32_000)
        assert run.knowledge.of("test/primary").window == 8_192
        assert (outcome.degraded, outcome.compactions > 0) == (False, True)

    @pytest.mark.parametrize("body", [None, {"error": {"message": "max_tokens exceeds what is allowed"}}])
    def test_one_that_may_be_about_the_output_limit_is_asked_again_without(self, body: Any) -> None:
        def refuse(asked: Asked) -> Any:
            return ModelHTTPError(400, "m", body) if "max_tokens" in asked.settings else SUMMARY

        assert summarised(refuse).text == SUMMARY

    def test_a_server_that_takes_no_output_limit_compacts(self) -> None:
        def limitless(then: Any) -> Any:
            return lambda asked: ModelHTTPError(400, "m", None) if "max_tokens" in asked.settings else then

        def work(asked: Asked) -> Any:
            return limitless("Done." if len(model.summaries) else looking(1)[0])

        model = ScriptedModel(work, repeat=True, summary=limitless(SUMMARY))
        outcome, _, _ = ran(model)
        assert (outcome.status, outcome.compactions, outcome.degraded) == (Status.COMPLETED, 1, False)
        assert len(model.summaries) == 1, "what the work has taught is known"


class TestDeadline:
    def test_an_answer_that_never_comes_is_given_up_at_once_and_not_asked_for_again(self) -> None:
        asked = []

        async def never(request: Asked) -> Any:
            asked.append(request)
            await asyncio.Event().wait()

        with pytest.raises(SummaryFailed, match="no summary within 0 s"):
            summarised(never, deadline_s=0, is_transient=lambda error: True)
        assert len(asked) <= 1

    def test_a_timeout_of_the_client_is_its_own(self) -> None:
        with pytest.raises(SummaryFailed, match="TimeoutError"):
            summarised(TimeoutError("read"))

    def test_what_waits_for_its_turn_is_not_late(self) -> None:
        """The deadline is behind the gate: 0 seconds for the answer, and any time before it is asked for."""
        turns: list[str] = []

        def gate(model: Any) -> Any:
            turns.append(type(model).__name__)
            return ScriptedModel(summary=SUMMARY)

        assert summarised("never", deadline_s=0, gate=gate).text == SUMMARY
        assert turns == ["_InTime"]
