"""The store proves itself: each kind of damage, done behind its back, is found and named."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing

import pytest
from sqlalchemy import text

from sidequest.core.errors import ErrorCode
from sidequest.store import NewCheckpoint, Store
from sidequest.store.verify import problems_of
from tests.core.builders import call, result, results, says, user
from tests.store.builders import (
    S,
    a_session,
    delegation,
    new,
    now,
    numbered,
    on_a_store,
    outcome,
    problems,
    refused,
)


async def a_sound_store(store):
    await a_session(store, new("m1", user("go")), new("m2", says("look", call("c1"))))
    await store.transcript.append(S, [new("m3", results(result("text", "c1"))), new("m4", says("done"))])
    for name, earlier in [("d1", None), ("d2", "d1")]:
        await store.delegations.start(S, delegation(name, resumed_from=earlier))
        await store.transcript.append(
            S, [new(f"{name}-1", user("brief"), name), new(f"{name}-2", says("x"), name)]
        )
        await store.delegations.settle(S, outcome(name), now())
    await store.delegations.deliver(S, new("m5", user("report")), ["d1"])
    for name, through in [("k1", "m3"), ("k2", "m4")]:
        await store.checkpoints.append(S, NewCheckpoint(name, "sum", through, 1, now()))
    await store.events.append(S, [numbered(n) for n in (1, 2, 3)])
    assert await problems(store) == []


def _set(table: str, row: str, change: str) -> str:
    return f"UPDATE {table} SET {change} WHERE {'message_id' if table == 'tool_results' else 'id'} = '{row}'"


DAMAGES = {
    "positions: parent has 5 rows numbered from 1 to 7": _set("messages", "m5", "position = 7"),
    "positions: d1 has 1 rows numbered from 2 to 2": "DELETE FROM messages WHERE id = 'd1-1'",
    "payload: m1 cannot be read as a message": _set("messages", "m1", "payload = '{'"),
    "payload: m1 is a request, stored as a response": _set("messages", "m1", "kind = 'response'"),
    "text: m4 is not the text of the message": _set("messages", "m4", "text = 'done?'"),
    "search: m4 is not indexed by the words of its text": "DELETE FROM search_words WHERE words = 'done'",
    "results: m2 c1 cannot be read as the result of a call": _set("tool_results", "m2", "payload = '{}'"),
    "results: m2 c1 belongs to no call of the message": _set(
        "messages", "m2", """payload = replace(payload, '"c1"', '"c9"')"""
    ),
    "search: m2 c1 is not indexed by the words of the call": "DELETE FROM tool_words",
    "results: m2 c1 says Read success, stored as Read failed": _set(
        "tool_results", "m2", "outcome = 'failed'"
    ),
    "results: m2 c1 is carried by m4, which is no request": _set("tool_results", "m2", "carrier_id = 'm4'"),
    "results: m2 c1 is carried by m1, which does not follow the call": _set(
        "tool_results", "m2", "carrier_id = 'm1'"
    ),
    "checkpoint: k2 is generation 3, due was 2": _set("checkpoints", "k2", "generation = 3"),
    "checkpoint: k1 has no summary": _set("checkpoints", "k1", "summary = ' '"),
    "checkpoint: k1 cannot be read": _set("checkpoints", "k1", "retained_tail = '[1]'"),
    "checkpoint: k2 covers less than the one before it": _set(
        "checkpoints", "k2", "through_message_id = 'm1'"
    ),
    "checkpoint: k1 is anchored at no message of the parent": _set(
        "checkpoints", "k1", "through_message_id = 'd1-1'"
    ),
    "delegation: d2 belongs to chain d2, its links say d1": _set("delegations", "d2", "chain_id = 'd2'"),
    "delegation: d2 has number 5, due was 2": _set("delegations", "d2", "number = 5"),
    "delegation: d2 has the unknown status done": _set("delegations", "d2", "status = 'done'"),
    "delegation: d2 is running and has ended": _set("delegations", "d2", "status = 'running'"),
    "delegation: d2 is completed and has not ended": _set("delegations", "d2", "completed_at_ms = NULL"),
    "delegation: d1 has a delivery flag that contradicts itself": _set(
        "delegations", "d1", "delivered = false"
    ),
    "delegation: d2 has a delivery flag that contradicts itself": _set(
        "delegations", "d2", "delivered = true, parent_tool_call_id = 'c1'"
    ),
    "delegation: d1 was delivered by message d1-1, which is not the parent's": _set(
        "delegations", "d1", "delivered_by = 'd1-1'"
    ),
    "delegation: d1 cannot be read": _set("delegations", "d1", "definition = '[]'"),
    "events: numbers are 2, from 1 to 3": "DELETE FROM events WHERE number = 2",
    "events: 2 cannot be read": "UPDATE events SET payload = '{}' WHERE number = 2",
}


class _Undone(Exception):
    """Ends a transaction that must not be stored."""


@on_a_store
async def test_each_damage_is_found_and_named(store):
    await a_sound_store(store)
    for problem, damage in DAMAGES.items():
        found: list[str] = []

        def look(tx, damage=damage, found=found):
            tx.execute(text(damage))
            found += [f"{p.kind}: {p.where} {p.message}" for p in problems_of(tx, S)]
            raise _Undone

        with pytest.raises(_Undone):
            await store._db.write(look)
        assert problem in found
        assert len(found) <= 2
    assert await problems(store) == []


def test_an_index_that_lost_a_row_and_a_reference_to_nothing_are_found(tmp_path):
    path = str(tmp_path / "store.db")

    async def with_store(work):
        async with await Store.open(path, env={}) as store:
            return await work(store)

    asyncio.run(with_store(a_sound_store))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("DELETE FROM search_index_docsize WHERE id = 1")
        other.execute("UPDATE delegations SET resumed_from = 'd9' WHERE id = 'd2'")
    found = asyncio.run(with_store(problems))
    assert found[0] == "reference: delegations 2 points to a row of delegations that is gone"
    assert "search: search_index holds 7 rows and should hold 8" in found


@on_a_store
async def test_one_session_can_be_verified_by_the_beginning_of_its_id(store):
    await a_sound_store(store)
    await a_session(store, session_id="x-1")
    await store._db.write(lambda tx: tx.execute(text("UPDATE messages SET payload = '{' WHERE id = 'm1'")))
    assert len(await store.verify()) == 1
    assert len(await store.verify("s")) == 1
    assert await store.verify("x") == []
    with refused(ErrorCode.SESSION_UNKNOWN):
        await store.verify("y")


@on_a_store
async def test_a_row_that_cannot_be_read_is_said_when_it_is_loaded(store):
    await a_sound_store(store)
    await store._db.write(lambda tx: tx.execute(text("UPDATE messages SET payload = '{' WHERE id = 'm1'")))
    with refused(ErrorCode.STORE_DAMAGED, "verify"):
        await store.transcript.history(S)
    assert len(await store.transcript.load(S, after=1)) == 4
    await store._db.write(lambda tx: tx.execute(text("UPDATE messages SET payload = '{' WHERE id = 'm4'")))
    with refused(ErrorCode.STORE_DAMAGED, "m4"):
        await store.transcript.append(S, [new("m6", results(result("?", "c1")))])
    with refused(ErrorCode.STORE_DAMAGED, "m4"):
        await store.search.read(S, "m4")
