"""A full disk, a lock, a server that is away, a file that may not be written: said clearly, nothing lost."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import Connection

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.store import Store
from tests.core.builders import call, result, says, user
from tests.store.builders import (
    S,
    a_session,
    delegation,
    new,
    now,
    on_a_store,
    outcome,
    problems,
    refused,
    valid,
)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], capture_output=True, text=True
    )
    if mount.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {mount.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def _remount(folder: Path, option: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{option}", folder], check=True)


def test_a_full_disk_is_said_and_nothing_that_was_stored_is_lost(small_disk):
    async def fill() -> None:
        async with await Store.open(str(small_disk / "store.db"), env={}) as store:
            await a_session(store, new("m0", user("go")))
            kept = ["m0"]
            with refused(ErrorCode.STORE_FULL, "no room", "Make room"):
                for number in range(1, 100):
                    said = [new(f"m{number}", says("x " * 20_000, call("c1")))]
                    await store.transcript.append(S, said)
                    kept.append(f"m{number}")
            assert [row.id for row in await store.transcript.load(S)] == kept
            assert await problems(store) == []
            with refused(ErrorCode.STORE_FULL):
                await store.transcript.append(S, [new("big", user("y " * 20_000))])

    async def again() -> None:
        async with await Store.open(str(small_disk / "store.db"), env={}) as store:
            assert await problems(store) == []
            valid(await store.transcript.history(S))
            await store.sessions.delete(S, now_ms=now())
            await a_session(store, new("m1", user("room again")))

    asyncio.run(fill())
    _remount(small_disk, "size=8m")
    asyncio.run(again())


def test_a_new_store_on_a_full_disk_is_refused(small_disk):
    (small_disk / "fill").write_bytes(b"x" * (2 * 1024 * 1024 - 4096 * 4))
    with refused(ErrorCode.STORE_FULL, str(small_disk)):
        asyncio.run(Store.open(str(small_disk / "store.db"), env={}))


def test_a_store_that_may_not_be_written_is_refused(small_disk):
    async def make() -> None:
        async with await Store.open(str(small_disk / "store.db"), env={}) as store:
            await a_session(store)

    asyncio.run(make())
    _remount(small_disk, "ro")
    for name in ("store.db", "other.db"):
        with refused(ErrorCode.STORE_READ_ONLY, name, "--store"):
            asyncio.run(Store.open(str(small_disk / name), env={}))


def test_a_disk_that_turns_read_only_meanwhile_is_said(small_disk):
    async def turn() -> None:
        async with await Store.open(str(small_disk / "store.db"), env={}) as store:
            await a_session(store)
            store._db._engine.dispose()
            _remount(small_disk, "ro")
            with refused(ErrorCode.STORE_READ_ONLY):
                await store.transcript.append(S, [new("m1", user("go"))])

    asyncio.run(turn())


class TestLocks:
    def test_another_programs_write_is_waited_for(self, tmp_path):
        async def wait(path: str) -> float:
            async with await Store.open(path, env={}, lock_wait_ms=5_000) as store:
                with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
                    other.execute("BEGIN IMMEDIATE")
                    asyncio.get_running_loop().call_later(0.3, other.execute, "COMMIT")
                    started = time.monotonic()
                    await a_session(store)
                    return time.monotonic() - started

        assert 0.2 < asyncio.run(wait(str(tmp_path / "store.db"))) < 4

    def test_a_lock_that_stays_is_said_and_what_was_stored_stays(self, tmp_path):
        async def wait(path: str) -> None:
            async with await Store.open(path, env={}, lock_wait_ms=100) as store:
                await a_session(store, new("m1", user("go")))
                with closing(sqlite3.connect(path, isolation_level=None)) as other:
                    other.execute("BEGIN IMMEDIATE")
                    with refused(ErrorCode.STORE_LOCKED, "another program") as error:
                        await store.transcript.append(S, [new("m2", says("ok"))])
                    assert error.value.failure.retriable
                    assert [row.id for row in await store.transcript.load(S)] == ["m1"]
                    other.execute("ROLLBACK")
                await store.transcript.append(S, [new("m2", says("ok"))])
                assert await problems(store) == []

        asyncio.run(wait(str(tmp_path / "store.db")))

    def test_the_same_on_a_server(self, postgres):
        async def wait(url: str) -> None:
            async with await Store.open(url, env={}, lock_wait_ms=100) as store:
                await a_session(store, new("m1", user("go")))
                with psycopg.connect(url) as other:
                    other.execute("SELECT id FROM sessions FOR UPDATE")
                    with refused(ErrorCode.STORE_LOCKED, "another program"):
                        await store.transcript.append(S, [new("m2", says("ok"))])
                await store.transcript.append(S, [new("m2", says("ok"))])
                assert [row.id for row in await store.transcript.load(S)] == ["m1", "m2"]

        asyncio.run(wait(postgres.emptied_database()))


class TestServers:
    @pytest.mark.parametrize(
        "url",
        [
            "postgresql://nobody@/shared?host=/nowhere",
            "postgresql://nobody@127.0.0.1:1/shared",
            "postgresql://nobody:secret-secret@name.invalid/shared",
        ],
    )
    def test_one_that_is_away_is_named_without_its_password(self, url):
        with refused(ErrorCode.STORE_UNREACHABLE, "postgresql://nobody", "Start the server") as error:
            asyncio.run(Store.open(url, env={}))
        assert "secret" not in str(error.value)

    def test_a_database_or_a_user_that_is_not_there_is_said(self, postgres):
        for url in (postgres.url("nowhere"), postgres.url("shared").replace("sidequest@", "somebody@")):
            with refused(ErrorCode.STORE_UNREACHABLE):
                asyncio.run(Store.open(url, env={}))

    def test_a_connection_that_broke_is_made_again(self, postgres):
        async def work(url: str) -> None:
            async with await Store.open(url, env={}) as store:
                await a_session(store, new("m1", user("go")))
                postgres.run(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = 'shared' AND pid <> pg_backend_pid()"
                )
                await store.transcript.append(S, [new("m2", says("ok"))])
                assert len(await store.transcript.load(S)) == 2

        asyncio.run(work(postgres.emptied_database()))


@pytest.mark.parametrize("content", [b"not a database at all" * 300, b"SQLite format 3\x00" + b"\xff" * 4096])
def test_a_file_that_is_no_database_is_said_and_left_alone(tmp_path, content):
    path = tmp_path / "store.db"
    path.write_bytes(content)
    with refused(ErrorCode.STORE_DAMAGED, str(path)):
        asyncio.run(Store.open(str(path), env={}))
    assert path.read_bytes() == content


def test_a_folder_in_the_place_of_the_file_is_said(tmp_path):
    with refused(ErrorCode.STORE_UNREACHABLE, str(tmp_path)):
        asyncio.run(Store.open(str(tmp_path), env={}))


class TestCancellation:
    @on_a_store
    async def test_a_write_that_is_cancelled_is_finished_or_never_begun(self, store):
        await a_session(store, new("m0", user("go")))
        stored = 0
        for number in range(40):
            job = asyncio.create_task(store.transcript.append(S, [new(f"m{number + 1}", user("x" * 2_000))]))
            await asyncio.sleep(0.0005 * (number % 5))
            job.cancel()
            try:
                await job
            except asyncio.CancelledError:
                stored += 1
        rows = await store.transcript.load(S)
        assert [row.position for row in rows] == list(range(1, len(rows) + 1))
        assert stored > 0
        assert await problems(store) == []

    @on_a_store
    async def test_a_failure_behind_a_cancellation_is_not_swallowed(self, store):
        await a_session(store, new("m1", user("go")))
        job = asyncio.create_task(store.transcript.append(S, [new("m1", user("taken"))]))
        await asyncio.sleep(0)
        job.cancel()
        with pytest.raises(asyncio.CancelledError) as cancelled:
            await job
        assert isinstance(cancelled.value.__cause__, SidequestError)

    def test_a_loop_that_ends_waits_for_the_transaction_that_runs(self, tmp_path):
        began, ended = threading.Event(), threading.Event()

        def slow(_: Connection) -> None:
            began.set()
            time.sleep(0.1)
            ended.set()

        async def main() -> tuple[Store, asyncio.Task[None]]:
            store = await Store.open(str(tmp_path / "s.db"), env={})
            writing = asyncio.create_task(store._db.write(slow))
            await asyncio.to_thread(began.wait)
            return store, writing

        store, writing = asyncio.run(main())
        assert writing.cancelled()
        assert ended.is_set()
        asyncio.run(store.close())


@on_a_store
async def test_what_waits_for_its_turn_when_the_store_is_closed_is_stored(store, store_url):
    await a_session(store)
    jobs = [
        asyncio.create_task(store.transcript.append(S, [new(f"m{number}", user("go"))]))
        for number in range(4)
    ]
    await asyncio.sleep(0)
    await store.close()
    await asyncio.gather(*jobs)
    async with await Store.open(store_url, env={}) as again:
        assert len(await again.transcript.load(S)) == 4


@on_a_store
async def test_the_one_error_that_no_future_can_carry_is_told(store):
    with pytest.raises(RuntimeError, match="StopIteration"):
        await asyncio.wait_for(store._db.write(lambda tx: next(iter(()))), 30)


@on_a_store
async def test_an_error_within_a_transaction_leaves_nothing_of_it(store):
    await a_session(store, new("m1", user("go")), new("m2", says("", call("c1"))))
    await store.delegations.start(S, delegation("d1"))
    await store.delegations.settle(S, outcome("d1"), now())
    await store.delegations.deliver(S, new("m3", user("report")), ["d1"])
    with refused(ErrorCode.STORE_CONFLICT):
        await store.transcript.record_result(S, "m2", result("r", "c1"), now(), delivers=["d1"])
    assert (await store.transcript.load(S))[1].results == ()
