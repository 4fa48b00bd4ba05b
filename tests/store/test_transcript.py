"""Messages and results as they happen, and the valid history that any instant leaves behind."""

from __future__ import annotations

import asyncio

import pytest
from pydantic_ai.messages import BinaryContent, ModelRequest, ToolReturnPart, UserPromptPart

from sidequest.core.errors import ErrorCode
from sidequest.core.outcome import Status
from sidequest.store.payload import INTERRUPTED
from sidequest.store.rows import NewestPart
from tests.core.builders import call, image, result, results, says, user
from tests.store.builders import (
    S,
    a_session,
    delegation,
    new,
    now,
    on_a_store,
    outcome,
    problems,
    refused,
    same,
    valid,
)


@on_a_store
async def test_what_was_appended_is_loaded_in_order(store):
    said = [user("hello"), says("looking", call("c1")), results(result("text", "c1")), says("done")]
    await a_session(store)
    messages = [new(f"m{n}", message) for n, message in enumerate(said, start=1)]
    assert await store.transcript.append(S, messages) == (1, 2, 3, 4)
    rows = await store.transcript.load(S)
    assert [row.id for row in rows] == ["m1", "m2", "m3", "m4"]
    assert same([row.message for row in rows], said)
    assert same(valid(await store.transcript.history(S)), said)


@on_a_store
async def test_a_request_keeps_the_places_of_its_results(store):
    mixed = ModelRequest(
        parts=[result("one", "c1"), UserPromptPart(["see", image()]), result(["two", image()], "c2")]
    )
    said = [user("go"), says("", call("c2"), call("c1")), mixed]
    await a_session(store, *(new(f"m{n}", message) for n, message in enumerate(said)))
    assert same(await store.transcript.history(S), said)


@on_a_store
async def test_texts_that_databases_and_json_find_hard_come_back(store):
    hard = "quote \" slash \\ \\u0000 newline \n tab \t 日本語 🎉 \u2028 ' ; DROP TABLE sessions; -- %s :x {}"
    said = [user(hard), says(hard, call("c1", path=hard)), results(result({"a": hard}, "c1"))]
    await a_session(store, *(new(f"m{n}", message) for n, message in enumerate(said)))
    assert same(await store.transcript.history(S), said)
    assert await problems(store) == []


@on_a_store
async def test_what_no_database_holds_is_replaced(store):
    await a_session(store, new("m1", user("a\x00b")), new("m2", says("a\ud800b", call("c1", path="\x00"))))
    prompt, answer, _ = await store.transcript.history(S)
    assert prompt.parts[0].content == "a\ufffdb"
    assert answer.parts[0].content == "a\ufffdb"
    assert answer.parts[1].args == {"path": "\ufffd"}
    assert await problems(store) == []


class TestResults:
    @on_a_store
    async def test_a_recorded_result_survives_without_its_request(self, store):
        await a_session(store, new("m1", user("go")), new("m2", says("", call("c1"), call("c2"))))
        await store.transcript.record_result(S, "m2", result("one", "c1"), now())
        *_, closing = valid(await store.transcript.history(S))
        one, two = closing.parts
        assert (one.content, one.outcome) == ("one", "success")
        assert (two.content, two.outcome) == (INTERRUPTED, "interrupted")
        assert "may have had effects" in two.content

    @on_a_store
    async def test_two_readings_of_an_open_round_are_the_same(self, store):
        await a_session(store, new("m1", user("go")), new("m2", says("", call("c1"))))
        assert same(await store.transcript.history(S), await store.transcript.history(S))

    @on_a_store
    async def test_the_request_that_follows_does_not_store_a_result_twice(self, store):
        await a_session(store, new("m1", user("go")), new("m2", says("", call("c1"), call("c2"))))
        first = result("one", "c1")
        await store.transcript.record_result(S, "m2", first, now())
        sent = results(first, result("two", "c2"))
        await store.transcript.append(S, [new("m3", sent)])
        rows = await store.transcript.load(S)
        assert [r.carrier_id for r in rows[1].results] == ["m3", "m3"]
        assert same(valid(await store.transcript.history(S)), [*(r.message for r in rows[:2]), sent])

    @on_a_store
    async def test_what_was_sent_counts_where_it_differs_from_what_was_recorded(self, store):
        await a_session(store, new("m1", user("go")), new("m2", says("", call("c1"))))
        await store.transcript.record_result(S, "m2", result("long " * 100, "c1"), now())
        await store.transcript.append(S, [new("m3", results(result("cut", "c1")))])
        assert (await store.transcript.history(S))[-1].parts[0].content == "cut"

    @on_a_store
    async def test_the_same_result_twice_is_one_and_another_is_refused(self, store):
        await a_session(store, new("m1", user("go")), new("m2", says("", call("c1"))))
        for _ in range(2):
            await store.transcript.record_result(S, "m2", result("one", "c1"), now())
        with refused(ErrorCode.STORE_CONFLICT, "another result"):
            await store.transcript.record_result(S, "m2", result("two", "c1"), now())
        (row,) = (await store.transcript.load(S))[1].results
        assert row.part.content == "one"

    @on_a_store
    async def test_a_result_without_its_call_is_refused(self, store):
        await a_session(store, new("m1", user("go")), new("m2", says("", call("c1"))))
        with refused(ErrorCode.STORE_CONFLICT, "no call c9"):
            await store.transcript.record_result(S, "m2", result("?", "c9"), now())
        with refused(ErrorCode.STORE_CONFLICT, "no call c1"):
            await store.transcript.record_result(S, "m1", result("?", "c1"), now())
        with refused(ErrorCode.MESSAGE_UNKNOWN):
            await store.transcript.record_result(S, "m9", result("?", "c1"), now())

    @on_a_store
    async def test_a_result_cannot_come_after_the_model_went_on_without_it(self, store):
        await a_session(store, new("m1", user("go")), new("m2", says("", call("c1"))))
        await store.transcript.append(S, [new("m3", user("next")), new("m4", says("ok"))])
        with refused(ErrorCode.STORE_CONFLICT, "closed without a result"):
            await store.transcript.record_result(S, "m2", result("late", "c1"), now())
        assert len(valid(await store.transcript.history(S))) == 5

    @on_a_store
    async def test_call_ids_that_come_back_belong_to_the_nearest_response(self, store):
        for turn in range(3):
            said = [user("go"), says("", call("call_0")), results(result(f"turn {turn}", "call_0"))]
            messages = [new(f"{turn}-{n}", message) for n, message in enumerate(said)]
            await (store.transcript.append(S, messages) if turn else a_session(store, *messages))
        found = [m.parts[0].content for m in valid(await store.transcript.history(S))[2::3]]
        assert found == ["turn 0", "turn 1", "turn 2"]

    @on_a_store
    async def test_a_result_of_nothing_and_a_second_result_are_left_out_of_the_history(self, store):
        said = [results(result("orphan", "c0")), user("go"), says("", call("c1"))]
        more = [results(result("one", "c1")), results(result("again", "c1"), result("?", "c7")), says("ok")]
        await a_session(store)
        for n, message in enumerate([*said, *more]):
            await store.transcript.append(S, [new(f"m{n}", message)])
        assert len(valid(await store.transcript.history(S))) == 4
        assert same([r.message for r in await store.transcript.load(S)], [*said, *more])
        assert await problems(store) == []

    @on_a_store
    async def test_a_response_that_repeats_a_call_id_makes_one_call(self, store):
        await a_session(store, new("m1", user("go")), new("m2", says("", call("c1"), call("c1"))))
        _, answer, closing = valid(await store.transcript.history(S))
        assert len(answer.parts) == len(closing.parts) == 1

    @on_a_store
    async def test_results_and_the_delivery_of_reports_are_one_transaction(self, store):
        await a_session(store, new("m1", user("go")), new("m2", says("", call("c1", "TaskWait"))))
        await store.delegations.start(S, delegation("d1", parent_message_id="m2"))
        with refused(ErrorCode.STORE_CONFLICT, "still running"):
            await store.transcript.record_result(
                S, "m2", result("?", "c1", "TaskWait"), now(), delivers=["d1"]
            )
        assert (await store.transcript.load(S))[1].results == ()
        await store.delegations.settle(S, outcome("d1"), now())
        await store.transcript.record_result(S, "m2", result("r", "c1", "TaskWait"), now(), delivers=["d1"])
        assert (await store.delegations.get(S, "d1")).delivered_by == "m2"
        assert await store.delegations.undelivered(S) == []

    @on_a_store
    async def test_placeholders_can_be_stored_for_good(self, store):
        await a_session(store, new("m1", user("go")), new("m2", says("", call("c1"), call("c2"))))
        await store.transcript.record_result(S, "m2", result("one", "c1"), now())
        before = await store.transcript.history(S)
        assert await store.transcript.close_open(S, at_ms=now()) == 1
        assert await store.transcript.close_open(S, at_ms=now()) == 0
        assert same(await store.transcript.history(S), before)
        assert (await store.transcript.load(S))[1].results[1].part.outcome == "interrupted"


class TestLanes:
    @on_a_store
    async def test_a_delegates_rows_never_get_into_the_parents_history(self, store):
        await a_session(store, new("m1", user("go")))
        await store.delegations.start(S, delegation("d1"))
        mixed = [new("x1", user("brief"), "d1"), new("m2", says("parent")), new("x2", says("delegate"), "d1")]
        assert await store.transcript.append(S, mixed) == (1, 2, 2)
        assert [r.id for r in await store.transcript.load(S)] == ["m1", "m2"]
        assert [r.id for r in await store.transcript.load(S, "d1")] == ["x1", "x2"]
        assert {r.agent for r in await store.transcript.load(S, "d1")} == {"explorer"}

    @on_a_store
    async def test_a_row_of_an_unknown_delegation_is_refused_with_its_whole_batch(self, store):
        await a_session(store)
        with refused(ErrorCode.DELEGATION_UNKNOWN, "d9"):
            await store.transcript.append(S, [new("m1", user("go")), new("x1", user("?"), "d9")])
        assert await store.transcript.load(S) == []

    @on_a_store
    async def test_an_id_that_is_taken_is_refused_with_its_whole_batch(self, store):
        await a_session(store, new("m1", user("go")))
        with refused(ErrorCode.STORE_CONFLICT):
            await store.transcript.append(S, [new("m2", says("a")), new("m1", user("again"))])
        assert [r.id for r in await store.transcript.load(S)] == ["m1"]

    @on_a_store
    async def test_an_unknown_session_is_refused(self, store):
        with refused(ErrorCode.SESSION_UNKNOWN, "s-9"):
            await store.transcript.append("s-9", [new("m1", user("go"))])


@on_a_store
async def test_lanes_that_are_written_at_the_same_time_keep_their_order(store):
    await a_session(store)
    lanes = [None, *(f"d{n}" for n in range(8))]
    for lane in lanes[1:]:
        await store.delegations.start(S, delegation(lane))

    async def talk(lane: str | None) -> None:
        for n in range(10):
            await store.transcript.append(S, [new(f"{lane}-{n}", user(str(n)), lane)])

    await asyncio.gather(*map(talk, lanes))
    for lane in lanes:
        rows = await store.transcript.load(S, lane)
        assert [(row.position, row.message.parts[0].content) for row in rows] == [
            (n + 1, str(n)) for n in range(10)
        ]
    assert await problems(store) == []


class TestParts:
    @on_a_store
    async def test_loading_goes_on_behind_a_position(self, store):
        await a_session(store, *(new(f"m{n}", user(str(n))) for n in range(1, 6)))
        assert [r.id for r in await store.transcript.load(S, after=3)] == ["m4", "m5"]
        assert [r.id for r in await store.transcript.load(S, after=1, limit=2)] == ["m2", "m3"]
        assert await store.transcript.load(S, after=5) == []

    @on_a_store
    async def test_a_history_that_begins_behind_a_call_leaves_its_result_out(self, store):
        said = [user("go"), says("", call("c1")), results(result("one", "c1")), says("done")]
        await a_session(store, *(new(f"m{n}", message) for n, message in enumerate(said)))
        (answer,) = await store.transcript.history(S, after=2)
        assert answer.parts[0].content == "done"

    @on_a_store
    async def test_the_newest_part_of_a_chain_is_whole_rounds_and_no_more_than_needed(self, store):
        await a_session(store)
        for number, lane in enumerate(["d1", "d2"]):
            await store.delegations.start(S, delegation(lane, resumed_from="d1" if number else None))
            said = [new(f"{lane}-0", user("brief"), lane)]
            for n in range(40):
                said.append(new(f"{lane}-{n}a", says("", call(f"c{n}")), lane))
                said.append(new(f"{lane}-{n}b", results(result("word " * 80, f"c{n}")), lane))
            await store.transcript.append(S, said)
            await store.delegations.settle(S, outcome(lane), now())
        few = await store.transcript.newest(S, ["d1", "d2"], 1_000)
        assert few.messages[0].kind == "response"
        assert 20 <= len(few.messages) <= 24
        assert not few.whole
        assert len((await store.transcript.newest(S, ["d1", "d2"], 6_000)).messages) > 81
        all_there_is = await store.transcript.newest(S, ["d1", "d2"], 10**9)
        assert (len(all_there_is.messages), all_there_is.whole) == (2 * 81, True)
        newer = sum(row.tokens for row in await store.transcript.load(S, "d2"))
        assert not (await store.transcript.newest(S, ["d1", "d2"], newer)).whole
        assert await store.transcript.newest(S, [], 10) == NewestPart([], True)


@on_a_store
async def test_people_can_read_the_transcript_in_the_database(store):
    await a_session(
        store, new("m1", user("go"), at_ms=0), new("m2", says("looking", call("c1"), call("c2")), at_ms=0)
    )
    await store.transcript.append(
        S, [new("m3", results(result("text", "c1"), result({"a": 1}, "c2")), at_ms=0)]
    )
    await store.transcript.append(S, [new("m4", says("done"), at_ms=0)])
    query = "SELECT who, text, calls, at_utc FROM readable_transcript ORDER BY row_id, part"
    rows = await store._db.read(lambda tx: [tuple(row) for row in tx.exec_driver_sql(query)])
    when = "1970-01-01 00:00:00"
    assert rows == [
        ("user", "go", None, when),
        ("assistant", "looking", "Read, Read", when),
        ("tool Read", "text", None, when),
        ("tool Read", '{"a":1}', None, when),
        ("assistant", "done", None, when),
    ]


@on_a_store
async def test_binary_content_comes_back_byte_for_byte(store):
    data = bytes(range(256))
    content = BinaryContent(data=data, media_type="application/pdf")
    part = ToolReturnPart("Read", [content], tool_call_id="c1")
    await a_session(store, new("m1", user("go")), new("m2", says("", call("c1"))), new("m3", results(part)))
    assert (await store.transcript.history(S))[-1].parts[0].content[0].data == data


@pytest.mark.parametrize("status", [Status.FAILED, Status.PARTIAL])
@on_a_store
async def test_appending_moves_the_sessions_time_forward_only(store, status):
    await a_session(store, new("m1", user("go"), at_ms=9_000_000))
    await store.transcript.append(S, [new("m2", says(status), at_ms=5)])
    assert (await store.sessions.get(S)).updated_at_ms == 9_000_000
