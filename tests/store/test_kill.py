"""A process killed at any instant loses nothing that was stored, and leaves nothing halfway."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import pytest

from sidequest.core.errors import ErrorCode
from sidequest.store import Store
from tests.store.builders import a_session, holder, problems, refused, valid
from tests.store.worker import HOLD_MS, helper_process

KILLS = 30
KILLS_OF_A_SESSION = 3
KILLS_WHILE_OPENING = 6
"""The first ones come at any time after the start, the others after the worker has stored something."""
LONGEST_LIFE_S = 0.08


@pytest.fixture(scope="session")
def helper():
    with helper_process() as helper:
        yield helper


@pytest.mark.slow
def test_thirty_kills_at_random_instants(store_url, tmp_path, helper):
    chance = random.Random(7)
    interrupted, kill = set(), -1
    # On a slow machine a life is over before a delegation began: more of them are spent until enough have.
    while (kill := kill + 1) < KILLS or len(interrupted) <= KILLS // 6:
        session, notes = f"s{kill // KILLS_OF_A_SESSION}", tmp_path / f"notes-{kill // KILLS_OF_A_SESSION}"
        before = notes.stat().st_size if notes.exists() else 0
        pid = helper.start("play", store_url, session, notes)
        if kill >= KILLS_WHILE_OPENING:
            _wait_for_more(notes, before)
        time.sleep(chance.uniform(0, LONGEST_LIFE_S))
        helper.kill(pid)
        said = notes.read_text().splitlines() if notes.exists() else []
        interrupted |= asyncio.run(_everything_noted_is_there(store_url, session, said))
    asyncio.run(_everything_is_sound(store_url))


def _wait_for_more(notes: Path, before: int) -> None:
    deadline = time.monotonic() + 60
    while not notes.exists() or notes.stat().st_size <= before:
        assert time.monotonic() < deadline
        time.sleep(0.002)


async def _everything_noted_is_there(url: str, session: str, notes: list[str]) -> set[str]:
    """Check a session after a kill and return the delegations that ran when it came."""
    async with await Store.open(url, env={}) as store:
        if session not in [row.id for row in await store.sessions.list()]:
            assert notes == []
            return set()
        assert await problems(store, session) == []
        delegations = {row.id: row for row in await store.delegations.list(session)}
        rows = {}
        for lane in (None, *delegations):
            valid(await store.transcript.history(session, lane))
            rows |= {row.id: row for row in await store.transcript.load(session, lane)}
        checkpoints = {row.id for row in await store.checkpoints.list(session)}
        newest_event = await store.events.newest_number(session)
    for kind, *words in map(str.split, notes):
        match kind:
            case "message":
                assert words[0] in rows
            case "result":
                found = {r.tool_call_id: r.part.outcome for r in rows[words[0]].results}
                assert found[words[1]] == "success"
            case "delivered":
                assert words[0] in rows
                assert delegations[words[1]].delivered_by == words[0]
            case "settled":
                assert delegations[words[0]].status == "completed"
            case "event":
                assert newest_event >= int(words[0])
            case "checkpoint":
                assert words[0] in checkpoints
    return {key for key, row in delegations.items() if row.status == "running"}


async def _everything_is_sound(url: str) -> None:
    async with await Store.open(url, env={}) as store:
        assert await problems(store) == []


def test_a_second_process_is_refused_and_takes_over_after_a_kill(store_url, tmp_path, helper):
    async def alone() -> None:
        async with await Store.open(store_url, env={}) as store:
            await a_session(store, session_id="s")

    async def beside(pid: int, now_ms: int) -> None:
        async with await Store.open(store_url, env={}) as store:
            with refused(ErrorCode.AGENT_BUSY, f"process {pid} on host-1"):
                await store.leases.acquire("s", holder("me"), now_ms=now_ms, ttl_ms=10)

    async def after() -> None:
        async with await Store.open(store_url, env={}) as store:
            await store.leases.acquire("s", holder("me"), now_ms=HOLD_MS, ttl_ms=10)

    asyncio.run(alone())
    notes = tmp_path / "notes"
    pid = helper.start("hold", store_url, "s", notes)
    _wait_for_more(notes, 0)
    asyncio.run(beside(pid, 1))
    helper.kill(pid)
    asyncio.run(beside(pid, HOLD_MS - 1))
    asyncio.run(after())
