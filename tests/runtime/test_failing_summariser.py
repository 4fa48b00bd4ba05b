"""The 32-file job when no summary can be had: the run goes on degraded and claims nothing that it lost.

And one file that is larger than the window: cut with a pointer, read in slices, its fact reported.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from sidequest.core.events import ContextDegraded
from sidequest.core.outcome import Outcome, Status, StopReason, report_text
from sidequest.runtime.delegation import DelegationRun
from sidequest.runtime.workspace import Workspace
from tests.support.acts import call, is_summary
from tests.support.chain import APIS
from tests.support.delegating import Bench, Waits
from tests.support.error_bodies import error
from tests.support.fact_job import FACT, FactJob
from tests.support.neutral import Answer, Drop, Reply, Seen
from tests.support.provider import LoopbackProvider

WINDOW = 16_000
LOST = "older working history was discarded"


@dataclass
class Ran:
    outcome: Outcome
    bench: Bench
    waits: Waits
    requests: list[Seen]

    @property
    def blocks(self) -> list[str]:
        """What the parent reads, block by block."""
        return report_text(self.outcome).split("\n\n")

    @property
    def summaries(self) -> list[Seen]:
        return [seen for seen in self.requests if is_summary(seen)]


def run_job(
    job: FactJob, model: Callable[[Seen], Answer], api: str = "chat_model", max_turns: int = 80
) -> Ran:
    async def case() -> Ran:
        waits = Waits()
        bench = Bench(job.root, sleep=waits)
        async with LoopbackProvider(model, window=WINDOW) as provider:
            run = bench.run_of(getattr(provider, api)(), job.task, window=WINDOW, max_turns=max_turns)
            outcome = await run.run()
        assert provider.failures == []
        assert provider.rejections == [] or all(is_summary(e.seen) for e in provider.rejections)
        return Ran(outcome, bench, waits, provider.requests)

    return asyncio.run(case())


def reads_on(job: FactJob, summary: Callable[[Seen], Answer]) -> Callable[[Seen], Answer]:
    """A model that goes on after the last file it sees, and reports the facts it sees."""

    def model(seen: Seen) -> Answer:
        if is_summary(seen):
            return summary(seen)
        following = max(job.files_seen(seen), default=0) + 1
        if following > job.files or not seen.tool_names:
            return Reply("\n".join(job.lines(seen)))
        return call("Read", path=f"note-{following:02d}.txt")

    return model


def starts_again(job: FactJob, summary: Callable[[Seen], Answer]) -> Callable[[Seen], Answer]:
    """A model that looks for the first file it does not see: without its history it starts over for ever."""

    def model(seen: Seen) -> Answer:
        if is_summary(seen):
            return summary(seen)
        if any("last turn" in text.lower() for text in seen.user_texts):
            return Reply("\n".join(job.lines(seen)))
        return job.script(seen)

    return model


def fails(status: int) -> Callable[[Seen], Answer]:
    return lambda seen: error(seen.format, status, "The summariser is broken.")


SUMMARIES: dict[str, Callable[[Seen], Answer]] = {
    "500 every time": fails(500),
    "401 every time": fails(401),
    "no connection": lambda seen: Drop(),
    "nothing": lambda seen: Reply(""),
    "blanks": lambda seen: Reply(" \n "),
    "cut": lambda seen: Reply("## Goal\nRep", finish="length"),
    "longer than what it replaces": lambda seen: Reply("and so on " * 4_000),
}


def is_honest(job: FactJob, ran: Ran) -> None:
    """Every fact of the report is true and was in front of the model when it wrote it."""
    claimed = set(FACT.findall(ran.outcome.report))
    assert len(claimed) == job.found(ran.outcome.report)
    assert claimed <= set(FACT.findall(ran.requests[-1].text))


class TestNoSummary:
    @pytest.mark.parametrize("summary", SUMMARIES)
    def test_the_run_goes_on_to_the_last_file_and_says_what_it_lost(
        self, tmp_path: Path, summary: str
    ) -> None:
        job = FactJob(tmp_path, last_line=True).write()
        ran = run_job(job, reads_on(job, SUMMARIES[summary]))
        assert ran.outcome.status is Status.COMPLETED
        assert ran.outcome.degradations == len(ran.bench.of(ContextDegraded)) > 2
        assert ran.outcome.compactions == 0
        assert LOST in ran.blocks[0]
        assert "may be incomplete" in ran.blocks[0]
        assert 0 < job.found(ran.outcome.report) < 32
        is_honest(job, ran)

    @pytest.mark.parametrize("api", APIS)
    def test_over_every_sdk(self, tmp_path: Path, api: str) -> None:
        job = FactJob(tmp_path, last_line=False, files=12).write()
        ran = run_job(job, reads_on(job, fails(500)), api)
        assert (ran.outcome.status, ran.outcome.degraded) == (Status.COMPLETED, True)
        assert LOST in ran.blocks[0]
        is_honest(job, ran)

    @pytest.mark.parametrize("summary", ["500 every time", "nothing"])
    def test_a_model_that_starts_over_ends_at_its_turn_limit_with_what_it_has(
        self, tmp_path: Path, summary: str
    ) -> None:
        job = FactJob(tmp_path, last_line=True).write()
        ran = run_job(job, starts_again(job, SUMMARIES[summary]), max_turns=20)
        assert (ran.outcome.status, ran.outcome.stop_reason) == (Status.PARTIAL, StopReason.TURN_LIMIT)
        assert LOST in ran.blocks[0]
        assert ran.blocks[1].startswith("Partial report")
        assert job.found(ran.outcome.report) > 0
        is_honest(job, ran)

    def test_a_500_is_tried_four_times_with_the_runs_own_sleep(self, tmp_path: Path) -> None:
        job = FactJob(tmp_path, last_line=True, files=8).write()
        ran = run_job(job, reads_on(job, fails(500)))
        attempts = ran.outcome.degradations
        assert len(ran.summaries) == 4 * attempts
        assert ran.waits.seconds == [2, 4, 8] * attempts

    @pytest.mark.parametrize("summary", ["401 every time", "nothing"])
    def test_what_waiting_does_not_cure_is_tried_once(self, tmp_path: Path, summary: str) -> None:
        job = FactJob(tmp_path, last_line=True, files=8).write()
        ran = run_job(job, reads_on(job, SUMMARIES[summary]))
        assert len(ran.summaries) == ran.outcome.degradations
        assert ran.waits.seconds == []

    def test_a_summariser_that_recovers_is_used_again(self, tmp_path: Path) -> None:
        job = FactJob(tmp_path, last_line=True, files=16).write()
        asked: list[Seen] = []

        def at_first_broken(seen: Seen) -> Answer:
            asked.append(seen)
            return error(seen.format, 500, "Broken.") if len(asked) <= 4 else job.script(seen)

        ran = run_job(job, reads_on(job, at_first_broken))
        assert (ran.outcome.degradations, ran.outcome.status) == (1, Status.COMPLETED)
        assert ran.outcome.compactions >= 2
        assert LOST in ran.blocks[0], "what was lost once stays lost"
        is_honest(job, ran)

    def test_a_summariser_that_is_cured_by_waiting_loses_nothing(self, tmp_path: Path) -> None:
        job = FactJob(tmp_path, last_line=True, files=16).write()
        asked: list[Seen] = []

        def every_second(seen: Seen) -> Answer:
            asked.append(seen)
            return job.script(seen) if len(asked) % 2 == 0 else error(seen.format, 503, "Busy.")

        ran = run_job(job, reads_on(job, every_second))
        assert (ran.outcome.degraded, job.found(ran.outcome.report)) == (False, 16)
        assert LOST not in report_text(ran.outcome)
        assert set(ran.waits.seconds) == {2}


SLICE = 120
"""Lines that the model reads at a time."""
SPILLED = re.compile(r"The whole result is in (\S+):")


@dataclass
class Librarian:
    """Reads a file; when it was cut, reads slices of the whole until it sees the fact."""

    follow_pointer: bool
    """Read the slices from the scratch file that the notice names, not from the file again."""
    offset: int = 0

    def __call__(self, seen: Seen) -> Answer:
        if found := FACT.search(seen.text):
            return Reply(f"FACT-{found[1]} is {found[2]}")
        pointer = SPILLED.search(seen.text)
        if is_summary(seen):
            return Reply(
                f"## Goal\nFind the fact.\n\n## Critical Context\n- {pointer[0] if pointer else 'none'}"
            )
        if pointer is None:
            return call("Read", path="note-01.txt")
        start, self.offset = self.offset, self.offset + SLICE
        path = pointer[1] if self.follow_pointer else "note-01.txt"
        return call("Read", path=path, offset=start, limit=SLICE)


class TestOneLargeFile:
    """24,000 tokens in a window of 16,000, the fact where a cut leaves it out.

    One Read gives 50,000 characters at the most and says where the file goes on; that is the result which is
    cut to the window and stored whole.
    """

    @pytest.mark.parametrize(
        ("place", "follow_pointer"),
        [(0.25, True), (0.25, False), (0.5, False), (0.98, False)],
        ids=["in the scratch file", "in the first quarter", "in the middle", "near the end"],
    )
    def test_it_is_cut_with_a_pointer_and_its_fact_is_found_in_slices(
        self, tmp_path: Path, place: float, follow_pointer: bool
    ) -> None:
        root, scratch = tmp_path / "work", tmp_path / "scratch"
        root.mkdir()
        scratch.mkdir()
        job = FactJob(root, last_line=True, files=1, tokens_each=24_000).write()
        move_fact(root / "note-01.txt", place)

        async def case() -> tuple[Outcome, list[Seen]]:
            bench = Bench()
            async with LoopbackProvider(Librarian(follow_pointer), window=WINDOW) as provider:
                outcome = await in_workspace(bench, provider.chat_model(), job.task, Workspace(root, scratch))
            assert provider.failures == []
            assert provider.rejections == []
            return outcome, provider.requests

        outcome, requests = asyncio.run(case())
        assert outcome.status is Status.COMPLETED
        assert outcome.report == f"FACT-01 is {job.fact(1)}"
        assert max(seen.tokens for seen in requests) < WINDOW // 2
        first = requests[1].tool_results[0].text
        assert "cut: the result has" in first
        assert len(first) < 16_000

    def test_without_a_scratch_folder_the_notice_says_to_ask_for_less(self, tmp_path: Path) -> None:
        job = FactJob(tmp_path, last_line=True, files=1, tokens_each=24_000).write()
        move_fact(tmp_path / "note-01.txt", 0.5)

        def model(seen: Seen) -> Answer:
            return Reply(seen.tool_results[0].text) if seen.tool_results else call("Read", path="note-01.txt")

        ran = run_job(job, model)
        assert "Ask for less: a smaller slice" in ran.outcome.report


def move_fact(path: Path, place: float) -> None:
    """Put the last line of a file at a place between its first (0) and its last line (1)."""
    *lines, fact = path.read_text().splitlines()
    lines.insert(int(len(lines) * place), fact)
    path.write_text("\n".join(lines) + "\n")


async def in_workspace(bench: Bench, model: Any, task: str, workspace: Workspace) -> Outcome:
    """Run a delegation whose tools are those of `workspace`, scratch folder included."""
    plan = bench.run_of(model, task, window=WINDOW, max_turns=40).plan
    tools = ("Read", "Glob", "Grep")
    plan = replace(plan, toolset=workspace.toolset(tools), tool_names=tools, spill=workspace.spill)
    return await DelegationRun(plan, bench.events.append, sleep=bench.sleep).run()
