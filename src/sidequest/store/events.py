"""Events as they were told to the surfaces: numbered, so that a reader asks for what it missed."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Literal

from sqlalchemy import Connection, func, insert, select

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.events import DelegationSettled, DelegationStarted, Numbered, event_as_dict
from sidequest.store.database import Database
from sidequest.store.masking import to_json
from sidequest.store.rows import EventRow
from sidequest.store.tables import events

DEFAULT_EVENTS = 1_000


class Events:
    """The events of all sessions. A truncation does not touch them, a fork starts afresh at 1."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def append(self, session_id: str, new: Sequence[Numbered]) -> None:
        """Store events in one transaction; the first one's number is the newest stored number plus 1.

        Those that are stored already, because an answer of the database was lost, are recognised.

        Raises:
            SidequestError: `STORE_CONFLICT` when a number is missing, or stands for another event; nothing is
                stored.
        """

        def add(tx: Connection) -> None:
            expected = _newest(tx, session_id) + 1
            fresh = [numbered for numbered in new if not _is_stored(tx, session_id, numbered, expected)]
            for numbered in fresh:
                if numbered.number != expected:
                    raise SidequestError(
                        ErrorCode.STORE_CONFLICT,
                        f"Event {numbered.number} of session {session_id} came where {expected} was due.",
                        "This is a defect of the program that numbered them; report it.",
                    )
                expected += 1
            if fresh:
                tx.execute(insert(events), [_values(session_id, numbered) for numbered in fresh])

        await self._db.write_session(session_id, add)

    async def after(
        self,
        session_id: str,
        number: int = 0,
        *,
        limit: int = DEFAULT_EVENTS,
        lane: str | Literal[False] | None = False,
        types: Collection[str] = (),
    ) -> list[EventRow]:
        """Return the events whose number is greater than `number`, oldest first, `limit` at most.

        `lane` takes those of one delegation only, None those of the session's own agent, False all of them.
        `types` takes those types only; empty means all of them.
        """
        query = select(events).where(events.c.session_id == session_id, events.c.number > number)
        if lane is not False:
            query = query.where(events.c.delegation_id == lane)
        if types:
            query = query.where(events.c.type.in_(types))
        query = query.order_by(events.c.number).limit(limit)
        return await self._db.read(
            lambda tx: [
                EventRow(row.number, row.at_ms, row.type, row.delegation_id, json.loads(row.payload))
                for row in tx.execute(query)
            ]
        )

    async def unsettled(self, session_id: str) -> set[str]:
        """Return the ids of delegations of which an event says that they started and none that they ended."""
        mine = events.c.session_id == session_id
        ended = select(events.c.delegation_id).where(mine, events.c.type == DelegationSettled.type)
        begun = select(events.c.delegation_id).where(mine, events.c.type == DelegationStarted.type)
        query = begun.where(events.c.delegation_id.not_in(ended))
        return await self._db.read(lambda tx: set(tx.execute(query).scalars()))

    async def newest_number(self, session_id: str) -> int:
        """Return the newest stored number of a session, 0 when there is none."""
        return await self._db.read(lambda tx: _newest(tx, session_id))


def _newest(tx: Connection, session_id: str) -> int:
    return (
        tx.execute(select(func.max(events.c.number)).where(events.c.session_id == session_id)).scalar_one()
        or 0
    )


def _is_stored(tx: Connection, session_id: str, numbered: Numbered, expected: int) -> bool:
    """Say whether the very same event is stored; one from `expected` on is not."""
    if numbered.number >= expected:
        return False
    row = tx.execute(
        select(events.c.at_ms, events.c.type, events.c.delegation_id).where(
            events.c.session_id == session_id, events.c.number == numbered.number
        )
    ).one_or_none()
    told = (numbered.at_ms, numbered.event.type, numbered.event.delegation_id)
    return row is not None and tuple(row) == told


def _values(session_id: str, numbered: Numbered) -> dict[str, object]:
    return {
        "session_id": session_id,
        "number": numbered.number,
        "at_ms": numbered.at_ms,
        "type": numbered.event.type,
        "delegation_id": numbered.event.delegation_id,
        "payload": to_json(event_as_dict(numbered)),
    }
