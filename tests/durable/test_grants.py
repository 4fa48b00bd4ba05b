"""What a person allowed for a session is not asked again by the process that goes on with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sidequest.core.permissions import Mode
from sidequest.runtime.permissions import Answer
from tests.durable.desk import Desk, Room, in_a_loop
from tests.support.scripted_model import ScriptedModel, calling

RUN = calling(("Bash", {"command": "ls"}))


def allowing(desk: Desk) -> list[str]:
    """Allow everything for the session; return the commands that were asked about."""
    asked: list[str] = []
    questions = desk.session.rights.questions

    def answer() -> None:
        while (head := questions.head) is not None:
            asked.append(str(head.action.command))
            questions.answer(head.id, Answer(True, for_session=True))

    questions.surface(answer)
    return asked


@pytest.mark.parametrize("killed", [False, True])
@in_a_loop
async def test_a_command_is_asked_about_once(room: Room, killed: bool) -> None:
    async with room.desk(ScriptedModel(RUN, "One."), permission_mode=Mode.ASK) as desk:
        asked = allowing(desk)
        await desk.prompt("Go.")
        assert asked == ["ls"]
        if killed:
            await desk.die()
    async with room.desk(ScriptedModel(RUN, "Two."), continues=desk.id, permission_mode=Mode.ASK) as desk:
        asked = allowing(desk)
        await desk.prompt("Again.")
        assert asked == []
    fork = await room.store.sessions.fork(desk.id, f"fork-{desk.id}", at_ms=1)
    async with room.desk(ScriptedModel(RUN, "Three."), continues=fork.id, permission_mode=Mode.ASK) as desk:
        asked = allowing(desk)
        await desk.prompt("And here?")
        assert asked == ["ls"], "a fork asks anew"


@in_a_loop
async def test_in_another_folder_it_is_asked_again(room: Room, tmp_path: Path) -> None:
    async with room.desk(ScriptedModel(RUN, "One."), permission_mode=Mode.ASK) as desk:
        allowing(desk)
        await desk.prompt("Go.")
    (tmp_path / "other").mkdir()
    elsewhere = replace(room, root=tmp_path / "other")
    elsewhere._store = room._store
    again = ScriptedModel(RUN, "Two.")
    async with elsewhere.desk(again, continues=desk.id, permission_mode=Mode.ASK) as desk:
        asked = allowing(desk)
        await desk.prompt("Again.")
        assert asked == ["ls"]


@in_a_loop
async def test_a_prompt_that_is_no_text_is_sent_and_stored_with_a_sign_in_its_place(room: Room) -> None:
    broken = b"What is caf\xe9?".decode("utf-8", "surrogateescape")
    model = ScriptedModel("One.", "Two.")
    async with room.desk(model, ScriptedModel("Found.")) as desk:
        await desk.prompt(broken)
        assert (await desk.lane())[0] == "user: What is caf\ufffd?"
        outcome = await desk.session.delegate("helper", broken)
        assert outcome.report == "Found."
