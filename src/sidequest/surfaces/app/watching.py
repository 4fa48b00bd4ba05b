"""Keeps the view of one session true while somebody looks at it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sidequest.core.event_reading import event_from_dict
from sidequest.core.events import Numbered
from sidequest.surfaces.app.conversation import View, follow_view, view_of
from sidequest.surfaces.app.feed import events_after, follow
from sidequest.surfaces.app.reading import FIRST_ROWS, is_worked_on, read_session

if TYPE_CHECKING:
    from sidequest.surfaces.app.application import Application

CHECK_S = 5.0
"""How often it is checked that somebody still works on a session that another process was working on."""


@dataclass
class Watched:
    """One session as one page sees it. `load` it, then `run` it for as long as the page is there."""

    application: Application
    session_id: str
    view: View
    changed: Callable[[], None] = lambda: None
    """Called after each change of `view`."""
    rows: int = FIRST_ROWS
    """How many of the newest rows are shown."""
    _loading: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    @classmethod
    async def open(cls, application: Application, session_id: str, rows: int = FIRST_ROWS) -> Watched:
        """Read a session.

        Raises:
            SidequestError: `SESSION_UNKNOWN`; the store failed.
        """
        stored = await read_session(application, session_id, rows)
        return cls(application, stored.row.id, view_of(stored), rows=rows)

    async def load(self) -> None:
        """Read the session anew.

        Raises:
            SidequestError: it was removed; the store failed.
        """
        async with self._loading:
            while True:
                fresh = view_of(await read_session(self.application, self.session_id, self.rows))
                for data in await events_after(self.application, self.session_id, fresh.number):
                    numbered = event_from_dict(data)
                    fresh = follow_view(fresh, numbered) if numbered else fresh
                # What came in while this was read must not be lost with the view that knew it.
                if not fresh.stale and fresh.number >= self.view.number:
                    break
            self.view = fresh
        self.changed()

    async def earlier(self, rows: int = FIRST_ROWS) -> None:
        """Show `rows` more of what was said before.

        Raises:
            SidequestError: the store failed.
        """
        self.rows += rows
        await self.load()

    async def run(self) -> None:
        """Follow the session until this is cancelled.

        Raises:
            SidequestError: the session was removed; the store failed.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self._check())
            while True:
                number = self.view.number
                async with aclosing(follow(self.application, self.session_id, number)) as events:
                    async for data in events:
                        numbered = event_from_dict(data)
                        if numbered is not None:
                            await self._take(numbered)
                await self.load()  # it was removed, and this says so

    async def _take(self, numbered: Numbered) -> None:
        before = self.view
        self.view = follow_view(before, numbered)
        if self.view is before:
            return
        if self.view.stale:
            await self.load()
        else:
            self.changed()

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            if self.view.working and not await is_worked_on(self.application, self.session_id):
                await self.load()
