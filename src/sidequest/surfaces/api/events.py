"""Events over HTTP: in pages, or as a stream that a reader takes up again where it lost it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Header, Query
from sse_starlette import EventSourceResponse, ServerSentEvent

from sidequest.surfaces.api.shapes import MAX_NUMBER, Event, EventList
from sidequest.surfaces.app.feed import follow, some_after
from sidequest.surfaces.app.listing import listed_session

if TYPE_CHECKING:
    from sidequest.surfaces.app.application import Application

MAX_EVENTS = 1_000
HEARTBEAT_S = 15
"""How often a stream without news says that it lives, in seconds."""
RETRY_MS = 1_000
"""How soon a browser asks again when it lost the stream, in milliseconds."""

After = Annotated[int, Query(ge=0, le=MAX_NUMBER, description="Number of the newest event you have.")]
LastEventId = Annotated[
    int | None,
    Header(ge=0, le=MAX_NUMBER, description="What a browser sends when it takes up a stream; beats `after`."),
]


def events_router(application: Application) -> APIRouter:
    """Return the operations on the events of a session."""
    router = APIRouter(prefix="/sessions/{session_id}/events", tags=["events"])

    @router.get("")
    async def read(
        session_id: str, after: After = 0, limit: Annotated[int, Query(ge=1, le=MAX_EVENTS)] = MAX_EVENTS
    ) -> EventList:
        """The events after a number, oldest first, without gaps."""
        await listed_session(application, session_id)
        found = await some_after(application, session_id, after, limit + 1)
        shown = [Event.model_validate(event) for event in found[:limit]]
        newest = shown[-1].number if shown else after
        return EventList(events=shown, newest=newest, more=len(found) > limit)

    @router.get(
        "/stream",
        response_class=EventSourceResponse,
        responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
    )
    async def stream(
        session_id: str, after: After = 0, last_event_id: LastEventId = None
    ) -> EventSourceResponse:
        """The events after a number, and each new one as it comes; `id` is its number, `data` is JSON."""
        await listed_session(application, session_id)
        number = after if last_event_id is None else last_event_id
        return EventSourceResponse(_told(application, session_id, number), ping=HEARTBEAT_S)

    return router


async def _told(application: Application, session_id: str, number: int) -> AsyncIterator[ServerSentEvent]:
    yield ServerSentEvent(retry=RETRY_MS, comment="from here on")
    async with aclosing(follow(application, session_id, number)) as events:
        async for event in events:
            yield ServerSentEvent(json.dumps(event, ensure_ascii=False), id=str(event["number"]))
