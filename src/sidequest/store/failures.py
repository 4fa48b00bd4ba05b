"""What a database's refusal means to a reader: one error with a code, a cause and a remedy."""

from __future__ import annotations

import errno
import shutil
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from sidequest.core.errors import ErrorCode, SidequestError

_NOT_LOST = "Nothing was stored halfway: what was stored before is whole."
_NO_SPACE_BYTES = 64 * 1024
"""A file system with less room than this, in bytes, counts as full when a write failed."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a store lies: a name for readers, without a password, and the file when it is one."""

    name: str
    file: Path | None = None


def store_error(error: Exception, place: Place) -> SidequestError:
    """Return what `error` of SQLAlchemy or of a driver below it means for the store at `place`.

    Codes: `STORE_FULL`, `STORE_LOCKED` and `STORE_UNREACHABLE` (retriable), `STORE_READ_ONLY`,
    `STORE_DAMAGED`, `STORE_CONFLICT`, else `STORE_FAILED` with the database's own words.
    """
    cause = error.__cause__ if isinstance(error, SQLAlchemyError) and error.__cause__ else error
    if isinstance(error, PoolTimeout):
        return _locked(place)
    if isinstance(error, IntegrityError):
        return SidequestError(
            ErrorCode.STORE_CONFLICT,
            f"The store at {place.name} refused a row that contradicts another: {_first_line(cause)}.",
            "Give every message, delegation and checkpoint an id of its own.",
        )
    found = _of_sqlite(cause, place) or _of_postgres(cause, place) or _of_system(cause, place)
    return found or SidequestError(
        ErrorCode.STORE_FAILED, f"The store at {place.name} failed: {_first_line(cause)}.", _NOT_LOST
    )


def _of_sqlite(error: BaseException, place: Place) -> SidequestError | None:
    name = getattr(error, "sqlite_errorname", "") if isinstance(error, sqlite3.Error) else ""
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return _locked(place)
    if name == "SQLITE_FULL" or (name.startswith("SQLITE_IOERR") and _is_full(place)):
        return _full(place)
    if name.startswith("SQLITE_READONLY") or (name.startswith("SQLITE_CANTOPEN") and _exists(place)):
        return _read_only(place)
    if name.startswith("SQLITE_CANTOPEN"):
        return _unreachable(place, _first_line(error), "Check that the folder exists and may be written.")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return SidequestError(
            ErrorCode.STORE_DAMAGED,
            f"{place.name} is not a sound SQLite database: {_first_line(error)}.",
            "Restore it from a backup, or move it away and start with a new one.",
        )
    return None


def _of_postgres(error: BaseException, place: Place) -> SidequestError | None:
    module = type(error).__module__
    if not module.startswith("psycopg"):
        return None
    state = getattr(error, "sqlstate", None) or ""
    if state in {"53100", "53200"}:
        return _full(place)
    if state in {"55P03", "57014", "40P01", "40001"}:
        return _locked(place)
    if state in {"25006", "42501"}:
        return _read_only(place)
    if not state or state[:2] in {"08", "28", "3D", "53", "57"}:
        remedy = "Start the server, or correct the address given with --store, then try again."
        return _unreachable(place, _first_line(error), remedy)
    return None


def _of_system(error: BaseException, place: Place) -> SidequestError | None:
    if not isinstance(error, OSError):
        return None
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return _full(place)
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return _read_only(place)
    words = error.strerror or _first_line(error)
    return _unreachable(place, words, "Check the address or the folder, then try again.")


def _locked(place: Place) -> SidequestError:
    return SidequestError(
        ErrorCode.STORE_LOCKED,
        f"The store at {place.name} is locked by another program.",
        f"Wait until it is done, or end it, then try again. {_NOT_LOST}",
        retriable=True,
    )


def _full(place: Place) -> SidequestError:
    return SidequestError(
        ErrorCode.STORE_FULL,
        f"There is no room left for the store at {place.name}.",
        f"Make room on that disk, then go on. {_NOT_LOST}",
        retriable=True,
    )


def _read_only(place: Place) -> SidequestError:
    return SidequestError(
        ErrorCode.STORE_READ_ONLY,
        f"The store at {place.name} may not be written.",
        "Change its permissions, or name another place with --store.",
    )


def _unreachable(place: Place, words: str, remedy: str) -> SidequestError:
    return SidequestError(
        ErrorCode.STORE_UNREACHABLE,
        f"The store at {place.name} cannot be reached: {words}.",
        remedy,
        retriable=True,
    )


def _exists(place: Place) -> bool:
    return place.file is not None and place.file.exists()


def _is_full(place: Place) -> bool:
    if place.file is None:
        return False
    try:
        return shutil.disk_usage(place.file.parent).free < _NO_SPACE_BYTES
    except OSError:
        return False


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
