"""The parent's compactions: a chain of generations between its rows (specification 2.11)."""

from __future__ import annotations

import json

from sqlalchemy import Connection, and_, insert, select

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.store import payload
from sidequest.store.database import AnyRow, Database, touch
from sidequest.store.masking import to_json
from sidequest.store.rows import CheckpointRow, NewCheckpoint
from sidequest.store.tables import checkpoints, messages


class Checkpoints:
    """Stores compactions of sessions; delegations have none (decision record 0299)."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def append(self, session_id: str, new: NewCheckpoint) -> CheckpointRow:
        """Store a compaction as the next generation, the first being 1. Install it only after this returned.

        Raises:
            SidequestError: `CONTEXT_COMPACTION_FAILED` for an empty summary; `MESSAGE_UNKNOWN` when
                `through_message_id` is no row of the parent; `STORE_CONFLICT` when it lies before the
                anchor of the generation before, or the id is taken.
        """
        if not new.summary.strip():
            raise SidequestError(
                ErrorCode.CONTEXT_COMPACTION_FAILED,
                "A compaction without a summary is not stored.",
                "Write a summary, or keep the history.",
            )

        def add(tx: Connection) -> CheckpointRow:
            position = _anchor(tx, session_id, new.through_message_id)
            previous = _read(tx, session_id)[-1:]
            if previous and position < previous[0].through_position:
                raise SidequestError(
                    ErrorCode.STORE_CONFLICT,
                    f"Message {new.through_message_id} lies before what generation "
                    f"{previous[0].generation} covers.",
                    "Compact through a newer message.",
                )
            tx.execute(
                insert(checkpoints).values(
                    session_id=session_id,
                    id=new.id,
                    generation=previous[0].generation + 1 if previous else 1,
                    summary=new.summary,
                    first_kept_message_id=new.first_kept_message_id,
                    through_message_id=new.through_message_id,
                    tokens_before=new.tokens_before,
                    tokens_after=new.tokens_after,
                    usage=None if new.usage is None else to_json(dict(new.usage)),
                    retained_tail=payload.dump_all(new.retained_tail),
                    details=to_json(dict(new.details)),
                    model=new.model,
                    created_at_ms=new.created_at_ms,
                )
            )
            touch(tx, session_id, new.created_at_ms)
            return _read(tx, session_id)[-1]

        return await self._db.write_session(session_id, add)

    async def list(self, session_id: str, *, sound_only: bool = False) -> list[CheckpointRow]:
        """Return the whole chain of a session, generation 1 first; with `sound_only` what can be read of it.

        Raises:
            SidequestError: `STORE_DAMAGED` when a row cannot be read.
        """
        if sound_only:
            return await self._db.read(lambda tx: [*filter(None, map(_sound, _rows(tx, session_id)))])
        return await self._db.read(lambda tx: _read(tx, session_id))

    async def newest(self, session_id: str) -> CheckpointRow | None:
        """Return the newest checkpoint that can be restarted on, or None.

        One whose row cannot be read is passed over for the one before it: restarting on an older summary
        loses nothing, because the rows behind it are all there.
        """
        return await self._db.read(lambda tx: newest_valid(tx, session_id))


def newest_valid(tx: Connection, session_id: str) -> CheckpointRow | None:
    """Return the newest checkpoint of a session that can be read, inside a transaction."""
    for row in reversed(_rows(tx, session_id)):
        try:
            return as_checkpoint(row)
        except ValueError:
            continue
    return None


def _anchor(tx: Connection, session_id: str, message_id: str) -> int:
    position: int | None = tx.execute(
        select(messages.c.position).where(
            messages.c.session_id == session_id,
            messages.c.id == message_id,
            messages.c.delegation_id.is_(None),
        )
    ).scalar_one_or_none()
    if position is None:
        raise SidequestError(
            ErrorCode.MESSAGE_UNKNOWN,
            f"The parent of session {session_id} has no message {message_id}.",
            "Store the messages before the compaction that covers them.",
        )
    return position


def _rows(tx: Connection, session_id: str) -> list[AnyRow]:
    anchor = and_(
        messages.c.session_id == checkpoints.c.session_id, messages.c.id == checkpoints.c.through_message_id
    )
    query = (
        select(checkpoints, messages.c.position.label("through_position"))
        .join(messages, anchor)
        .where(checkpoints.c.session_id == session_id)
        .order_by(checkpoints.c.generation)
    )
    return list(tx.execute(query))


def _read(tx: Connection, session_id: str) -> list[CheckpointRow]:
    try:
        return [as_checkpoint(row) for row in _rows(tx, session_id)]
    except ValueError as error:
        raise payload.damaged(f"A checkpoint of session {session_id}") from error


def _sound(row: AnyRow) -> CheckpointRow | None:
    try:
        return as_checkpoint(row)
    except ValueError:
        return None


def as_checkpoint(row: AnyRow) -> CheckpointRow:
    """Return a row as a value; raises ValueError when its tail or its details cannot be read."""
    return CheckpointRow(
        id=row.id,
        generation=row.generation,
        summary=row.summary,
        through_message_id=row.through_message_id,
        through_position=row.through_position,
        tokens_before=row.tokens_before,
        tokens_after=row.tokens_after,
        first_kept_message_id=row.first_kept_message_id,
        retained_tail=tuple(payload.load_list(row.retained_tail)),
        usage=None if row.usage is None else json.loads(row.usage),
        details=json.loads(row.details),
        model=row.model,
        created_at_ms=row.created_at_ms,
    )
