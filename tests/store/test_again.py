"""What is written again, because the database's answer to the first time was lost, is recognised."""

from __future__ import annotations

from sidequest.core.errors import ErrorCode
from sidequest.core.events import Notice, Numbered
from sidequest.core.outcome import Status
from sidequest.store import Store
from tests.core.builders import says, user
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


@on_a_store
async def test_the_same_rows_again_are_recognised_and_others_are_not(store: Store) -> None:
    await a_session(store)
    said = [new("m1", user("go")), new("m2", says("found"))]
    assert await store.transcript.append(S, said) == (1, 2)
    assert await store.transcript.append(S, said) == (1, 2)
    with refused(ErrorCode.STORE_CONFLICT):
        await store.transcript.append(S, [new("m1", user("other"), at_ms=said[0].created_at_ms)])
    told = [numbered(1), numbered(2)]
    await store.events.append(S, told)
    await store.events.append(S, [*told, numbered(3)])
    assert await store.events.newest_number(S) == 3
    with refused(ErrorCode.STORE_CONFLICT, "due"):
        await store.events.append(S, [Numbered(2, now(), Notice(None, "other"))])
    assert await problems(store) == []


@on_a_store
async def test_the_same_end_and_the_same_delivery_again_change_nothing(store: Store) -> None:
    await a_session(store, new("m1", user("go")))
    await store.delegations.start(S, delegation("d1"))
    ended, carried = now(), new("m2", user("report"))
    for _ in range(2):
        await store.delegations.settle(S, outcome("d1"), ended)
    for _ in range(2):
        assert await store.delegations.deliver(S, carried, ["d1"]) == 2
    with refused(ErrorCode.STORE_CONFLICT, "settled before"):
        await store.delegations.settle(S, outcome("d1", Status.FAILED), ended)
    with refused(ErrorCode.STORE_CONFLICT, "delivered by message m2"):
        await store.delegations.deliver(S, new("m3", user("report")), ["d1"])
