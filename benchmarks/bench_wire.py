"""CPU per turn of a long delegate: the lean client beside the SDK's own, in one run.

Two shapes: 200 turns of 50 tokens, and 33 turns of 2,000. Bare pydantic-ai loop, same script, same provider
on loopback in another thread; only the CPU of the client's thread counts, the least of three runs.
Guards against: the SDK's recursive walk coming back into our requests. When a release of the SDK makes
`models/wire.py` unnecessary, the ratio goes to 1 here.
Run it with `make bench`, or alone: `.venv/bin/python benchmarks/bench_wire.py`.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.usage import UsageLimits

from benchmarks.report import Bound, finish
from sidequest.models.wire import lean
from tests.support.neutral import Reply, Seen
from tests.support.provider import LoopbackProvider

REPEATS = 3


def run(turns: int, tokens: int, *, lean_client: bool) -> float:
    """Return CPU milliseconds per turn."""

    def script(seen: Seen) -> Reply:
        if len(seen.tool_results) >= turns - 1:
            return Reply("done")
        return Reply(tool_calls=[("look", {"number": len(seen.tool_results)})])

    def look(number: int) -> str:
        return "word " * (tokens * 4 // 5)

    with LoopbackProvider(script).run_in_thread() as provider:
        model = provider.chat_model()
        assert isinstance(model, OpenAIChatModel)
        if lean_client:
            lean(model.client)
        agent = Agent(model, tools=[look])
        started = time.thread_time()
        asyncio.run(agent.run("Look around.", usage_limits=UsageLimits(request_limit=None)))
        cpu = time.thread_time() - started
        assert len(provider.requests) == turns, len(provider.requests)
    return 1000 * cpu / turns


def main() -> None:
    """Measure both shapes with both clients."""
    numbers: dict[str, object] = {}
    bounds: list[Bound] = []
    run(5, 50, lean_client=False)
    for turns, tokens, most in ((200, 50, 0.35), (33, 2_000, 0.7)):
        pairs = [
            (run(turns, tokens, lean_client=True), run(turns, tokens, lean_client=False))
            for _ in range(REPEATS)
        ]
        ours, stock = min(a for a, _ in pairs), min(b for _, b in pairs)
        name = f"{turns}x{tokens}"
        numbers[name] = {
            "cpuMsPerTurn": round(ours, 2),
            "stockCpuMsPerTurn": round(stock, 2),
            "ratio": round(ours / stock, 3),
        }
        bounds.append(Bound(f"{name}.ratio", ours / stock, most))
    finish("wire", numbers, bounds)


if __name__ == "__main__":
    main()
