"""Servers that cut the prompt without a word (overflow-messages 3): the run notices, says so, and learns.

The delegate believes in a window of 128,000; the server has 16,000. The scripted model knows only what the
server let through, so what is cut away is lost to it like to a real one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart

from sidequest.core.events import ContextDegraded
from sidequest.core.outcome import Outcome, Status, report_text
from sidequest.runtime.delegation import DelegationRun
from sidequest.runtime.knowledge import Knowledge
from tests.support.acts import call, is_summary
from tests.support.chain import APIS, Link, run_chain
from tests.support.counting import newest_that_fit, tokens_of, usage_of
from tests.support.delegating import Bench
from tests.support.fact_job import FactJob
from tests.support.neutral import Reply, Seen, Usage
from tests.support.provider import LoopbackProvider
from tests.support.scripted_model import ScriptedModel, calling, saying

WINDOW, BELIEVED = 16_000, 128_000
LOST = "older working history was discarded"


@dataclass
class Ran:
    outcome: Outcome
    bench: Bench
    provider: LoopbackProvider
    run: DelegationRun

    @property
    def first_lines(self) -> str:
        """The first block of what the parent reads."""
        return report_text(self.outcome).split("\n\n")[0]


def run_job(
    job: FactJob,
    script: Callable[[Seen], Reply],
    *,
    api: str = "chat_model",
    knowledge: Knowledge | None = None,
    believed: int = BELIEVED,
    **server: Any,
) -> Ran:
    async def case() -> Ran:
        bench = Bench(job.root)
        async with LoopbackProvider(script, **server) as provider:
            plan = bench.run_of(getattr(provider, api)(), job.task, window=believed, max_turns=60).plan
            known = knowledge if knowledge is not None else Knowledge()
            run = DelegationRun(plan, bench.events.append, sleep=bench.sleep, knowledge=known)
            outcome = await run.run()
            assert provider.failures == []
            return Ran(outcome, bench, provider, run)

    return asyncio.run(case())


@dataclass
class Rolling:
    """A server that keeps the newest messages of a prompt that is too long, and reports what it kept."""

    job: FactJob
    filled: bool = False
    """Report the whole window instead: the server cuts inside a message."""
    cut: int = 0

    def __call__(self, seen: Seen) -> Reply:
        if seen.tokens < WINDOW:
            return self.job.script(seen)
        self.cut += 1
        messages = newest_that_fit(seen.messages, WINDOW - tokens_of(tool.wire for tool in seen.tools))
        kept = tokens_of(part for message in messages for part in [message.text, *_results(message)])
        shown = replace(seen, system="", messages=messages)
        reply = self.job.script(shown)
        reported = WINDOW if self.filled else kept
        return replace(reply, usage=Usage(reported, usage_of(reply, 0).output))


def _results(message: Any) -> list[str]:
    return [result.text for result in message.tool_results]


class TestTheFactJob:
    @pytest.mark.parametrize("api", APIS)
    def test_on_a_server_that_keeps_half_of_its_window_all_facts_are_found_and_the_loss_is_said(
        self, tmp_path: Path, api: str
    ) -> None:
        job = FactJob(tmp_path, last_line=True).write()
        ran = run_job(job, job.script, api=api, window=WINDOW, truncate_silently=True)
        assert (ran.outcome.status, ran.outcome.degraded) == (Status.COMPLETED, True)
        assert LOST in ran.first_lines
        assert job.found(ran.outcome.report) == 32
        assert sum(exchange.shown.truncated for exchange in ran.provider.exchanges) == 1
        assert ran.run.knowledge.of("test/primary").window == WINDOW
        (event,) = ran.bench.of(ContextDegraded)
        assert "the server cut the prompt and did not say so: it counted 8,002 of" in event.reason

    @pytest.mark.parametrize("filled", [False, True], ids=["reports what it kept", "reports its window"])
    def test_on_a_server_that_drops_the_oldest_messages_too(self, tmp_path: Path, filled: bool) -> None:
        job = FactJob(tmp_path, last_line=False).write()
        server = Rolling(job, filled)
        ran = run_job(job, server)
        assert ran.outcome.degraded
        assert LOST in ran.first_lines
        # One that falls a little behind may be honest, so the first cut is not sure to be seen.
        assert job.found(ran.outcome.report) >= (32 if filled else 31)
        assert 1 <= server.cut <= (2 if filled else 5)
        assert (ran.run.knowledge.of("test/primary").window or 0) <= WINDOW

    def test_the_next_delegation_of_the_session_is_not_cut_any_more(self, tmp_path: Path) -> None:
        job, knowledge = FactJob(tmp_path, last_line=True, files=10).write(), Knowledge()
        server: dict[str, Any] = {"window": WINDOW, "truncate_silently": True, "knowledge": knowledge}
        first, second = (run_job(job, job.script, **server) for _ in range(2))
        assert (first.outcome.degradations, second.outcome.degradations) == (1, 0)
        assert job.found(second.outcome.report) == 10
        assert LOST not in report_text(second.outcome)

    def test_without_usage_nothing_can_be_noticed_and_the_belief_stands(self, tmp_path: Path) -> None:
        """Zero usage is no usage: it is neither a truncation nor a lesson."""
        job = FactJob(tmp_path, last_line=True, files=4).write()
        ran = run_job(job, lambda seen: replace(job.script(seen), usage=Usage(0, 0)))
        assert ran.outcome.status is Status.COMPLETED
        assert not ran.outcome.degraded
        assert ran.run.knowledge.of("test/primary") == Knowledge().of("other")

    def test_when_the_summary_fails_as_well_no_fact_is_claimed_that_was_not_kept(
        self, tmp_path: Path
    ) -> None:
        job = FactJob(tmp_path, last_line=True, files=16).write()
        read: list[int] = []

        def next_in_order(seen: Seen) -> Reply:
            if is_summary(seen):
                return Reply("")
            called = [int(str(c.args["path"])[5:7]) for c in seen.tool_calls]
            number = max([*called, *([] if called else read[-1:])], default=0) + 1
            read.append(number)
            if number > job.files:
                return Reply("\n".join(job.lines(seen)) or "No fact is left.")
            return call("Read", path=f"note-{number:02d}.txt")

        ran = run_job(job, next_in_order, window=WINDOW, truncate_silently=True)
        found = job.found(ran.outcome.report)
        assert found < 16
        assert len(ran.outcome.report.splitlines()) == found, "and nothing else is claimed"
        assert ran.outcome.degradations > 1
        assert LOST in ran.first_lines


async def fetch(key: str) -> str:
    """Fetch what is stored under a key."""
    return f"{key}: " + ("plain words of a result " * 400)[:9_000]


FETCH = [call("fetch", key=key) for key in "abcdef"]


def report_as(reply: Reply, reported: int) -> Reply:
    return replace(reply, usage=Usage(reported, 20))


class TestOneAnswer:
    """What becomes of the answer to a prompt that was cut."""

    def test_it_is_thrown_away_and_the_request_repeated_once(self) -> None:
        script = [
            FETCH[0],
            FETCH[1],
            report_as(Reply("I was told nothing."), 700),
            Reply("Sum."),
            Reply("Done."),
        ]
        chain = run_chain(Link(script, window=BELIEVED), tools=[fetch])
        assert (chain.outcome.status, chain.outcome.report) == (Status.COMPLETED, "Done.")
        assert (chain.outcome.turns, chain.outcome.compactions, chain.outcome.degradations) == (3, 1, 1)
        assert chain.requests[-1].tokens < chain.requests[2].tokens

    def test_its_calls_do_not_run(self) -> None:
        cut = report_as(call("fetch", key="z"), 700)
        chain = run_chain(
            Link([*FETCH[:2], cut, Reply("Sum."), Reply("Done.")], window=BELIEVED), tools=[fetch]
        )
        assert chain.outcome.tool_calls == 2
        assert "z: plain" not in chain.requests[-1].text

    def test_what_it_cost_is_counted(self) -> None:
        script = [report_as(FETCH[0], 300), report_as(FETCH[1], 3_000), report_as(Reply("x"), 700)]
        script += [report_as(Reply("Sum."), 3_000), report_as(Reply("Done."), 400)]
        usage = run_chain(Link(script, window=BELIEVED), tools=[fetch]).outcome.usage
        assert (usage.requests, usage.input_tokens) == (5, 300 + 3_000 + 700 + 3_000 + 400)

    def test_a_second_one_is_kept_and_said(self) -> None:
        script = [
            *FETCH[:3],
            report_as(Reply("x"), 1_500),
            Reply("Sum. " * 900),
            report_as(Reply("Half."), 300),
        ]
        chain = run_chain(Link(script, window=BELIEVED), tools=[fetch])
        assert (chain.outcome.report, chain.outcome.degraded) == ("Half.", True)
        assert LOST in report_text(chain.outcome)

    def test_a_first_prompt_has_nothing_to_compact_and_its_answer_is_kept_and_said(self) -> None:
        chain = run_chain(
            Link([report_as(Reply("Well."), 2_050)], window=BELIEVED), task="Words of it. " * 1_700
        )
        assert (chain.outcome.status, chain.outcome.report) == (Status.COMPLETED, "Well.")
        assert LOST in report_text(chain.outcome).split("\n\n")[0]
        assert chain.run.knowledge.of("test/1").window == 4_096

    def test_a_first_prompt_with_history_is_asked_again_without_what_does_not_fit(self) -> None:
        carried = [
            ModelRequest(parts=[UserPromptPart("Earlier.")]),
            ModelResponse(parts=[TextPart("words of an answer " * 2_400)]),
        ]
        chain = run_chain(Link([report_as(Reply("x"), 4_098), "Done."], window=BELIEVED), history=carried)
        assert (chain.outcome.report, chain.outcome.degraded) == ("Done.", True)
        assert [len(seen.messages) for seen in chain.requests] == [3, 1]
        assert chain.run.knowledge.of("test/1").window == 8_192


class TestMisreports:
    """Counts that are off without anything having been cut."""

    @pytest.mark.parametrize("api", ["chat_model", "responses_model"])
    def test_cache_reads_that_are_left_out_of_the_input_are_added(self, api: str) -> None:
        """Some gateways report only what was not cached as input."""
        script = [FETCH[0], FETCH[1], replace(FETCH[2], usage=Usage(700, 20, cached=4_000)), "Done."]
        chain = run_chain(Link(script, api=api, window=BELIEVED), tools=[fetch])
        assert (chain.outcome.status, chain.outcome.degraded, chain.outcome.compactions) == (
            Status.COMPLETED,
            False,
            0,
        )

    def test_cache_reads_that_nobody_reports_teach_nothing(self) -> None:
        """opencode#47832: a handful of tokens for a prompt of thousands."""
        chain = run_chain(
            Link([FETCH[0], report_as(FETCH[1], 15), report_as(Reply("Done."), 3)], window=BELIEVED),
            tools=[fetch],
        )
        assert (chain.outcome.degraded, chain.run.knowledge.of("test/1").window) == (False, None)

    def test_a_proxy_that_counts_less_than_we_do_is_believed(self) -> None:
        def less(seen: Seen) -> Reply:
            reply = FETCH[len(seen.tool_results)] if len(seen.tool_results) < 5 else Reply("Done.")
            return report_as(reply, seen.tokens * 6 // 10)

        chain = run_chain(Link(less, window=BELIEVED), tools=[fetch])
        assert (chain.outcome.status, chain.outcome.degraded) == (Status.COMPLETED, False)

    def test_a_tokenizer_that_is_frugal_with_a_script_is_believed(self) -> None:
        brief = "नमस्ते मेरा नाम क्या है " * 120

        def hindi(seen: Seen) -> Reply:
            reply = FETCH[len(seen.tool_results)] if len(seen.tool_results) < 2 else Reply("Done.")
            return report_as(reply, 150 + len(brief) * 4 // 10 + seen.tokens // 9)

        chain = run_chain(Link(hindi, window=BELIEVED), task=brief, tools=[fetch])
        assert not chain.outcome.degraded

    def test_a_dense_tokenizer_raises_the_estimate_before_it_can_overflow(self) -> None:
        """A provider that counts 1.5 times our heuristic never has to refuse: compaction comes in time."""
        worked: list[Seen] = []

        def dense(seen: Seen) -> Reply:
            counted = seen.tokens * 15 // 10
            assert counted < WINDOW
            if is_summary(seen):
                return report_as(Reply("## Goal\nFetch."), counted)
            worked.append(seen)
            return report_as(FETCH[len(worked) % 6] if len(worked) < 13 else Reply("Done."), counted)

        chain = run_chain(Link(dense, window=WINDOW), tools=[fetch])
        assert chain.outcome.status is Status.COMPLETED
        assert chain.outcome.compactions >= 2
        assert chain.run.knowledge.of("test/1").calibration.factor >= 1.3


def test_a_later_request_is_asked_again_although_an_earlier_one_was_in_vain() -> None:
    """The window is full and full again, what is kept is cut inside a call, and the next one is full too."""
    full = {"finish_reason": "model_context_window_exceeded"}

    async def look() -> str:
        """Look at something."""
        return "word " * 400

    half = replace(calling(("look", {}), text="I look."), provider_details=full)
    said = replace(saying("Half a rep"), provider_details=full)
    model = ScriptedModel(calling(("look", {})), half, half, said, "Done.")
    outcome = asyncio.run(Bench().outcome(model, tools=[look], window=32_000))
    assert (outcome.report, outcome.status) == ("Done.", Status.COMPLETED)
