"""Going on with a fork in another process: it still knows the conversation it was given (5.1)."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from pydantic_ai.exceptions import ModelHTTPError

from sidequest.core.context_modes import ContextMode
from sidequest.core.errors import ErrorCode, SidequestError
from tests.durable.desk import Desk, Room, in_a_loop, shown
from tests.durable.test_journal import GIVEN, READ, WAIT
from tests.support.scripted_model import ScriptedModel, calling

UNAUTHORIZED = ModelHTTPError(401, "m", {"error": {"message": "invalid api key"}})
FORK = ("Task", {"agent": "helper", "task": "Look at b.", "context": "fork"})
LONG = "It is long, and here is why. " * 100
FACT = "## Goal\nRemember THE-FACT."


async def resumed(desk: Desk, child: ScriptedModel) -> list[str]:
    """Go on with the first delegation and return what its model was given."""
    (first, *_) = await desk.delegations()
    await desk.session.delegate("helper", "And c.", resume=first.id)
    return shown(child.asked[-1].messages)


async def here_and_elsewhere(room: Room, parent: ScriptedModel, *prompts: str) -> tuple[list[str], list[str]]:
    """Prompt the parent, then resume in this process and in another one: what the child was given."""
    child = ScriptedModel(READ, "It is b.", "And this is c.", "And this is c.")
    async with room.desk(parent, child) as desk:
        for prompt in prompts:
            if prompt == "/compact":
                await desk.session.compact()
            else:
                await desk.prompt(prompt)
        copy = await desk.store.sessions.fork(desk.id, f"copy-{desk.id}", at_ms=1)
        here = await resumed(desk, child)
    async with room.desk(ScriptedModel(), child, continues=copy.id) as desk:
        return here, await resumed(desk, child)


@in_a_loop
async def test_it_is_given_the_same_as_in_the_process_that_started_it(room: Room) -> None:
    two = calling(("Read", {"path": "b.txt"}), FORK)
    parent = ScriptedModel(READ, "It is 42.", two, WAIT, "Thanks.", "Later words.")
    here, there = await here_and_elsewhere(room, parent, "What is a?", "And b?", "Later?")
    assert there == here
    assert there[0].startswith("original: ")
    assert there[1:6] == ["user: What is a?", "calls Read", GIVEN, "says: It is 42.", "user: And b?"]
    assert not any("Thanks" in line or "Later" in line for line in there), "taken at the spawn"


@in_a_loop
async def test_the_summary_that_the_parent_had_then_is_in_front(room: Room) -> None:
    parent = ScriptedModel(LONG, calling(FORK), WAIT, LONG, summary=FACT)
    here, there = await here_and_elsewhere(room, parent, "What is a?", "/compact", "And b?", "/compact")
    assert there == here
    assert there[1:3] == ["summary", "user: And b?"]


@in_a_loop
async def test_what_a_program_forked_between_turns_knows_the_whole_conversation(room: Room) -> None:
    child = ScriptedModel("It is b.", "And this is c.")
    async with room.desk(ScriptedModel("It is 42.", "Later words."), child) as desk:
        await desk.prompt("What is a?")
        await desk.session.delegate("helper", "Look.", context=ContextMode.FORK)
        await desk.prompt("Later?")
        key = desk.id
    async with room.desk(ScriptedModel(), child, continues=key) as desk:
        given = await resumed(desk, child)
    assert given[1:3] == ["user: What is a?", "says: It is 42."]
    assert not any("Later" in line for line in given)


@in_a_loop
async def test_one_that_did_nothing_is_not_gone_on_with_because_the_parent_did_something(room: Room) -> None:
    parent = ScriptedModel(READ, calling(FORK), WAIT, "Thanks.")
    async with room.desk(parent, ScriptedModel(UNAUTHORIZED)) as desk:
        await desk.prompt("And b?")
        key = desk.id
    async with room.desk(ScriptedModel(), ScriptedModel(), continues=key) as desk:
        assert desk.session.delegations.records.resumable() == []


@in_a_loop
async def test_what_it_was_given_and_cannot_be_read_again_is_a_clear_refusal(own_room: Room) -> None:
    parent = ScriptedModel(calling(FORK), WAIT, LONG, summary=FACT)
    async with own_room.desk(parent, ScriptedModel("It is b.")) as desk:
        await desk.prompt("And b?")
        await desk.session.compact()
        key = desk.id
    with closing(sqlite3.connect(own_room.url)) as database, database:
        database.execute("UPDATE messages SET payload = 'x' WHERE position = 1 AND delegation_id IS NULL")
    own_room.damaged = True
    async with own_room.desk(ScriptedModel(), ScriptedModel(), continues=key) as desk:
        assert desk.session.delegations.records.resumable() == []
        with pytest.raises(SidequestError) as caught:
            await resumed(desk, ScriptedModel())
    assert caught.value.code is ErrorCode.STORE_DAMAGED
    assert "Delegate the work anew" in caught.value.remedy
