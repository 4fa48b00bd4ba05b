"""What is stored when: a session's rows are there before what depends on them happens."""

from __future__ import annotations

import asyncio
import random

from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelResponse, ThinkingPart

from sidequest.core.errors import ErrorCode
from sidequest.core.events import Numbered, RunEnded, event_as_dict
from sidequest.core.outcome import Status
from sidequest.runtime.limits import Limits
from tests.durable.desk import Desk, Room, in_a_loop, shown
from tests.support.neutral import Drop, Reply
from tests.support.provider import LoopbackProvider
from tests.support.scripted_model import Asked, ScriptedModel, calling
from tests.support.team import Doors

UNAUTHORIZED = ModelHTTPError(401, "m", {"error": {"message": "invalid api key"}})
UNAVAILABLE = ModelHTTPError(503, "m", {"error": {"message": "try later"}})
READ = calling(("Read", {"path": "a.txt"}))
TASK = calling(("Task", {"agent": "helper", "task": "Help."}))
WAIT = calling(("TaskWait", {}))
GIVEN = "Read gives: [a.txt | 1 lines] 1 the answer"


def told(desk: Desk) -> list[str]:
    """What was written and what was told, in one order; how events are stored is left out."""
    return [name for name in desk.store.calls if not name.startswith("events.")]


class TestOrder:
    @in_a_loop
    async def test_each_step_is_stored_before_the_next_one_happens(self, room: Room) -> None:
        async with room.desk(ScriptedModel(READ, "It is 42.")) as desk:
            desk.store.calls.clear()
            desk.session.log.subscribe(desk.store.note)
            await desk.prompt("What is the answer?")
            assert told(desk) == [
                "prompt",
                "sessions.rename",
                "transcript.append",  # the prompt
                "turn_started",
                "transcript.append",  # the answer with its call
                "tool_started",
                "transcript.record_result",
                "tool_ended",
                "transcript.append",  # the request that carries the result
                "turn_started",
                "text",
                "transcript.append",  # the last answer
                "run_ended",
            ]
            assert await desk.lane() == [
                "user: What is the answer?",
                "calls Read",
                GIVEN,
                "says: It is 42.",
            ]

    @in_a_loop
    async def test_each_result_of_several_calls_is_stored_when_its_tool_is_done(self, room: Room) -> None:
        both = calling(("Read", {"path": "a.txt"}), ("Read", {"path": "b.txt"}))
        async with room.desk(ScriptedModel(both, "ok")) as desk:
            desk.session.log.subscribe(desk.store.note)
            await desk.prompt("Read both.")
            steps = [name for name in told(desk) if "tool" in name or "record" in name]
            assert steps == ["tool_started", "transcript.record_result", "tool_ended"] * 2
            answer = (await desk.rows())[1]
            assert [result.carrier_id for result in answer.results] == [(await desk.rows())[2].id] * 2

    @in_a_loop
    async def test_the_failure_of_a_tool_is_a_result_that_is_stored_at_once(self, room: Room) -> None:
        async with room.desk(ScriptedModel(calling(("Read", {"path": "nope"})), "ok")) as desk:
            desk.session.log.subscribe(desk.store.note)
            await desk.prompt("Read it.")
            steps = [name for name in told(desk) if "tool" in name or "record" in name]
            assert steps == ["tool_started", "transcript.record_result", "tool_ended"]
            (result,) = (await desk.rows())[1].results
            assert result.part.outcome == "failed"
            assert (await desk.lane())[2].startswith("Read failed:")

    @in_a_loop
    async def test_a_streamed_answer_is_stored_like_any_other(self, room: Room) -> None:
        script = [Reply(tool_calls=[("Read", {"path": "a.txt"})]), Drop(after=Reply("Half of")), "It is 42."]
        async with (
            LoopbackProvider(script) as provider,
            room.desk(provider.chat_model(), stream=True) as desk,
        ):
            await desk.prompt("Go.")
            assert await desk.lane() == [
                "user: Go.",
                "calls Read",
                GIVEN,
                "says: It is 42.",
            ]


class TestDelegations:
    @in_a_loop
    async def test_L1_the_rows_of_a_delegation_are_its_own_lane(self, room: Room) -> None:
        async with room.desk(ScriptedModel(TASK, WAIT, "Thanks."), ScriptedModel(READ, "Found.")) as desk:
            await desk.prompt("Delegate.")
            (row,) = await desk.delegations()
            assert await desk.lane(row.id) == [
                "brief: Help.",
                "calls Read",
                GIVEN,
                "says: Found.",
            ]
            assert {stored.agent for stored in await desk.rows(row.id)} == {"helper"}
            assert not [line for line in await desk.lane() if "Read" in line]
            assert (row.status, row.report, row.turns) == (Status.COMPLETED, "Found.", 2)
            assert row.definition["description"] == "Helps."

    @in_a_loop
    async def test_it_is_stored_before_the_parent_is_told_its_id(self, room: Room) -> None:
        doors = Doors("Found.")
        async with room.desk(ScriptedModel(TASK, WAIT, "Thanks."), ScriptedModel(doors)) as desk:
            known: list[int] = []

            async def slowly() -> None:
                await asyncio.sleep(0.05)

            async def look() -> None:
                known.append(len(await desk.delegations()))
                doors_open.set()

            doors_open = asyncio.Event()
            desk.store.before = {"delegations.start": slowly, "transcript.record_result": look}
            turn = asyncio.create_task(desk.prompt("Delegate."))
            await doors.arrived(1)
            await doors_open.wait()
            doors.open(0)
            await turn
            assert known[0] == 1

    @in_a_loop
    async def test_a_report_that_TaskWait_gave_is_delivered_with_its_result(self, room: Room) -> None:
        async with room.desk(ScriptedModel(TASK, WAIT, "Thanks."), ScriptedModel("Found.")) as desk:
            await desk.prompt("Delegate.")
            (row,) = await desk.delegations()
            waiting = (await desk.rows())[3]
            assert (row.delivered, row.delivered_by) == (True, waiting.id)
            assert waiting.results[0].part.tool_name == "TaskWait"

    @in_a_loop
    async def test_asking_again_for_a_delivered_report_shows_it_again(self, room: Room) -> None:
        async def ask_for_the_same(asked: Asked) -> ModelResponse:
            (row,) = await desk.delegations()
            return calling(("TaskWait", {"delegationIds": [row.id]}))

        parent = ScriptedModel(TASK, WAIT, ask_for_the_same, "Thanks.")
        async with room.desk(parent, ScriptedModel("Found.")) as desk:
            await desk.prompt("Delegate.")
            (row,) = await desk.delegations()
            assert row.delivered_by == (await desk.rows())[3].id
        assert all("Found." in result for result in parent.asked[-1].results[1:])

    @in_a_loop
    async def test_a_report_that_comes_by_itself_is_delivered_with_its_message(self, room: Room) -> None:
        parent = ScriptedModel(TASK, "I wait.", "Thanks.")
        async with room.desk(parent, ScriptedModel("Found.")) as desk:
            await desk.prompt("Delegate.")
            assert (await desk.lane())[3:] == [
                "says: I wait.",
                "report: Delegations settled. Their reports follow; they are informat",
                "says: Thanks.",
            ]
            (row,) = await desk.delegations()
            assert row.delivered_by == (await desk.rows())[4].id
            await asyncio.sleep(0)
        assert len(parent.asked[-1].marked_texts("report")) == 1

    @in_a_loop
    async def test_D21_a_delegates_compaction_stores_no_checkpoint_and_no_row(self, room: Room) -> None:
        for name in "cdef":
            (room.root / f"{name}.txt").write_text("words of a file\n" * 500)
        reads = [calling(("Read", {"path": f"{name}.txt"})) for name in "cdef"]
        child = ScriptedModel(*reads, "Found.")
        async with room.desk(
            ScriptedModel(TASK, WAIT, "Thanks."), child, child_window=16_000, max_tokens=2_000
        ) as desk:
            result = await desk.prompt("Delegate.")
            assert result.delegations[0].compactions == 1
            assert await desk.store.checkpoints.list(desk.id) == []
            (row,) = await desk.delegations()
            lane = await desk.lane(row.id)
            assert [line.split(":")[0] for line in lane] == [
                "brief",
                *["calls Read", "Read gives"] * 4,
                "says",
            ]

    @in_a_loop
    async def test_a_delegation_that_is_stopped_while_it_is_being_stored_was_stopped(
        self, room: Room
    ) -> None:
        begun = asyncio.Event()

        async def slowly() -> None:
            begun.set()
            await asyncio.sleep(0.05)

        async with room.desk(ScriptedModel(), ScriptedModel("Never.")) as desk:
            desk.store.before = {"delegations.start": slowly}
            job = asyncio.create_task(desk.session.delegate("helper", "Help."))
            await begun.wait()
            await desk.session.stop()
            outcome = await job
            assert outcome.status is Status.STOPPED
            assert [row.status for row in await desk.delegations()] in ([], [Status.STOPPED])

    @in_a_loop
    async def test_a_stop_while_the_end_is_being_stored_changes_nothing_of_the_end(self, room: Room) -> None:
        ending = asyncio.Event()

        async def slowly() -> None:
            ending.set()
            await asyncio.sleep(0.05)

        async with room.desk(ScriptedModel(), ScriptedModel("Found.")) as desk:
            desk.store.before = {"delegations.settle": slowly}
            job = asyncio.create_task(desk.session.delegate("helper", "Help."))
            await ending.wait()
            await desk.session.stop()
            assert (await job).status is Status.COMPLETED
            (row,) = await desk.delegations()
            assert (row.status, row.report) == (Status.COMPLETED, "Found.")

    @in_a_loop
    async def test_one_that_is_stopped_before_it_began_is_stored_as_stopped(self, room: Room) -> None:
        async with room.desk(ScriptedModel(), ScriptedModel("Never.")) as desk:
            job = asyncio.create_task(desk.session.delegate("helper", "Help."))
            await asyncio.sleep(0)
            assert len(desk.session.delegations.records.running()) == 1
            await desk.session.stop()
            assert (await job).status is Status.STOPPED
            assert [row.status for row in await desk.delegations()] == [Status.STOPPED]


class TestAttempts:
    @in_a_loop
    async def test_what_is_sent_again_is_stored_once(self, room: Room) -> None:
        model = ScriptedModel(UNAVAILABLE, READ, UNAVAILABLE, UNAVAILABLE, "It is 42.")
        async with room.desk(model) as desk:
            await desk.prompt("Go.")
            assert await desk.lane() == [
                "user: Go.",
                "calls Read",
                GIVEN,
                "says: It is 42.",
            ]

    @in_a_loop
    async def test_a_delivery_that_is_sent_again_is_stored_once(self, room: Room) -> None:
        parent = ScriptedModel(TASK, "I wait.", UNAVAILABLE, UNAVAILABLE, "Thanks.")
        async with room.desk(parent, ScriptedModel("Found.")) as desk:
            await desk.prompt("Delegate.")
            assert [line.split(":")[0] for line in await desk.lane()][3:] == ["says", "report", "says"]

    @in_a_loop
    async def test_an_answer_that_was_cut_inside_a_call_is_stored_without_the_call(self, room: Room) -> None:
        cut = calling(("Read", {"path": "a.txt"}), text="Let me see.", finish="length")
        async with room.desk(ScriptedModel(cut, READ, "ok")) as desk:
            await desk.prompt("Go.")
            assert (await desk.lane())[:4] == [
                "user: Go.",
                "says: Let me see.",
                "notice: Your answer was cut by the output limit inside a call of Rea",
                "calls Read",
            ]

    @in_a_loop
    async def test_an_answer_of_which_nothing_may_be_kept_leaves_the_notice(self, room: Room) -> None:
        cut = calling(("Read", {"path": "a.txt"}), finish="length")
        async with room.desk(ScriptedModel(cut, READ, "ok")) as desk:
            await desk.prompt("Go.")
            assert [line.split(":")[0] for line in await desk.lane()] == [
                "user",
                "notice",
                "calls Read",
                "Read gives",
                "says",
            ]

    @in_a_loop
    async def test_an_answer_of_reasoning_alone_and_what_was_asked_again_are_stored(self, room: Room) -> None:
        silent = ModelResponse(parts=[ThinkingPart("Hm.")])
        async with room.desk(ScriptedModel(silent, "ok")) as desk:
            await desk.prompt("Go.")
            assert [row.message.kind for row in await desk.rows()] == ["request", "response"] * 2
            assert len(await desk.rows()) == len(desk.session.messages)

    @in_a_loop
    async def test_the_notice_of_the_last_turn_and_late_calls_are_not_stored(self, room: Room) -> None:
        late = calling(("Read", {"path": "a.txt"}), text="As far as I got.")
        async with room.desk(ScriptedModel(READ, late), limits=Limits(turns=2)) as desk:
            await desk.prompt("Go.")
            assert await desk.lane() == [
                "user: Go.",
                "calls Read",
                GIVEN,
                "says: As far as I got.",
            ]

    @in_a_loop
    async def test_a_prompt_that_a_compaction_cut_is_stored_once_and_whole(self, room: Room) -> None:
        """What is sent again then has the cut version; the transcript has what the person wrote."""
        prompt = "Consider this carefully. " * 1_600
        (room.root / "a.txt").write_text("words of a file\n" * 500)
        summary = "## Goal\n" + "something to remember " * 120
        model = ScriptedModel(READ, UNAVAILABLE, UNAVAILABLE, "ok", summary=summary)
        async with room.desk(model, window=24_000, max_tokens=2_000) as desk:
            await desk.prompt(prompt)
            assert "its middle was cut" in model.asked[-1].user_texts[-1]
            assert [line.split(":")[0] for line in await desk.lane()] == [
                "user",
                "calls Read",
                "Read gives",
                "says",
            ]
            (first, *_) = await desk.rows()
            assert first.message.parts[0].content == prompt

    @in_a_loop
    async def test_a_history_that_was_reduced_for_its_bytes_is_not_stored_again(self, room: Room) -> None:
        too_large = ModelHTTPError(413, "m", {"error": {"message": "request entity too large"}})
        (room.root / "a.txt").write_text("words of a file\n" * 500)
        model = ScriptedModel(READ, too_large, "ok")
        async with room.desk(model) as desk:
            await desk.prompt("Go.")
            assert [line.split(":")[0] for line in await desk.lane()] == [
                "user",
                "calls Read",
                "Read gives",
                "says",
            ]


class TestEndsOfTurns:
    @in_a_loop
    async def test_a_failed_turn_leaves_its_prompt_and_what_happened(self, room: Room) -> None:
        async with room.desk(ScriptedModel(READ, UNAUTHORIZED, "It is 42.")) as desk:
            assert not (await desk.session.prompt("Go.")).ok
            await desk.prompt("Try again.")
            assert await desk.lane() == [
                "user: Go.",
                "calls Read",
                GIVEN,
                "says: [This turn ended with PROVIDER_UNAUTHORIZED: invalid api key",
                "user: Try again.",
                "says: It is 42.",
            ]

    @in_a_loop
    async def test_a_turn_that_was_stopped_before_its_first_request_keeps_its_prompt(
        self, room: Room
    ) -> None:
        async with room.desk(ScriptedModel("ok")) as desk:
            await asyncio.gather(desk.session.prompt("Go."), desk.session.stop())
            await desk.prompt("Again.")
            assert await desk.lane() == [
                "user: Go.",
                "says: [This turn ended with TURN_ABORTED: The turn was stopped.]",
                "user: Again.",
                "says: ok",
            ]

    @in_a_loop
    async def test_a_stop_at_any_tick_before_the_first_request_keeps_the_prompt(self, room: Room) -> None:
        async with room.desk(ScriptedModel("ok", repeat=True)) as desk:
            await desk.prompt("Go.")
            for ticks in range(14, 28):
                turn = asyncio.create_task(desk.session.prompt(f"Go {ticks}."))
                for _ in range(ticks):
                    await asyncio.sleep(0)
                await desk.session.stop()
                await turn
            prompts = [line for line in await desk.lane() if line.startswith("user")]
            assert prompts == ["user: Go.", *(f"user: Go {ticks}." for ticks in range(14, 28))]
            assert shown(desk.session.messages) == await desk.lane()

    @in_a_loop
    async def test_a_stop_at_the_very_end_changes_nothing(self, room: Room) -> None:
        stops: list[asyncio.Task[None]] = []

        def stop_at_the_end(numbered: Numbered) -> None:
            if isinstance(numbered.event, RunEnded):
                stops.append(asyncio.create_task(desk.session.stop()))

        async with room.desk(ScriptedModel("It is 42.")) as desk:
            desk.session.log.subscribe(stop_at_the_end)
            assert (await desk.prompt("Go.")).text == "It is 42."
            await stops[0]

    @in_a_loop
    async def test_a_stop_in_the_middle_of_a_tool_leaves_its_call_and_valid_rows(self, room: Room) -> None:
        both = calling(("Read", {"path": "a.txt"}), ("Bash", {"command": "sleep 20"}))
        async with room.desk(ScriptedModel(both, "ok")) as desk:
            desk.session.log.subscribe(desk.store.note)
            turn = asyncio.create_task(desk.session.prompt("Go."))
            await desk.store.seen("tool_started", 2)
            await desk.session.stop()
            assert (await turn).failure.code is ErrorCode.TURN_ABORTED  # type: ignore[union-attr]
            await desk.prompt("And now?")
            assert await desk.lane() == [
                "user: Go.",
                "calls Read",
                "calls Bash",
                GIVEN,
                "Bash interrupted: The tool call was interrupted ",
                "says: [This turn ended with TURN_ABORTED: The turn was stopped.]",
                "user: And now?",
                "says: ok",
            ]
            assert shown(desk.session.messages) == await desk.lane(), "the model knows what was done"

    @in_a_loop
    async def test_stops_at_random_moments_leave_the_same_in_memory_and_in_the_store(
        self, room: Room
    ) -> None:
        chance = random.Random(5)
        both = calling(("Read", {"path": "a.txt"}), ("Bash", {"command": "sleep 0.01"}))
        parent = ScriptedModel(lambda asked: chance.choice([READ, TASK, WAIT, both, "ok"]), repeat=True)
        child = ScriptedModel(lambda asked: chance.choice([READ, READ, "Found."]), repeat=True)
        async with room.desk(parent, child) as desk:
            for number in range(9):
                turn = asyncio.create_task(desk.session.prompt(f"Go {number}."))
                await asyncio.sleep(chance.uniform(0, 0.1))
                await desk.session.stop()
                await turn
                stored = await desk.store.transcript.history(desk.id)
                assert shown(stored) == shown(desk.session.messages)
            numbers = [row.number for row in await desk.store.events.after(desk.id)]
            assert numbers == [numbered.number for numbered in desk.session.log.after()]
            rows = {row.id: (row.status, row.delivered) for row in await desk.delegations()}
            records = desk.session.delegations.records.all()
            assert rows == {record.id: (record.status, record.delivered) for record in records}


class TestEvents:
    @in_a_loop
    async def test_what_was_told_is_stored_in_order_when_the_turn_has_ended(self, room: Room) -> None:
        parent = ScriptedModel(TASK, WAIT, "Thanks.", UNAUTHORIZED)
        async with room.desk(parent, ScriptedModel("Found.")) as desk:
            for prompt in ("Delegate.", "Fail."):
                await desk.session.prompt(prompt)
                stored = await desk.store.events.after(desk.id)
                assert [row.data for row in stored] == [event_as_dict(n) for n in desk.session.log.after()]
