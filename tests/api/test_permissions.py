"""Questions over HTTP: each is answered once, by its id, and by nobody who is late."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sidequest.core.permissions import Action
from sidequest.runtime.permissions import Answer
from sidequest.surfaces.app.live import Live
from tests.api.conftest import Api, ApiFactory

pytestmark = pytest.mark.anyio
COMMAND = Action("Bash", command="make clean")


async def asked(it: Api, *actions: Action) -> tuple[Live, list[asyncio.Task[Answer]]]:
    """Let calls of a delegation wait in a new session, as its gate does."""
    live = it.application.live.get(await it.begin())
    assert live is not None
    queue = live.session.rights.questions
    tasks = []
    for action in actions:
        arguments = {"command": action.command} if action.command else {"path": action.path}
        tasks.append(asyncio.create_task(queue.ask(("parent", "fixer"), action, arguments, "it writes")))
        await asyncio.sleep(0)
    return live, tasks


async def waiting(it: Api) -> list[dict[str, object]]:
    questions: list[dict[str, object]] = (await it.get("/permissions"))["questions"]
    return questions


async def test_a_question_says_who_asks_for_what_and_why(api: ApiFactory, tree: Path) -> None:
    async with api() as it:
        write = Action("Write", path=str(tree / "a.txt"))
        live, tasks = await asked(it, COMMAND, write)
        first, second = await waiting(it)
        assert first == {
            "id": live.session.rights.questions.waiting[0].id,
            "sessionId": live.id,
            "asker": ["parent", "fixer"],
            "delegationId": None,
            "delegationNumber": None,
            "tool": "Bash",
            "path": None,
            "command": "make clean",
            "inside": True,
            "arguments": {"command": "make clean"},
            "reason": "it writes",
        }
        assert second["path"] == str(tree / "a.txt")
        assert (await it.get(f"/sessions/{live.id}"))["activity"] == "asking"
        await it.application.live.stop(live.id)
        await asyncio.wait(tasks)


async def test_a_question_names_the_delegation_it_is_of(api: ApiFactory) -> None:
    async with api() as it:
        key = await it.begin()
        await it.ask(key)
        (delegation,) = (await it.get(f"/sessions/{key}/delegations"))["delegations"]
        live = it.application.live.get(key)
        assert live is not None
        queue = live.session.rights.questions
        asking = queue.ask(("parent", "fixer"), COMMAND, {}, "it runs", delegation_id=delegation["id"])
        task = asyncio.create_task(asking)
        await asyncio.sleep(0)
        (question,) = await waiting(it)
        assert (question["delegationId"], question["delegationNumber"]) == (delegation["id"], 1)
        queue.deny_all()
        await task


@pytest.mark.parametrize(
    ("decision", "note", "expected"),
    [
        ("allow", "", Answer(True)),
        ("allow_session", "", Answer(True, for_session=True)),
        ("deny", " use rm ", Answer(False, note="use rm")),
    ],
)
async def test_an_answer_reaches_the_one_who_asked(
    api: ApiFactory, decision: str, note: str, expected: Answer
) -> None:
    async with api() as it:
        _, (first, second) = await asked(it, COMMAND, Action("Bash", command="git push"))
        key = (await waiting(it))[0]["id"]
        await it.post(f"/permissions/{key}", {"decision": decision, "note": note}, 204)
        assert await first == expected
        assert not second.done()
        assert len(await waiting(it)) == 1
        second.cancel()


async def test_allowed_for_the_session_is_not_asked_again(api: ApiFactory) -> None:
    async with api() as it:
        live, (first,) = await asked(it, COMMAND)
        await it.post(f"/permissions/{(await waiting(it))[0]['id']}", {"decision": "allow_session"}, 204)
        await first
        again = await live.session.rights.questions.ask(("parent",), COMMAND, {}, "it writes")
        assert again.allowed


async def test_a_late_answer_is_not_found_and_does_nothing(api: ApiFactory) -> None:
    async with api() as it:
        live, (first, second) = await asked(it, COMMAND, Action("Bash", command="make all"))
        key = (await waiting(it))[0]["id"]
        await it.post(f"/permissions/{key}", {"decision": "deny"}, 204)
        problem = await it.post(f"/permissions/{key}", {"decision": "allow_session"}, 404)
        assert problem["code"] == "QUESTION_UNKNOWN"
        assert not (await first).allowed
        asking = asyncio.create_task(live.session.rights.questions.ask(("parent",), COMMAND, {}, "it writes"))
        await asyncio.sleep(0)
        assert not asking.done(), "the late answer granted something"
        for task in (second, asking):
            task.cancel()


async def test_a_known_secret_in_a_command_is_masked(
    api: ApiFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARBOUR_API_KEY", "the-key-of-the-harbour")
    async with api() as it:
        _, (task,) = await asked(it, Action("Bash", command="curl -u the-key-of-the-harbour"))
        (question,) = await waiting(it)
        assert question["command"] == "curl -u [masked]"
        assert question["arguments"] == {"command": "curl -u [masked]"}
        task.cancel()


async def test_a_question_of_nobody_is_not_found(api: ApiFactory) -> None:
    async with api() as it:
        assert (await it.post("/permissions/x", {"decision": "allow"}, 404))["code"] == "QUESTION_UNKNOWN"
        assert await waiting(it) == []
