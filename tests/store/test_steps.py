"""Long sessions are copied and removed in steps: others write in between, readers see all or nothing."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.store import Store
from sidequest.store import database as database_module
from sidequest.store import sessions as sessions_module
from sidequest.store import unfinished as unfinished_module
from sidequest.store.tables import metadata
from tests.core.builders import user
from tests.store.builders import S, a_session, new, now, numbered, on_a_store, problems, refused, same
from tests.store.test_branches import a_long_session


@pytest.fixture(autouse=True)
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rows are a step."""
    monkeypatch.setattr(unfinished_module, "ROWS_OF_A_STEP", 2)
    monkeypatch.setattr(sessions_module, "ROWS_OF_A_STEP", 2)
    monkeypatch.setattr(database_module, "PAUSE_S", 0)


def between_steps(store: Store, do: Callable[[int], Awaitable[None]]) -> list[int]:
    """Await `do` between two steps of `store`, with the number of the step; returns these numbers."""
    steps: list[int] = []

    async def pause() -> None:
        steps.append(len(steps) + 1)
        await do(steps[-1])

    store._db.let_others_write = pause  # type: ignore[method-assign]
    return steps


async def rows_of(store: Store, session_id: str) -> int:
    """How many rows of any table say that they belong to a session."""

    def count(tx: Any) -> int:
        tables = [table for table in metadata.sorted_tables if "session_id" in table.c]
        return sum(len(tx.execute(t.select().where(t.c.session_id == session_id)).all()) for t in tables)

    return await store._db.read(count)


@on_a_store
async def test_a_copy_in_steps_is_the_copy_that_one_step_makes(store, monkeypatch):
    await a_long_session(store)
    await store.sessions.fork(S, "f", at_ms=now())
    monkeypatch.setattr(sessions_module, "ROWS_OF_A_STEP", 1_000)
    await store.sessions.fork(S, "g", at_ms=now())
    for lane in (None, "d1", "d2"):
        assert same(await store.transcript.history("f", lane), await store.transcript.history("g", lane))
    loaded = [[r.results for r in await store.transcript.load(key)] for key in ("f", "g")]
    assert loaded[0] == loaded[1]
    assert [k.id for k in await store.checkpoints.list("f")] == ["k1", "k2"]
    assert await problems(store) == []


@on_a_store
async def test_others_write_and_readers_see_all_of_a_session_or_nothing(store, store_url):
    await a_long_session(store)
    async with await Store.open(store_url, env={}) as other:
        await a_session(other, session_id="other")

        async def look(step: int) -> None:
            await other.transcript.append("other", [new(f"{len(steps)}-{now()}", user("hi"))])
            assert {row.id for row in await other.sessions.list()} == shown
            assert {match.session_id for match in await other.search.find(None, "first")} <= shown
            assert {row.session_id for row in await other.delegations.list()} <= shown
            for hidden in {S, "f"} - shown:
                with refused(ErrorCode.SESSION_UNKNOWN):
                    await other.sessions.get(hidden)
                with refused(ErrorCode.SESSION_UNKNOWN):
                    await other.transcript.append(hidden, [new("z", user("z"))])

        shown = {S, "other"}
        steps = between_steps(store, look)
        await store.sessions.fork(S, "f", at_ms=now())
        copied = len(steps)
        assert copied > 5
        shown = {"f", "other"}
        await store.sessions.delete(S, now_ms=now())
        assert len(steps) > copied + 4
        assert await rows_of(store, S) == 0
        assert await problems(other) == []


@on_a_store
async def test_what_was_said_later_does_not_come_along_and_a_cut_source_is_told(store):
    await a_long_session(store)

    async def say(step: int) -> None:
        await store.transcript.append(S, [new(f"late-{step}", user("late"))])

    between_steps(store, say)
    assert (await store.sessions.fork(S, "f", at_ms=now())).messages == 5
    assert await problems(store) == []

    async def cut(step: int) -> None:
        if step == 2:
            await store.delegations.interrupt_running(S, now())
            await store.sessions.truncate(S, "m1")

    between_steps(store, cut)
    with refused(ErrorCode.STORE_CONFLICT, "cut or removed"):
        await store.sessions.fork(S, "g", at_ms=now())
    assert await rows_of(store, "g") == 0


def bytes_of(folder: Path) -> bytes:
    """What the files of a store hold, its log of changes included."""
    return b"".join(path.read_bytes() for path in folder.glob("store.db*"))


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("job", ["fork", "delete"])
def test_what_a_killed_process_left_behind_is_removed_by_the_next(
    empty_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str
) -> None:
    async def gone(session_id: str) -> None:
        raise SidequestError(ErrorCode.STORE_FAILED, "killed", "")

    async def run(url: str, at: int) -> bool:
        async def kill(step: int) -> None:
            if step == at:
                store.sessions._remove = gone  # type: ignore[method-assign]
                raise Killed

        finished = True
        async with await Store.open(url, env={}) as store:
            await a_long_session(store)
            between_steps(store, kill)
            try:
                if job == "fork":
                    await store.sessions.fork(S, "f", at_ms=now())
                else:
                    await store.sessions.delete(S, now_ms=now())
            except Killed:
                finished = False
        monkeypatch.setattr(unfinished_module, "is_dead", lambda holder: True)
        async with await Store.open(url, env={}) as store:
            if store._sweeping is not None:
                await store._sweeping
            left = {"f": await rows_of(store, "f"), S: await rows_of(store, S)}
            assert (left["f"] > 0) == (finished and job == "fork")
            assert (left[S] > 0) == (job == "fork")
            assert await store.settings.all("store/unfinished") == {}
            assert await problems(store) == []
        return finished

    at = 1
    while not asyncio.run(run(str(shutil.copy(empty_file, tmp_path / f"{at}.db")), at)):
        at += 1
    assert at > 5


def test_what_was_removed_is_not_in_the_file_any_more(empty_file: Path, tmp_path: Path) -> None:
    url = str(shutil.copy(empty_file, tmp_path / "store.db"))

    async def run() -> None:
        async with await Store.open(url, env={}) as store:
            await a_session(store, *(new(f"k{n}", user(f"kept {n}")) for n in range(50)), session_id="kept")
            await a_session(store, *(new(f"m{n}", user(f"zanzibar{n}")) for n in range(50)), title="zanzibar")
            await store.events.append(S, [numbered(1, "zanzibar")])
            await store.sessions.delete(S, now_ms=now())
            assert len(await store.search.find("kept", "kept")) == 10
            assert await problems(store) == []
            assert b"anzibar" not in bytes_of(tmp_path)

    asyncio.run(run())
