"""A reader of events that comes late, or comes back, gets each event once and in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

import pytest

from sidequest.core.events import Notice
from sidequest.core.permissions import Mode
from sidequest.surfaces.app.application import Application
from sidequest.surfaces.app.deleting import delete_session
from sidequest.surfaces.app.feed import events_after, follow
from sidequest.surfaces.app.live import Live
from sidequest.surfaces.app.reading import events_of, read_session
from tests.app.conftest import Opened

pytestmark = pytest.mark.anyio


async def numbers(application: Application, key: str, after: int = 0) -> list[int]:
    return [event["number"] for event in await events_after(application, key, after)]


async def with_notices(application: Application, count: int) -> Live:
    live = await application.live.create()
    for number in range(count - len(list(live.session.log.after()))):
        live.session.log.emit(Notice(None, f"n{number}"))
    return live


async def read(application: Application, key: str, count: int, after: int = 0) -> list[int]:
    found: list[int] = []
    async with aclosing(follow(application, key, after)) as events:
        async for event in events:
            found.append(event["number"])
            if len(found) == count:
                return found
    return found


async def test_what_an_earlier_process_told_comes_before_what_this_one_tells(opened: Opened) -> None:
    async with opened() as application:
        key = (await with_notices(application, 5)).id
    async with opened() as application:
        assert await numbers(application, key) == [1, 2, 3, 4, 5]
        live = await application.live.open(key)
        live.session.log.emit(Notice(None, "more"))
        newest = live.session.log.start + len(list(live.session.log.after()))
        for after in range(newest + 1):
            assert await numbers(application, key, after) == [*range(after + 1, newest + 1)]


async def test_more_events_than_one_page_of_the_store_come_all(opened: Opened) -> None:
    async with opened() as application:
        key = (await with_notices(application, 2_345)).id
    async with opened() as application:
        assert await numbers(application, key) == [*range(1, 2_346)]


async def test_a_follower_of_a_session_that_is_removed_comes_to_an_end(opened: Opened) -> None:
    async with opened() as application:
        live = await with_notices(application, 3)
        reader = asyncio.create_task(read(application, live.id, 1_000))
        await asyncio.sleep(0)
        await delete_session(application, live.id)
        assert await asyncio.wait_for(reader, 60) == [1, 2, 3]


@pytest.mark.parametrize("steps", range(5))
async def test_a_follower_that_is_cancelled_as_news_comes_ends(opened: Opened, steps: int) -> None:
    async with opened() as application:
        key = (await with_notices(application, 3)).id
        await application.live.release(key)
        waits = asyncio.Event()
        subscribe = application.live.subscribe

        def subscribed(changed: Callable[[], None]) -> Callable[[], None]:
            waits.set()
            return subscribe(changed)

        application.live.subscribe = subscribed  # type: ignore[method-assign]
        reader = asyncio.create_task(read(application, key, 1_000, after=3))
        await waits.wait()
        await events_after(application, key, 3)
        await asyncio.sleep(0)
        application.live.choose_mode(key, Mode.ASK)
        for _ in range(steps):
            await asyncio.sleep(0)
        reader.cancel()
        await asyncio.wait([reader], timeout=60)
        assert reader.cancelled()


async def test_a_follower_gets_what_was_and_what_comes(opened: Opened) -> None:
    async with opened() as application:
        live = await with_notices(application, 3)
        reading = asyncio.create_task(read(application, live.id, 5, after=1))
        await asyncio.sleep(0)
        for number in range(3):
            live.session.log.emit(Notice(None, f"late {number}"))
        assert await reading == [2, 3, 4, 5, 6]


async def test_a_follower_stays_when_the_session_is_opened_and_closed(opened: Opened) -> None:
    async with opened() as application:
        key = (await with_notices(application, 2)).id
        reading = asyncio.create_task(read(application, key, 4))
        await asyncio.sleep(0)
        await application.live.release(key)
        live = await application.live.open(key)
        before = live.session.log.start + len(list(live.session.log.after()))
        for number in range(4 - before):
            live.session.log.emit(Notice(None, f"late {number}"))
        assert await reading == [1, 2, 3, 4]


async def test_a_known_secret_is_in_nothing_that_a_page_reads(opened: Opened) -> None:
    async with opened() as application:
        live = await application.live.create()
        application.store.mask(["sk-very-secret-0123456789"])
        live.session.log.emit(Notice(None, "the key is sk-very-secret-0123456789"))
        told = await events_of(application, live.id, 0, {"notice"})
        assert "[masked]" in repr(told) and "sk-very" not in repr(told)
        assert "sk-very" not in repr(await read_session(application, live.id))
        assert "sk-very" not in repr(await events_after(application, live.id))
