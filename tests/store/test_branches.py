"""Forks copy what is inside the branch, truncations remove what is behind the cut (specification 2.11)."""

from __future__ import annotations

from sidequest.core.errors import ErrorCode
from sidequest.core.outcome import Status
from sidequest.store import Grant, NewCheckpoint
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
    same,
    valid,
)


async def a_long_session(store):
    """Two rounds, a delegation in each, a checkpoint behind each, the first report delivered in between."""
    await a_session(store, new("m1", user("first")), new("m2", says("", call("c1", "Task"))), title="Long")
    await store.delegations.start(S, delegation("d1", parent_message_id="m2"))
    await store.transcript.append(S, [new("m3", results(result("started", "c1", "Task")))])
    await store.transcript.append(S, [new("x1", user("brief"), "d1"), new("x2", says("found"), "d1")])
    await store.checkpoints.append(S, NewCheckpoint("k1", "one", "m3", 100, now()))
    await store.delegations.settle(S, outcome("d1", report="R1"), now())
    await store.delegations.deliver(S, new("m4", user("report R1")), ["d1"])
    await store.transcript.append(S, [new("m5", says("", call("c2", "Task")))])
    await store.delegations.start(S, delegation("d2", resumed_from="d1", parent_message_id="m5"))
    await store.transcript.append(
        S, [new("y1", user("brief 2"), "d2"), new("y2", says("", call("c9")), "d2")]
    )
    await store.checkpoints.append(S, NewCheckpoint("k2", "two", "m5", 100, now(), retained_tail=[user("t")]))
    await store.events.append(S, [numbered(1), numbered(2)])
    await store.grants.put(S, Grant("Bash", True, now()))


class TestFork:
    @on_a_store
    async def test_everything_comes_along_and_the_source_is_untouched(self, store):
        await a_long_session(store)
        before = await store.transcript.load(S)
        row = await store.sessions.fork(S, "f", at_ms=now())
        assert (row.title, row.messages, row.delegations) == ("Long", 5, 2)
        assert (row.forked_from, row.forked_through) == (S, "m5")
        assert await store.transcript.load(S) == before
        assert same(await store.transcript.history("f"), await store.transcript.history(S))
        assert [k.generation for k in await store.checkpoints.list("f")] == [1, 2]
        assert await problems(store) == []

    @on_a_store
    async def test_what_is_said_later_in_one_is_not_in_the_other(self, store):
        await a_long_session(store)
        await store.sessions.fork(S, "f", at_ms=now(), title="Fork")
        await store.transcript.append("f", [new("m6", user("other way"))])
        await store.transcript.append(S, [new("m6", user("this way"))])
        assert (await store.transcript.load("f"))[-1].message.parts[0].content == "other way"
        assert [match.session_id for match in await store.search.find("f", "way")] == ["f"]
        assert (await store.sessions.get("f")).title == "Fork"
        assert await problems(store) == []

    @on_a_store
    async def test_a_branch_ends_with_its_message_and_keeps_the_checkpoints_inside(self, store):
        await a_long_session(store)
        row = await store.sessions.fork(S, "f", "m3", at_ms=now())
        assert row.forked_through == "m3"
        assert [r.id for r in await store.transcript.load("f")] == ["m1", "m2", "m3"]
        (kept,) = await store.checkpoints.list("f")
        assert (kept.id, kept.through_message_id, kept.through_position) == ("k1", "m3", 3)
        assert [d.id for d in await store.delegations.list("f")] == ["d1"]
        assert [r.id for r in await store.transcript.load("f", "d1")] == ["x1", "x2"]
        assert await problems(store) == []

    @on_a_store
    async def test_a_report_that_was_delivered_behind_the_branch_is_delivered_in_it_again(self, store):
        await a_long_session(store)
        await store.sessions.fork(S, "f", "m3", at_ms=now())
        (waiting,) = await store.delegations.undelivered("f")
        assert (waiting.id, waiting.report) == ("d1", "R1")
        assert (await store.delegations.get(S, "d1")).delivered

    @on_a_store
    async def test_a_branch_that_ends_within_a_round_is_still_valid(self, store):
        await a_long_session(store)
        await store.sessions.fork(S, "f", "m2", at_ms=now())
        *_, closing = valid(await store.transcript.history("f"))
        assert closing.parts[0].content == "started"
        assert await problems(store) == []

    @on_a_store
    async def test_a_delegation_that_runs_goes_on_in_the_source_only(self, store):
        await a_long_session(store)
        await store.sessions.fork(S, "f", at_ms=now())
        assert (await store.delegations.get(S, "d2")).status is Status.RUNNING
        assert (await store.delegations.get("f", "d2")).status is Status.INTERRUPTED
        assert len(valid(await store.transcript.history("f", "d2"))) == 3

    @on_a_store
    async def test_events_grants_and_the_lease_stay_behind(self, store):
        await a_long_session(store)
        await store.sessions.fork(S, "f", at_ms=now())
        assert await store.events.after("f") == []
        assert await store.grants.list("f") == []
        assert await store.leases.get("f") is None

    @on_a_store
    async def test_an_empty_session_and_a_fork_of_a_fork(self, store):
        await a_session(store)
        await store.sessions.fork(S, "f", at_ms=now())
        row = await store.sessions.fork("f", "g", at_ms=now())
        assert (row.messages, row.forked_from, row.forked_through) == (0, "f", None)

    @on_a_store
    async def test_what_cannot_be_forked_is_refused_whole(self, store):
        await a_long_session(store)
        with refused(ErrorCode.MESSAGE_UNKNOWN, "x1"):
            await store.sessions.fork(S, "f", "x1", at_ms=now())
        with refused(ErrorCode.STORE_CONFLICT):
            await store.sessions.fork(S, S, at_ms=now())
        with refused(ErrorCode.SESSION_UNKNOWN):
            await store.sessions.fork("s-9", "f", at_ms=now())
        assert [row.id for row in await store.sessions.list()] == [S]


class TestTruncate:
    @on_a_store
    async def test_rows_checkpoints_and_delegations_behind_the_cut_go(self, store):
        await a_long_session(store)
        await store.delegations.settle(S, outcome("d2"), now())
        gone = await store.sessions.truncate(S, "m4")
        assert (gone.messages, gone.checkpoints, gone.delegations) == (1, 1, ("d2",))
        assert [r.id for r in await store.transcript.load(S)] == ["m1", "m2", "m3", "m4"]
        assert [k.id for k in await store.checkpoints.list(S)] == ["k1"]
        assert (await store.delegations.get(S, "d1")).delivered_by == "m4"
        assert len(await store.events.after(S)) == 2
        assert await problems(store) == []

    @on_a_store
    async def test_a_report_whose_delivery_is_cut_off_is_delivered_again(self, store):
        await a_long_session(store)
        await store.delegations.settle(S, outcome("d2"), now())
        await store.sessions.truncate(S, "m3")
        assert [d.id for d in await store.delegations.undelivered(S)] == ["d1"]
        assert await problems(store) == []

    @on_a_store
    async def test_a_cut_behind_a_call_keeps_what_the_call_gave(self, store):
        await a_long_session(store)
        await store.delegations.settle(S, outcome("d2"), now())
        await store.sessions.truncate(S, "m2")
        *_, closing = valid(await store.transcript.history(S))
        assert closing.parts[0].content == "started"
        await store.transcript.append(S, [new("m3", results(result("started", "c1", "Task")))])
        assert await problems(store) == []

    @on_a_store
    async def test_numbers_and_generations_go_on_from_the_cut(self, store):
        await a_long_session(store)
        await store.delegations.settle(S, outcome("d2"), now())
        await store.sessions.truncate(S, "m3")
        assert await store.transcript.append(S, [new("n4", user("again"))]) == (4,)
        again = await store.checkpoints.append(S, NewCheckpoint("k3", "three", "n4", 9, now()))
        assert again.generation == 2
        assert await store.search.find(S, "report") == []
        assert await problems(store) == []

    @on_a_store
    async def test_everything_can_be_cut_off(self, store):
        await a_long_session(store)
        await store.delegations.settle(S, outcome("d2"), now())
        gone = await store.sessions.truncate(S, None)
        assert (gone.messages, gone.checkpoints, gone.delegations) == (5, 2, ("d1", "d2"))
        assert (await store.sessions.get(S)).messages == 0
        assert await problems(store) == []

    @on_a_store
    async def test_a_delegation_that_runs_behind_the_cut_is_stopped_first(self, store):
        await a_long_session(store)
        with refused(ErrorCode.AGENT_BUSY, "d2"):
            await store.sessions.truncate(S, "m3")
        assert (await store.sessions.get(S)).messages == 5

    @on_a_store
    async def test_a_message_of_a_delegate_is_no_place_to_cut(self, store):
        await a_long_session(store)
        with refused(ErrorCode.MESSAGE_UNKNOWN, "x1"):
            await store.sessions.truncate(S, "x1")
