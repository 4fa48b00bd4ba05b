"""Databases of every released schema are brought up to date; a step is done whole or not at all."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import subprocess
from contextlib import closing, suppress
from pathlib import Path

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text

import sidequest.store
from sidequest.core.errors import ErrorCode
from sidequest.core.outcome import Status
from sidequest.store import Store
from sidequest.store.database import Database
from sidequest.store.locations import locate
from sidequest.store.masking import Masker
from sidequest.store.schema import LATEST, VERSION_TABLE, bring_up_to_date, version_of
from sidequest.store.tables import metadata
from tests.store.builders import S, now, open_and_close, problems, refused, valid
from tests.store.postgres import find_programs

FIXTURES = Path(__file__).parent / "fixtures"
SCRIPTS = ScriptDirectory(str(Path(sidequest.store.__file__).parent / "migrations"))
RELEASED = [script.revision for script in SCRIPTS.walk_revisions()][::-1]


@pytest.fixture(params=["sqlite", "postgresql"])
def new_url(request, tmp_path):
    """The address of a database without any table."""
    return (
        str(tmp_path / "new.db")
        if request.param == "sqlite"
        else request.getfixturevalue("postgres").make_database()
    )


@pytest.fixture
def loaded(request, tmp_path):
    """Load a fixture and return its address."""

    def load(version: str, kind: str) -> str:
        if kind == "sqlite":
            return str(shutil.copy(FIXTURES / f"v{version}.sqlite", tmp_path / "old.db"))
        url = request.getfixturevalue("postgres").make_database()
        script = FIXTURES / f"v{version}.postgresql.sql"
        subprocess.run(
            [find_programs() / "psql", "-q", "-v", "ON_ERROR_STOP=1", "-f", script, url],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        return url

    return load


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
@pytest.mark.parametrize("version", RELEASED)
def test_a_database_of_each_released_schema_opens_with_all_it_held(loaded, version, kind):
    async def look(url: str) -> None:
        async with await Store.open(url, env={}) as store:
            assert await problems(store) == []
            assert await store._db.read(version_of) == LATEST
            assert len(valid(await store.transcript.history(S))) == 7
            assert [m.message_id for m in await store.search.find(S, "budget")] == ["m1"]
            assert (await store.search.read(S, "m2:2")).text == "text 文字"
            assert [m.result_id for m in await store.search.find(S, "文字")] == ["m2:2"]
            assert (await store.sessions.get(S)).spent_usd == 0
            assert (await store.delegations.get(S, "d1")).delivered_by == "m5"
            assert (await store.delegations.get("s-2", "d1")).status is Status.COMPLETED
            assert (await store.checkpoints.newest(S)).summary == "## Goal\nFind it."
            assert await store.events.newest_number(S) == 2
            assert await store.settings.all("trust") == {"/work": True}
            await store.sessions.delete(S, now_ms=now())
            assert await problems(store) == []

    asyncio.run(look(loaded(version, kind)))


def test_the_newest_step_is_the_one_that_opening_asks_for():
    assert RELEASED[-1] == LATEST == SCRIPTS.get_current_head()


def test_the_steps_lead_to_the_tables_of_today(new_url):
    def ours(thing: object, name: str, kind: str, reflected: bool, compared: object) -> bool:
        return not (kind == "table" and name.startswith(("search_index", "tool_index"))) and name not in {
            "lexemes",
            "ix_search_words_lexemes",
            "ix_tool_words_lexemes",
        }

    def differences(tx):
        options = {"include_object": ours, "version_table": VERSION_TABLE}
        return compare_metadata(MigrationContext.configure(tx, opts=options), metadata)

    async def compare() -> list[object]:
        async with await Store.open(new_url, env={}) as store:
            return await store._db.read(differences)

    assert asyncio.run(compare()) == []


def _set_version(url: str, version: str) -> None:
    async def change() -> None:
        async with await Store.open(url, env={}) as store:
            await store._db.write(
                lambda tx: tx.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '{version}'"))
            )

    asyncio.run(change())


def test_a_database_of_a_newer_version_is_refused_and_left_alone(new_url):
    _set_version(new_url, "9001")
    with refused(ErrorCode.STORE_NEWER, "schema 9001", f"knows {LATEST}", "Install that version"):
        asyncio.run(Store.open(new_url, env={}))
    if "://" not in new_url:
        with closing(sqlite3.connect(new_url)) as other:
            assert other.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchall() == [("9001",)]


@pytest.mark.parametrize("table", ["sessions", "photos"])
def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path, table):
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute(f"CREATE TABLE {table} (a)")
        other.commit()
    before = path.read_bytes()
    with refused(ErrorCode.STORE_FAILED, "another program"):
        asyncio.run(Store.open(str(path), env={}))
    assert path.read_bytes() == before


@pytest.mark.parametrize(("table", "fits"), [("messages", False), ("photos", True)])
def test_a_server_may_hold_tables_of_others_beside_ours_but_none_in_their_place(postgres, table, fits):
    url = postgres.make_database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {table} (a int)".encode())
    if fits:
        asyncio.run(open_and_close(url))
    else:
        with refused(ErrorCode.STORE_FAILED, "another program"):
            asyncio.run(Store.open(url, env={}))


STEP = """
import sqlalchemy as sa
from alembic import op
revision, down_revision = {revision!r}, {down!r}
def upgrade():
    op.create_table("t{revision}", sa.Column("a", sa.Integer))
    op.execute("INSERT INTO t{revision} VALUES (1)")
    {more}
"""


def _steps(folder: Path, *more: str) -> Path:
    (folder / "versions").mkdir(parents=True)
    for number, line in enumerate(more, start=1):
        down = f"{number - 1}" if number > 1 else None
        step = STEP.format(revision=f"{number}", down=down, more=line)
        (folder / "versions" / f"v{number}.py").write_text(step)
    return folder


def test_a_step_that_fails_leaves_the_steps_before_it_and_nothing_of_itself(new_url, tmp_path):
    async def migrate(steps: Path) -> tuple[str | None, list[str]]:
        database = Database(locate(new_url, {}), Masker())
        try:
            with suppress(ZeroDivisionError):
                await bring_up_to_date(database, steps)
            return await database.read(lambda tx: (version_of(tx), sorted(inspect(tx).get_table_names())))
        finally:
            await database.close()

    broken = _steps(tmp_path / "broken", "pass", "1 / 0", "pass")
    assert asyncio.run(migrate(broken)) == ("1", [VERSION_TABLE, "t1"])
    mended = _steps(tmp_path / "mended", "pass", "pass", "pass")
    assert asyncio.run(migrate(mended)) == ("3", [VERSION_TABLE, "t1", "t2", "t3"])
