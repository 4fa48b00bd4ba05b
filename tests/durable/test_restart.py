"""A session that another process goes on with: nothing is lost, nothing comes twice."""

from __future__ import annotations

import asyncio
import re

import pytest
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelResponse, ThinkingPart

from sidequest.core.errors import ErrorCode, Failure, SidequestError
from sidequest.core.events import Notice
from sidequest.core.outcome import (
    DEGRADED_NOTE,
    ModelFailure,
    Outcome,
    Status,
    StopReason,
    Usage,
    report_text,
)
from sidequest.runtime.hold import LEASE_MS, RENEW_S
from sidequest.runtime.past import past_outcome
from sidequest.store import Holder, NewDelegation, leases
from tests.durable.desk import Room, in_a_loop, shown
from tests.durable.test_journal import GIVEN, READ, TASK, WAIT
from tests.support.fast_clock import run_fast
from tests.support.scripted_model import Asked, ScriptedModel, calling
from tests.support.sessions import helper, session, told
from tests.support.team import Doors

UNAUTHORIZED = ModelHTTPError(401, "m", {"error": {"message": "invalid api key"}})
UNANSWERED = "says: [The process ended before this was answered.]"


class TestConversation:
    @in_a_loop
    async def test_what_was_said_is_sent_again_word_for_word(self, room: Room) -> None:
        thought = ModelResponse(parts=[ThinkingPart("Hm.", signature="s", provider_name="p"), *READ.parts])
        async with room.desk(ScriptedModel(thought, "It is 42.", "Two.")) as desk:
            await desk.prompt("What is the answer?")
            await desk.prompt("And?")
            before, key = desk.session.messages, desk.id
        model = ScriptedModel("Three.")
        async with room.desk(model, continues=key[:8]) as desk:
            assert desk.id == key, "the beginning of an id is enough"
            assert (await desk.store.sessions.get(key)).title == "What is the answer?"
            assert shown(desk.session.messages) == shown(before)
            for kept, told in zip(desk.session.messages, before, strict=True):
                if isinstance(kept, ModelResponse) and isinstance(told, ModelResponse):
                    assert (kept.parts, kept.usage) == (told.parts, told.usage)
            await desk.prompt("Once more.")
        assert shown(model.asked[0].messages) == [*shown(before), "user: Once more."]
        assert [m.kind for m in model.asked[0].messages] == [m.kind for m in before] + ["request"]

    @pytest.mark.parametrize("attached", [False, True])
    @in_a_loop
    async def test_the_first_prompt_names_a_session_that_nobody_has_named(
        self, room: Room, attached: bool
    ) -> None:
        async with room.desk(ScriptedModel()) as desk:
            key = desk.id
            if attached:
                await desk.store.sessions.rename(key, "Mine")
        model = ScriptedModel("One.", "Two.")
        async with room.desk(model, continues=key) as desk:
            if not attached:
                await desk.store.sessions.rename(key, "Mine")
            await desk.prompt("First.")
            await desk.prompt("Second.")
            assert (await desk.store.sessions.get(key)).title == "Mine"

    @in_a_loop
    async def test_a_session_that_another_process_has_leaves_this_one_as_it_was(self, room: Room) -> None:
        async with room.desk(ScriptedModel()) as desk, session(room.root, ScriptedModel()) as other:
            before = other.id
            with pytest.raises(SidequestError):
                await other.attach(room.store, desk.id)  # type: ignore[arg-type]
            assert other.id == before

    @in_a_loop
    async def test_an_unknown_session_is_refused(self, room: Room) -> None:
        with pytest.raises(SidequestError) as caught:
            async with room.desk(ScriptedModel(), continues="nothing"):
                pass
        assert caught.value.code is ErrorCode.SESSION_UNKNOWN

    @in_a_loop
    async def test_a_turn_that_was_stopped_among_its_tools_is_the_same_after_a_restart(
        self, room: Room
    ) -> None:
        both = calling(("Read", {"path": "a.txt"}), ("Bash", {"command": "sleep 20"}))
        async with room.desk(ScriptedModel(both)) as desk:
            desk.session.log.subscribe(desk.store.note)
            turn = asyncio.create_task(desk.session.prompt("Go."))
            await desk.store.seen("tool_started", 2)
            await desk.session.stop()
            await turn
            before, key = shown(desk.session.messages), desk.id
        async with room.desk(ScriptedModel(), continues=key) as desk:
            assert shown(desk.session.messages) == before

    @in_a_loop
    async def test_a_fork_in_memory_is_stored_from_its_beginning(self, room: Room) -> None:
        async with room.desk(ScriptedModel(READ, "It is 42.", "Two.")) as desk:
            await desk.prompt("First.")
            async with desk.session.fork() as fork:
                await fork.attach(desk.store)  # type: ignore[arg-type]
                await fork.prompt("Second.")
                rows = await desk.store.transcript.load(fork.id)
                assert shown([row.message for row in rows]) == shown(fork.messages)
            assert len(await desk.lane()) == 4


class TestDeath:
    """The process is gone at some point; what it had stored is all there is."""

    @in_a_loop
    async def test_a_prompt_that_was_never_answered_says_so(self, room: Room) -> None:
        doors = Doors()
        async with room.desk(ScriptedModel(doors)) as desk:
            turn = asyncio.create_task(desk.session.prompt("Go."))
            await doors.arrived(1)
            await desk.die()
            await turn
            key = desk.id
        model = ScriptedModel("ok")
        async with room.desk(model, continues=key) as desk:
            await desk.prompt("Again.")
            assert await desk.lane() == ["user: Go.", UNANSWERED, "user: Again.", "says: ok"]
        assert shown(model.asked[0].messages) == ["user: Go.", UNANSWERED, "user: Again."]

    @in_a_loop
    async def test_a_second_death_reads_the_same(self, room: Room) -> None:
        key = None
        for prompt in ("One.", "Two."):
            doors = Doors()
            async with room.desk(ScriptedModel(doors), continues=key) as desk:
                turn = asyncio.create_task(desk.session.prompt(prompt))
                await doors.arrived(1)
                await desk.die()
                await turn
                key = desk.id
        async with room.desk(ScriptedModel(), continues=key) as desk:
            said = ["user: One.", UNANSWERED, "user: Two.", UNANSWERED]
            assert shown(desk.session.messages) == said

    @in_a_loop
    async def test_a_tool_that_ran_is_interrupted_and_one_that_was_done_is_not_run_again(
        self, room: Room
    ) -> None:
        both = calling(("Read", {"path": "a.txt"}), ("Bash", {"command": "sleep 20"}))
        async with room.desk(ScriptedModel(both)) as desk:
            desk.session.log.subscribe(desk.store.note)
            turn = asyncio.create_task(desk.session.prompt("Go."))
            await desk.store.seen("tool_started", 2)
            await desk.die()
            await turn
            key = desk.id
        model = ScriptedModel("ok")
        async with room.desk(model, continues=key) as desk:
            await desk.prompt("Go on.")
        assert shown(model.asked[0].messages) == [
            "user: Go.",
            "calls Read",
            "calls Bash",
            GIVEN,
            "Bash interrupted: The tool call was interrupted ",
            UNANSWERED,
            "user: Go on.",
        ]

    @in_a_loop
    async def test_L13_a_delegation_that_ran_is_interrupted_and_can_be_resumed(self, room: Room) -> None:
        doors = Doors()
        async with room.desk(ScriptedModel(TASK, WAIT), ScriptedModel(READ, doors)) as desk:
            turn = asyncio.create_task(desk.session.prompt("Delegate."))
            await doors.arrived(1)
            await desk.die()
            await turn
            (row,) = await desk.delegations()
            assert row.status is Status.RUNNING
            key = desk.id

        def resume(asked: Asked) -> ModelResponse:
            assert f"- helper / {row.id}: Help." in (asked.info.instructions or "")
            return calling(("Task", {"agent": "helper", "task": "Go on.", "resume": row.id}))

        parent = ScriptedModel(calling(("TaskList", {})), resume, WAIT, "Thanks.")
        child = ScriptedModel("Found 42.")
        async with room.desk(parent, child, continues=key) as desk:
            (row,) = await desk.delegations()
            assert (row.status, row.turns) == (Status.INTERRUPTED, 1)
            await desk.prompt("Go on.")
        assert f"helper ({row.id}): interrupted" in parent.asked[1].results[-1]
        assert "can be resumed" in parent.asked[1].results[-1]
        assert child.asked[0].user_texts == ["Help.", "Go on."]
        assert "the answer is 42" in child.asked[0].results[0], "it knows what it had read"
        assert "Found 42." in parent.asked[-1].results[-1]

    @in_a_loop
    async def test_a_delegation_that_died_after_it_lost_history_says_so(self, room: Room) -> None:
        doors, small = Doors(), {"child_window": 8_000, "max_tokens": 1_000}
        (room.root / "long.txt").write_text("word " * 2_400)
        long = calling(("Read", {"path": "long.txt"}), text="So far nothing.")
        child = ScriptedModel(*[long] * 4, doors, summary=RuntimeError("no"))
        async with room.desk(ScriptedModel(TASK, WAIT), child, **small) as desk:
            turn = asyncio.create_task(desk.session.prompt("Delegate."))
            await doors.arrived(1)
            await desk.die()
            await turn
        copy = await room.store.sessions.fork(desk.id, f"copy-{desk.id}", at_ms=1)
        for continues in (desk.id, copy.id):
            async with room.desk(ScriptedModel("x"), child, continues=continues, **small) as desk:
                (record,) = desk.session.delegations.records.all()
                assert record.outcome.status is Status.INTERRUPTED
                assert report_text(record.outcome).startswith(DEGRADED_NOTE)
                assert record.outcome.failure is not None

    @in_a_loop
    async def test_a_resume_that_lost_history_and_died_before_its_first_answer_says_so(
        self, room: Room
    ) -> None:
        doors, small = Doors(), {"child_window": 8_000, "max_tokens": 1_000}
        (room.root / "long.txt").write_text("word " * 2_400)
        long = calling(("Read", {"path": "long.txt"}), text="So far nothing.")
        child = ScriptedModel(*[long] * 3, "Nothing.", doors, summary=RuntimeError("no"))
        async with room.desk(ScriptedModel("x"), child, **small) as desk:
            first = await desk.session.delegate("helper", "Help.")
            job = asyncio.create_task(desk.session.delegate("helper", "Go on.", resume=first.delegation_id))
            await doors.arrived(1)
            await desk.die()
            await asyncio.gather(job, return_exceptions=True)
        async with room.desk(ScriptedModel("x"), child, continues=desk.id, **small) as desk:
            outcomes = [record.outcome for record in desk.session.delegations.records.all()]
            assert [outcome.status for outcome in outcomes] == [Status.COMPLETED, Status.INTERRUPTED]
            assert all(outcome.degraded for outcome in outcomes)

    @in_a_loop
    async def test_a_resume_that_died_before_its_first_answer_is_gone_on_with(self, room: Room) -> None:
        def resume_listed(asked: Asked) -> ModelResponse:
            (listed,) = re.findall(r"- helper / ([0-9a-f-]{36})", asked.info.instructions or "")
            return calling(("Task", {"agent": "helper", "task": "Go on.", "resume": listed}))

        doors, key = Doors(), None
        for parent, child in (
            (ScriptedModel(TASK, WAIT), ScriptedModel(READ, doors)),
            (ScriptedModel(resume_listed, WAIT), ScriptedModel(doors)),
        ):
            async with room.desk(parent, child, continues=key) as desk:
                turn = asyncio.create_task(desk.session.prompt("Delegate."))
                await doors.arrived(len(doors.waiting) + 1)
                await desk.die()
                await turn
                key = desk.id
        last = ScriptedModel("Found.")
        async with room.desk(ScriptedModel(resume_listed, WAIT, "Thanks."), last, continues=key) as desk:
            await desk.prompt("Go on.")
        assert last.asked[0].user_texts == ["Help.", "Go on.", "Go on."]
        assert "the answer is 42" in last.asked[0].results[0]

    @in_a_loop
    async def test_what_runs_in_a_delegation_that_died_is_interrupted_too(self, room: Room) -> None:
        busy = calling(("Bash", {"command": "sleep 20"}))
        child, tools = ScriptedModel(READ, busy), [helper(tools=("Read", "Bash"))]
        async with room.desk(ScriptedModel(TASK, WAIT), child, definitions=tools) as desk:
            desk.session.log.subscribe(desk.store.note)
            turn = asyncio.create_task(desk.session.prompt("Delegate."))
            await desk.store.seen("tool_started", 4)
            await desk.die()
            await turn
            key = desk.id
        async with room.desk(
            ScriptedModel(), later := ScriptedModel("ok"), definitions=tools, continues=key
        ) as desk:
            (row,) = await desk.delegations()
            await desk.session.delegate("helper", "Go on.", resume=row.id)
            assert (await desk.lane(row.id))[-1].startswith("calls Bash")
        assert "interrupted" in later.asked[0].results[-1]


class TestDelivery:
    @in_a_loop
    async def test_a_report_that_nobody_had_read_is_delivered_once(self, room: Room) -> None:
        async def die_when_settled(asked: Asked) -> str:
            await desk.store.seen("delegation_settled")
            doors_reached.set()
            await asyncio.Event().wait()
            return "Never."

        doors_reached = asyncio.Event()
        async with room.desk(ScriptedModel(TASK, die_when_settled), ScriptedModel("Found.")) as desk:
            desk.session.log.subscribe(desk.store.note)
            turn = asyncio.create_task(desk.session.prompt("Delegate."))
            await doors_reached.wait()
            await desk.die()
            await turn
            key = desk.id
        parent = ScriptedModel("I begin.", "Thanks.", "Nothing new.")
        async with room.desk(parent, ScriptedModel(), continues=key) as desk:
            await desk.prompt("Go on.")
            await desk.prompt("Anything else?")
            (row,) = await desk.delegations()
            (carrier,) = [r for r in await desk.rows() if "report:" in "".join(shown([r.message]))]
            assert row.delivered_by == carrier.id
        assert [len(asked.marked_texts("report")) for asked in parent.asked] == [0, 1, 1]
        assert "Found." in parent.asked[1].marked_texts("report")[0]
        async with room.desk(again := ScriptedModel("ok"), ScriptedModel(), continues=key) as desk:
            await desk.prompt("And now?")
        assert len(again.asked) == 1
        assert len(again.asked[0].marked_texts("report")) == 1

    @in_a_loop
    async def test_a_report_whose_delivery_was_stored_is_not_delivered_again(self, room: Room) -> None:
        doors = Doors()
        parent = ScriptedModel(TASK, "I wait.", doors)
        async with room.desk(parent, ScriptedModel("Found.")) as desk:
            turn = asyncio.create_task(desk.session.prompt("Delegate."))
            await doors.arrived(1)
            await desk.die()
            await turn
            key = desk.id
        async with room.desk(later := ScriptedModel("ok"), ScriptedModel(), continues=key) as desk:
            await desk.prompt("Go on.")
        (asked,) = later.asked
        assert len(asked.marked_texts("report")) == 1

    @in_a_loop
    async def test_TaskWait_gives_what_an_earlier_process_left(self, room: Room) -> None:
        doors = Doors()
        async with room.desk(ScriptedModel(TASK, WAIT), ScriptedModel(READ, doors)) as desk:
            turn = asyncio.create_task(desk.session.prompt("Delegate."))
            await doors.arrived(1)
            await desk.die()
            await turn
            key = desk.id
        parent = ScriptedModel(WAIT, "I see.")
        async with room.desk(parent, ScriptedModel(), continues=key) as desk:
            await desk.prompt("Go on.")
            (row,) = await desk.delegations()
            assert row.delivered
        assert "was interrupted after 1 turn" in parent.asked[1].results[-1]

    @in_a_loop
    async def test_a_report_that_a_program_asked_for_is_not_given_to_the_parent_as_well(
        self, room: Room
    ) -> None:
        async with room.desk(ScriptedModel(), ScriptedModel("Found.")) as desk:
            assert (await desk.session.delegate("helper", "Help.")).report == "Found."
            (row,) = await desk.delegations()
            assert (row.delivered, row.delivered_by) == (True, None)
            key = desk.id
        async with room.desk(later := ScriptedModel("ok"), ScriptedModel(), continues=key) as desk:
            await desk.prompt("Go on.")
        (asked,) = later.asked
        assert asked.marked_texts("report") == []

    @in_a_loop
    async def test_one_whose_process_died_before_the_program_got_it_is_delivered(self, room: Room) -> None:
        async with room.desk(ScriptedModel(), ScriptedModel("Found.")) as desk:
            gone, forever = asyncio.Event(), asyncio.Event()

            async def die() -> None:
                gone.set()
                await forever.wait()

            desk.store.before = {"delegations.given": die}
            job = asyncio.create_task(desk.session.delegate("helper", "Help."))
            await gone.wait()
            desk.store.stop_taking()
            forever.set()
            await job
            await desk.die()
            key = desk.id
        parent = ScriptedModel("I begin.", "Thanks.")
        async with room.desk(parent, ScriptedModel(), continues=key) as desk:
            await desk.prompt("Go on.")
        assert "Found." in parent.asked[1].marked_texts("report")[0]

    @in_a_loop
    async def test_that_it_was_given_is_stored_later_when_the_store_failed(self, room: Room) -> None:
        async with room.desk(ScriptedModel("ok"), ScriptedModel("Found.")) as desk:
            desk.store.break_at("delegations.given")
            await desk.session.delegate("helper", "Help.")
            desk.store.mend()
            await desk.prompt("Go on.")
            (row,) = await desk.delegations()
            assert row.delivered

    @in_a_loop
    async def test_a_fork_does_not_give_it_to_the_parent_either(self, room: Room) -> None:
        async with room.desk(ScriptedModel("ok", "Yes."), ScriptedModel("Found.")) as desk:
            await desk.prompt("Go.")
            await desk.session.delegate("helper", "Help.")
            await desk.prompt("And now?")
            await desk.store.sessions.fork(desk.id, "a-fork", at_ms=0)
            (row,) = await desk.store.delegations.list("a-fork")
            assert (row.delivered, row.delivered_by) == (True, None)

    @in_a_loop
    async def test_a_stopped_one_is_not_delivered(self, room: Room) -> None:
        parent = ScriptedModel(TASK, calling(("TaskStop", {})), "Stopped.")
        async with room.desk(parent, ScriptedModel(Doors())) as desk:
            await desk.prompt("Delegate and stop.")
            key = desk.id
        async with room.desk(later := ScriptedModel("ok"), ScriptedModel(), continues=key) as desk:
            (row,) = await desk.delegations()
            assert (row.status, row.delivered) == (Status.STOPPED, False)
            await desk.prompt("Go on.")
        assert len(later.asked) == 1


class TestOutcomes:
    @in_a_loop
    async def test_how_a_delegation_ended_comes_back_whole(self, room: Room) -> None:
        async with room.desk(ScriptedModel()) as desk:
            ended = Outcome(
                "d1",
                "helper",
                Status.PARTIAL,
                StopReason.TURN_LIMIT,
                "As far as I got.",
                "test/child",
                "fork",
                1.5,
                turns=3,
                tool_calls=2,
                usage=Usage(4, 500, 60, 0.25),
                failure=Failure(ErrorCode.SUBAGENT_TURN_LIMIT, "It was the limit.", details={"limit": 3}),
                model_failures=(ModelFailure("test/other", ErrorCode.PROVIDER_ERROR, "down"),),
                compactions=1,
                degradations=2,
                unfinished_tool="Bash",
            )
            new = NewDelegation("d1", "helper", "Help.", "Help.", "test/child", "fork", 1_000)
            await desk.store.delegations.start(desk.id, new)
            await desk.store.delegations.settle(desk.id, ended, 2_500)
            (row,) = await desk.delegations()
            assert past_outcome(row) == ended


class TestEvents:
    @in_a_loop
    async def test_after_a_death_they_go_on_behind_the_last_one_that_was_stored(self, room: Room) -> None:
        doors = Doors()
        async with room.desk(ScriptedModel(READ, doors)) as desk:
            turn = asyncio.create_task(desk.session.prompt("Go."))
            await doors.arrived(1)
            known = await desk.store.events.newest_number(desk.id)
            await desk.die()
            await turn
            key = desk.id
        async with room.desk(ScriptedModel("ok"), continues=key) as desk:
            await desk.prompt("Go on.")
            assert next(iter(desk.session.log.after())).number == known + 1
            stored = await desk.store.events.after(key)
            assert [row.number for row in stored] == list(range(1, len(stored) + 1))

    @in_a_loop
    async def test_a_delegation_that_was_running_is_told_to_have_ended_once(self, room: Room) -> None:
        doors = Doors()
        async with room.desk(ScriptedModel(TASK, WAIT), ScriptedModel(READ, doors)) as desk:
            turn = asyncio.create_task(desk.session.prompt("Delegate."))
            await doors.arrived(1)
            await desk.die()
            await turn
            key = desk.id
        for _ in range(2):
            async with room.desk(ScriptedModel(), ScriptedModel(), continues=key) as desk:
                (row,) = await desk.delegations()
                told = await desk.store.events.after(key, lane=row.id, types=["delegation_settled"])
                assert [event.data["outcome"]["status"] for event in told] == ["interrupted"]

    @in_a_loop
    async def test_one_whose_end_was_stored_without_its_event_is_told_to_have_ended_too(
        self, room: Room
    ) -> None:
        async def die_when_settled(asked: Asked) -> str:
            await desk.store.seen("delegation_settled")
            desk.store.stop_taking()
            return "Never stored."

        async with room.desk(ScriptedModel(TASK, die_when_settled), ScriptedModel("Found.")) as desk:
            desk.session.log.subscribe(desk.store.note)
            await desk.session.prompt("Delegate.")
            await desk.die()
            key = desk.id
        async with room.desk(ScriptedModel(), ScriptedModel(), continues=key) as desk:
            (row,) = await desk.delegations()
            (told,) = await desk.store.events.after(key, lane=row.id, types=["delegation_settled"])
            assert told.data["outcome"]["report"] == "Found."


class TestPlace:
    @in_a_loop
    async def test_a_session_that_worked_elsewhere_says_so_and_belongs_to_the_new_folder(
        self, room: Room
    ) -> None:
        async with room.desk(ScriptedModel("ok")) as desk:
            await desk.prompt("Go.")
            key, before = desk.id, str(room.root)
        room.root = room.root.parent / "elsewhere"
        room.root.mkdir()
        model = ScriptedModel("ok", "ok")
        async with room.desk(model, continues=key) as desk:
            (notice,) = told(desk.session, Notice)
            assert notice.text.startswith(f"This session worked in {before} and goes on in {room.root}.")
            (stored,) = await desk.store.events.after(key, types=["notice"])
            assert stored.data["text"] == notice.text
            assert (await desk.store.sessions.get(key)).root == str(room.root)
            await desk.prompt("Go on.")
        assert str(room.root) in (model.asked[0].info.instructions or "")
        async with room.desk(model, continues=key) as desk:
            assert told(desk.session, Notice) == [], "it is said once"


class TestTwoProcesses:
    @in_a_loop
    async def test_the_second_one_is_refused_and_told_who_works_there(self, room: Room) -> None:
        async with room.desk(ScriptedModel("ok")) as desk:
            with pytest.raises(SidequestError, match=r"in use by process \d+ on .* since") as caught:
                async with room.desk(ScriptedModel(), continues=desk.id):
                    pass
            assert caught.value.code is ErrorCode.AGENT_BUSY
            await desk.prompt("It is still mine.")

    @in_a_loop
    async def test_one_that_lost_its_session_stops_and_writes_nothing_more(
        self, room: Room, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # By the clock of the test, on a server too.
        monkeypatch.setattr(leases, "clock", lambda tx, caller_ms: caller_ms)
        doors = Doors("too late")
        async with room.another_store() as store, room.another_store() as theirs:
            async with session(room.root, ScriptedModel(doors)) as opened:
                await opened.attach(store)  # type: ignore[arg-type]
                turn = asyncio.create_task(opened.prompt("Go."))
                await doors.arrived(1)
                lease = await theirs.leases.get(opened.id)
                assert lease is not None
                other = Holder("other", "elsewhere", 77)
                later = lease.expires_at_ms + 1
                taken = await theirs.leases.acquire(opened.id, other, now_ms=later, ttl_ms=LEASE_MS)
                doors.open(0)
                result = await turn
                assert result.failure is not None
                assert result.failure.code is ErrorCode.AGENT_BUSY
                rows = await theirs.transcript.load(opened.id)
                assert shown([row.message for row in rows]) == ["user: Go."]
                with pytest.raises(SidequestError, match="taken over"):
                    await opened.close()
            await theirs.leases.release(taken)

    def test_the_right_is_renewed_while_a_session_is_open(self, own_room: Room) -> None:
        async def case() -> None:
            async with own_room, own_room.desk(ScriptedModel("ok")) as desk:
                first = await desk.store.leases.get(desk.id)
                desk.store.break_at("leases.renew", code=ErrorCode.STORE_LOCKED)
                await asyncio.sleep(RENEW_S * 1.2)
                assert await desk.store.leases.get(desk.id) == first
                desk.store.mend()
                await asyncio.sleep(RENEW_S)
                second = await desk.store.leases.get(desk.id)
                assert first is not None
                assert second is not None
                assert second.expires_at_ms > first.expires_at_ms
                assert second.since_ms == first.since_ms

        run_fast(case())
