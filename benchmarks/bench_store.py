"""The store with 100,000 rows: what a row costs, how long until the first prompt, what a resume reads.

Measured on a file below the temporary folder: appending in batches and one round at a time (each a synced
commit), opening a session whose newest checkpoint lies 201 rows before the end, and reading the newest
128,000 tokens of a delegation of 100,000 rows and seeding a resume from them. The least of several counts.
Guards against: reading the whole transcript where its end is wanted, and work per row that grows with rows.
Run it with `make bench`, or alone: `.venv/bin/python benchmarks/bench_store.py`; an address as its argument
measures that database, which must be empty.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from benchmarks.report import Bound, finish
from sidequest.core.transcript import seed
from sidequest.store import NewCheckpoint, NewDelegation, NewMessage, NewSession, Store

ROWS = 100_000
BATCH = 1_000
ROUNDS_ALONE = 300
ROWS_AFTER_CHECKPOINT = 201
SEED_TOKENS = 128_000
REPEATS = 20
TASK = "Do the task."


def conversation(rows: int) -> Iterator[ModelMessage]:
    """A prompt, and rounds of one call with its result of 800 characters."""
    yield ModelRequest(parts=[UserPromptPart(TASK)])
    for index in range((rows - 1) // 2):
        call = ToolCallPart("Read", {"path": f"file-{index}.txt"}, tool_call_id=f"call-{index}")
        yield ModelResponse(parts=[TextPart(f"Reading file {index} on."), call])
        result = ToolReturnPart("Read", "some text " * 80, tool_call_id=f"call-{index}")
        yield ModelRequest(parts=[result])
    yield ModelResponse(parts=[TextPart("Done.")])


async def append(store: Store, session: str, lane: str | None) -> float:
    """Append a conversation in batches and return the seconds."""
    new = [
        NewMessage(f"{lane}-{n}", message, n, lane) for n, message in enumerate(conversation(ROWS), start=1)
    ]
    started = time.perf_counter()
    for first in range(0, len(new), BATCH):
        await store.transcript.append(session, new[first : first + BATCH])
    return time.perf_counter() - started


async def append_rounds(store: Store) -> float:
    """Append rounds as a run does, each in its own commit, and return the milliseconds of one."""
    await store.sessions.create(NewSession("alone", 1))
    messages = list(conversation(2 * ROUNDS_ALONE))
    started = time.perf_counter()
    for n in range(ROUNDS_ALONE):
        pair = [NewMessage(f"m{2 * n + k}", messages[2 * n + k], 1) for k in range(2)]
        await store.transcript.append("alone", pair)
    return (time.perf_counter() - started) / ROUNDS_ALONE * 1000


async def open_session(url: str) -> float:
    """Open the store and the session up to what the model sees, and return the seconds."""
    started = time.perf_counter()
    async with await Store.open(url, env={}) as store:
        await store.sessions.get("long")
        checkpoint = await store.checkpoints.newest("long")
        assert checkpoint is not None
        history = await store.transcript.history("long", after=checkpoint.through_position)
        took = time.perf_counter() - started
    assert len(history) == ROWS_AFTER_CHECKPOINT
    return took


async def seed_resume(store: Store) -> tuple[float, int]:
    """Read and seed a resume; return the seconds of CPU and the messages of the seed."""
    started = time.process_time()
    chain = await store.delegations.chain("long", "worker")
    newest = await store.transcript.newest("long", chain.ids, SEED_TOKENS)
    seeded = seed(chain.original_task, newest.messages, limit=SEED_TOKENS).messages
    return time.process_time() - started, len(seeded)


async def measure(url: str) -> tuple[dict[str, object], list[Bound]]:
    """Fill a store and measure it."""
    async with await Store.open(url, env={}) as store:
        round_ms = await append_rounds(store)
        await store.sessions.create(NewSession("long", 1))
        appended = await append(store, "long", None)
        through = f"None-{ROWS - ROWS_AFTER_CHECKPOINT}"
        await store.checkpoints.append("long", NewCheckpoint("k1", "So far.", through, 1, 1))
        await store.delegations.start(
            "long", NewDelegation("worker", "worker", TASK, TASK, "m", "independent", 1)
        )
        await append(store, "long", "worker")
        cpu, messages = min([await seed_resume(store) for _ in range(REPEATS)])
        started = time.perf_counter()
        whole = await store.transcript.history("long")
        loaded = time.perf_counter() - started
        started = time.perf_counter()
        matches = await store.search.find("long", "reading 49998")
        searched = (time.perf_counter() - started) * 1000
    opened = min([await open_session(url) for _ in range(REPEATS)])
    assert len(whole) == ROWS
    assert len(matches) == 1
    numbers: dict[str, object] = {
        "rows": ROWS,
        "appendSeconds": round(appended, 2),
        "appendMicrosPerRow": round(appended / ROWS * 1e6, 1),
        "roundMs": round(round_ms, 2),
        "openSeconds": round(opened, 4),
        "seedCpuMs": round(cpu * 1000, 1),
        "seedMessages": messages,
        "wholeHistorySeconds": round(loaded, 2),
        "searchMs": round(searched, 1),
    }
    bounds = [
        Bound("appendMicrosPerRow", appended / ROWS * 1e6, 1_000),
        Bound("openSeconds", opened, 0.5),
        Bound("seedCpuMs", cpu * 1000, 100.0),
    ]
    return numbers, bounds


def main() -> None:
    """Measure a file, or the database that is named."""
    if len(sys.argv) > 1:
        numbers, bounds = asyncio.run(measure(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            numbers, bounds = asyncio.run(measure(str(Path(folder) / "store.db")))
    finish("store", numbers, bounds)


if __name__ == "__main__":
    main()
