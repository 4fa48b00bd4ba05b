"""Work on a session that takes several transactions: copying and removing a long one.

The only writer of SQLite is held for one step at a time, so that one person's housekeeping does not end
another's run. A session in the middle of it is marked, by a row of `settings`, and is none to a reader. Who
was killed there leaves the mark; the next that opens the store removes what is left.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, insert, select

from sidequest.store.masking import to_json
from sidequest.store.processes import is_dead, this_process
from sidequest.store.rows import Holder
from sidequest.store.tables import events, messages, sessions, settings

ROWS_OF_A_STEP = 2_000
"""Messages, or events, of one transaction: about 0.2 s of the only writer on our machine."""
PAUSE_S = 0.1
"""Between two steps on SQLite: what waits for the writer looks for it at least as often."""
ABANDONED_MS = 86_400_000
"""After this time a copy that was begun on another machine, of which nothing is known, is given up."""
_SCOPE = "store/unfinished"


def is_whole(session_id: ColumnElement[str]) -> ColumnElement[bool]:
    """Return the condition that a session is not in the middle of being copied or removed."""
    return session_id.not_in(select(settings.c.key).where(settings.c.scope == _SCOPE))


def mark(tx: Connection, session_id: str, at_ms: int, *, removing: bool) -> None:
    """Hide a session; `removing` says that anybody may go on with it at once."""
    value = {"removing": removing, **asdict(this_process())}
    row = {"scope": _SCOPE, "key": session_id, "value": to_json(value), "updated_at_ms": at_ms}
    tx.execute(insert(settings).values(row))


def unmark(tx: Connection, session_id: str) -> None:
    """Show a session that is whole."""
    tx.execute(delete(settings).where(settings.c.scope == _SCOPE, settings.c.key == session_id))


def left_behind(tx: Connection, now_ms: int) -> list[str]:
    """Return the ids of sessions that nobody works on any more and that are to be removed."""
    rows = tx.execute(select(settings).where(settings.c.scope == _SCOPE).order_by(settings.c.key))
    return [
        row.key
        for row in rows
        if _is_left(json.loads(row.value)) or row.updated_at_ms < now_ms - ABANDONED_MS
    ]


def _is_left(value: dict[str, Any]) -> bool:
    return value["removing"] or is_dead(Holder(value["id"], value["host"], value["pid"]))


def remove_some(tx: Connection, session_id: str) -> bool:
    """Remove a step's worth of a marked session and say whether anything of it is left.

    Rows go in the order of writing: the call before the message that carries its result.
    """
    mine = messages.c.session_id == session_id
    rows = tx.execute(select(messages.c.row_id).where(mine).order_by(messages.c.row_id).limit(ROWS_OF_A_STEP))
    if row_ids := rows.scalars().all():
        tx.execute(delete(messages).where(mine, messages.c.row_id.in_(row_ids)))
        return True
    of_it = events.c.session_id == session_id
    told = tx.execute(select(events.c.number).where(of_it).order_by(events.c.number).limit(ROWS_OF_A_STEP))
    if numbers := told.scalars().all():
        tx.execute(delete(events).where(of_it, events.c.number <= numbers[-1]))
        return True
    tx.execute(delete(sessions).where(sessions.c.id == session_id))
    unmark(tx, session_id)
    return False
