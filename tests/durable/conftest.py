"""A fresh room for each test; most of them share one store, in which each has sessions of its own."""

from __future__ import annotations

import asyncio
import gc
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sidequest.store import Store
from tests.durable.desk import PATIENCE_MS, Room
from tests.store.builders import open_and_close
from tests.store.postgres import Server


@pytest.fixture(scope="session", autouse=True)
def imported_for_good() -> Iterator[None]:
    """Keep what was imported out of every sweep for garbage: a tenth of the time of these tests."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty store, made once: making the schema takes longer than most tests."""
    path = tmp_path_factory.mktemp("durable") / "store.db"
    asyncio.run(open_and_close(str(path)))
    return path


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def shared_store(request: pytest.FixtureRequest) -> Iterator[tuple[str, asyncio.Runner, Store]]:
    """A store that stays open, in each database, and the loop in which it is."""
    if request.param == "sqlite":
        empty: Path = request.getfixturevalue("empty_store")
        url = str(shutil.copy(empty, empty.with_name("shared.db")))
    else:
        server: Server = request.getfixturevalue("postgres")
        url = server.make_database()
    with asyncio.Runner() as runner:
        store = runner.run(Store.open(url, env={}, lock_wait_ms=PATIENCE_MS))
        yield url, runner, store
        runner.run(store.close())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two files."""
    root = tmp_path / "work"
    root.mkdir()
    (root / "a.txt").write_text("the answer is 42\n")
    (root / "b.txt").write_text("the question is lost\n")
    return root


@pytest.fixture
def room(folder: Path, shared_store: tuple[str, asyncio.Runner, Store]) -> Room:
    """A room on the shared store."""
    url, runner, store = shared_store
    return Room(folder, url, (runner, store))


@pytest.fixture
def own_room(folder: Path, tmp_path: Path, empty_store: Path) -> Room:
    """A room with a store of its own, for a test that locks, fills or damages it."""
    return Room(folder, str(shutil.copy(empty_store, tmp_path / "store.db")))


@pytest.fixture
def patient_room(own_room: Room) -> Room:
    """The same with a store that waits until a lock is gone."""
    return replace(own_room, lock_wait_ms=PATIENCE_MS)
