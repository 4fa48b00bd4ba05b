"""The list of sessions as a person sees it: each with what happens in it at the moment."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.surfaces.storing import is_held

if TYPE_CHECKING:
    from sidequest.store import SessionRow
    from sidequest.surfaces.app.application import Application


class Activity(StrEnum):
    """What happens in a session."""

    IDLE = "idle"
    WORKING = "working"
    """A turn, a compaction or a resumed delegation runs in this process."""
    ASKING = "asking"
    """Somebody waits for an answer of a person."""
    ELSEWHERE = "elsewhere"
    """Another process has it."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A session in the list."""

    row: SessionRow
    activity: Activity


@dataclass(frozen=True, slots=True)
class Listing:
    """One page of the list."""

    sessions: tuple[Listed, ...]
    more: bool
    """Whether there are further ones behind these."""


async def list_sessions(
    application: Application, search: str = "", *, limit: int = 50, offset: int = 0
) -> Listing:
    """Return `limit` sessions at most, the one that was used last first, without the first `offset`.

    With `search` those whose title, or one of whose messages, holds every word of it.

    Raises:
        SidequestError: the store failed.
    """
    rows = await application.store.sessions.list(search, limit=limit + 1, offset=offset)
    held = {lease.session_id for lease in await application.store.leases.all() if is_held(lease)}
    listed = tuple(Listed(row, _activity(application, row.id, held)) for row in rows[:limit])
    return Listing(listed, len(rows) > limit)


async def listed_session(application: Application, session_id: str) -> Listed:
    """Return one session as it is listed; `session_id` is its whole id.

    Raises:
        SidequestError: `SESSION_UNKNOWN`; the store failed.
    """
    row = await application.store.sessions.get(session_id)
    if row.id != session_id:
        raise SidequestError(
            ErrorCode.SESSION_UNKNOWN, f"There is no session {session_id}.", "Give the whole id of a session."
        )
    held = {session_id} if is_held(await application.store.leases.get(session_id)) else set()
    return Listed(row, _activity(application, session_id, held))


def _activity(application: Application, session_id: str, held: set[str]) -> Activity:
    live = application.live.get(session_id)
    if live is None:
        return Activity.ELSEWHERE if session_id in held else Activity.IDLE
    if len(live.session.rights.questions):
        return Activity.ASKING
    return Activity.WORKING if live.busy else Activity.IDLE
