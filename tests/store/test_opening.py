"""Where a store lies, who may read it, and what is said when it cannot be opened."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from sidequest.core.errors import ErrorCode
from sidequest.store import Store
from sidequest.store.locations import default_file, locate
from tests.core.builders import user
from tests.store.builders import S, a_session, new, open_and_close, refused


def test_the_default_is_the_users_data_folder(tmp_path):
    assert default_file({"XDG_DATA_HOME": "/data", "HOME": "/h"}) == Path("/data/sidequest/sidequest.db")
    assert default_file({"HOME": "/h"}) == Path("/h/.local/share/sidequest/sidequest.db")
    assert default_file({"XDG_DATA_HOME": "relative", "HOME": "/h"}) == Path(
        "/h/.local/share/sidequest/sidequest.db"
    )


def test_folder_and_file_are_private(tmp_path):
    os.umask(before := os.umask(0))
    os.umask(0)
    try:

        async def opened() -> dict[str, int]:
            env = {"XDG_DATA_HOME": str(tmp_path / "new" / "data")}
            async with await Store.open(env=env) as store:
                await a_session(store, new("m1", user("go")))
                folder = Path(store.name).parent
                return {p.name: stat.S_IMODE(p.stat().st_mode) for p in [folder, *folder.iterdir()]}

        modes = asyncio.run(opened())
    finally:
        os.umask(before)
    assert modes == {
        "sidequest": 0o700,
        "sidequest.db": 0o600,
        "sidequest.db-wal": 0o600,
        "sidequest.db-shm": 0o600,
    }
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


@pytest.mark.parametrize("form", ["{}", "sqlite:///{}", "sqlite+aiosqlite:///{}"])
def test_a_path_is_given_in_several_forms(tmp_path, form):
    path = tmp_path / "a b.db"
    asyncio.run(open_and_close(form.format(path)))
    assert path.exists()


def test_paths_are_taken_from_here_and_from_home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/h")
    assert locate("x.db", {}).place.file == tmp_path / "x.db"
    assert locate("sqlite:///x.db", {}).place.file == tmp_path / "x.db"
    assert locate("~/x.db", {}).place.file == Path("/h/x.db")


@pytest.mark.parametrize(
    "url", ["", " ", "mysql://h/d", "sqlite://", "sqlite:///:memory:", "postgresql://h:port/d"]
)
def test_an_address_that_is_none_is_refused_before_anything_is_made(url):
    with refused(ErrorCode.SETTINGS_INVALID, "postgresql://USER@HOST/DATABASE"):
        locate(url, {})


def test_what_was_stored_is_there_after_opening_again(store_url):
    async def first() -> None:
        async with await Store.open(store_url, env={}) as store:
            await a_session(store, new("m1", user("go")))

    async def second() -> list[str]:
        async with await Store.open(store_url, env={}) as store:
            return [row.id for row in await store.transcript.load(S)]

    asyncio.run(first())
    assert asyncio.run(second()) == ["m1"]


def test_many_open_a_new_store_at_the_same_time(tmp_path, postgres):
    async def race(url: str) -> None:
        stores = await asyncio.gather(*(Store.open(url, env={}) for _ in range(4)))
        for number, store in enumerate(stores):
            await a_session(store, session_id=f"s-{number}")
            await store.close()

    for url in (str(tmp_path / "new.db"), postgres.make_database()):
        asyncio.run(race(url))


def test_many_new_stores_are_opened_at_the_same_time(tmp_path, postgres):
    urls = [*(str(tmp_path / f"{number}.db") for number in range(4)), postgres.make_database()]

    async def work() -> None:
        for store in await asyncio.gather(*(Store.open(url, env={}) for url in urls)):
            await a_session(store, new("m1", user("go")))
            await store.close()

    asyncio.run(work())


def test_listing_sessions_does_not_load_pydantic_ai(tmp_path):
    program = (
        "import asyncio, sys\n"
        "from sidequest.store import Store\n"
        "async def main():\n"
        f"    async with await Store.open({str(tmp_path / 'x.db')!r}, env={{}}) as store:\n"
        "        await store.sessions.list('a word')\n"
        "        await store.delegations.list()\n"
        "        await store.events.after('s')\n"
        "        await store.sessions.list()\n"
        "asyncio.run(main())\n"
        "print('pydantic_ai' in sys.modules)\n"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"


def test_a_second_opening_needs_no_alembic(tmp_path):
    asyncio.run(open_and_close(str(tmp_path / "x.db")))
    program = (
        "import asyncio, sys\n"
        "from sidequest.store import Store\n"
        "async def main():\n"
        f"    await (await Store.open({str(tmp_path / 'x.db')!r}, env={{}})).close()\n"
        "asyncio.run(main())\n"
        "print('alembic' in sys.modules)\n"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"


@pytest.mark.parametrize(("package", "extra"), [("sqlalchemy", "app"), ("psycopg", "postgres")])
def test_a_package_that_is_not_installed_is_one_line(tmp_path, package, extra):
    url = "postgresql://nobody@/d" if package == "psycopg" else str(tmp_path / "x.db")
    program = (
        "import asyncio, sys\n"
        f"sys.modules[{package!r}] = None\n"
        "from sidequest.core.errors import SidequestError\n"
        "try:\n"
        "    from sidequest.store import Store\n"
        f"    asyncio.run(Store.open({url!r}, env={{}}))\n"
        "except SidequestError as error:\n"
        "    print(error.code, error.remedy)\n"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == f"MISSING_EXTRA Install it with: pip install 'sidequest[{extra}]'."


def test_a_closed_store_says_so(tmp_path):
    async def use() -> None:
        store = await Store.open(str(tmp_path / "x.db"), env={})
        await store.close()
        await store.close()
        with refused(ErrorCode.STORE_FAILED, "is closed"):
            await store.sessions.list()

    asyncio.run(use())
