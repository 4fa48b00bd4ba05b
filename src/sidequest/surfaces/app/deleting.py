"""A stored session removed, for pages and API alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidequest.surfaces.storing import now_ms

if TYPE_CHECKING:
    from sidequest.surfaces.app.application import Application


async def delete_session(application: Application, session_id: str) -> None:
    """Stop what the session does here, and remove it with all that belongs to it.

    The lease of a process of this machine that was killed does not keep it.

    Raises:
        SidequestError: `SESSION_UNKNOWN`; `AGENT_BUSY` when another process works on it; the store failed.
    """
    await application.live.release(session_id)
    await application.store.leases.free_of_the_dead(session_id)
    await application.store.sessions.delete(session_id, now_ms=now_ms())
