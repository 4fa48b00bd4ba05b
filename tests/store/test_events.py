"""Events: numbered without gaps, and read on from any number. Grants and settings beside them."""

from __future__ import annotations

import pytest

from sidequest.core.errors import ErrorCode
from sidequest.core.events import DelegationSettled, Numbered, event_as_dict
from sidequest.store import Grant
from tests.store.builders import S, a_session, now, numbered, on_a_store, outcome, problems, refused


@on_a_store
async def test_a_reader_asks_for_what_came_after_the_last_number_it_saw(store):
    await a_session(store)
    await store.events.append(S, [numbered(n) for n in range(1, 6)])
    assert [e.number for e in await store.events.after(S, 3)] == [4, 5]
    assert [e.number for e in await store.events.after(S, limit=2)] == [1, 2]
    assert await store.events.after(S, 5) == []
    assert await store.events.newest_number(S) == 5


@on_a_store
async def test_an_event_comes_back_as_a_surface_was_told_it(store):
    await a_session(store)
    told = Numbered(1, 77, DelegationSettled("d1", outcome("d1", report="日本 \x00")))
    await store.events.append(S, [told])
    (row,) = await store.events.after(S)
    assert (row.number, row.at_ms, row.type, row.delegation_id) == (1, 77, "delegation_settled", "d1")
    expected = event_as_dict(told)
    expected["outcome"]["report"] = "日本 \ufffd"
    assert row.data == expected


@pytest.mark.parametrize("numbers", [[2], [1, 1], [1, 3], [0]])
@on_a_store
async def test_a_gap_or_a_number_that_comes_twice_is_refused_whole(store, numbers):
    await a_session(store)
    with refused(ErrorCode.STORE_CONFLICT, "due"):
        await store.events.append(S, [numbered(n) for n in numbers])
    assert await store.events.newest_number(S) == 0


@on_a_store
async def test_each_session_counts_for_itself(store):
    for session_id in (S, "s-2"):
        await a_session(store, session_id=session_id)
        await store.events.append(session_id, [numbered(1)])
    await store.events.append(S, [])
    await store.events.append(S, [numbered(2)])
    assert await store.events.newest_number("s-2") == 1
    assert await problems(store) == []


@on_a_store
async def test_the_newest_decision_about_a_rule_holds(store):
    await a_session(store)
    for allowed in (True, False):
        await store.grants.put(S, Grant("Bash(git *)", allowed, now()))
    await store.grants.put(S, Grant("Edit", True, now()))
    assert [(g.rule, g.allowed) for g in await store.grants.list(S)] == [
        ("Bash(git *)", False),
        ("Edit", True),
    ]
    assert await store.grants.remove(S, "Edit")
    assert not await store.grants.remove(S, "Edit")
    with refused(ErrorCode.SESSION_UNKNOWN):
        await store.grants.put("s-9", Grant("Edit", True, now()))


@pytest.mark.parametrize("value", [None, True, 1.5, "text", [1, {"a": None}], {"ü": "\u2028"}])
@on_a_store
async def test_settings_keep_what_json_can_say_by_scope(store, value):
    await store.settings.put("trust", "/work", "first", now())
    await store.settings.put("trust", "/work", value, now())
    await store.settings.put("other", "/work", 2, now())
    assert await store.settings.get("trust", "/work", "default") == value
    assert await store.settings.all("trust") == {"/work": value}
    assert await store.settings.remove("trust", "/work")
    assert not await store.settings.remove("trust", "/work")
    assert await store.settings.get("trust", "/work", "default") == "default"
