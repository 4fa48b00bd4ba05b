"""Tool results that were too large for a context, whole: they live as long as their session."""

from __future__ import annotations

from sqlalchemy import select

from sidequest.store.database import Database, upsert
from sidequest.store.tables import whole_results


class WholeResults:
    """Texts by the path of the file that the cut result names. A fork takes them along."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def put(self, session_id: str, path: str, text: str, created_at_ms: int) -> None:
        """Store a whole result; known secrets in it are masked, as everywhere.

        Raises:
            SidequestError: `SESSION_UNKNOWN`, or the store failed.
        """
        key = {"session_id": session_id, "path": path}
        values = {"text": text, "created_at_ms": created_at_ms}
        await self._db.write_session(session_id, lambda tx: upsert(tx, whole_results, key, values))

    async def list(self, session_id: str) -> list[str]:
        """Return the paths of a session's whole results, oldest first."""
        query = select(whole_results.c.path).where(whole_results.c.session_id == session_id)
        ordered = query.order_by(whole_results.c.created_at_ms, whole_results.c.path)
        return await self._db.read(lambda tx: list(tx.execute(ordered).scalars()))

    async def get(self, session_id: str, path: str) -> str | None:
        """Return a whole result, or None when there is none of that path."""
        query = select(whole_results.c.text).where(
            whole_results.c.session_id == session_id, whole_results.c.path == path
        )
        return await self._db.read(lambda tx: tx.execute(query).scalar_one_or_none())
