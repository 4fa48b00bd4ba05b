"""A row that cannot be read is told apart from those that can."""

from __future__ import annotations

from sqlalchemy import text

from sidequest.core.errors import ErrorCode
from sidequest.store.payload import DAMAGED
from tests.core.builders import call, result, results, says, user
from tests.store.builders import S, a_session, delegation, new, now, on_a_store, refused


@on_a_store
async def test_words_stand_for_a_damaged_message_and_a_damaged_result_is_left_out(store):
    said = [user("go"), says("look", call("c1"), call("c2")), results(result("one", "c1"), result("2", "c2"))]
    await a_session(store, *(new(f"m{n}", message) for n, message in enumerate([*said, says("done")], 1)))
    for damage in (
        "UPDATE messages SET payload = '{' WHERE id = 'm4'",
        "UPDATE tool_results SET payload = '{' WHERE tool_call_id = 'c1'",
    ):
        await store._db.write(lambda tx, damage=damage: tx.execute(text(damage)))
    with refused(ErrorCode.STORE_DAMAGED):
        await store.transcript.load(S)
    rows = await store.transcript.load(S, damaged_too=True)
    assert [row.id for row in rows if row.damaged] == ["m2", "m4"]
    assert rows[3].message.parts[0].content == DAMAGED
    assert [found.tool_call_id for found in rows[1].results] == ["c2"]
    assert [part.tool_call_id for part in rows[2].message.parts] == ["c2"]
    assert await store.search.find(S, "one") == []
    assert [found.result_id for found in await store.search.find(S, "2")] == ["m2:2"]


@on_a_store
async def test_a_running_delegation_with_a_damaged_row_does_not_keep_its_session_from_being_forked(store):
    await a_session(store, new("m1", user("go")))
    await store.delegations.start(S, delegation("d1"))
    await store.transcript.append(S, [new("x1", user("brief"), "d1"), new("x2", says("", call("c1")), "d1")])
    await store._db.write(lambda tx: tx.execute(text("UPDATE messages SET payload = '{' WHERE id = 'x2'")))
    await store.sessions.fork(S, "s-2", "m1", at_ms=now())
    assert [row.message.parts[0].content for row in await store.transcript.load("s-2")] == ["go"]
