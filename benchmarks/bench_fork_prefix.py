"""The share of a fork's first request that a provider's prefix cache would serve.

A parent reads 20 files of 500 tokens, then forks. Counted is what its newest request and the fork's have in
common from the first byte on, in the order in which a provider reads them (tools, instructions, messages).
Beside it the same delegation with tools of its own, so without the shared prefix: it is granted a host tool
that the parent lacks.
Guards against: a word that gets in front of the branch point and makes each fork pay for the whole of it.
Run it with `make bench`, or alone: `.venv/bin/python benchmarks/bench_fork_prefix.py`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from pydantic_ai import Agent
from pydantic_ai.usage import UsageLimits

from benchmarks.report import Bound, finish
from sidequest.runtime.tools import Delegation
from sidequest.runtime.workspace import Workspace
from sidequest.subagents.catalog import Catalog
from tests.support.neutral import Reply, Seen
from tests.support.provider import LoopbackProvider
from tests.support.team import lookup, worker

FILES, TOKENS = 20, 500


def served(root: Path, *, shared: bool) -> float:
    """Return the share of the fork's request that equals the parent's from the first byte on."""
    parents: list[Seen] = []
    forks: list[Seen] = []

    def script(seen: Seen) -> Reply:
        if any("You are now helper" in text for text in seen.user_texts):
            forks.append(seen)
            return Reply("Report.")
        parents.append(seen)
        done = len(seen.tool_results)
        if done < FILES:
            return Reply(tool_calls=[("Read", {"path": f"{done}.txt"})])
        if done == FILES:
            return Reply(tool_calls=[("Task", {"agent": "helper", "task": "Look.", "context": "fork"})])
        return Reply(tool_calls=[("TaskWait", {})]) if done == FILES + 1 else Reply("Thanks.")

    async def work() -> None:
        async with LoopbackProvider(script) as provider:
            workspace = Workspace(root)
            names = ("Read", "Grep") if shared else ("Read", "Grep", "lookup")
            delegation = Delegation[None](
                Catalog.from_definitions([worker("helper", tools=names)]), workspace, tools=[lookup]
            )
            agent = Agent(
                provider.chat_model(),
                instructions="You are the parent.",
                toolsets=[workspace.toolset()],
                capabilities=[delegation],
            )
            await agent.run("Look around.", usage_limits=UsageLimits(request_limit=None))

    asyncio.run(work())
    before, after = _as_read(parents[FILES]), _as_read(forks[0])
    common = next((i for i, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]), None)
    return (len(before) if common is None else common) / len(after)


def _as_read(seen: Seen) -> str:
    return json.dumps(seen.json.get("tools")) + json.dumps(seen.json["messages"])


def main() -> None:
    """Measure a fork with the shared prefix and one without."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for number in range(FILES):
            (root / f"{number}.txt").write_text("word " * (TOKENS * 4 // 5))
        with_prefix, without = served(root, shared=True), served(root, shared=False)
    numbers = {"served": round(with_prefix, 3), "servedWithOwnTools": round(without, 3)}
    finish("fork_prefix", numbers, [Bound("not served", 1 - with_prefix, 0.1)])


if __name__ == "__main__":
    main()
