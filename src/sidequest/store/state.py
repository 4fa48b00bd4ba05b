"""Small state beside the transcript: what a person allowed for a session, and settings that programs keep."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import delete, select

from sidequest.store.database import Database, upsert
from sidequest.store.masking import to_json
from sidequest.store.rows import Grant
from sidequest.store.tables import grants, settings


class Grants:
    """Decisions about tools that hold for the rest of a session. A fork does not inherit them."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def put(self, session_id: str, grant: Grant) -> None:
        """Store a decision; it replaces an earlier one about the same rule.

        Raises:
            SidequestError: `SESSION_UNKNOWN`, or the store failed.
        """

        key = {"session_id": session_id, "rule": grant.rule}
        values = {"allowed": grant.allowed, "created_at_ms": grant.created_at_ms}
        await self._db.write_session(session_id, lambda tx: upsert(tx, grants, key, values))

    async def remove(self, session_id: str, rule: str) -> bool:
        """Take a decision back and say whether there was one."""
        gone = delete(grants).where(grants.c.session_id == session_id, grants.c.rule == rule)
        return await self._db.write_session(session_id, lambda tx: tx.execute(gone).rowcount > 0)

    async def list(self, session_id: str) -> list[Grant]:
        """Return the decisions of a session, oldest first."""
        query = select(grants).where(grants.c.session_id == session_id)
        ordered = query.order_by(grants.c.created_at_ms, grants.c.rule)
        return await self._db.read(
            lambda tx: [Grant(row.rule, row.allowed, row.created_at_ms) for row in tx.execute(ordered)]
        )


class SettingsState:
    """Values by scope and key: trusted folders, switched-off subagents, what a surface remembers.

    A scope is any text, for example `trust`, or `session/` and an id. Values are what JSON can say.
    """

    def __init__(self, database: Database) -> None:
        self._db = database

    async def put(self, scope: str, key: str, value: Any, at_ms: int) -> None:
        """Store a value, in place of an earlier one.

        Raises:
            TypeError: JSON cannot say `value`.
            SidequestError: the store failed.
        """
        values = {"value": to_json(value), "updated_at_ms": at_ms}
        await self._db.write(lambda tx: upsert(tx, settings, {"scope": scope, "key": key}, values))

    async def get(self, scope: str, key: str, default: Any = None) -> Any:
        """Return a value, or `default` when there is none."""
        return (await self.all(scope)).get(key, default)

    async def remove(self, scope: str, key: str) -> bool:
        """Remove a value and say whether there was one."""
        gone = delete(settings).where(settings.c.scope == scope, settings.c.key == key)
        return await self._db.write(lambda tx: tx.execute(gone).rowcount > 0)

    async def all(self, scope: str) -> Mapping[str, Any]:
        """Return the values of a scope by key, keys in order."""
        query = select(settings).where(settings.c.scope == scope).order_by(settings.c.key)
        return await self._db.read(lambda tx: {row.key: json.loads(row.value) for row in tx.execute(query)})
