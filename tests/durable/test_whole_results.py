"""A tool result that was cut can be read whole after its process has ended."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic_ai.messages import ModelResponse, ToolReturnPart

from sidequest.core.permissions import Mode
from tests.durable.desk import Desk, Room, in_a_loop
from tests.support.scripted_model import Asked, ScriptedModel, calling
from tests.support.sessions import helper

BASH = calling(("Bash", {"command": "cat big.txt"}))
WINDOW = 12_000


def big(root: Path) -> None:
    """A file whose middle no cut result holds."""
    lines = [f"line {number} of the file" for number in range(4_000)]
    lines[2_000] = "the NEEDLE is here"
    (root / "big.txt").write_text("\n".join(lines))


def path_in(desk: Desk) -> str:
    parts = [part for message in desk.session.messages for part in message.parts]
    (cut,) = [part for part in parts if isinstance(part, ToolReturnPart) and "… cut" in str(part.content)]
    assert "NEEDLE" not in str(cut.content)
    return re.findall(r"is in (\S+):", str(cut.content))[0]


def looking(tool: str, path: str) -> ModelResponse:
    asked = {"offset": 1_995, "limit": 20} if tool == "Read" else {"pattern": "NEEDLE"}
    return calling((tool, {"path": path, **asked}))


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("tool", ["Read", "Grep"])
@in_a_loop
async def test_the_path_that_a_cut_result_names_leads_to_all_of_it(
    room: Room, tool: str, killed: bool
) -> None:
    big(room.root)
    async with room.desk(ScriptedModel(BASH, "Long."), window=WINDOW) as desk:
        await desk.prompt("Go.")
        path, key = path_in(desk), desk.id
        if killed:
            await desk.die()
    again = ScriptedModel(looking(tool, path), "Found.")
    async with room.desk(again, continues=key, window=WINDOW, permission_mode=Mode.ASK) as desk:
        await desk.prompt("And the middle?")
        assert "the NEEDLE is here" in str(again.asked[-1].results[-1])
        await desk.session.workspace.grep("NEEDLE", str(Path(path).parent))
        outside = await desk.store.whole_results.list(key)
        assert outside == [path], "what is read is not stored anew"


@in_a_loop
async def test_a_result_of_a_delegate_is_kept_too(room: Room) -> None:
    big(room.root)
    named: list[str] = []

    def report(asked: Asked) -> str:
        named.extend(re.findall(r"is in (\S+):", str(asked.results[-1])))
        return "It is long."

    child, reader = ScriptedModel(BASH, report), helper(tools=("Bash", "Read"))
    async with room.desk(ScriptedModel(), child, child_window=WINDOW, definitions=[reader]) as desk:
        first, key = await desk.session.delegate("helper", "Look."), desk.id
    child = ScriptedModel(looking("Read", named[0]), "Found.")
    async with room.desk(
        ScriptedModel(), child, continues=key, child_window=WINDOW, definitions=[reader]
    ) as desk:
        await desk.session.delegate("helper", "And the middle?", resume=first.delegation_id)
        assert "the NEEDLE is here" in str(child.asked[-1].results[-1])


@in_a_loop
async def test_it_is_masked_copied_with_a_fork_and_deleted_with_its_session(own_room: Room) -> None:
    big(own_room.root)
    own_room.store.mask(["the NEEDLE is here"])
    async with own_room.desk(ScriptedModel(BASH, "Long."), window=WINDOW) as desk:
        await desk.prompt("Go.")
        path, key = path_in(desk), desk.id
    store = own_room.store
    text = await store.whole_results.get(key, path)
    assert "line 3999 of" in text
    assert "[masked]" in text and "NEEDLE" not in text
    await store.sessions.fork(key, "copy", at_ms=1)
    await store.sessions.delete(key, now_ms=1)
    own_room.forget(key)
    assert await store.whole_results.get(key, path) is None
    again = ScriptedModel(looking("Read", path), "Found.")
    async with own_room.desk(again, continues="copy", window=WINDOW) as desk:
        await desk.prompt("And the middle?")
        assert "[masked]" in str(again.asked[-1].results[-1])


@pytest.mark.parametrize("attached", [False, True])
@in_a_loop
async def test_a_fork_in_memory_reads_what_was_cut_before_it(room: Room, attached: bool) -> None:
    big(room.root)
    async with room.desk(ScriptedModel(BASH, "Long.", "Done."), window=WINDOW) as desk:
        await desk.prompt("Go.")
        path = path_in(desk)
        fork = desk.session.fork()
    async with fork:
        if attached:
            await fork.attach(room.store)  # type: ignore[arg-type]
        assert "the NEEDLE is here" in await fork.workspace.grep("NEEDLE", path)


@in_a_loop
async def test_what_was_cut_before_a_session_was_stored_is_stored_with_it(room: Room) -> None:
    big(room.root)
    async with room.desk(ScriptedModel(BASH, "Long."), window=WINDOW) as desk:
        await desk.prompt("Go.")
        path = path_in(desk)
        stored = desk.session.fork()
        stored._origin = None
        async with stored:
            await stored.attach(room.store)  # type: ignore[arg-type]
            assert "the NEEDLE is here" in str(await room.store.whole_results.get(stored.id, path))
