"""The parent's compactions: generations, anchors, and the newest one that can be restarted on."""

from __future__ import annotations

from sqlalchemy import update

from sidequest.core.compaction import summary_message
from sidequest.core.errors import ErrorCode
from sidequest.store import NewCheckpoint
from sidequest.store.tables import checkpoints
from tests.core.builders import call, image, result, results, says, user
from tests.store.builders import (
    S,
    a_session,
    delegation,
    new,
    now,
    on_a_store,
    problems,
    refused,
    same,
    valid,
)


async def three_rows(store):
    await a_session(store, new("m1", user("one")), new("m2", says("two")), new("m3", user("three")))


@on_a_store
async def test_a_checkpoint_comes_back_as_it_was(store):
    await three_rows(store)
    tail = [user("three"), says("", call("c1")), results(result(["x", image()], "c1"))]
    given = NewCheckpoint(
        "k1",
        "## Goal\nFind it.",
        "m2",
        9_000,
        55,
        700,
        "m3",
        tail,
        {"requests": 1},
        {"strategy": "summary", "readFiles": ["a.py"]},
        "local/qwen",
    )
    row = await store.checkpoints.append(S, given)
    assert [row] == await store.checkpoints.list(S)
    assert (row.generation, row.summary, row.through_position) == (1, "## Goal\nFind it.", 2)
    assert (row.tokens_before, row.tokens_after, row.first_kept_message_id) == (9_000, 700, "m3")
    assert same(list(row.retained_tail), tail)
    assert (row.usage, row.model, row.created_at_ms) == ({"requests": 1}, "local/qwen", 55)
    assert row.details == {"strategy": "summary", "readFiles": ["a.py"]}


@on_a_store
async def test_each_generation_is_one_more_than_the_one_before(store):
    await three_rows(store)
    for name, through in [("k1", "m1"), ("k2", "m1"), ("k3", "m3")]:
        await store.checkpoints.append(S, NewCheckpoint(name, "sum", through, 1, now()))
    assert [(k.id, k.generation) for k in await store.checkpoints.list(S)] == [
        ("k1", 1),
        ("k2", 2),
        ("k3", 3),
    ]
    assert (await store.checkpoints.newest(S)).id == "k3"


@on_a_store
async def test_what_cannot_be_a_checkpoint_is_refused(store):
    await three_rows(store)
    await store.delegations.start(S, delegation("d1"))
    await store.transcript.append(S, [new("x1", user("brief"), "d1")])
    await store.checkpoints.append(S, NewCheckpoint("k1", "sum", "m2", 1, now()))
    with refused(ErrorCode.CONTEXT_COMPACTION_FAILED, "without a summary"):
        await store.checkpoints.append(S, NewCheckpoint("k2", " \n", "m3", 1, now()))
    for anchor in ("m9", "x1"):
        with refused(ErrorCode.MESSAGE_UNKNOWN, anchor):
            await store.checkpoints.append(S, NewCheckpoint("k2", "sum", anchor, 1, now()))
    with refused(ErrorCode.STORE_CONFLICT, "generation 1"):
        await store.checkpoints.append(S, NewCheckpoint("k2", "sum", "m1", 1, now()))
    with refused(ErrorCode.STORE_CONFLICT):
        await store.checkpoints.append(S, NewCheckpoint("k1", "sum", "m3", 1, now()))
    assert [k.id for k in await store.checkpoints.list(S)] == ["k1"]


@on_a_store
async def test_the_transcript_stays_whole_and_the_model_sees_what_is_behind(store):
    await three_rows(store)
    kept = await store.checkpoints.append(
        S, NewCheckpoint("k1", "so far", "m2", 1, now(), retained_tail=[user("t")])
    )
    behind = await store.transcript.history(S, after=kept.through_position)
    seen = [summary_message(kept.summary), *kept.retained_tail, *behind]
    assert [m.parts[0].content for m in valid(seen)[1:]] == ["t", "three"]
    assert len(await store.transcript.load(S)) == 3


@on_a_store
async def test_a_restart_takes_the_newest_one_that_can_be_read(store):
    await three_rows(store)
    for name in ("k1", "k2"):
        await store.checkpoints.append(S, NewCheckpoint(name, "sum", "m2", 1, now()))
    damage = update(checkpoints).where(checkpoints.c.id == "k2").values(retained_tail='[{"kind": "?"}]')
    await store._db.write(lambda tx: tx.execute(damage))
    assert (await store.checkpoints.newest(S)).id == "k1"
    assert await problems(store) == ["checkpoint: k2 cannot be read"]
    with refused(ErrorCode.STORE_DAMAGED, "verify"):
        await store.checkpoints.list(S)


@on_a_store
async def test_a_session_without_a_compaction_has_none(store):
    await three_rows(store)
    assert await store.checkpoints.newest(S) is None
    assert await store.checkpoints.list(S) == []
