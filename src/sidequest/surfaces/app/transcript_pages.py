"""A stored conversation in pages, the newest first: a long one is never read as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sidequest.surfaces.stored_rows import in_use
from sidequest.surfaces.transcripts import Entry, transcript

if TYPE_CHECKING:
    from sidequest.surfaces.app.application import Application

DEFAULT_ROWS = 100


@dataclass(frozen=True, slots=True)
class TranscriptPage:
    """A part of a conversation, oldest entry first."""

    entries: tuple[Entry, ...]
    held: frozenset[str]
    """Ids of the sessions that a process works on; see `status_of`."""
    before: int | None
    """What to ask for to get what was said before this page; None when this is the beginning."""


async def transcript_page(
    application: Application, session_id: str, *, before: int | None = None, limit: int = DEFAULT_ROWS
) -> TranscriptPage:
    """Return the newest `limit` messages of a session, or those in front of position `before`.

    Delegations and compactions come with the messages that they stand behind.

    Raises:
        SidequestError: the store failed.
    """
    store = application.store
    newest = (await store.sessions.get(session_id)).messages
    end = newest if before is None else min(newest, before - 1)
    first = max(0, end - limit)
    # One more than is shown: the message behind a page says where the next one begins.
    read = await store.transcript.load(session_id, after=first, limit=end - first + 1)
    rows, behind = read[: end - first], read[end - first :]
    begin_ms = rows[0].created_at_ms if first and rows else 0
    end_ms = behind[0].created_at_ms if behind else None
    delegations = [
        row
        for row in await store.delegations.list(session_id)
        if row.started_at_ms >= begin_ms and (end_ms is None or row.started_at_ms < end_ms)
    ]
    checkpoints = [
        row
        for row in await store.checkpoints.list(session_id)
        if (not first or row.through_position > first) and (not behind or row.through_position <= end)
    ]
    entries = tuple(transcript(rows, delegations, checkpoints))
    return TranscriptPage(entries, await in_use(store, delegations), first + 1 if first else None)
