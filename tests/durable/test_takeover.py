"""After a kill the next process of the same machine goes on at once; one that lives keeps its session."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.runtime.hold import LEASE_MS, Hold
from sidequest.store import Holder
from sidequest.store.processes import is_dead, this_process
from tests.durable.desk import Room, in_a_loop
from tests.support.scripted_model import ScriptedModel


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def killed() -> Holder:
    """A process of this machine that has ended."""
    with subprocess.Popen(["sleep", "60"]) as process:
        holder = replace(this_process(), pid=process.pid)
        process.kill()
    return holder


@pytest.fixture
def zombie() -> Iterator[Holder]:
    """A process that was killed and that its parent has not asked for."""
    with subprocess.Popen(["sleep", "60"]) as process:
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        yield Holder("z", this_process().host, process.pid)


async def leave_to(room: Room, holder: Holder) -> str:
    """Store a session that `holder` seems to work on, and return its id."""
    async with room.desk(ScriptedModel("ok")) as desk:
        await desk.prompt("Go.")
    async with room.another_store() as theirs:
        await theirs.leases.acquire(desk.id, holder, now_ms=now_ms(), ttl_ms=LEASE_MS)
    return desk.id


async def refused(room: Room, key: str) -> bool:
    """Say whether the session is refused because somebody works on it."""
    try:
        hold = await Hold.take(room.store, key, now_ms)  # type: ignore[arg-type]
    except SidequestError as error:
        assert error.code is ErrorCode.AGENT_BUSY
        return True
    await hold.release()
    return False


class TestTakingOver:
    @in_a_loop
    async def test_a_library_user_does_not_wait_for_the_lease_of_a_killed_process(
        self, room: Room, killed: Holder
    ) -> None:
        key = await leave_to(room, killed)
        async with room.desk(ScriptedModel("Again."), continues=key) as desk:
            await desk.prompt("Go on.")

    @in_a_loop
    async def test_of_many_that_take_over_at_the_same_time_one_is_given_it(
        self, room: Room, killed: Holder
    ) -> None:
        key = await leave_to(room, killed)
        takers = [Hold.take(room.store, key, now_ms) for _ in range(8)]  # type: ignore[arg-type]
        answers = await asyncio.gather(*takers, return_exceptions=True)
        (hold,) = [answer for answer in answers if isinstance(answer, Hold)]
        refusals = [answer for answer in answers if isinstance(answer, SidequestError)]
        assert [error.code for error in refusals] == [ErrorCode.AGENT_BUSY] * 7
        await hold.release()

    @in_a_loop
    async def test_a_process_that_lives_keeps_its_session(self, room: Room) -> None:
        assert await refused(room, await leave_to(room, this_process()))

    @in_a_loop
    async def test_one_of_another_machine_keeps_its_session_until_the_lease_runs_out(
        self, room: Room, killed: Holder
    ) -> None:
        assert await refused(room, await leave_to(room, replace(killed, host="elsewhere")))

    @in_a_loop
    async def test_one_of_another_container_with_the_same_name_keeps_its_session(
        self, room: Room, killed: Holder
    ) -> None:
        name, _, start = killed.id.split("|")
        other = replace(killed, id=f"{name}|another boot pid:[1]|{start}")
        assert await refused(room, await leave_to(room, other))


class TestKnownDead:
    def test_a_number_that_another_process_was_given_since(self) -> None:
        name, counted_in, start = this_process().id.split("|")
        assert not is_dead(this_process())
        assert is_dead(replace(this_process(), id=f"{name}|{counted_in}|{int(start) + 1}"))

    def test_a_zombie(self, zombie: Holder) -> None:
        assert is_dead(zombie)

    def test_a_holder_without_a_mark_is_judged_by_its_number(self, killed: Holder) -> None:
        assert is_dead(replace(killed, id="plain"))
        assert not is_dead(replace(this_process(), id="plain"))

    def test_a_process_of_another_user_lives(self) -> None:
        assert not is_dead(Holder("plain", this_process().host, 1))
