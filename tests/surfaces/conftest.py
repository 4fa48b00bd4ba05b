"""The command line in this process, in a folder and a home of its own, without keys."""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from sidequest.models.providers import PROVIDERS
from sidequest.surfaces.cli import main
from tests.store.builders import open_and_close
from tests.surfaces.stored import SESSION, harbour_in, store_of

SOURCES = {
    "src/harbour.py": "BERTH_LIMIT = 12\n\n\ndef berths_free(taken):\n    return BERTH_LIMIT - taken\n",
    "src/tides.py": "# Tides come from the table of the port.\nHIGH_WATER_HOUR = 14\n",
    "README.md": "# Harbour\n\nBerths and tides.\n",
}


@dataclass(frozen=True)
class Result:
    """What a command left behind."""

    code: int
    out: str
    err: str


Cli = Callable[..., Result]


class Stdin(io.StringIO):
    """Standard input that says whether it is a terminal."""

    def __init__(self, text: str, *, tty: bool) -> None:
        super().__init__(text)
        self._tty = tty

    def isatty(self) -> bool:
        return self._tty


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without settings, definitions and keys; nothing of the developer's own is seen."""
    for facts in PROVIDERS:
        for name in (*facts.key_variables, facts.url_variable or ""):
            monkeypatch.delenv(name, raising=False)
    for name in [name for name in os.environ if name.startswith("SIDEQUEST_")]:
        if name != "SIDEQUEST_UPDATE_SNAPSHOTS":
            monkeypatch.delenv(name)
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / ".config"))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    return folder


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty store, made once: making the schema takes longer than most commands."""
    file = tmp_path_factory.mktemp("template") / "sidequest.db"
    asyncio.run(open_and_close(str(file)))
    return file


@pytest.fixture
def ready_store(home: Path, empty_store: Path) -> Path:
    """The user's own store, empty and ready."""
    file = store_of(home)
    file.parent.mkdir(parents=True)
    return Path(shutil.copy(empty_store, file))


@pytest.fixture(scope="session")
def harbour_store(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Path:
    """A store with the conversation of `tests.surfaces.stored`, written once."""
    folder = tmp_path_factory.mktemp("harbour")
    file = store_of(folder)
    file.parent.mkdir(parents=True)
    shutil.copy(empty_store, file)
    harbour_in(folder, folder)
    return file


@pytest.fixture
def harbour(ready_store: Path, harbour_store: Path, tree: Path) -> str:
    """That conversation in the user's store, in the current folder; gives the id of the session."""
    shutil.copy(harbour_store, ready_store)
    with sqlite3.connect(ready_store) as connection:
        connection.execute("UPDATE sessions SET root = ?", [str(tree.resolve())])
    return SESSION


@pytest.fixture
def tree(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small project, which is the current folder."""
    root = tmp_path / "tree"
    for name, text in SOURCES.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def cli(tree: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run a command; `stdin` None is a terminal, at which somebody may have typed `typed`."""

    def run(*arguments: str, stdin: str | None = None, typed: str = "") -> Result:
        monkeypatch.setattr("sys.stdin", Stdin(typed if stdin is None else stdin, tty=stdin is None))
        code = main(arguments)
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return run


def write_definition(folder: Path, name: str, text: str) -> Path:
    """Write a definition file and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.md"
    file.write_text(text, encoding="utf-8")
    return file


def write_settings(home: Path, text: str) -> Path:
    """Write the settings file of the user and return its path."""
    file = home / ".config/sidequest/config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file
