"""Delegations: started, settled once, delivered once, interrupted by a kill, resumed as a chain."""

from __future__ import annotations

import pytest

from sidequest.core.errors import ErrorCode
from sidequest.core.events import outcome_as_dict
from sidequest.core.outcome import Status
from sidequest.store import DelegationProgress
from tests.core.builders import call, result, results, says, user
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
    valid,
)


@on_a_store
async def test_a_delegation_starts_as_running_with_all_it_was_given(store):
    await a_session(store, new("m1", user("go")), new("m2", says("", call("c1", "Task"))))
    given = delegation(
        "d1",
        label="Look",
        definition={"name": "explorer", "tools": ["Read"]},
        parent_message_id="m2",
        parent_tool_call_id="c1",
    )
    row = await store.delegations.start(S, given)
    assert row == await store.delegations.get(S, "d1")
    assert (row.status, row.delivered, row.outcome, row.completed_at_ms) == (
        Status.RUNNING,
        False,
        None,
        None,
    )
    assert (row.task, row.brief, row.label) == ("task of d1", "brief of d1", "Look")
    assert row.definition == {"name": "explorer", "tools": ["Read"]}
    assert (row.parent_message_id, row.parent_tool_call_id) == ("m2", "c1")


@on_a_store
async def test_lines_that_were_read_are_counted_over_a_chain_whatever_they_hold(store):
    await a_session(store)
    await store.delegations.start(S, delegation("d1"))
    texts = ["one", "two\nlines", "a \\n is no break, a \\\\ and a\nbreak", 'quote "\\" and\n\n預算\n']
    for number, text in enumerate(texts):
        rows = [says("", call(f"r{number}", "Read")), results(result(text, f"r{number}", "Read"))]
        await store.transcript.append(S, [new(f"{number}-{i}", row, "d1") for i, row in enumerate(rows)])
    other = [says("", call("w1", "Bash")), results(result("not\nread", "w1", "Bash"))]
    await store.transcript.append(S, [new(f"o-{i}", row, "d1") for i, row in enumerate(other)])
    expected = sum(text.count("\n") + 1 for text in texts)
    assert await store.delegations.lines_read(S, ["d1"], {"read", "grep"}) == expected
    assert await store.delegations.lines_read(S, [], {"read"}) == 0


@on_a_store
async def test_what_cannot_start_is_refused(store):
    await a_session(store)
    await store.delegations.start(S, delegation("d1"))
    with refused(ErrorCode.STORE_CONFLICT):
        await store.delegations.start(S, delegation("d1"))
    with refused(ErrorCode.STORE_CONFLICT, "still running"):
        await store.delegations.start(S, delegation("d2", resumed_from="d1"))
    with refused(ErrorCode.DELEGATION_UNKNOWN, "d9"):
        await store.delegations.start(S, delegation("d2", resumed_from="d9"))
    with refused(ErrorCode.MESSAGE_UNKNOWN, "m9"):
        await store.delegations.start(S, delegation("d2", parent_message_id="m9"))
    assert [d.id for d in await store.delegations.list(S)] == ["d1"]


@on_a_store
async def test_progress_is_what_it_is_now_until_it_settles(store):
    await a_session(store)
    await store.delegations.start(S, delegation("d1"))
    await store.delegations.progress(S, "d1", DelegationProgress(3, 5, 900, "local/qwen", "Read"), now())
    row = await store.delegations.get(S, "d1")
    assert (row.turns, row.tool_calls, row.tokens, row.model, row.last_tool) == (
        3,
        5,
        900,
        "local/qwen",
        "Read",
    )
    await store.delegations.settle(S, outcome("d1", turns=4), now())
    await store.delegations.progress(S, "d1", DelegationProgress(9, 9, 9, "x/y"), now())
    assert (await store.delegations.get(S, "d1")).turns == 4


class TestSettle:
    @pytest.mark.parametrize("status", [s for s in Status if s is not Status.RUNNING])
    @on_a_store
    async def test_status_outcome_and_report_are_stored_together(self, store, status):
        await a_session(store)
        await store.delegations.start(S, delegation("d1"))
        ended = outcome("d1", status, "Report\x00 text.", model="local/qwen", turns=7, tool_calls=3)
        await store.delegations.settle(S, ended, 77)
        row = await store.delegations.get(S, "d1")
        assert (row.status, row.report, row.delivered) == (status, "Report\ufffd text.", False)
        assert (row.model, row.turns, row.tool_calls, row.completed_at_ms) == ("local/qwen", 7, 3, 77)
        assert row.outcome == outcome_as_dict(ended) | {"report": "Report\ufffd text."}
        assert await problems(store) == []

    @on_a_store
    async def test_it_settles_once(self, store):
        await a_session(store)
        await store.delegations.start(S, delegation("d1"))
        await store.delegations.settle(S, outcome("d1", report="first"), now())
        with refused(ErrorCode.STORE_CONFLICT, "settled before"):
            await store.delegations.settle(S, outcome("d1", report="second"), now())
        with refused(ErrorCode.STORE_CONFLICT, "still runs"):
            await store.delegations.settle(S, outcome("d1", Status.RUNNING), now())
        with refused(ErrorCode.DELEGATION_UNKNOWN):
            await store.delegations.settle(S, outcome("d9"), now())
        assert (await store.delegations.get(S, "d1")).report == "first"


class TestDeliver:
    @on_a_store
    async def test_the_message_and_the_flags_are_one_transaction(self, store):
        await a_session(store, new("m1", user("go")))
        for name in ("d1", "d2", "d3"):
            await store.delegations.start(S, delegation(name))
        for name in ("d1", "d2"):
            await store.delegations.settle(S, outcome(name), now())
        assert [d.id for d in await store.delegations.undelivered(S)] == ["d1", "d2"]
        assert await store.delegations.deliver(S, new("m2", user("reports")), ["d1", "d2"]) == 2
        assert await store.delegations.undelivered(S) == []
        assert {d.delivered_by for d in await store.delegations.list(S)} == {"m2", None}

    @pytest.mark.parametrize(
        ("ids", "code"),
        [
            (["d1", "d1"], None),
            (["d1", "d2"], ErrorCode.STORE_CONFLICT),
            (["d1", "d9"], ErrorCode.DELEGATION_UNKNOWN),
            (["d3"], ErrorCode.STORE_CONFLICT),
        ],
    )
    @on_a_store
    async def test_a_report_is_delivered_once_or_nothing_is_stored(self, store, ids, code):
        await a_session(store, new("m1", user("go")))
        for name in ("d1", "d2", "d3"):
            await store.delegations.start(S, delegation(name))
        for name in ("d1", "d2"):
            await store.delegations.settle(S, outcome(name), now())
        await store.delegations.deliver(S, new("m2", user("report")), ["d2"])
        if code is None:
            await store.delegations.deliver(S, new("m3", user("report")), ids)
            return
        with refused(code):
            await store.delegations.deliver(S, new("m3", user("report")), ids)
        assert [r.id for r in await store.transcript.load(S)] == ["m1", "m2"]
        assert [d.id for d in await store.delegations.undelivered(S)] == ["d1"]

    @on_a_store
    async def test_a_report_that_nobody_read_is_taken_back_and_delivered_again(self, store):
        await a_session(store, new("m1", user("go")))
        for name in ("d1", "d2", "d3"):
            await store.delegations.start(S, delegation(name))
            await store.delegations.settle(S, outcome(name), now())
        await store.delegations.deliver(S, new("m2", user("reports")), ["d1"])
        await store.delegations.given(S, "d3")
        await store.delegations.take_back(S, ["d1", "d2", "d3", "unknown"])
        assert [d.id for d in await store.delegations.undelivered(S)] == ["d1", "d2"]
        await store.delegations.deliver(S, new("m3", user("reports")), ["d1", "d2"])
        assert await store.delegations.undelivered(S) == []

    @on_a_store
    async def test_a_stopped_one_is_not_delivered_by_itself(self, store):
        await a_session(store)
        for name, status in [("d1", Status.STOPPED), ("d2", Status.FAILED), ("d3", Status.INTERRUPTED)]:
            await store.delegations.start(S, delegation(name))
            await store.delegations.settle(S, outcome(name, status), now())
        assert [d.id for d in await store.delegations.undelivered(S)] == ["d2", "d3"]

    @on_a_store
    async def test_reports_go_to_the_parent(self, store):
        await a_session(store)
        await store.delegations.start(S, delegation("d1"))
        await store.delegations.settle(S, outcome("d1"), now())
        with refused(ErrorCode.STORE_CONFLICT, "parent"):
            await store.delegations.deliver(S, new("x1", user("?"), "d1"), ["d1"])


class TestInterrupt:
    @on_a_store
    async def test_what_ran_when_the_process_died_is_interrupted_and_valid(self, store):
        await a_session(store)
        for name in ("d1", "d2"):
            await store.delegations.start(S, delegation(name))
        await store.delegations.settle(S, outcome("d2"), now())
        said = [user("brief"), says("half way", call("c1"), call("c2"))]
        await store.transcript.append(S, [new(f"x{n}", m, "d1") for n, m in enumerate(said)])
        await store.transcript.record_result(S, "x1", result("one", "c1"), last := now())
        (row,) = await store.delegations.interrupt_running(S, last + 86_400_000)
        assert (row.id, row.status, row.report) == ("d1", Status.INTERRUPTED, "half way")
        assert row.completed_at_ms == last, "the time until it was reopened is not its own"
        assert (row.tool_calls, row.last_tool) == (2, "Read"), "one was done, one had begun"
        outcomes = [r.part.outcome for r in (await store.transcript.load(S, "d1"))[1].results]
        assert outcomes == ["success", "interrupted"]
        assert len(valid(await store.transcript.history(S, "d1"))) == 3
        assert await store.delegations.interrupt_running(S, 100) == []
        assert await problems(store) == []

    @on_a_store
    async def test_an_interrupted_one_can_be_resumed(self, store):
        await a_session(store)
        await store.delegations.start(S, delegation("d1"))
        await store.delegations.interrupt_running(S, now())
        row = await store.delegations.start(S, delegation("d2", resumed_from="d1"))
        assert row.chain_id == "d1"


class TestChains:
    @on_a_store
    async def test_any_id_of_a_chain_tells_all_of_it(self, store):
        await a_session(store)
        for name, earlier in [("a1", None), ("b1", None), ("a2", "a1"), ("a3", "a2")]:
            facts = {"definition": {"of": name}, "model": f"local/{name}", "started_at_ms": 7}
            await store.delegations.start(S, delegation(name, resumed_from=earlier, **facts))
            await store.delegations.settle(S, outcome(name, Status.PARTIAL, model=f"local/{name}"), now())
        for name in ("a1", "a2", "a3"):
            chain = await store.delegations.chain(S, name)
            assert (chain.id, chain.ids, chain.agent) == ("a1", ("a1", "a2", "a3"), "explorer")
            assert chain.original_task == "brief of a1"
            assert (chain.latest.status, chain.latest.model) == (Status.PARTIAL, "local/a3")
            assert chain.latest.definition == {"of": "a3"}
        assert [chain.id for chain in await store.delegations.chains(S)] == ["b1", "a1"]

    @on_a_store
    async def test_the_lanes_of_a_chain_make_the_history_to_go_on_from(self, store):
        await a_session(store)
        for name, earlier in [("a1", None), ("a2", "a1")]:
            await store.delegations.start(S, delegation(name, resumed_from=earlier))
            said = [
                user(f"brief {name}"),
                says("", call("c1")),
                results(result(name, "c1")),
                says(f"end {name}"),
            ]
            await store.transcript.append(S, [new(f"{name}-{n}", m, name) for n, m in enumerate(said)])
            await store.delegations.settle(S, outcome(name), now())
        chain = await store.delegations.chain(S, "a2")
        history = valid((await store.transcript.newest(S, chain.ids, 10_000)).messages)
        assert [m.parts[0].content for m in history[::4]] == ["brief a1", "brief a2"]


class TestFinding:
    @on_a_store
    async def test_an_id_is_found_in_any_session_by_its_beginning(self, store):
        for session_id, name in [("s-1", "dab1"), ("s-2", "dab2")]:
            await a_session(store, session_id=session_id)
            await store.delegations.start(session_id, delegation(name))
        assert (await store.delegations.find("dab2")).session_id == "s-2"
        assert [d.id for d in await store.delegations.list()] == ["dab1", "dab2"]
        with refused(ErrorCode.DELEGATION_UNKNOWN, "2 delegations"):
            await store.delegations.find("dab")
        for unknown in ("x", ""):
            with refused(ErrorCode.DELEGATION_UNKNOWN):
                await store.delegations.find(unknown)

    @on_a_store
    async def test_of_a_forked_one_the_copy_in_the_session_used_last_is_meant(self, store):
        await a_session(store)
        await store.delegations.start(S, delegation("d1"))
        await store.sessions.fork(S, "f", at_ms=now())
        assert (await store.delegations.find("d1")).session_id == "f"
        await store.sessions.touch(S, now())
        assert (await store.delegations.find("d1")).session_id == S
