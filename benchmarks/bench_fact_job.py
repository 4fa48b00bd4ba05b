"""The 32-file job: what a delegate sends and what it costs, beside the same loop in bare pydantic-ai.

Measured: requests, rejections, tokens sent (as the provider counts them), compactions, and CPU seconds of the
client's thread per turn. The bare loop has the same model, tools and files and a window without end; its
history only grows. Both run in this process, one after the other, three times; the least CPU counts.
Guards against: compaction that loses facts, resends too much, or makes a turn dearer than the loop itself.
Run it with `make bench`, or alone: `.venv/bin/python benchmarks/bench_fact_job.py`.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from pydantic_ai import Agent
from pydantic_ai.usage import UsageLimits

from benchmarks.report import Bound, finish
from sidequest.runtime.workspace import Workspace
from tests.support.delegating import Bench
from tests.support.fact_job import FactJob
from tests.support.provider import LoopbackProvider

WINDOW = 16_000
INSTRUCTIONS = "You are the subagent worker. Read files and report."
REPEATS = 3


@dataclass(frozen=True)
class Measured:
    """One run of the job."""

    facts: int
    requests: int
    rejections: int
    tokens: int
    turns: int
    compactions: int
    cpu_s: float


def delegate(job: FactJob) -> Measured:
    """Run the job as a delegation in a window that is four times too small."""
    with LoopbackProvider(job.script, window=WINDOW).run_in_thread() as provider:
        bench = Bench(job.root)
        model = provider.chat_model()
        started = time.thread_time()
        outcome = asyncio.run(bench.outcome(model, job.task, window=WINDOW, instructions=INSTRUCTIONS))
        cpu = time.thread_time() - started
        return Measured(
            job.found(outcome.report),
            len(provider.requests),
            len(provider.rejections),
            sum(seen.tokens for seen in provider.requests),
            outcome.turns,
            outcome.compactions,
            cpu,
        )


def bare(job: FactJob) -> Measured:
    """Run the same job with nothing around pydantic-ai's loop, in a window that never ends."""
    with LoopbackProvider(job.script).run_in_thread() as provider:
        toolset = Workspace(job.root).toolset(("Read", "Glob", "Grep"))
        agent = Agent(provider.chat_model(), instructions=INSTRUCTIONS, toolsets=[toolset])
        started = time.thread_time()
        with Agent.parallel_tool_call_execution_mode("sequential"):
            result = asyncio.run(agent.run(job.task, usage_limits=UsageLimits(request_limit=None)))
        cpu = time.thread_time() - started
        return Measured(
            job.found(result.output),
            len(provider.requests),
            len(provider.rejections),
            sum(seen.tokens for seen in provider.requests),
            len(provider.requests),
            0,
            cpu,
        )


def main() -> None:
    """Measure both, for facts on the first and on the last line, and check the bounds."""
    numbers: dict[str, object] = {}
    bounds: list[Bound] = []
    for name, last_line in (("firstLine", False), ("lastLine", True)):
        with tempfile.TemporaryDirectory() as folder:
            job = FactJob(Path(folder), last_line).write()
            bare(job)
            pairs = [(delegate(job), bare(job)) for _ in range(REPEATS)]
        ours = min((pair[0] for pair in pairs), key=lambda m: m.cpu_s)
        theirs = min((pair[1] for pair in pairs), key=lambda m: m.cpu_s)
        ratio = (ours.cpu_s / ours.turns) / (theirs.cpu_s / theirs.turns)
        numbers[name] = {
            "facts": f"{ours.facts} of {job.files}",
            "requests": ours.requests,
            "rejections": ours.rejections,
            "tokensSent": ours.tokens,
            "turns": ours.turns,
            "compactions": ours.compactions,
            "cpuMsPerTurn": round(1000 * ours.cpu_s / ours.turns, 2),
            "bareTokensSent": theirs.tokens,
            "bareCpuMsPerTurn": round(1000 * theirs.cpu_s / theirs.turns, 2),
            "cpuRatio": round(ratio, 3),
        }
        bounds += [
            Bound(f"{name}.factsMissing", job.files - ours.facts, 0),
            Bound(f"{name}.rejections", ours.rejections, 0),
            Bound(f"{name}.tokensSent", ours.tokens, 240_000),
            Bound(f"{name}.cpuRatio", ratio, 1.1),
        ]
    finish("fact-job", numbers, bounds)


if __name__ == "__main__":
    main()
