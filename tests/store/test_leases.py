"""Two processes on one session: the second is refused with the holder named, until the lease runs out."""

from __future__ import annotations

import asyncio
import threading
import time

from sqlalchemy import Connection, update

from sidequest.core.errors import ErrorCode
from sidequest.store import Store
from sidequest.store import leases as leases_module
from sidequest.store import sessions as sessions_module
from sidequest.store.tables import leases
from tests.core.builders import user
from tests.store.builders import S, a_session, holder, new, on_a_store, refused

CLOCK = leases_module.clock


@on_a_store
async def test_the_second_process_is_told_who_works_on_the_session(store):
    await a_session(store)
    await store.leases.acquire(S, holder("h-1", pid=11), now_ms=0, ttl_ms=1_000)
    with refused(ErrorCode.AGENT_BUSY, "process 11", "host-1", "1970-01-01 00:00:00 UTC") as error:
        await store.leases.acquire(S, holder("h-2", pid=22), now_ms=999, ttl_ms=1_000)
    assert error.value.failure.details["pid"] == 11
    assert error.value.failure.retriable


@on_a_store
async def test_a_lease_that_ran_out_is_taken_over(store):
    await a_session(store)
    old = await store.leases.acquire(S, holder("h-1"), now_ms=0, ttl_ms=1_000)
    taken = await store.leases.acquire(S, holder("h-2", pid=22), now_ms=1_000, ttl_ms=1_000)
    assert (taken.since_ms, taken.expires_at_ms) == (1_000, 2_000)
    with refused(ErrorCode.AGENT_BUSY, "process 22"):
        await store.leases.renew(old, now_ms=1_001, ttl_ms=1_000)
    await store.leases.release(old)
    assert await store.leases.get(S) == taken


@on_a_store
async def test_a_lease_is_renewed_also_late_while_nobody_took_it(store):
    await a_session(store)
    lease = await store.leases.acquire(S, holder(), now_ms=0, ttl_ms=10)
    assert (await store.leases.renew(lease, now_ms=50, ttl_ms=10)).expires_at_ms == 60
    again = await store.leases.acquire(S, holder(), now_ms=55, ttl_ms=10)
    assert (again.since_ms, again.expires_at_ms) == (0, 65)


@on_a_store
async def test_a_lease_given_back_is_free_at_once(store):
    await a_session(store)
    lease = await store.leases.acquire(S, holder("h-1"), now_ms=0, ttl_ms=1_000)
    await store.leases.release(lease)
    await store.leases.release(lease)
    assert await store.leases.get(S) is None
    await store.leases.acquire(S, holder("h-2"), now_ms=1, ttl_ms=1_000)
    with refused(ErrorCode.AGENT_BUSY):
        await store.leases.renew(lease, now_ms=2, ttl_ms=10)


@on_a_store
async def test_a_process_that_lost_its_lease_cannot_write_any_more(store, store_url):
    await a_session(store)
    await store.leases.acquire(S, holder("h-1"), now_ms=0, ttl_ms=10)
    await store.transcript.append(S, [new("m1", user("before"))])
    async with await Store.open(store_url, env={}) as other:
        await other.leases.acquire(S, holder("h-2", pid=22), now_ms=10, ttl_ms=10)
        with refused(ErrorCode.AGENT_BUSY, "taken over") as error:
            await store.transcript.append(S, [new("m2", user("after"))])
        assert error.value.failure.details["pid"] == 22
        await other.transcript.append(S, [new("m3", user("theirs"))])
    assert [row.id for row in await store.transcript.load(S)] == ["m1", "m3"]


@on_a_store
async def test_a_write_that_waited_for_a_takeover_is_refused(store, store_url):
    await a_session(store)
    await store.leases.acquire(S, holder("h-1"), now_ms=0, ttl_ms=10)
    begun = threading.Event()

    def take_over(tx: Connection) -> None:
        tx.execute(update(leases).where(leases.c.session_id == S).values(holder="h-2"))
        begun.set()
        time.sleep(0.1)

    async with await Store.open(store_url, env={}) as other:
        taking = asyncio.create_task(other._db.write_session(S, take_over, fenced=False))
        await asyncio.to_thread(begun.wait)
        with refused(ErrorCode.AGENT_BUSY):
            await store.transcript.append(S, [new("late", user("x"))])
        await taking
    assert await store.transcript.load(S) == []


@on_a_store
async def test_a_write_beside_giving_back_is_let_through(store):
    await a_session(store)
    for number in range(20):
        lease = await store.leases.acquire(S, holder("h-1"), now_ms=0, ttl_ms=1_000)
        await asyncio.gather(store.leases.release(lease), store.sessions.rename(S, f"Title {number}"))


@on_a_store
async def test_an_asker_who_is_cancelled_leaves_no_lease(store):
    await a_session(store)
    cancelled = 0
    for number in range(20):
        asking = asyncio.create_task(store.leases.acquire(S, holder("h-1"), now_ms=0, ttl_ms=1_000))
        await asyncio.sleep(0.0005 * (number % 5))
        asking.cancel()
        try:
            await store.leases.release(await asking)
        except asyncio.CancelledError:
            cancelled += 1
        assert await store.leases.get(S) is None
        await store.sessions.rename(S, "Free")
    assert cancelled


@on_a_store
async def test_of_many_who_ask_at_the_same_time_one_is_given_the_lease(store, store_url):
    await a_session(store)
    async with await Store.open(store_url, env={}) as other:
        asked = [
            (store if n % 2 else other).leases.acquire(S, holder(f"h-{n}"), now_ms=0, ttl_ms=10)
            for n in range(8)
        ]
        answers = await asyncio.gather(*asked, return_exceptions=True)
    refusals = [answer for answer in answers if isinstance(answer, Exception)]
    assert len(refusals) == 7
    assert {error.code for error in refusals} == {ErrorCode.AGENT_BUSY}


def test_on_a_server_its_clock_decides_whatever_the_callers_say(postgres, monkeypatch):
    async def ask() -> None:
        async with await Store.open(postgres.emptied_database(), env={}) as store:
            await a_session(store)
            here = time.time_ns() // 1_000_000
            hour = 3_600_000
            lease = await store.leases.acquire(S, holder("h-1"), now_ms=here - hour, ttl_ms=hour // 2)
            assert (lease.since_ms, lease.expires_at_ms) == (here - hour, here - hour // 2)
            store._db.held.clear()
            with refused(ErrorCode.AGENT_BUSY, "process 11"):
                await store.leases.acquire(S, holder("h-2"), now_ms=here + hour, ttl_ms=hour)
            with refused(ErrorCode.AGENT_BUSY):
                await store.sessions.delete(S, now_ms=here + hour)
            # A reader compares with the clock of this machine.
            seen = await store.leases.get(S)
            assert seen is not None and seen.holder == (await store.leases.all())[0].holder
            assert seen.expires_at_ms > here + hour // 4
            renewed = await store.leases.renew(lease, now_ms=here, ttl_ms=hour)
            assert renewed.expires_at_ms == here + hour

    monkeypatch.setattr(leases_module, "clock", CLOCK)
    monkeypatch.setattr(sessions_module, "clock", CLOCK)
    asyncio.run(ask())


@on_a_store
async def test_an_unknown_session_has_no_lease(store):
    with refused(ErrorCode.SESSION_UNKNOWN):
        await store.leases.acquire("s-9", holder(), now_ms=0, ttl_ms=10)
