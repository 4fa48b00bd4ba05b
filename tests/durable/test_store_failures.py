"""A store that fails during a run: a clear error, nothing lost, and nothing goes on unsaved."""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pydantic_ai.messages import ModelResponse

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.events import Notice, RunEnded
from sidequest.core.outcome import Status
from tests.durable.desk import Desk, Room, in_a_loop, shown
from tests.durable.test_journal import READ, TASK, WAIT
from tests.support.scripted_model import Asked, ScriptedModel, calling
from tests.support.sessions import session, told
from tests.support.team import Doors


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder]
    mount = subprocess.run(command, capture_output=True, text=True)
    if mount.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {mount.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.fixture
def small_room(own_room: Room, small_disk: Path) -> Room:
    """A room whose store lies on the small disk, and the folder to work in elsewhere."""
    return Room(own_room.root, str(shutil.copy(own_room.url, small_disk / "store.db")))


def remount(folder: Path, option: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{option}", folder], check=True)


async def the_same(desk: Desk) -> bool:
    """Say whether what is stored is what the session remembers."""
    stored = await desk.store.transcript.history(desk.id)
    return shown(stored) == shown(desk.session.messages)


class TestFullDisk:
    @in_a_loop
    async def test_the_run_stops_and_goes_on_when_there_is_room(self, small_room: Room) -> None:
        def think(asked: Asked) -> ModelResponse:
            return calling(("Read", {"path": "a.txt"}), text="I think about it. " * 2_000)

        model = ScriptedModel(think, repeat=True)
        async with small_room.desk(model, window=1_000_000) as desk:
            result = await desk.session.prompt("Go.")
            assert result.failure is not None
            assert result.failure.code is ErrorCode.STORE_FULL
            assert "Make room" in result.failure.message
            assert small_room.url in result.failure.message
            asked = len(model.asked)
            assert 3 < asked < 60
            kept = await desk.rows()
            assert [row.position for row in kept] == list(range(1, len(kept) + 1))
            again = await desk.session.prompt("Go on.")
            assert again.failure is not None
            assert again.failure.code is ErrorCode.STORE_FULL
            assert len(model.asked) == asked, "what cannot be stored is not sent"
            remount(Path(small_room.url).parent, "size=16m")
            model._steps = ("Done.",)
            await desk.prompt("Now?")
            assert await the_same(desk)
            assert [line for line in await desk.lane() if line.startswith("user")] == [
                "user: Go.",
                "user: Go on.",
                "user: Now?",
            ]

    @in_a_loop
    async def test_a_delegation_ends_with_it_and_is_stored_when_there_is_room(self, small_room: Room) -> None:
        ballast = Path(small_room.url).parent / "ballast"

        def fill(asked: Asked) -> ModelResponse:
            ballast.write_bytes(b"x" * _free(ballast.parent))
            return READ

        parent = ScriptedModel(TASK, WAIT, "Thanks.", repeat=True)
        async with small_room.desk(parent, ScriptedModel(READ, fill, "Found.")) as desk:
            result = await desk.session.prompt("Delegate.")
            assert result.failure is not None
            assert result.failure.code is ErrorCode.STORE_FULL
            assert len(parent.asked) == 2
            (outcome,) = result.delegations
            assert outcome.status in {Status.FAILED, Status.STOPPED}
            assert desk.session.delegations.records.running() == []
            ballast.unlink()
            await desk.prompt("Go on.")
            assert await the_same(desk)
            (row,) = await desk.delegations()
            assert row.status is outcome.status


def _free(folder: Path) -> int:
    return max(0, shutil.disk_usage(folder).free - 4096)


class TestLockedDatabase:
    @in_a_loop
    async def test_the_run_stops_with_the_cause_and_goes_on_when_the_lock_is_gone(
        self, own_room: Room
    ) -> None:
        with closing(sqlite3.connect(own_room.url, isolation_level=None)) as other:

            def lock(asked: Asked) -> str:
                other.execute("BEGIN IMMEDIATE")
                return "I have an answer."

            model = ScriptedModel(READ, lock, "ok")
            async with own_room.desk(model) as desk:
                result = await desk.session.prompt("Go.")
                assert result.failure is not None
                assert (result.failure.code, result.failure.retriable) == (ErrorCode.STORE_LOCKED, True)
                assert "another program" in result.failure.message
                assert len(told(desk.session, Notice)) == 1, "that the end is not stored is told"
                assert (await desk.lane())[-1].startswith("Read gives")
                other.execute("ROLLBACK")
                await desk.prompt("Go on.")
                assert await the_same(desk)
                note, *rest = (await desk.lane())[-3:]
                assert note.startswith("says: [This turn ended with STORE_LOCKED")
                assert rest == ["user: Go on.", "says: ok"]

    @in_a_loop
    async def test_a_lock_that_passes_is_waited_for(self, patient_room: Room) -> None:
        with closing(
            sqlite3.connect(patient_room.url, isolation_level=None, check_same_thread=False)
        ) as other:

            def lock(asked: Asked) -> ModelResponse:
                other.execute("BEGIN IMMEDIATE")
                asyncio.get_running_loop().call_later(0.05, other.execute, "ROLLBACK")
                return READ

            async with patient_room.desk(ScriptedModel(lock, "ok")) as desk:
                await desk.prompt("Go.")
                assert len(await desk.lane()) == 4

    @in_a_loop
    async def test_a_prompt_that_could_not_be_stored_was_not_sent_and_is_not_lost(
        self, own_room: Room
    ) -> None:
        model = ScriptedModel("One.", "Two.")
        async with own_room.desk(model) as desk:
            await desk.prompt("First.")
            with closing(sqlite3.connect(own_room.url, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                result = await desk.session.prompt("Second.")
                assert result.failure is not None
                assert result.failure.code is ErrorCode.STORE_LOCKED
                other.execute("ROLLBACK")
            assert len(model.asked) == 1
            await desk.prompt("Third.")
            assert [line for line in await desk.lane() if line.startswith("user")] == [
                "user: First.",
                "user: Second.",
                "user: Third.",
            ]


class TestReadOnly:
    @in_a_loop
    async def test_a_disk_that_turns_read_only_ends_the_run(self, small_room: Room) -> None:
        folder = Path(small_room.url).parent

        async def turn(asked: Asked) -> ModelResponse:
            desk.store._store._db._engine.dispose()  # an open file keeps the disk from turning
            remount(folder, "ro")
            return READ

        async with small_room.desk(ScriptedModel(turn, "ok")) as desk:
            result = await desk.session.prompt("Go.")
            assert result.failure is not None
            assert result.failure.code is ErrorCode.STORE_READ_ONLY
            remount(folder, "rw")
            await desk.prompt("Go on.")
            assert await the_same(desk)


NEW_CONTEXT = calling(("new_context", {}))
STEPS = {
    "sessions.rename": [READ],
    "events.append": [READ],
    "transcript.append": [READ],
    "transcript.record_result": [READ],
    "delegations.start": [READ, TASK],
    "delegations.settle": [TASK, WAIT],
    "delegations.deliver": [TASK, "I wait."],
    "checkpoints.append": [READ, NEW_CONTEXT],
}
"""Each step that writes, and what leads to it."""


class TestEachStep:
    """Wherever the store fails, the turn ends with it, and when it is mended nothing is missing."""

    @pytest.mark.parametrize("step", STEPS)
    @in_a_loop
    async def test_nothing_goes_on_and_nothing_is_lost(self, room: Room, step: str) -> None:
        (room.root / "a.txt").write_text("words of a file\n" * 300)
        parent, child = ScriptedModel(*STEPS[step]), ScriptedModel(READ, "Found.")
        async with room.desk(parent, child, window=64_000) as desk:
            desk.store.break_at(step)
            result = await desk.session.prompt("Go.")
            assert result.failure is not None, "the turn does not go on unsaved"
            assert result.failure.code is ErrorCode.STORE_FULL
            assert desk.session.delegations.records.running() == []
            assert step in desk.store.calls
            desk.store.mend()
            parent._steps, parent._repeat = ("ok",), True
            await desk.prompt("Again.")
            rows = {row.id: row.status for row in await desk.delegations()}
            assert Status.RUNNING not in rows.values()
            known = {record.id: record.status for record in desk.session.delegations.records.all()}
            assert rows == {key: known[key] for key in rows}
            stored = await desk.store.events.after(desk.id)
            assert len(stored) == len(list(desk.session.log.after()))
            before, key = shown(desk.session.messages), desk.id
        async with room.desk(ScriptedModel(), ScriptedModel(), continues=key, window=64_000) as desk:
            assert shown(desk.session.messages) == before

    @in_a_loop
    async def test_failures_at_random_steps_leave_the_same_in_memory_and_in_the_store(
        self, room: Room
    ) -> None:
        chance = random.Random(3)
        parent = ScriptedModel(lambda asked: chance.choice([READ, TASK, WAIT, "ok"]), repeat=True)
        child = ScriptedModel(lambda asked: chance.choice([READ, "Found."]), repeat=True)
        async with room.desk(parent, child, window=200_000) as desk:
            for number in range(6):
                fails = range(first := chance.randrange(15), first + chance.choice([1, 2, 1_000]))
                done = len(desk.store.calls)
                broken = SidequestError(ErrorCode.STORE_FULL, "The store is broken.", "Mend it.")
                desk.store.refuse = lambda name, fails=fails, done=done, broken=broken: (
                    broken if len(desk.store.calls) - done in fails else None
                )
                result = await desk.session.prompt(f"Go {number}.")
                assert result.failure is None or result.failure.code is ErrorCode.STORE_FULL
                desk.store.mend()
                await desk.prompt(f"Again {number}.")
                assert await the_same(desk)
            records = {record.id: record for record in desk.session.delegations.records.all()}
            rows = await desk.delegations()
            assert [(row.status, row.delivered) for row in rows] == [
                (records[row.id].status, records[row.id].delivered) for row in rows
            ]

    @in_a_loop
    async def test_a_turn_whose_last_events_cannot_be_stored_has_failed(self, room: Room) -> None:
        async with room.desk(ScriptedModel("It is 42.")) as desk:
            desk.session.log.subscribe(
                lambda numbered: desk.store.break_at() if isinstance(numbered.event, RunEnded) else None
            )
            result = await desk.session.prompt("Go.")
            assert (result.ok, result.text) == (False, "It is 42.")
            assert result.failure is not None
            assert result.failure.code is ErrorCode.STORE_FULL
            desk.store.mend()

    @in_a_loop
    async def test_a_result_that_could_not_be_stored_is_stored_with_the_end_of_the_turn(
        self, room: Room
    ) -> None:
        model = ScriptedModel(READ, "ok")
        async with room.desk(model) as desk:
            desk.store.break_at("transcript.record_result")
            await desk.session.prompt("Go.")
            desk.store.mend()
            await desk.prompt("Go on.")
            assert (await desk.lane())[2].startswith("Read gives")
        assert "42" in model.asked[-1].results[0]

    @pytest.mark.parametrize("waits", [[WAIT], [], [calling(("Bash", {"command": "sleep 60"}))]])
    @in_a_loop
    async def test_a_delegation_whose_rows_cannot_be_stored_ends_the_turn(
        self, room: Room, waits: list[ModelResponse]
    ) -> None:
        """Also when the store has recovered before the parent's own next step."""
        parent = ScriptedModel(TASK, *waits, "Never.")
        child = ScriptedModel(READ, "Never.")
        async with room.desk(parent, child) as desk:
            desk.store.break_at("delegations.progress")
            result = await desk.session.prompt("Delegate.")
            assert result.failure is not None
            assert result.failure.code is ErrorCode.STORE_FULL
            assert len(child.asked) == 1
            assert desk.session.delegations.records.running() == []
            desk.store.mend()
            parent._steps, parent._repeat = ("ok",), True
            await desk.prompt("Go on.")
            (row,) = await desk.delegations()
            assert row.status is Status.FAILED, "it can be gone on with"
            assert await the_same(desk)

    @in_a_loop
    async def test_a_delegation_of_a_program_whose_rows_cannot_be_stored_fails_with_the_code(
        self, room: Room
    ) -> None:
        async with room.desk(ScriptedModel("ok"), ScriptedModel(READ, "Never.")) as desk:
            desk.store.break_at("delegations.progress")
            outcome = await desk.session.delegate("helper", "Look.")
            assert outcome.failure is not None
            assert outcome.failure.code is ErrorCode.STORE_FULL
            desk.store.mend()
            await desk.prompt("Go on.")

    @in_a_loop
    async def test_a_report_in_a_result_that_could_not_be_stored_comes_once(self, room: Room) -> None:
        parent = ScriptedModel(TASK, WAIT, "Thanks.", "Nothing new.")
        async with room.desk(parent, ScriptedModel("Found.")) as desk:
            await self.break_in_wait(desk)
            await desk.session.prompt("Delegate.")
            desk.store.mend()
            await desk.prompt("Go on.")
            await desk.prompt("And?")
            (row,) = await desk.delegations()
            assert row.delivered
        assert parent.asked[-1].text.count("Found.") == 1

    @staticmethod
    async def break_in_wait(desk: Desk) -> None:
        """Let the store fail when the result of TaskWait comes."""

        async def second() -> None:
            if desk.store.calls.count("transcript.record_result") == 2:
                desk.store.break_at()

        desk.store.before = {"transcript.record_result": second}


class TestOpeningAndClosing:
    @in_a_loop
    async def test_a_session_that_cannot_be_loaded_lets_go_of_it(self, room: Room) -> None:
        async with room.desk(ScriptedModel("ok")) as desk:
            await desk.prompt("Go.")
            key = desk.id
        store = room.store
        store.break_at("transcript.close_open", code=ErrorCode.STORE_LOCKED)
        async with session(room.root, ScriptedModel()) as opened:
            with pytest.raises(SidequestError):
                await opened.attach(store, key)  # type: ignore[arg-type]
        assert await store.leases.get(key) is None

    @in_a_loop
    async def test_closing_says_that_the_last_events_are_lost_and_closes_everything(self, room: Room) -> None:
        doors, store = Doors(), room.store
        opened = session(room.root, ScriptedModel(doors))
        await opened.attach(store)  # type: ignore[arg-type]
        turn = asyncio.create_task(opened.prompt("Go."))
        await doors.arrived(1)
        store.break_at("events.append", "transcript.append")
        with pytest.raises(SidequestError, match="broken"):
            await opened.close()
        assert (await turn).failure is not None
        assert not opened._scratch.exists()
        assert await store.leases.get(opened.id) is None
