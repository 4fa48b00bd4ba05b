"""What a delegate does at the boundary of its window (specification 7, D1 to D22), over real SDK clients.

A window of 4,096 with 1,024 output tokens leaves 2,048 for a request (specification 1.3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models import Model

from sidequest.core.errors import ErrorCode
from sidequest.core.events import ContextCompacted, ContextDegraded, Event, TurnStarted
from sidequest.core.outcome import Outcome, Status, StopReason, report_text
from sidequest.core.transcript import marked
from sidequest.runtime.delegation import DelegationRun
from tests.support.acts import FOUND, Acts, call
from tests.support.counting import usage_of
from tests.support.delegating import Bench
from tests.support.error_bodies import error
from tests.support.gate import Gate
from tests.support.neutral import Hang, Reply, Seen
from tests.support.provider import LoopbackProvider

BRIEF = "Read a, b and c and report what they say."
SMALL = {"window": 4_096, "max_tokens": 1_024}
CHUNK = ("plain words of a result " * 125)[:3_000]

APIS = ("chat_model", "responses_model", "anthropic_model")


def fetch(key: str) -> str:
    """Fetch what is stored under a key."""
    return f"{CHUNK[: -len(key)]}{key}"


READS = [call("fetch", key=key) for key in "abc"]


def delegated(
    script: Acts,
    task: str = BRIEF,
    *,
    api: str = "chat_model",
    provider_window: int | None = None,
    then: Callable[[DelegationRun, LoopbackProvider], Any] | None = None,
    bench: Bench | None = None,
    **options: Any,
) -> tuple[Outcome, LoopbackProvider]:
    """Run one delegation against `script`; `then` is awaited beside it."""
    bench = bench or Bench()
    options = {"tools": [fetch], **SMALL, **options}

    async def case() -> tuple[Outcome, LoopbackProvider]:
        async with LoopbackProvider(script, window=provider_window or options["window"]) as provider:
            model: Model = getattr(provider, api)()
            run = bench.run_of(model, task, **options)
            job = asyncio.create_task(run.run())
            if then is not None:
                await then(run, provider)
                run.request_stop()
                job.cancel()
            outcome = await job
            assert provider.failures == []
            return outcome, provider

    return asyncio.run(case())


def history(*texts: str) -> list[ModelMessage]:
    """Turns of a user and an assistant, as a resumed chain carries them."""
    messages: list[ModelMessage] = []
    for text in texts:
        messages += [ModelRequest(parts=[UserPromptPart(text)]), ModelResponse(parts=[TextPart("Noted.")])]
    return messages


def says_long(text: str) -> ModelResponse:
    return ModelResponse(parts=[TextPart(text)])


def sizes(bench: Bench, kind: type[Event] = TurnStarted) -> list[int]:
    return [event.hard_limit for event in bench.of(kind)]


@pytest.mark.parametrize("api", APIS)
def test_D1_a_small_context_is_left_alone(api: str) -> None:
    script = Acts(call("fetch", key="a"), "It says a.")
    outcome, provider = delegated(script, api=api)
    assert (outcome.status, outcome.report) == (Status.COMPLETED, "It says a.")
    assert (outcome.compactions, outcome.degradations) == (0, 0)
    assert script.summarised == []
    assert len(provider.requests) == 2


@pytest.mark.parametrize("api", APIS)
def test_D2_three_large_results_become_a_summary_and_the_brief(api: str) -> None:
    script = Acts(*READS, "They say a, b and c.")
    outcome, provider = delegated(script, api=api)
    assert (outcome.status, outcome.compactions) == (Status.COMPLETED, 1)
    (asked,) = script.summarised
    assert BRIEF in asked.text
    last = script.worked[-1]
    assert {message.role for message in last.messages} == {"user"}
    assert last.text.index("FOUND-SO-FAR") < last.text.index(BRIEF)
    assert max(seen.tokens for seen in script.worked) < 2_048
    assert provider.rejections == []


@pytest.mark.parametrize("api", APIS)
def test_D2_the_summary_is_part_of_the_usage(api: str) -> None:
    outcome, provider = delegated(Acts(*READS, "Done."), api=api)
    assert outcome.usage.requests == len(provider.requests) == 5
    assert outcome.usage.input_tokens == sum(seen.tokens for seen in provider.requests)
    replies = [exchange.answer for exchange in provider.exchanges]
    said = sum(usage_of(reply, 0).output for reply in replies if isinstance(reply, Reply))
    assert outcome.usage.output_tokens == said


def test_D5_an_earlier_summary_is_updated_and_not_summarised_again() -> None:
    reads = [*READS, *READS]
    bench = Bench()
    script = Acts(*reads, "Done.")
    outcome, _ = delegated(script, bench=bench)
    assert outcome.compactions == len(bench.of(ContextCompacted)) == 2
    first, second = (seen.user_texts[-1] for seen in script.summarised)
    assert "<previous-summary>" not in first
    conversation, _, previous = second.partition("</conversation>")
    assert "FOUND-SO-FAR" not in conversation
    assert "FOUND-SO-FAR" in previous.partition("</previous-summary>")[0]
    assert script.worked[-1].text.count(BRIEF) == 1


@pytest.mark.parametrize("api", APIS)
def test_D6_a_failed_summary_degrades(api: str) -> None:
    refused = lambda seen: error(seen.format, 401, "Incorrect API key provided")  # noqa: E731
    script = Acts(*READS, "They say c.", summary=refused)
    bench = Bench()
    outcome, _ = delegated(script, api=api, bench=bench)
    assert (outcome.status, outcome.degraded, outcome.compactions) == (Status.COMPLETED, True, 0)
    first, second, *_ = script.worked[-1].messages
    assert (first.role, first.text) == ("user", BRIEF)
    assert second.role == "assistant"
    (event,) = bench.of(ContextDegraded)
    assert "summary request failed" in event.reason
    assert event.tokens_after < event.hard_limit == 2_048 <= event.tokens_before


@pytest.mark.parametrize(
    ("case", "summary"),
    [
        ("D7", "long words of a summary " * 400),
        ("D16", Reply("## Goal\nHalf a summ", finish="length")),
        ("empty", "   "),
    ],
)
def test_a_summary_that_cannot_be_used_degrades(case: str, summary: Any) -> None:
    outcome, _ = delegated(Acts(*READS, "They say c.", summary=summary))
    assert (outcome.degraded, outcome.compactions) == (True, 0), case
    assert outcome.usage.requests == 5, "a summary that was paid for is counted"


@pytest.mark.parametrize("api", APIS)
def test_D8_a_brief_that_alone_does_not_fit_is_an_overflow_without_a_request(api: str) -> None:
    outcome, provider = delegated(Acts(), "brief words " * 1_000, api=api)
    assert (outcome.status, outcome.stop_reason) == (Status.FAILED, StopReason.ERROR)
    assert outcome.failure is not None
    assert outcome.failure.code is ErrorCode.SUBAGENT_CONTEXT_OVERFLOW
    assert outcome.failure.details["hardLimit"] == 2_048
    for remedy in ("Narrow the task", "larger context window", "read less at once", "test/primary"):
        assert remedy in outcome.failure.message
    assert provider.requests == []


@pytest.mark.parametrize("case", ["D9", "D18"])
def test_a_stop_while_the_summary_is_made_is_a_stop_and_no_degradation(case: str) -> None:
    gate = Gate()
    script = Acts(*READS, summary=Hang(gate, then=Reply(FOUND)))
    bench = Bench()

    async def until_the_summary(run: DelegationRun, provider: LoopbackProvider) -> None:
        await provider.arrived(4)

    outcome, provider = delegated(script, bench=bench, then=until_the_summary)
    assert (outcome.status, outcome.stop_reason) == (Status.STOPPED, StopReason.STOPPED)
    assert not outcome.degraded
    assert bench.of(ContextDegraded) == []
    assert len(script.worked) == 3
    assert provider.exchanges[-1].outcome == "abandoned"


def test_D11_degradation_keeps_the_newest_rounds_that_fit() -> None:
    def fetch(key: str) -> str:
        """Fetch what is stored under a key."""
        return f"{key * 3}: " + CHUNK[:1_400]

    reads = [call("fetch", key=key) for key in "abcdef"]
    outcome, provider = delegated(Acts(*reads, "Done.", summary=""), tools=[fetch])
    assert outcome.degraded
    last = provider.requests[-1]
    kept = [result.text[:3] for result in last.tool_results]
    assert 0 < len(kept) < 6
    assert kept == ["aaa", "bbb", "ccc", "ddd", "eee", "fff"][-len(kept) :]
    assert last.messages[0].text == BRIEF


@pytest.mark.parametrize("api", APIS)
def test_D12_results_that_fill_the_window_are_summarised_and_their_tools_run_once(api: str) -> None:
    ran: list[str] = []

    def fetch(key: str) -> str:
        """Fetch what is stored under a key."""
        ran.append(key)
        return f"RAW-{key} " + "words of a huge result " * 5_000

    both = Reply(tool_calls=[("fetch", {"key": "a"}), ("fetch", {"key": "b"})])
    script = Acts(both, "They say much.")
    outcome, provider = delegated(script, api=api, tools=[fetch])
    assert (outcome.status, outcome.compactions) == (Status.COMPLETED, 1)
    assert ran == ["a", "b"]
    assert len(script.summarised) == 1
    assert "RAW-" not in script.worked[1].text
    assert "tool" not in {message.role for message in script.worked[1].messages}
    assert provider.rejections == []


@pytest.mark.parametrize("api", APIS)
def test_D13_a_long_history_is_summarised_before_the_first_work_request(api: str) -> None:
    carried = [
        ModelRequest(parts=[marked("The original task.", "original")]),
        ModelResponse(parts=[TextPart("old words " * 8_000)]),
    ]
    script = Acts("Went on.")
    outcome, provider = delegated(
        script, "Now do the rest.", api=api, window=32_000, max_tokens=4_096, history=carried
    )
    assert outcome.status is Status.COMPLETED
    assert [len(script.summarised), len(script.worked)] == [1, 1]
    assert provider.requests[0] is not script.worked[0]
    (work,) = script.worked
    assert "FOUND-SO-FAR" in work.text
    assert work.user_texts[-1].endswith("Now do the rest.")
    assert "The original task." in script.summarised[0].text


def test_D14_instructions_over_the_window_fail_without_a_request_and_say_so() -> None:
    outcome, provider = delegated(Acts(), instructions="Follow this rule. " * 600)
    assert outcome.failure is not None
    assert outcome.failure.code is ErrorCode.SUBAGENT_CONTEXT_OVERFLOW
    assert "instructions and tool schemas alone" in outcome.failure.message
    assert int(outcome.failure.details["fixed"] or 0) >= 2_048
    assert provider.requests == []


def test_D15_instructions_and_schemas_are_counted_with_the_first_task() -> None:
    task = "words of the task " * 380
    fits, _ = delegated(Acts("ok"), task, instructions="Be brief.")
    over, provider = delegated(Acts(), task, instructions="Be brief. " * 150)
    assert fits.status is Status.COMPLETED
    assert over.failure is not None
    assert over.failure.code is ErrorCode.SUBAGENT_CONTEXT_OVERFLOW
    assert provider.requests == []


def test_D15_a_resume_instruction_is_counted_with_the_history_it_follows() -> None:
    carried = [*history("The original task."), says_long("words of an answer " * 700)]
    eight = {"window": 8_000, "history": carried}
    fits, _ = delegated(Acts("ok"), "Go on.", **eight)
    over, _ = delegated(Acts("ok"), "Go on. " * 400, **eight)
    assert (fits.compactions, over.compactions) == (0, 1)


def test_D17_a_conversation_that_fits_no_summary_request_degrades_without_asking() -> None:
    carried = history("words that a user wrote " * 1_000)
    script = Acts("Done.")
    outcome, provider = delegated(script, window=8_000, max_tokens=1_024, history=carried)
    assert (outcome.status, outcome.degraded) == (Status.COMPLETED, True)
    assert script.summarised == []
    (only,) = provider.requests
    assert only.user_texts == (BRIEF,)


def test_D19_the_output_cap_of_a_definition_changes_the_limit_and_the_wire() -> None:
    limits, sent = [], []
    for cap in (None, 4_000, 64_000):
        bench = Bench()
        _, provider = delegated(Acts("ok"), bench=bench, window=200_000, max_tokens=64_000, cap=cap)
        limits += sizes(bench)
        sent.append(provider.requests[0].max_tokens)
    assert limits == [150_000, 183_616, 150_000]
    assert sent == [64_000, 4_000, 64_000]


def test_D20_delegates_side_by_side_are_measured_against_their_own_models() -> None:
    async def case() -> tuple[list[Outcome], list[list[int]]]:
        scripts = [Acts(*READS, "Done."), Acts(*READS, "Done.")]
        async with LoopbackProvider(scripts[0]) as small, LoopbackProvider(scripts[1]) as large:
            benches = [Bench(), Bench()]
            outcomes = await asyncio.gather(
                benches[0].outcome(small.chat_model(), BRIEF, tools=[fetch], **SMALL),
                benches[1].outcome(large.anthropic_model(), BRIEF, tools=[fetch], window=64_000),
            )
        return list(outcomes), [sizes(bench) for bench in benches]

    (first, second), limits = asyncio.run(case())
    assert (first.compactions, second.compactions) == (1, 0)
    assert [set(found) for found in limits] == [{2_048}, {47_616}]


def test_D21_a_compaction_is_told_with_the_delegation_and_nothing_else() -> None:
    bench = Bench()
    delegated(Acts(*READS, "Done."), bench=bench)
    (event,) = bench.of(ContextCompacted)
    assert event.delegation_id == "d1"
    assert event.tokens_after < event.hard_limit <= event.tokens_before
    following = bench.events[bench.events.index(event) + 1]
    assert isinstance(following, TurnStarted)
    assert following.tokens == event.tokens_after


def test_D22_a_degraded_report_says_so_in_its_first_lines() -> None:
    outcome, _ = delegated(Acts(*READS, "They say c.", summary=""))
    text = report_text(outcome)
    assert "older working history was discarded" in text.split("\n\n")[0]
    assert text.endswith("They say c.")


def test_a_script_that_is_not_latin_is_counted_before_it_leaves() -> None:
    chinese = "世界" * 1_100
    outcome, provider = delegated(Acts(), chinese)
    assert outcome.failure is not None
    assert outcome.failure.code is ErrorCode.SUBAGENT_CONTEXT_OVERFLOW
    assert provider.requests == []


@pytest.mark.parametrize("api", APIS)
def test_an_overflow_below_our_estimate_earns_one_forced_compaction(api: str) -> None:
    """Specification 8.9: the provider's window is smaller than what we were told."""
    script = Acts(*READS, *READS, "They say a, b and c.")
    options = {"window": 128_000, "provider_window": 4_096}
    outcome, provider = delegated(script, api=api, **options)
    assert outcome.status is Status.COMPLETED
    # Responses does not state its window, so a summary request is refused like the work request was.
    refused = 2 if api == "responses_model" else 1
    assert (len(provider.rejections), outcome.compactions, outcome.degraded) == (
        refused,
        2 - refused,
        refused == 2,
    )
    assert outcome.turns == 7, "a request that is sent again is the same turn"
    assert BRIEF in script.worked[-1].text


def test_a_provider_that_rejects_everything_ends_the_run() -> None:
    def stubborn(seen: Seen, window: int) -> Any:
        return error(
            seen.format, 400, f"maximum context length is {window} tokens", code="context_length_exceeded"
        )

    async def case() -> Outcome:
        async with LoopbackProvider(Acts(), window=1, overflow=stubborn) as provider:
            return await Bench().outcome(provider.chat_model(), BRIEF, window=128_000)

    outcome = asyncio.run(case())
    assert outcome.status is Status.FAILED
    assert outcome.failure is not None
    assert outcome.failure.code is ErrorCode.SUBAGENT_CONTEXT_OVERFLOW
