"""Sessions over HTTP."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from sidequest.store.rows import Holder
from sidequest.surfaces.storing import now_ms
from tests.api.conftest import QUESTION, ApiFactory

pytestmark = pytest.mark.anyio


async def test_a_session_is_begun_listed_and_read(api: ApiFactory, tree: Path) -> None:
    async with api() as it:
        made = await it.post("/sessions", {"title": " Two\nlines "}, 201)
        assert (made["title"], made["root"], made["messages"]) == ("Two lines", str(tree), 0)
        assert await it.get(f"/sessions/{made['id']}") == made
        assert await it.get("/sessions") == {"sessions": [made], "more": False}


async def test_a_prompt_is_accepted_at_once_and_says_from_where_to_follow(api: ApiFactory) -> None:
    async with api() as it:
        key = await it.begin()
        after = await it.ask(key)
        events = (await it.get(f"/sessions/{key}/events?after={after}"))["events"]
        assert (events[0]["type"], events[0]["number"], events[0]["text"]) == ("prompt", after + 1, QUESTION)
        assert events[-1]["type"] == "run_ended"
        assert (await it.get(f"/sessions/{key}"))["title"] == QUESTION


async def test_model_and_permission_mode_are_read_and_changed_between_turns(api: ApiFactory) -> None:
    async with api() as it:
        key = await it.begin(permissionMode="auto")
        path = f"/sessions/{key}"
        assert (await it.get(path))["permissionMode"] == "auto"
        change = {"model": "offline/extractive", "permissionMode": "ask"}
        changed = await it.send("PATCH", path, 200, json=change)
        assert {name: changed[name] for name in change} == change
        assert await it.get(path) == changed
        problem = await it.send("PATCH", path, 422, json={"model": "nobody/nothing"})
        assert problem["code"] == "MODEL_NOT_CONFIGURED"
        await it.post(f"{path}/prompts", {"text": "Where is it?"}, 202)
        assert (await it.send("PATCH", path, 409, json=change))["code"] == "AGENT_BUSY"
        await it.done(key)


async def test_a_second_prompt_is_a_conflict_while_the_first_runs(api: ApiFactory) -> None:
    async with api() as it:
        key = await it.begin()
        await it.post(f"/sessions/{key}/prompts", {"text": QUESTION}, 202)
        problem = await it.post(f"/sessions/{key}/prompts", {"text": "And now?"}, 409)
        assert problem["code"] == "AGENT_BUSY"
        assert (await it.get(f"/sessions/{key}"))["activity"] == "working"
        await it.done(key)


async def test_a_search_finds_what_was_said(api: ApiFactory) -> None:
    async with api() as it:
        key = await it.begin()
        await it.ask(key)
        await it.begin(title="Another")
        found = await it.get("/sessions", params={"search": "berth_limit"})
        assert [row["id"] for row in found["sessions"]] == [key]


async def test_the_list_comes_in_pages(api: ApiFactory) -> None:
    async with api() as it:
        for number in range(5):
            await it.begin(title=f"s{number}")
        everything = [row["id"] for row in (await it.get("/sessions"))["sessions"]]
        pages = [await it.get("/sessions", params={"limit": 2, "offset": at}) for at in (0, 2, 4)]
        assert [page["more"] for page in pages] == [True, True, False]
        assert [row["id"] for page in pages for row in page["sessions"]] == everything
        searched = await it.get("/sessions", params={"search": "s", "limit": 2, "offset": 4})
        assert len(searched["sessions"]) <= 1


async def test_the_transcript_comes_in_pages_that_make_the_whole(api: ApiFactory) -> None:
    async with api() as it:
        key = await it.begin()
        for _ in range(3):
            await it.ask(key)
        whole = await it.get(f"/sessions/{key}/transcript")
        kinds = [entry["type"] for entry in whole["entries"]]
        assert (kinds.count("delegation"), whole["before"]) == (3, None)
        for size in (1, 2, 3, 5):
            parts: list[dict[str, object]] = []
            before: int | None = None
            while True:
                params = {"limit": size} | ({} if before is None else {"before": before})
                page = await it.get(f"/sessions/{key}/transcript", params=params)
                parts = page["entries"] + parts
                before = page["before"]
                if before is None:
                    break
            assert parts == whole["entries"], f"pages of {size}"


async def test_a_delegation_in_the_transcript_has_brief_and_report(api: ApiFactory) -> None:
    async with api() as it:
        key = await it.begin()
        await it.ask(key)
        entries = (await it.get(f"/sessions/{key}/transcript"))["entries"]
        (card,) = [entry for entry in entries if entry["type"] == "delegation"]
        assert (card["status"], card["outcome"]["stopReason"]) == ("completed", "stop")
        assert "harbour.py:1" in card["report"]


async def test_a_title_is_changed(api: ApiFactory) -> None:
    async with api() as it:
        key = await it.begin()
        assert (await it.send("PATCH", f"/sessions/{key}", 200, json={"title": "A\tname"}))[
            "title"
        ] == "A name"
        assert (await it.get(f"/sessions/{key}"))["title"] == "A name"
        assert (await it.send("PATCH", f"/sessions/{key}", 422, json={"title": " \n"}))["code"] == "USAGE"


async def test_a_fork_has_what_came_before_its_point(api: ApiFactory) -> None:
    async with api() as it:
        key = await it.begin()
        await it.ask(key)
        first = (await it.get(f"/sessions/{key}/transcript"))["entries"][0]
        copy = await it.post(f"/sessions/{key}/fork", {"through": first["id"]}, 201)
        assert (copy["forkedFrom"], copy["forkedThrough"], copy["messages"]) == (key, first["id"], 1)
        whole = await it.post(f"/sessions/{key}/fork", {}, 201)
        assert whole["messages"] == (await it.get(f"/sessions/{key}"))["messages"]
        assert (await it.post(f"/sessions/{key}/fork", {"through": "x"}, 404))["code"] == "MESSAGE_UNKNOWN"


async def test_a_deleted_session_is_gone_and_its_work_is_stopped(api: ApiFactory) -> None:
    async with api() as it:
        key = await it.begin()
        await it.post(f"/sessions/{key}/prompts", {"text": QUESTION}, 202)
        await it.send("DELETE", f"/sessions/{key}", 204)
        assert (await it.get(f"/sessions/{key}", 404))["code"] == "SESSION_UNKNOWN"
        assert it.application.live.get(key) is None


async def test_a_session_whose_process_was_killed_can_be_deleted(api: ApiFactory) -> None:
    gone = await asyncio.create_subprocess_exec("true")
    await gone.wait()
    async with api() as it:
        key = await it.begin()
        await it.application.live.release(key)
        killed = Holder("killed", socket.gethostname(), gone.pid)
        await it.application.store.leases.acquire(key, killed, now_ms=now_ms(), ttl_ms=600_000)
    async with api() as it:
        await it.send("DELETE", f"/sessions/{key}", 204)
        assert (await it.get(f"/sessions/{key}", 404))["code"] == "SESSION_UNKNOWN"


async def test_a_stop_ends_the_turn(api: ApiFactory) -> None:
    async with api() as it:
        key = await it.begin()
        await it.post(f"/sessions/{key}/prompts", {"text": QUESTION}, 202)
        await it.post(f"/sessions/{key}/stop", status=204)
        await it.done(key)
        ended = (await it.get(f"/sessions/{key}/events"))["events"][-1]
        assert (ended["type"], ended["code"]) == ("run_ended", "TURN_ABORTED")
        await it.post(f"/sessions/{key}/stop", status=204)


async def test_a_compaction_answers_when_it_is_done_and_stands_in_the_transcript(api: ApiFactory) -> None:
    async with api() as it:
        key = await it.begin()
        assert (await it.post(f"/sessions/{key}/compact", status=422))["code"] == "CONTEXT_COMPACTION_FAILED"
        for _ in range(3):
            await it.ask(key)
        done = await it.post(f"/sessions/{key}/compact", {"focus": "limits"})
        assert done["tokensAfter"] < done["tokensBefore"]
        entries = (await it.get(f"/sessions/{key}/transcript"))["entries"]
        assert [entry["summary"] for entry in entries if entry["type"] == "compaction"] == [done["summary"]]


async def test_what_another_process_works_on_cannot_be_stopped_or_prompted_here(api: ApiFactory) -> None:
    async with api() as there, api() as here:
        key = await there.begin()
        assert (await here.get(f"/sessions/{key}"))["activity"] == "elsewhere"
        for path in ("stop", "prompts", "compact"):
            body = {"text": QUESTION} if path == "prompts" else {}
            assert (await here.post(f"/sessions/{key}/{path}", body, 409))["code"] == "AGENT_BUSY"
        assert (await here.send("DELETE", f"/sessions/{key}", 409))["code"] == "AGENT_BUSY"


@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
async def test_the_beginning_of_an_id_names_no_session(api: ApiFactory, method: str) -> None:
    async with api() as it:
        key = await it.begin()
        problem = await it.send(method, f"/sessions/{key[:8]}", 404, json={"title": "x"})
        assert problem["code"] == "SESSION_UNKNOWN"
