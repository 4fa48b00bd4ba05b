"""Sessions: made, found by the beginning of an id, listed and searched, renamed, removed."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from sqlalchemy.dialects import sqlite

from sidequest.core.errors import ErrorCode
from sidequest.store import EventRow, Grant, NewSession
from sidequest.store.sessions import _NEWEST_FIRST, _rows
from sidequest.store.tables import metadata
from tests.core.builders import call, says, user
from tests.store.builders import (
    S,
    a_session,
    delegation,
    holder,
    new,
    now,
    numbered,
    on_a_store,
    problems,
    refused,
)


@on_a_store
async def test_a_session_is_what_it_was_created_as(store):
    row = await store.sessions.create(NewSession("s-1", 5, "Title", "/work", "openai/gpt"))
    assert row == await store.sessions.get("s-1")
    assert (row.title, row.root, row.model, row.messages, row.delegations) == (
        "Title",
        "/work",
        "openai/gpt",
        0,
        0,
    )
    assert (row.created_at_ms, row.updated_at_ms) == (5, 5)
    with refused(ErrorCode.STORE_CONFLICT):
        await store.sessions.create(NewSession("s-1", 6))


@on_a_store
async def test_the_beginning_of_an_id_is_enough_while_it_is_the_only_one(store):
    for session_id in ("abc1", "abc2", "abc"):
        await a_session(store, session_id=session_id)
    assert (await store.sessions.get("abc2")).id == "abc2"
    assert (await store.sessions.get("abc")).id == "abc"
    with refused(ErrorCode.SESSION_UNKNOWN, "abc1", "abc2"):
        await store.sessions.get("ab")
    for unknown in ("x", "", "abc%", "ab_1", "ABC1"):
        with refused(ErrorCode.SESSION_UNKNOWN):
            await store.sessions.get(unknown)


@on_a_store
async def test_the_list_begins_with_what_was_used_last(store):
    for session_id in ("s-1", "s-2", "s-3"):
        await a_session(store, session_id=session_id)
    await store.sessions.touch("s-1", now(), model="local/qwen")
    rows = await store.sessions.list()
    assert [row.id for row in rows] == ["s-1", "s-3", "s-2"]
    assert rows[0].model == "local/qwen"
    assert [row.id for row in await store.sessions.list(limit=1)] == ["s-1"]


@on_a_store
async def test_the_list_counts_the_parents_messages_and_the_delegations(store):
    await a_session(store, new("m1", user("go")))
    await store.delegations.start(S, delegation("d1"))
    await store.transcript.append(S, [new("x1", user("brief"), "d1")])
    (row,) = await store.sessions.list()
    assert (row.messages, row.delegations) == (1, 1)


@pytest.mark.parametrize(
    ("search", "found"),
    [
        ("budget", ["s-2", "s-1"]),
        ("BUDGET limit", ["s-1"]),
        ("wing", ["s-3"]),
        ("src/app.py", ["s-3"]),
        ("app.pyx", []),
        ("預算", ["s-3"]),
        ("%", []),
        ("  ", ["s-3", "s-2", "s-1"]),
    ],
)
@on_a_store
async def test_a_search_looks_into_titles_and_messages(store, search, found):
    await a_session(store, new("m1", user("Where is the Budget limit?")), session_id="s-1")
    await a_session(store, new("m1", says("nothing")), session_id="s-2", title="The budget")
    await a_session(store, new("m1", user("left wing src/app.py 關於預算的問題")), session_id="s-3")
    assert [row.id for row in await store.sessions.list(search)] == found


@on_a_store
async def test_the_list_can_be_of_one_folder_and_of_titles_that_hold_a_text(store):
    for number, (root, title) in enumerate(
        [("/a", "Où est ÉTÉ?"), ("/b", "été in b"), ("/a", "nothing"), ("/a", "100 % _sure_")]
    ):
        await store.sessions.create(NewSession(f"s-{number}", now(), title, root))

    async def ids(search="", **filters):
        return [row.id for row in await store.sessions.list(search, **filters)]

    assert await ids(root="/a") == ["s-3", "s-2", "s-0"]
    assert await ids(root="/a", limit=1, offset=1) == ["s-2"]
    assert await ids(title="été") == ["s-1", "s-0"]
    assert await ids(title="T É") == ["s-0"]
    assert await ids(title="été", root="/a") == ["s-0"]
    assert await ids(title="t", limit=1, offset=1) == ["s-1"]
    assert await ids(title="%") == ["s-3"]
    assert await ids("nothing", root="/a") == ["s-2"]
    assert await ids("nothing", title="ÉTÉ") == []
    assert await ids(root="/nowhere") == []


@on_a_store
async def test_a_list_costs_the_same_however_much_the_sessions_hold(store, store_url):
    if not store._db.is_sqlite:
        pytest.skip("counts the steps of SQLite; of tables this small PostgreSQL reads everything")
    await a_session(store)
    costs = set()
    for round_ in range(2):
        for number in range(30):
            await store.delegations.start(S, delegation(f"d{round_}-{number}"))
        rows = [new(f"m{round_}-{number}", user("go")) for number in range(300)]
        await store.transcript.append(S, rows)
        costs.add(_steps_of_a_list(store_url))
        (listed,) = await store.sessions.list()
        assert (listed.messages, listed.delegations) == (300 * (round_ + 1), 30 * (round_ + 1))
    assert len(costs) == 1


def _steps_of_a_list(path: str) -> int:
    """Return how many steps SQLite takes for a list."""
    query = str(_rows().order_by(*_NEWEST_FIRST).limit(50).compile(dialect=sqlite.dialect()))
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    with closing(sqlite3.connect(path)) as database:
        database.set_progress_handler(step, 1)
        database.execute(query, [0] * (query.count("?") - 2) + [50, 0]).fetchall()
    return steps


@on_a_store
async def test_a_title_can_be_changed(store):
    await a_session(store)
    await store.sessions.rename(S, "Better")
    assert (await store.sessions.get(S)).title == "Better"
    with refused(ErrorCode.SESSION_UNKNOWN):
        await store.sessions.rename("s-9", "?")


@on_a_store
async def test_nothing_is_left_of_a_deleted_session_and_its_neighbour_stays(store):
    for session_id in (S, "s-2"):
        await a_session(store, new("m1", user("go")), new("m2", says("", call("c1"))), session_id=session_id)
        await store.delegations.start(session_id, delegation("d1"))
        await store.transcript.append(session_id, [new("x1", user("brief"), "d1")])
        await store.events.append(session_id, [numbered(1)])
        await store.grants.put(session_id, Grant("Bash", True, now()))
        await store.leases.acquire(session_id, holder(), now_ms=now(), ttl_ms=10)
    await store.sessions.delete(S, now_ms=now())
    assert [row.id for row in await store.sessions.list()] == ["s-2"]
    assert await _count_rows(store, S) == 0
    assert await problems(store) == []
    assert [type(e) for e in await store.events.after("s-2")] == [EventRow]
    with refused(ErrorCode.SESSION_UNKNOWN):
        await store.sessions.delete(S, now_ms=now())


@on_a_store
async def test_a_session_that_another_process_works_on_is_not_deleted(store):
    await a_session(store)
    await store.leases.acquire(S, holder("h-1"), now_ms=100, ttl_ms=10)
    store._db.held.clear()
    with refused(ErrorCode.AGENT_BUSY, "process 11"):
        await store.sessions.delete(S, now_ms=109)
    await store.sessions.delete(S, now_ms=110)


async def _count_rows(store, session_id):
    tables = [table for table in metadata.sorted_tables if "session_id" in table.c]
    return await store._db.read(
        lambda tx: sum(
            len(tx.execute(table.select().where(table.c.session_id == session_id)).all()) for table in tables
        )
    )
