"""Events over HTTP: in pages, and as a stream that a reader takes up again where it lost it."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import httpx2
import pytest
import uvicorn

from sidequest.core.events import Notice
from sidequest.surfaces.api import events as events_module
from sidequest.surfaces.api.api import build_api
from sidequest.surfaces.app.live import Live
from tests.api.conftest import Api, ApiFactory

pytestmark = pytest.mark.anyio


async def with_notices(it: Api, count: int) -> Live:
    """Return a session that told exactly `count` events."""
    live = it.application.live.get(await it.begin())
    assert live is not None
    tell(live, count - live.session.log.newest)
    return live


def tell(live: Live, count: int) -> None:
    for _ in range(count):
        live.session.log.emit(Notice(None, f"n{live.session.log.newest + 1}"))


async def test_pages_of_events_make_the_whole_without_gap_or_double(api: ApiFactory) -> None:
    async with api() as it:
        live = await with_notices(it, 25)
        numbers: list[int] = []
        after, more = 0, True
        while more:
            page = await it.get(f"/sessions/{live.id}/events", params={"after": after, "limit": 10})
            numbers += [event["number"] for event in page["events"]]
            after, more = page["newest"], page["more"]
        assert numbers == [*range(1, 26)]


async def test_nothing_new_is_an_empty_page_with_the_number_that_was_asked_for(api: ApiFactory) -> None:
    async with api() as it:
        live = await with_notices(it, 5)
        page = await it.get(f"/sessions/{live.id}/events", params={"after": 5})
        assert page == {"events": [], "newest": 5, "more": False}


async def test_an_event_has_the_fields_of_its_kind(api: ApiFactory) -> None:
    async with api() as it:
        live = await with_notices(it, 5)
        (event,) = (await it.get(f"/sessions/{live.id}/events", params={"after": 4}))["events"]
        assert (event["type"], event["delegationId"], event["text"]) == ("notice", None, "n5")


async def test_a_known_secret_is_masked_before_it_is_stored_too(
    api: ApiFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARBOUR_API_KEY", "the-key-of-the-harbour")
    async with api() as it:
        live = await with_notices(it, 5)
        live.session.log.emit(Notice(None, "it is the-key-of-the-harbour"))
        (event,) = (await it.get(f"/sessions/{live.id}/events", params={"after": 5}))["events"]
        assert event["text"] == "it is [masked]"


async def test_events_of_no_session_are_not_found(api: ApiFactory) -> None:
    async with api() as it:
        for path in ("events", "events/stream"):
            assert (await it.get(f"/sessions/nobody/{path}", 404))["code"] == "SESSION_UNKNOWN"


@asynccontextmanager
async def listening(it: Api) -> AsyncIterator[httpx2.AsyncClient]:
    """Serve the API on a real socket: a stream needs one."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = uvicorn.Server(uvicorn.Config(build_api(it.application), log_config=None))
        serving = asyncio.create_task(server._serve([taken]))
        base = f"http://127.0.0.1:{taken.getsockname()[1]}"
        async with httpx2.AsyncClient(base_url=base, timeout=20) as client:
            yield client
        server.should_exit = True
        await serving


async def streamed(
    client: httpx2.AsyncClient, live: Live, count: int, after: int = 0, last: int | None = None
) -> list[dict[str, Any]]:
    """Return the next `count` events of a stream, then drop the connection."""
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    found: list[dict[str, Any]] = []
    url = f"/sessions/{live.id}/events/stream"
    async with client.stream("GET", url, params={"after": after}, headers=headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        number = None
        async with aclosing(answer.aiter_lines()) as lines:
            async for line in lines:
                if line.startswith("id: "):
                    number = int(line.removeprefix("id: "))
                if line.startswith("data: "):
                    found.append(json.loads(line.removeprefix("data: ")))
                    assert found[-1]["number"] == number
                    if len(found) == count:
                        break
    return found


async def test_a_stream_gives_what_was_and_then_what_comes(api: ApiFactory) -> None:
    async with api() as it, listening(it) as client:
        live = await with_notices(it, 5)
        asyncio.get_running_loop().call_later(0.05, tell, live, 3)
        events = await streamed(client, live, 8)
        assert [event["number"] for event in events] == [*range(1, 9)]
        assert events[-1]["text"] == "n8"


async def test_a_stream_that_broke_goes_on_behind_the_last_one_that_came(api: ApiFactory) -> None:
    async with api() as it, listening(it) as client:
        live = await with_notices(it, 5)
        numbers: list[int] = []
        for _ in range(4):
            events = await streamed(client, live, 5, last=numbers[-1] if numbers else None)
            numbers += [event["number"] for event in events]
            tell(live, 5)
        assert numbers == [*range(1, 21)]


async def test_the_number_of_the_browser_beats_the_one_of_the_address(api: ApiFactory) -> None:
    async with api() as it, listening(it) as client:
        live = await with_notices(it, 9)
        (event,) = await streamed(client, live, 1, after=2, last=7)
        assert event["number"] == 8


async def test_a_reader_that_left_is_forgotten(api: ApiFactory) -> None:
    async with api() as it, listening(it) as client:
        live = await with_notices(it, 5)
        before = len(live.session.log._listeners)
        await streamed(client, live, 5)
        for _ in range(2_000):
            if len(live.session.log._listeners) == before:
                return
            await asyncio.sleep(0.01)
        raise AssertionError("the stream of a reader that left goes on")


async def test_a_stream_without_news_says_that_it_lives(
    api: ApiFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_module, "HEARTBEAT_S", 0.05)
    async with api() as it, listening(it) as client:
        live = await with_notices(it, 5)
        url = f"/sessions/{live.id}/events/stream"
        async with (
            client.stream("GET", url, params={"after": 5}) as answer,
            aclosing(answer.aiter_lines()) as lines,
        ):
            async for line in lines:
                if line.startswith(": ping"):
                    return
        raise AssertionError("no heartbeat came")
