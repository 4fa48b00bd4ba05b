"""The parent's compactions are rows between its messages (specification 2.1, 2.3, 2.4, 2.7, 2.11)."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelResponse

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.events import ContextCompacted, ContextDegraded
from sidequest.runtime.journal import FALLBACK_SUMMARY
from tests.durable.desk import Desk, Room, in_a_loop, shown
from tests.durable.test_journal import TASK, WAIT
from tests.support.scripted_model import ScriptedModel, calling
from tests.support.sessions import told
from tests.support.team import Doors

SMALL = {"window": 16_000, "max_tokens": 2_000}
"""Requests stay below 8,000 tokens, of which instructions and tools take about 3,000."""
TOO_LONG = ModelHTTPError(400, "m", {"error": {"message": "prompt is too long: 9000 tokens > 8000 maximum"}})
UNAUTHORIZED = ModelHTTPError(401, "m", {"error": {"message": "invalid api key"}})


def read(*names: str) -> ModelResponse:
    return calling(*[("Read", {"path": f"{name}.txt"}) for name in names])


@pytest.fixture(autouse=True)
def files(folder: Path) -> None:
    """Files of about 2,700 tokens each, line numbers included."""
    for name in "abcdefgh":
        (folder / f"{name}.txt").write_text(f"OLD-{name}\n" + "words of a file\n" * 470)


def lines(messages: Any) -> list[str]:
    return [line.split(":")[0] for line in shown(messages)]


async def checkpoints(desk: Desk) -> list[Any]:
    return list(await desk.store.checkpoints.list(desk.id))


class TestWhen:
    @in_a_loop
    async def test_C1_a_prompt_that_does_not_fit_is_compacted_before_it_is_sent(self, room: Room) -> None:
        model = ScriptedModel(read("a"), "One.", "Two.")
        async with room.desk(model, **SMALL) as desk:
            await desk.prompt("Read a.")
            long = "Consider what it says. " * 700
            await desk.prompt(long)
            (row,) = await checkpoints(desk)
            assert row.through_message_id == (await desk.rows())[4].id
            assert (await desk.lane())[4].startswith("user: Consider")
        assert lines(model.asked[-1].messages) == ["summary", "user"]
        assert model.asked[-1].user_texts[-1] == long

    @in_a_loop
    async def test_C1_a_prompt_that_fits_nowhere_stays_with_what_happened(self, room: Room) -> None:
        model = ScriptedModel("Never.", summary=UNAUTHORIZED)
        async with room.desk(model, **SMALL) as desk:
            result = await desk.session.prompt("Far too long. " * 6_000)
            assert result.failure is not None
            assert result.failure.code is ErrorCode.CONTEXT_COMPACTION_FAILED
            assert await checkpoints(desk) == []
            kinds = [line.split(":")[0] for line in await desk.lane()]
            assert kinds == ["user", "says"]
        assert model.asked == []

    @in_a_loop
    async def test_C2_C4_the_boundary_lies_behind_a_whole_batch_and_nothing_before_it_is_sent(
        self, room: Room
    ) -> None:
        model = ScriptedModel(read("a"), read("b", "c"), "ok")
        async with room.desk(model, **SMALL) as desk:
            await desk.prompt("Read them.")
            (row,) = await checkpoints(desk)
            carrier = (await desk.rows())[4]
            assert row.through_message_id == carrier.id
            assert lines([carrier.message]) == ["Read gives", "Read gives"]
        assert lines(model.asked[-1].messages) == ["summary", "user"]
        assert "OLD-" not in model.asked[-1].text

    @in_a_loop
    async def test_C3_each_compaction_is_one_row_and_one_event_and_no_message(self, room: Room) -> None:
        model = ScriptedModel(*[read(name) for name in "abcdefgh"], "All read.")
        async with room.desk(model, **SMALL) as desk:
            result = await desk.prompt("Read them.")
            rows = await checkpoints(desk)
            assert result.compactions == len(rows) == len(told(desk.session, ContextCompacted)) >= 2
            assert [row.generation for row in rows] == list(range(1, len(rows) + 1))
            assert len(await desk.rows()) == 2 * 8 + 2
            assert not any("summary" in line for line in await desk.lane())
            events = told(desk.session, ContextCompacted)
            assert [(r.tokens_before, r.tokens_after) for r in rows] == [
                (event.tokens_before, event.tokens_after) for event in events
            ]

    @in_a_loop
    async def test_C7_an_overflow_that_the_provider_reports_is_compacted_once(self, room: Room) -> None:
        model = ScriptedModel(read("a"), TOO_LONG, "ok")
        async with room.desk(model, **SMALL) as desk:
            await desk.prompt("Read a.")
            assert len(await checkpoints(desk)) == 1
            assert lines([r.message for r in await desk.rows()]) == [
                "user",
                "calls Read",
                "Read gives",
                "says",
            ]
        assert lines(model.asked[-1].messages) == ["summary", "user"]

    @in_a_loop
    async def test_C7_a_second_overflow_is_the_end(self, room: Room) -> None:
        model = ScriptedModel(read("a"), TOO_LONG, TOO_LONG)
        async with room.desk(model, **SMALL) as desk:
            result = await desk.session.prompt("Read a.")
            assert result.failure is not None
            assert len(await checkpoints(desk)) == 1
            assert (await desk.lane())[-1].startswith("says: [This turn ended with")

    @in_a_loop
    async def test_C8_a_failed_summary_leaves_a_marked_checkpoint_and_the_turn_goes_on(
        self, room: Room
    ) -> None:
        model = ScriptedModel(read("a"), read("b"), read("c"), "ok", summary=UNAUTHORIZED)
        async with room.desk(model, **SMALL) as desk:
            result = await desk.prompt("Read them.")
            (row,) = await checkpoints(desk)
            assert (result.degradations, len(told(desk.session, ContextDegraded))) == (1, 1)
            assert row.summary == FALLBACK_SUMMARY
            assert row.details["fallback"] == "retained_tail"
            assert "invalid api key" in row.details["failureReason"]
            assert shown(row.retained_tail) == shown(model.asked[-1].messages)

    @in_a_loop
    async def test_C11_new_context_is_one_checkpoint_at_the_next_boundary(self, room: Room) -> None:
        model = ScriptedModel(read("a"), calling(("new_context", {})), "ok")
        async with room.desk(model, window=64_000) as desk:
            await desk.prompt("Read a.")
            (row,) = await checkpoints(desk)
            assert row.through_message_id == (await desk.rows())[4].id
        assert lines(model.asked[-1].messages) == ["summary", "user"]

    @in_a_loop
    async def test_C10_a_reminder_is_no_row(self, room: Room) -> None:
        model = ScriptedModel(read("a"), read("b"), "ok")
        async with room.desk(model, **SMALL) as desk:
            await desk.prompt("Read them.")
            lane = lines([row.message for row in await desk.rows()])
            assert "notice" not in lane
            assert lane.count("user") == 1
        assert any(asked.marked_texts("notice") for asked in model.asked)

    @in_a_loop
    async def test_C13_what_a_delegate_compacts_is_not_the_parents(self, room: Room) -> None:
        sizes = []
        for window in (16_000, 200_000):
            parent = ScriptedModel(TASK, WAIT, "Thanks.")
            child = ScriptedModel(*[read(name) for name in "abcd"], "Found.")
            async with room.desk(parent, child, window=200_000, child_window=window) as desk:
                result = await desk.prompt("Delegate.")
                assert (result.delegations[0].compactions > 0) == (window == 16_000)
                assert await checkpoints(desk) == []
                assert all(event.delegation_id for event in told(desk.session, ContextCompacted))
            sizes.append([asked.tokens for asked in parent.asked[:2]])
        assert sizes[0] == sizes[1]


class TestByHand:
    ANSWER = "It is long, and here is why. " * 100

    @in_a_loop
    async def test_a_conversation_that_was_compacted_by_hand_restarts_on_its_summary(
        self, room: Room
    ) -> None:
        async with room.desk(ScriptedModel(read("a"), self.ANSWER)) as desk:
            await desk.prompt("Read a.")
            await desk.session.compact()
            (row,) = await checkpoints(desk)
            assert row.through_message_id == (await desk.rows())[-1].id
            (event,) = told(desk.session, ContextCompacted)
            assert (event.tokens_before, event.tokens_after) == (row.tokens_before, row.tokens_after)
            newest = (await desk.store.events.after(desk.id))[-1]
            assert newest.type == "context_compacted", "a reader of the events does not wait for a turn"
            before, key = shown(desk.session.messages), desk.id
        model = ScriptedModel("Two.")
        async with room.desk(model, continues=key) as desk:
            assert shown(desk.session.messages) == before == ["summary"]
            await desk.prompt("And now?")
            assert len(await desk.lane()) == 6
        assert shown(model.asked[0].messages) == ["summary", "user: And now?"]

    @in_a_loop
    async def test_C9_what_is_a_summary_already_is_not_stored_again(self, room: Room) -> None:
        model = ScriptedModel(read("a"), self.ANSWER, "Two.")
        async with room.desk(model) as desk:
            await desk.prompt("Read a.")
            await desk.session.compact()
            with pytest.raises(SidequestError) as caught:
                await desk.session.compact()
            assert caught.value.code is ErrorCode.CONTEXT_COMPACTION_FAILED
            assert len(await checkpoints(desk)) == 1
            await desk.prompt("And now?")

    @in_a_loop
    async def test_C12_one_that_fails_stores_nothing(self, room: Room) -> None:
        async with room.desk(ScriptedModel(self.ANSWER, summary=UNAUTHORIZED)) as desk:
            await desk.prompt("Go.")
            with pytest.raises(SidequestError):
                await desk.session.compact()
            assert await checkpoints(desk) == []

    @in_a_loop
    async def test_one_that_cannot_be_stored_is_not_installed(self, room: Room) -> None:
        async with room.desk(ScriptedModel(self.ANSWER, "Two.")) as desk:
            await desk.prompt("Go.")
            before = list(desk.session.messages)
            desk.store.break_at("checkpoints.append")
            with pytest.raises(SidequestError) as caught:
                await desk.session.compact()
            assert caught.value.code is ErrorCode.STORE_FULL
            assert desk.session.messages == before
            desk.store.mend()
            await desk.prompt("Go on.")
            assert await checkpoints(desk) == []


class TestDurableFirst:
    @in_a_loop
    async def test_what_cannot_be_stored_is_not_installed_and_the_turn_ends(self, room: Room) -> None:
        model = ScriptedModel(read("a"), read("b"), read("c"), "ok")
        async with room.desk(model, **SMALL) as desk:
            desk.store.break_at("checkpoints.append")
            result = await desk.session.prompt("Read them.")
            assert result.failure is not None
            assert result.failure.code is ErrorCode.STORE_FULL
            assert len(model.asked) == 3, "the compacted request did not leave"
            assert told(desk.session, ContextCompacted) == []
            assert result.compactions == 0
            assert "summary" not in lines(desk.session.messages)
            assert await checkpoints(desk) == []
            desk.store.mend()
            await desk.prompt("Go on.")
            assert [row.generation for row in await checkpoints(desk)] == [1]
        assert lines(model.asked[-1].messages) == ["summary", "user"]


class TestRestart:
    @in_a_loop
    async def test_C5_the_summary_its_tail_and_what_came_after_it(self, room: Room) -> None:
        model = ScriptedModel(*[read(name) for name in "abcd"], "All read.", "Yes.")
        async with room.desk(model, **SMALL) as desk:
            await desk.prompt("Read them.")
            await desk.prompt("Sure?")
            assert len(await checkpoints(desk)) == 1
            before, key = shown(desk.session.messages), desk.id
        later = ScriptedModel("Good.")
        async with room.desk(later, continues=key, **SMALL) as desk:
            assert shown(desk.session.messages) == before
            assert before[0] == "summary"
            await desk.prompt("Go on.")
        assert shown(later.asked[0].messages) == [*before, "user: Go on."]

    @in_a_loop
    async def test_C5_a_chain_of_generations_goes_on(self, room: Room) -> None:
        model = ScriptedModel(*[read(name) for name in "abcdefgh"], "All read.")
        async with room.desk(model, **SMALL) as desk:
            await desk.prompt("Read them.")
            count, key = len(await checkpoints(desk)), desk.id
            before = shown(desk.session.messages)
        later = ScriptedModel(*[read(name) for name in "abcd"], "Again.")
        async with room.desk(later, continues=key, **SMALL) as desk:
            assert shown(desk.session.messages) == before
            await desk.prompt("Read them again.")
            rows = await checkpoints(desk)
            assert [row.generation for row in rows] == list(range(1, len(rows) + 1))
            assert len(rows) > count
        previous = later.summaries[0].user_texts[0]
        assert "<previous-summary>" in previous

    @in_a_loop
    async def test_a_degraded_conversation_restarts_on_what_was_kept(self, room: Room) -> None:
        model = ScriptedModel(*[read(name) for name in "abcd"], "All read.", summary=UNAUTHORIZED)
        async with room.desk(model, **SMALL) as desk:
            await desk.prompt("Read them.")
            assert await checkpoints(desk)
            before, key = shown(desk.session.messages), desk.id
        assert before[0].startswith("notice: Earlier conversation was discarded")
        assert "the tool recall" in model.asked[-1].marked_texts("notice")[0]
        async with room.desk(ScriptedModel("ok"), continues=key, **SMALL) as desk:
            assert shown(desk.session.messages) == before
            await desk.prompt("Go on.")

    @in_a_loop
    async def test_a_death_right_after_a_checkpoint_restarts_on_it(self, room: Room) -> None:
        doors = Doors()
        async with room.desk(ScriptedModel(read("a"), read("b"), read("c"), doors), **SMALL) as desk:
            turn = asyncio.create_task(desk.session.prompt("Read them."))
            await doors.arrived(1)
            await desk.die()
            await turn
            key = desk.id
        later = ScriptedModel("ok")
        async with room.desk(later, continues=key, **SMALL) as desk:
            await desk.prompt("Go on.")
        assert shown(later.asked[0].messages) == [
            "summary",
            "user: Read them.",
            "says: [The process ended before this was answered.]",
            "user: Go on.",
        ]

    @in_a_loop
    async def test_C5_a_damaged_checkpoint_is_passed_over_for_the_one_before(self, own_room: Room) -> None:
        model = ScriptedModel(*[read(name) for name in "abcdefgh"], "All read.")
        async with own_room.desk(model, **SMALL) as desk:
            await desk.prompt("Read them.")
            first, *_, last = await checkpoints(desk)
            behind = len(await desk.rows()) - first.through_position
            key = desk.id
        with closing(sqlite3.connect(own_room.url)) as database, database:
            database.execute("UPDATE checkpoints SET retained_tail = 'x' WHERE id = ?", [last.id])
            middle = "DELETE FROM checkpoints WHERE generation NOT IN (1, ?)"
            database.execute(middle, [last.generation])
        own_room.damaged = True
        async with own_room.desk(ScriptedModel(), continues=key, **SMALL) as desk:
            assert lines(desk.session.messages)[:2] == ["summary", "user"]
            assert len(desk.session.messages) == 2 + behind

    @in_a_loop
    async def test_C6_a_cut_before_a_checkpoint_takes_it_away(self, room: Room) -> None:
        model = ScriptedModel("One.", *[read(name) for name in "abc"], "All read.")
        async with room.desk(model, **SMALL) as desk:
            await desk.prompt("First.")
            await desk.prompt("Read them.")
            assert len(await checkpoints(desk)) == 1
            key, kept = desk.id, (await desk.rows())[1].id
        removed = await room.store.sessions.truncate(key, kept)
        assert removed.checkpoints == 1
        async with room.desk(ScriptedModel("ok"), continues=key, **SMALL) as desk:
            assert shown(desk.session.messages) == ["user: First.", "says: One."]
            await desk.prompt("Go on.")

    @in_a_loop
    async def test_C6_a_fork_restarts_on_the_checkpoint_that_it_took_along(self, room: Room) -> None:
        model = ScriptedModel(*[read(name) for name in "abc"], "All read.")
        async with room.desk(model, **SMALL) as desk:
            await desk.prompt("Read them.")
            before, key = shown(desk.session.messages), desk.id
        await room.store.sessions.fork(key, f"fork-{key}", at_ms=1)
        async with room.desk(ScriptedModel("ok"), continues=f"fork-{key}", **SMALL) as desk:
            assert shown(desk.session.messages) == before
            await desk.prompt("Go on.")


class TestReports:
    @in_a_loop
    async def test_a_report_that_a_compaction_took_unseen_is_delivered_again_and_stored_once(
        self, room: Room
    ) -> None:
        at_once = calling(("TaskWait", {}), ("new_context", {}))
        parent = ScriptedModel(TASK, at_once, "Done.", "Now I know.")
        async with room.desk(parent, ScriptedModel("THE-REPORT")) as desk:
            assert (await desk.prompt("Go.")).compactions == 1
            assert "THE-REPORT" not in parent.asked[2].text
            assert "THE-REPORT" in parent.asked[3].text
            (row,) = await desk.store.delegations.list(desk.id)
            newest = [stored.id for stored in await desk.rows() if stored.id == row.delivered_by]
            assert (row.delivered, len(newest)) == (True, 1)
