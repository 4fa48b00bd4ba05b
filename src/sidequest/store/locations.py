"""Where a store lies: the user's own file by default, any path, or a PostgreSQL server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.store.failures import Place

FOLDER_MODE, FILE_MODE = 0o700, 0o600
"""Transcripts are private: nobody but their owner may read them."""


@dataclass(frozen=True, slots=True)
class Location:
    """A database address with its driver, and how it is called in messages."""

    url: URL
    place: Place

    @property
    def is_sqlite(self) -> bool:
        """Whether it is a file of this machine."""
        return self.place.file is not None


def default_file(env: Mapping[str, str]) -> Path:
    """Return `$XDG_DATA_HOME/sidequest/sidequest.db`, else the same below `~/.local/share`.

    A relative `XDG_DATA_HOME` is ignored, as the XDG specification asks.
    """
    data = env.get("XDG_DATA_HOME", "")
    home = Path(env.get("HOME") or Path.home())
    base = Path(data) if data and Path(data).is_absolute() else home / ".local" / "share"
    return base / "sidequest" / "sidequest.db"


def locate(url: str | None, env: Mapping[str, str]) -> Location:
    """Return the location that `url` names: None the default file, a path, `sqlite:///PATH`, `postgresql://...`.

    Raises:
        SidequestError: `SETTINGS_INVALID` when it is none of these.
    """
    if url is None:
        return _file(default_file(env))
    if "://" not in url:
        if not url.strip():
            raise _invalid(url, "it is empty")
        return _file(Path(url).expanduser())
    try:
        parsed = make_url(url.replace("postgres://", "postgresql://", 1))
    except (ArgumentError, ValueError) as error:
        raise _invalid(url.partition("://")[0], "it cannot be read") from error
    match parsed.get_backend_name():
        case "sqlite":
            if not parsed.database or parsed.database == ":memory:":
                raise _invalid(url, "it names no file")
            return _file(Path(parsed.database).expanduser())
        case "postgresql":
            name = parsed.set(drivername="postgresql").render_as_string(hide_password=True)
            return Location(parsed.set(drivername="postgresql+psycopg"), Place(name))
        case other:
            raise _invalid(other, "it is neither SQLite nor PostgreSQL")


def prepare_file(file: Path) -> None:
    """Make the file, private, and the folders above it that are missing; an existing one is left alone.

    Raises:
        OSError: the file or a folder cannot be made.
    """
    missing = [folder for folder in file.parents if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
    # SQLite gives its side files the mode of the database, so this is the only place that needs to care.
    os.close(os.open(file, os.O_RDWR | os.O_CREAT, FILE_MODE))


def _file(path: Path) -> Location:
    absolute = path.absolute()
    return Location(URL.create("sqlite+pysqlite", database=str(absolute)), Place(str(absolute), absolute))


def _invalid(url: str, why: str) -> SidequestError:
    return SidequestError(
        ErrorCode.SETTINGS_INVALID,
        f"The store address {url!r} cannot be used: {why}.",
        "Give a path, sqlite:///PATH or postgresql://USER@HOST/DATABASE.",
    )
