"""Both databases run the same tests: `store_url` is a fresh, empty store in each of them."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from sidequest.store import leases, sessions
from tests.store.builders import open_and_close
from tests.store.postgres import Server


@pytest.fixture(scope="session")
def empty_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty SQLite store, made once: making the schema takes longer than most tests."""
    path = tmp_path_factory.mktemp("template") / "store.db"
    asyncio.run(open_and_close(str(path)))
    return path


@pytest.fixture(autouse=True)
def callers_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases are measured by the clock of the tests, on a server too."""
    for module in (leases, sessions):
        monkeypatch.setattr(module, "clock", lambda tx, caller_ms: caller_ms)


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store."""
    if request.param == "sqlite":
        return str(shutil.copy(request.getfixturevalue("empty_file"), tmp_path / "store.db"))
    server: Server = request.getfixturevalue("postgres")
    return server.emptied_database()
