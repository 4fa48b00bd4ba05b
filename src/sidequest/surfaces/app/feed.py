"""The events of one session for a reader who may come late, lose the connection, and come back.

A session that this process works on tells its events itself; what came before it was opened, and what another
process does, is read from the store. A reader gives the number of the newest event it has: nothing comes
twice, nothing is left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.events import event_as_dict

if TYPE_CHECKING:
    from sidequest.surfaces.app.application import Application

POLL_S = 1.0
"""How often the store is asked about a session that another process works on."""
PAGE_EVENTS = 1_000
"""How many events are read at once."""
EventDict = dict[str, Any]
"""What `event_as_dict` gives: `number`, `atMs`, `type`, `delegationId` and the event's own fields."""


async def some_after(application: Application, session_id: str, number: int, limit: int) -> list[EventDict]:
    """Return the next events after `number`, oldest first, `limit` at most; empty when there are none yet.

    Raises:
        SidequestError: the store failed.
    """
    live = application.live.get(session_id)
    if live is not None and live.session.log.start <= number:
        told = [event_as_dict(numbered) for numbered in islice(live.session.log.after(number), limit)]
        # As it is stored: a known secret leaves this process by no way.
        return [application.store.masked(event) for event in told]
    rows = await application.store.events.after(session_id, number, limit=limit)
    # What was told here before it was stored comes from here.
    told_here = None if live is None else live.session.log.start
    return [dict(row.data) for row in rows if told_here is None or row.number <= told_here]


async def events_after(application: Application, session_id: str, number: int = 0) -> list[EventDict]:
    """Return every event so far whose number is greater than `number`, oldest first.

    Raises:
        SidequestError: the store failed.
    """
    found: list[EventDict] = []
    while some := await some_after(application, session_id, number, PAGE_EVENTS):
        found += some
        number = some[-1]["number"]
    return found


async def follow(application: Application, session_id: str, number: int = 0) -> AsyncGenerator[EventDict]:
    """Give every event after `number`, and then each new one as it comes.

    It ends when it is closed, and when the session is removed.

    Raises:
        SidequestError: the store failed.
    """
    news = asyncio.Event()
    while True:
        news.clear()
        live = application.live.get(session_id)
        leave = live.session.log.subscribe(lambda numbered: news.set()) if live else None
        opened = application.live.subscribe(news.set)
        try:
            for event in await events_after(application, session_id, number):
                number = event["number"]
                yield event
            # Not `wait_for`: in Python 3.11 it forgets a cancellation that comes together with news.
            with suppress(TimeoutError):
                async with asyncio.timeout(None if live else POLL_S):
                    await news.wait()
            if live is None and not await _is_stored(application, session_id):
                return
        finally:
            opened()
            if leave is not None:
                leave()


async def _is_stored(application: Application, session_id: str) -> bool:
    try:
        await application.store.sessions.get(session_id)
    except SidequestError as error:
        if error.code is ErrorCode.SESSION_UNKNOWN:
            return False
        raise
    return True
