"""Whoever looks at a session sees the same conversation, whenever they came and whatever they missed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import cast

import pytest

from sidequest.core.event_reading import event_from_dict
from sidequest.core.events import DelegationStarted, Notice, PromptReceived
from sidequest.core.outcome import Status
from sidequest.store import DelegationRow, NewDelegation, Store
from sidequest.surfaces.app.application import Application
from sidequest.surfaces.app.conversation import View, follow_view
from sidequest.surfaces.app.entries import (
    Answer,
    Delegated,
    Divider,
    Entry,
    Group,
    Line,
    Prompt,
    ToolLine,
    Trouble,
    blocks,
    place_of,
)
from sidequest.surfaces.app.feed import events_after
from sidequest.surfaces.app.live import Live
from sidequest.surfaces.app.reading import result_of
from sidequest.surfaces.app.watching import Watched
from sidequest.surfaces.app.work import Work
from sidequest.surfaces.storing import now_ms
from tests.app.conftest import Opened
from tests.app.test_live import done, until

pytestmark = pytest.mark.anyio
THREE = (
    "1. Where is BERTH_LIMIT defined?\n2. Where is HIGH_WATER_HOUR defined?\n3. Where is berths_free defined?"
)


def shown(view: View) -> tuple[object, ...]:
    """What a person sees of it: the entries and the cards."""
    works = sorted(map(stored_exactly, view.works.values()), key=lambda work: work.view.number)
    return (*view.entries, *works, view.turn.running)


def stored_exactly(work: Work) -> Work:
    """Return a delegation with the time it took in whole milliseconds, as it is stored."""
    if work.outcome is None:
        return work
    outcome = replace(work.outcome, elapsed_s=round(work.outcome.elapsed_s, 3))
    return replace(work, view=replace(work.view, outcome=outcome))


@asynccontextmanager
async def looking(application: Application, key: str) -> AsyncIterator[Watched]:
    """Look at a session as a page does."""
    watched = await Watched.open(application, key)
    following = asyncio.create_task(watched.run())
    try:
        yield watched
    finally:
        following.cancel()
        await asyncio.wait([following])


async def caught_up(watched: Watched, live: Live) -> None:
    newest = live.session.log.start + len(list(live.session.log.after()))
    await until_slowly(lambda: watched.view.number == newest and not watched.view.stale)


def kinds(view: View) -> list[str]:
    return [type(entry).__name__ for entry in view.entries]


@dataclass
class Starting:
    """The delegations of a store, one of which starts when they are about to be listed."""

    store: Store
    start: Callable[[], Awaitable[None]]

    async def list(self, session_id: str) -> list[DelegationRow]:
        await self.start()
        return await self.store.delegations.list(session_id)


class TestWhenever:
    async def test_everybody_sees_the_same_whenever_they_came(self, opened: Opened) -> None:
        """One page follows from the start; another one is opened after each single event and goes on."""
        async with opened() as application:
            live = await application.live.create()
            first: dict[int, tuple[object, ...]] = {}
            late: list[tuple[int, asyncio.Task[Watched]]] = []

            async def come_late() -> Watched:
                watched = await Watched.open(application, live.id)
                # What was read is one moment: it is what the page that was there saw at that event.
                seen = first.get(watched.view.number)
                assert seen is None or shown(watched.view) == seen
                following.append(asyncio.create_task(watched.run()))
                return watched

            following: list[asyncio.Task[None]] = []
            async with looking(application, live.id) as page:

                def note() -> None:
                    if not page.view.stale:
                        first[page.view.number] = shown(page.view)

                page.changed = note
                live.session.log.subscribe(
                    lambda numbered: late.append((numbered.number, asyncio.create_task(come_late())))
                )
                for question in (THREE, "Where is HIGH_WATER_HOUR defined?"):
                    await application.live.prompt(live.id, question)
                    await done(live)
                pages = [await task for _, task in late]
                for watched in (page, *pages):
                    await caught_up(watched, live)
                fresh = (await Watched.open(application, live.id)).view
                assert len(pages) > 40
                for watched in (page, *pages):
                    assert shown(watched.view) == shown(fresh)
            for task in following:
                task.cancel()
            await asyncio.wait(following)

    async def test_a_delegation_that_starts_while_a_page_is_read_comes_with_its_event(
        self, opened: Opened
    ) -> None:
        async with opened() as application:
            live = await application.live.create()
            live.session.log.emit(PromptReceived(None, "Look at it."))

            async def start() -> None:
                told = ("d1", "explorer", "Look", "Look at it.", "m", "independent")
                live.session.log.emit(DelegationStarted(*told, 8_000, now_ms()))
                new = NewDelegation("d1", "explorer", "Look.", "Look.", "m", "independent", now_ms())
                await application.store.delegations.start(live.id, new)

            others = ("sessions", "transcript", "events", "leases", "checkpoints", "masked")
            store = SimpleNamespace(
                **{name: getattr(application.store, name) for name in others},
                delegations=Starting(application.store, start),
            )
            view = (await Watched.open(replace(application, store=cast(Store, store)), live.id)).view
            assert kinds(view)[-1] == "Prompt"
            for event in await events_after(application, live.id, view.number):
                numbered = event_from_dict(event)
                assert numbered is not None
                view = follow_view(view, numbered)
            assert shown(view) == shown((await Watched.open(application, live.id)).view)

    async def test_another_process_sees_the_same_when_the_session_is_closed(self, opened: Opened) -> None:
        async with opened() as application:
            live = await application.live.create()
            await application.live.prompt(live.id, THREE)
            await done(live)
            here = (await Watched.open(application, live.id)).view
        async with opened() as application:
            assert shown((await Watched.open(application, live.id)).view) == shown(here)

    async def test_another_process_follows_while_this_one_works(self, opened: Opened) -> None:
        async with opened() as application, opened() as other:
            live = await application.live.create()
            async with looking(other, live.id) as page:
                running: list[bool] = []
                page.changed = lambda: running.append(page.view.turn.running)
                await application.live.prompt(live.id, THREE)
                await done(live)
                await caught_up(page, live)
                assert True in running
                fresh = (await Watched.open(application, live.id)).view
                assert shown(page.view) == shown(fresh)


async def until_slowly(holds: Callable[[], bool]) -> None:
    for _ in range(2_000):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came to hold")


class TestWhatIsShown:
    async def test_a_turn_is_a_prompt_what_was_said_the_delegations_and_the_answer(
        self, opened: Opened
    ) -> None:
        async with opened() as application:
            live = await application.live.create()
            await application.live.prompt(live.id, THREE)
            await done(live)
            view = (await Watched.open(application, live.id)).view
            told = [entry for entry in view.entries if not isinstance(entry, Line)]
            assert [type(entry) for entry in told] == [
                Prompt, Answer, Delegated, Delegated, Delegated, ToolLine, Answer,
            ]  # fmt: skip
            assert [work.status for work in view.works.values()] == [Status.COMPLETED] * 3
            assert all("found" in work.report.lower() for work in view.works.values())
            assert isinstance(told[-1], Answer)
            assert told[-1].last

    async def test_what_a_tool_gave_can_be_read(self, opened: Opened) -> None:
        async with opened() as application:
            live = await application.live.create()
            await application.live.prompt(live.id, "Where is BERTH_LIMIT defined?")
            await done(live)
            view = (await Watched.open(application, live.id)).view
            (wait,) = [entry for entry in view.entries if isinstance(entry, ToolLine)]
            assert wait.tool == "TaskWait"
            result = await result_of(application, live.id, None, wait.message_id, wait.call_id)
            assert result is not None
            assert "harbour.py:1" in result
            assert result == await result_of(application, live.id, None, None, wait.call_id)
            assert await result_of(application, live.id, None, None, "no such call") is None

    async def test_a_stopped_turn_says_so_in_the_same_words_now_and_later(self, opened: Opened) -> None:
        async with opened() as application:
            live = await application.live.create()
            async with looking(application, live.id) as page:
                await application.live.prompt(live.id, "Where is BERTH_LIMIT defined?")
                await until(lambda: bool(page.view.works))
                await application.live.stop(live.id)
                await done(live)
                await caught_up(page, live)
                (trouble,) = [entry for entry in page.view.entries if isinstance(entry, Trouble)]
                assert trouble.code == "TURN_ABORTED"
                assert not page.view.working
                assert [work.status for work in page.view.works.values()] == [Status.STOPPED]

    async def test_a_compaction_between_turns_is_one_divider(self, opened: Opened) -> None:
        async with opened() as application:
            live = await application.live.create()
            for question in (THREE, "Where is BERTH_LIMIT defined?"):
                await application.live.prompt(live.id, question)
                await done(live)
            async with looking(application, live.id) as page:
                await application.live.compact(live.id)
                await until(lambda: "Divider" in kinds(page.view))
                await caught_up(page, live)
                (divider,) = [entry for entry in page.view.entries if isinstance(entry, Divider)]
                assert divider.summary
                assert divider.tokens_after is not None
                assert divider.tokens_after < divider.tokens_before

    async def test_a_notice_stands_where_it_was_given(self, opened: Opened) -> None:
        async with opened() as application:
            live = await application.live.create()
            await application.live.prompt(live.id, "Where is BERTH_LIMIT defined?")
            await done(live)
            async with looking(application, live.id) as page:
                live.session.log.emit(Notice(None, "By the way."))
                await caught_up(page, live)
                assert isinstance(page.view.entries[-1], Line)
                assert (await Watched.open(application, live.id)).view.entries == page.view.entries

    async def test_a_long_session_begins_with_its_newest_rows_and_gives_the_rest_when_asked(
        self, opened: Opened
    ) -> None:
        async with opened() as application:
            live = await application.live.create()
            for _ in range(3):
                await application.live.prompt(live.id, "Where is BERTH_LIMIT defined?")
                await done(live)
            whole = (await Watched.open(application, live.id)).view
            assert whole.complete
            page = await Watched.open(application, live.id, rows=6)
            assert not page.view.complete
            count = len(page.view.entries)
            assert shown(page.view)[:count] == whole.entries[-count:]
            await page.earlier(100)
            assert shown(page.view) == shown(whole)


class TestPlaces:
    def test_neighbouring_delegations_are_one_group(self) -> None:
        entries: tuple[Entry, ...] = (
            place_of("a", 1),
            place_of("b", 2),
            Line("l", 3, "x"),
            place_of("c", 4),
        )
        assert blocks(entries) == [Group("group:a", ("a", "b")), entries[2], Group("group:c", ("c",))]

    def test_a_group_stays_itself_when_one_more_joins(self) -> None:
        (one,) = blocks((place_of("a", 1),))
        (two,) = blocks((place_of("a", 1), place_of("b", 2)))
        assert one.key == two.key
