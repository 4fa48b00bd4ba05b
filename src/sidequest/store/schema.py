"""Brings a database to today's schema when it is opened, one step after the other, each in a transaction.

A step runs alone: SQLite begins with the write lock, PostgreSQL takes an advisory lock, and the version is
read again behind it, so that two programs that open a new database at the same time do not both make it.
"""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, column, func, inspect, select, table

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.store.database import Database
from sidequest.store.failures import Place
from sidequest.store.tables import metadata

if TYPE_CHECKING:
    from alembic.script import ScriptDirectory

LATEST = "0002"
"""The schema that this version of sidequest works with. Kept here so that opening needs no Alembic."""
VERSION_TABLE = "sidequest_version"
_ADVISORY_LOCK = 7_345_201_114
"""Any number that no other program takes."""
_ONE_STEP = threading.Lock()
"""Held while a step runs."""


def version_of(connection: Connection) -> str | None:
    """Return the schema version of a database, None when it has none of our tables."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    version: str | None = connection.execute(
        select(column("version_num")).select_from(table(VERSION_TABLE))
    ).scalar_one_or_none()
    return version


async def bring_up_to_date(database: Database, scripts: Path | None = None) -> list[str]:
    """Run the steps that `database` has not had, and return their names, oldest first.

    `scripts` None means the packaged steps.

    Raises:
        SidequestError: `STORE_NEWER` when the database knows a step that we do not; `STORE_FAILED` when it
            belongs to another program; what a step met. A step that fails leaves the database as it was.
    """
    if scripts is None and await database.read(version_of) == LATEST:
        return []
    done: list[str] = []
    with as_file(files("sidequest.store") / "migrations") as packaged:
        steps = _steps(scripts or packaged)
        while (step := await database.write(lambda tx: _next_step(tx, steps, database.place))) is not None:
            done.append(step)
    return done


def _steps(folder: Path) -> ScriptDirectory:
    from alembic.script import ScriptDirectory

    return ScriptDirectory(str(folder))


def _next_step(tx: Connection, steps: ScriptDirectory, place: Place) -> str | None:
    """Run one step inside the transaction `tx`, or return None when there is nothing left to do."""
    from alembic.config import Config
    from alembic.runtime.environment import EnvironmentContext

    if tx.dialect.name == "postgresql":
        tx.execute(select(func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
    current = version_of(tx)
    order = [script.revision for script in steps.walk_revisions()][::-1]
    if current is None:
        _refuse_foreign(tx, place)
    elif current not in order:
        raise SidequestError(
            ErrorCode.STORE_NEWER,
            f"The store at {place.name} was written by a newer version of sidequest (schema {current}; "
            f"this version knows {order[-1]}).",
            "Install that version of sidequest, or name another store with --store.",
            schema=current,
            known=order[-1],
        )
    missing = order[order.index(current) + 1 :] if current else order
    if not missing:
        return None
    target = missing[0]
    # Alembic's proxies are global: a step in another thread would run on this connection.
    with (
        _ONE_STEP,
        EnvironmentContext(
            Config(),
            steps,
            fn=lambda revision, context: steps._upgrade_revs(target, revision),
            destination_rev=target,
        ) as environment,
    ):
        environment.configure(connection=tx, version_table=VERSION_TABLE)
        environment.run_migrations()
    return target


def refuse_foreign_file(file: Path) -> None:
    """Refuse an SQLite file that has tables and none of ours, before anything in it is changed.

    To open it as a store would already change how it keeps its journal. What cannot be looked at is not
    refused here: opening it says why.

    Raises:
        SidequestError: `STORE_FAILED`.
    """
    try:
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=0)) as connection:
            names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    except sqlite3.Error:
        return
    if names and VERSION_TABLE not in names:
        raise _foreign(Place(str(file), file))


def _refuse_foreign(tx: Connection, place: Place) -> None:
    """Refuse tables that ours would meet; on a server, others beside them are none of our business."""
    found = inspect(tx).get_table_names()
    if found if tx.dialect.name == "sqlite" else not metadata.tables.keys().isdisjoint(found):
        raise _foreign(place)


def _foreign(place: Place) -> SidequestError:
    return SidequestError(
        ErrorCode.STORE_FAILED,
        f"The database at {place.name} has tables of another program.",
        "Give sidequest a database of its own.",
    )
