"""Sessions over HTTP: list, begin, read, rename, delete, fork, compact, stop, and give them prompts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query

from sidequest.core.compaction import Compacted as CompactedHistory
from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.surfaces.api.shapes import (
    MAX_NUMBER,
    Accepted,
    Compacted,
    Focus,
    ForkPoint,
    NewSession,
    Prompt,
    Session,
    SessionChange,
    SessionList,
    Transcript,
)
from sidequest.surfaces.app.deleting import delete_session
from sidequest.surfaces.app.listing import Activity, Listed, list_sessions, listed_session
from sidequest.surfaces.app.live import forked
from sidequest.surfaces.app.transcript_pages import DEFAULT_ROWS, transcript_page
from sidequest.surfaces.stored_rows import session_dict
from sidequest.surfaces.text import one_line
from sidequest.surfaces.transcripts import entry_dict

if TYPE_CHECKING:
    from sidequest.surfaces.app.application import Application

MAX_LISTED = 200
MAX_ROWS = 500


def sessions_router(application: Application) -> APIRouter:
    """Return the operations on sessions."""
    router = APIRouter(tags=["sessions"])

    @router.get("/sessions")
    async def list_all(
        search: Annotated[str, Query(max_length=1000, description="Words of a title or a message.")] = "",
        limit: Annotated[int, Query(ge=1, le=MAX_LISTED)] = 50,
        offset: Annotated[int, Query(ge=0, le=MAX_NUMBER)] = 0,
    ) -> SessionList:
        """The sessions, the one that was used last first."""
        found = await list_sessions(application, search, limit=limit, offset=offset)
        return SessionList(
            sessions=[_shape(application, listed) for listed in found.sessions], more=found.more
        )

    @router.post("/sessions", status_code=201)
    async def create(new: NewSession) -> Session:
        """Begin a session."""
        live = await application.live.create(
            root=None if new.root is None else Path(new.root),
            model=new.model,
            mode=new.permission_mode,
            title=one_line(new.title),
        )
        return _shape(application, await listed_session(application, live.id))

    @router.get("/sessions/{session_id}")
    async def read(session_id: str) -> Session:
        """One session."""
        return _shape(application, await listed_session(application, session_id))

    @router.get("/sessions/{session_id}/transcript")
    async def read_transcript(
        session_id: str,
        before: Annotated[int | None, Query(ge=1, le=MAX_NUMBER, description="A position.")] = None,
        limit: Annotated[int, Query(ge=1, le=MAX_ROWS, description="Messages at most.")] = DEFAULT_ROWS,
    ) -> Transcript:
        """What was said, the newest messages first asked for, in pages."""
        await listed_session(application, session_id)
        page = await transcript_page(application, session_id, before=before, limit=limit)
        entries = [entry_dict(entry, page.held) for entry in page.entries]
        return Transcript.model_validate({"entries": entries, "before": page.before})

    @router.patch("/sessions/{session_id}")
    async def change(session_id: str, change: SessionChange) -> Session:
        """Give a session another title, model or permission mode; the last two between turns only."""
        title = one_line(change.title or "")
        if change.title is not None and not title:
            raise SidequestError(ErrorCode.USAGE, "The title is empty.", "Write what it is to be called.")
        listed = await listed_session(application, session_id)
        if change.model is not None or change.permission_mode is not None:
            _require_idle(listed)
        if change.model is not None:
            await application.live.choose_model(session_id, change.model)
        if change.permission_mode is not None:
            application.live.choose_mode(session_id, change.permission_mode)
        if title:
            await application.store.sessions.rename(session_id, title)
        return _shape(application, await listed_session(application, session_id))

    @router.delete("/sessions/{session_id}", status_code=204)
    async def delete(session_id: str) -> None:
        """Stop what the session does here, and remove it with all that belongs to it."""
        await listed_session(application, session_id)
        await delete_session(application, session_id)

    @router.post("/sessions/{session_id}/fork", status_code=201)
    async def fork(session_id: str, point: ForkPoint) -> Session:
        """Copy a session, up to one of its messages or whole."""
        await listed_session(application, session_id)
        copy = await forked(application.store, session_id, point.through)
        return _shape(application, await listed_session(application, copy.id))

    @router.post("/sessions/{session_id}/prompts", status_code=202)
    async def prompt(session_id: str, message: Prompt) -> Accepted:
        """Give the session's own agent a message; its work goes on behind this answer."""
        await listed_session(application, session_id)
        after = (await application.live.open(session_id)).session.log.newest
        await application.live.prompt(session_id, message.text)
        return Accepted(session_id=session_id, after=after)

    @router.post("/sessions/{session_id}/compact")
    async def compact(session_id: str, focus: Focus) -> Compacted:
        """Summarise the conversation now; the answer comes when it is done."""
        await listed_session(application, session_id)
        outcome = await application.live.compact(session_id, focus.focus)
        assert isinstance(outcome, CompactedHistory), "Session.compact raises otherwise"
        return Compacted(
            tokens_before=outcome.tokens_before, tokens_after=outcome.tokens_after, summary=outcome.summary
        )

    @router.post("/sessions/{session_id}/stop", status_code=204)
    async def stop(session_id: str) -> None:
        """Stop the turn with all its delegations; nothing happens when nothing runs."""
        require_here(await listed_session(application, session_id))
        await application.live.stop(session_id)

    return router


def require_here(listed: Listed) -> None:
    """Refuse to stop what this process does not run.

    Raises:
        SidequestError: `AGENT_BUSY` when another process works on the session.
    """
    if listed.activity is Activity.ELSEWHERE:
        raise SidequestError(
            ErrorCode.AGENT_BUSY,
            "Another process works on this session.",
            "Stop it where it runs, or wait until it has ended.",
        )


def _require_idle(listed: Listed) -> None:
    """Refuse to change what a turn works with.

    Raises:
        SidequestError: `AGENT_BUSY` while the session works, here or in another process.
    """
    if listed.activity is not Activity.IDLE:
        raise SidequestError(
            ErrorCode.AGENT_BUSY, "This session is working.", "Wait until its turn has ended, or stop it."
        )


def _shape(application: Application, listed: Listed) -> Session:
    mode = application.live.mode_of(listed.row.id)
    return Session.model_validate(
        {**session_dict(listed.row), "permissionMode": mode, "activity": listed.activity}
    )
