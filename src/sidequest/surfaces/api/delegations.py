"""Delegations over HTTP: list, read with brief and report, resume, stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter

from sidequest.surfaces.api.sessions import require_here
from sidequest.surfaces.api.shapes import Accepted, Delegation, DelegationBrief, DelegationList, Instruction
from sidequest.surfaces.app.listing import listed_session
from sidequest.surfaces.stored_rows import delegation_dict, in_use

if TYPE_CHECKING:
    from sidequest.surfaces.app.application import Application


def delegations_router(application: Application) -> APIRouter:
    """Return the operations on the delegations of a session."""
    router = APIRouter(prefix="/sessions/{session_id}/delegations", tags=["delegations"])

    @router.get("")
    async def list_all(session_id: str) -> DelegationList:
        """The delegations of a session, in the order of their start."""
        await listed_session(application, session_id)
        rows = await application.store.delegations.list(session_id)
        held = await in_use(application.store, rows)
        briefs = [DelegationBrief.model_validate(delegation_dict(row, held)) for row in rows]
        return DelegationList(delegations=briefs)

    @router.get("/{delegation_id}")
    async def read(session_id: str, delegation_id: str) -> Delegation:
        """One delegation with its brief, its report and how it ended."""
        await listed_session(application, session_id)
        row = await application.store.delegations.get(session_id, delegation_id)
        held = await in_use(application.store, [row])
        return Delegation.model_validate(delegation_dict(row, held, whole=True))

    @router.post("/{delegation_id}/resume", status_code=202)
    async def resume(session_id: str, delegation_id: str, next_step: Instruction) -> Accepted:
        """Go on with its work without the session's own agent; a new delegation of its chain begins."""
        await listed_session(application, session_id)
        await application.store.delegations.get(session_id, delegation_id)
        after = (await application.live.open(session_id)).session.log.newest
        await application.live.resume(session_id, delegation_id, next_step.instruction)
        return Accepted(session_id=session_id, after=after)

    @router.post("/{delegation_id}/stop", status_code=204)
    async def stop(session_id: str, delegation_id: str) -> None:
        """Stop one delegation; nothing happens when it has ended."""
        listed = await listed_session(application, session_id)
        live = application.live.get(session_id)
        # One that has just begun may not be stored yet.
        if live is None or live.session.delegations.records.get(delegation_id) is None:
            await application.store.delegations.get(session_id, delegation_id)
        require_here(listed)
        await application.live.stop(session_id, delegation_id)

    return router
