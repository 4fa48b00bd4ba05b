"""Reads a session for its page: the newest rows, and what has been told, as of one moment."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from sidequest.core.event_reading import event_from_dict
from sidequest.core.events import (
    ContextCompacted,
    ContextDegraded,
    DelegationStarted,
    Notice,
    Numbered,
    PromptReceived,
    RunEnded,
    TurnStarted,
    event_as_dict,
)
from sidequest.surfaces.app.conversation import Stored, open_prompt
from sidequest.surfaces.app.feed import events_after
from sidequest.surfaces.app.work import WORK_EVENTS
from sidequest.surfaces.storing import is_held
from sidequest.surfaces.view_state import AgentView, reduce_agent

if TYPE_CHECKING:
    from sidequest.store import StoredMessage
    from sidequest.surfaces.app.application import Application

FIRST_ROWS = 40
"""How many of the newest rows a page begins with."""
_TOLD = frozenset(kind.type for kind in (PromptReceived, RunEnded, Notice, DelegationStarted))
_SIZES = frozenset(kind.type for kind in (TurnStarted, ContextCompacted, ContextDegraded))
_TRIES = 5
"""How often a session is read anew because a turn began or ended meanwhile."""
_BACK = 256
"""How far back the newest size of the context is looked for at first, in events; then four times as far."""


async def read_session(application: Application, session_id: str, rows: int = FIRST_ROWS) -> Stored:
    """Return what is to be seen of a session, with its newest `rows` messages, as of one moment.

    Raises:
        SidequestError: `SESSION_UNKNOWN`; the store failed.
    """
    stored = await _read(application, session_id, rows)
    for _ in range(_TRIES):
        since = await events_of(application, session_id, stored.number, {"prompt", "run_ended"})
        if not since:
            break
        stored = await _read(application, session_id, rows)
    return stored


async def _read(application: Application, session_id: str, rows: int) -> Stored:
    store = application.store
    held = await is_worked_on(application, session_id)
    newest = await newest_number(application, session_id)
    row = await store.sessions.get(session_id)
    after = max(0, row.messages - rows)
    first = await store.transcript.load(session_id, after=after, limit=1) if after else []
    reached = first[0].created_at_ms if first else 0
    told = await _told_since(application, session_id, newest, reached)
    prompt = await _prompt_at_work(application, session_id, told)
    recent = as_events(await events_after(application, session_id, prompt.number - 1)) if prompt else []
    number = recent[-1].number if recent else newest
    # Behind the events: what these tell to be over is among the rows then.
    row = await store.sessions.get(session_id)
    messages = await store.transcript.load(session_id, after=after)
    delegations = await store.delegations.list(session_id)
    meanwhile = await events_of(application, session_id, number, {DelegationStarted.type})
    begun_since = {numbered.event.delegation_id for numbered in meanwhile}
    starts = [n for n in told if isinstance(n.event, DelegationStarted) and n.at_ms >= reached]
    worked = await events_of(application, session_id, starts[0].number - 1, WORK_EVENTS) if starts else []
    return Stored(
        row,
        messages,
        not after,
        # A start is told before its row is there: what was not told up to `number` comes with its event.
        [delegation for delegation in delegations if delegation.id not in begun_since],
        await store.checkpoints.list(session_id),
        [numbered for numbered in told if numbered.number <= number],
        [numbered for numbered in worked if numbered.number <= number],
        recent,
        number,
        held,
        await newest_size(application, session_id, number if prompt is None else prompt.number - 1),
    )


async def _told_since(
    application: Application, session_id: str, newest: int, reached_ms: int
) -> list[Numbered]:
    """Return what was told since a moment, and at least since the newest prompt."""
    back = _BACK
    while True:
        after = max(0, newest - back)
        told = await events_of(application, session_id, after, _TOLD)
        turns = any(isinstance(numbered.event, PromptReceived | RunEnded) for numbered in told)
        if not after or (turns and told[0].at_ms < reached_ms):
            return told
        back *= 4


async def _prompt_at_work(application: Application, session_id: str, told: list[Numbered]) -> Numbered | None:
    """Return the prompt of the turn that runs; one that an earlier process left open runs no more."""
    prompt = open_prompt(told)
    if prompt is None:
        return None
    live = application.live.get(session_id)
    if live is not None:
        return prompt if prompt.number > live.session.log.start else None
    lease = await application.store.leases.get(session_id)
    return prompt if lease is not None and is_held(lease) and prompt.at_ms >= lease.since_ms else None


async def is_worked_on(application: Application, session_id: str) -> bool:
    """Say whether this or another process works on a session at this moment."""
    if application.live.get(session_id) is not None:
        return True
    return is_held(await application.store.leases.get(session_id))


async def newest_number(application: Application, session_id: str) -> int:
    """Return the number of the newest event of a session, 0 when there is none."""
    live = application.live.get(session_id)
    if live is None:
        return await application.store.events.newest_number(session_id)
    return live.session.log.start + sum(1 for _ in live.session.log.after(live.session.log.start))


async def events_of(
    application: Application,
    session_id: str,
    after: int,
    types: Collection[str],
    lane: str | bool | None = False,
) -> list[Numbered]:
    """Return the events of some types whose number is greater than `after`, oldest first.

    `lane` takes those of one delegation only, None those of the session's own agent, False all of them.
    """
    found: list[Numbered] = []
    number = after
    live = application.live.get(session_id)
    start = live.session.log.start if live else None
    while start is None or number < start:
        page = await application.store.events.after(session_id, number, types=types, lane=lane)  # type: ignore[arg-type]
        found += as_events(row.data for row in page if start is None or row.number <= start)
        if not page:
            break
        number = page[-1].number
    if live is not None:
        found += as_events(
            # As it is stored: a known secret leaves this process by no way.
            application.store.masked(event_as_dict(numbered))
            for numbered in live.session.log.after(max(after, live.session.log.start))
            if numbered.event.type in types and (lane is False or numbered.event.delegation_id == lane)
        )
    return found


def as_events(rows: Iterable[Mapping[str, Any]]) -> list[Numbered]:
    """Return events that were read as plain values; kinds that are not known are left out."""
    return [numbered for row in rows if (numbered := event_from_dict(row)) is not None]


async def newest_size(application: Application, session_id: str, number: int) -> AgentView:
    """Return how full the context of the session's own agent was at event `number`."""
    back = _BACK
    while True:
        after = max(0, number - back)
        events = await events_of(application, session_id, after, _SIZES, None)
        view = AgentView()
        for numbered in events:
            if numbered.number <= number:
                view = reduce_agent(view, numbered.event)
        if view.hard_limit or not after:
            return view
        back *= 4


async def result_of(
    application: Application, session_id: str, delegation_id: str | None, message_id: str | None, call_id: str
) -> str | None:
    """Return what a tool call gave, None when nothing is stored of it.

    `message_id` None looks for the newest call with that id.

    Raises:
        SidequestError: the store failed.
    """
    after = 0
    if message_id is None and delegation_id is None:
        row = await application.store.sessions.get(session_id)
        after = max(0, row.messages - FIRST_ROWS)
    messages = await application.store.transcript.load(session_id, delegation_id, after=after)
    for message in reversed(messages):
        if message_id in (None, message.id):
            found = _result_in(message, call_id)
            if found is not None:
                return found
    return None


def _result_in(message: StoredMessage, call_id: str) -> str | None:
    for result in message.results:
        if result.tool_call_id == call_id:
            return result.part.model_response_str()
    return None
