"""A run that is stored: what it goes on with, on which model, with which rights, and whether it was kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.outcome import Status
from sidequest.surfaces.assemble import Parts, Place
from sidequest.surfaces.storing import (
    Keeping,
    folder_of,
    newest_of,
    now_ms,
    open_to_keep,
)
from sidequest.surfaces.text import one_line, short_id, some

if TYPE_CHECKING:
    from sidequest.runtime.session import Session
    from sidequest.store import Chain, SessionRow, Store

_TITLE_CHARS = 80


@dataclass
class Kept:
    """The store of a run, and the session and the delegation that it goes on with."""

    store: Store
    row: SessionRow | None = None
    """The session that is continued, None for a new one."""
    chain: Chain | None = None
    """The delegations that are gone on with, None when there are none."""
    notices: list[str] = field(default_factory=list)
    """What the person should be told when the work begins."""
    session_id: str | None = None
    """Id of the session that is stored; None before it is attached, and when nothing of it was kept."""

    def place(self, place: Place, *, follow: bool) -> Place:
        """Return where to work: with `follow` the folder of the session that is continued, else `place`.

        Raises:
            SidequestError: `USAGE` when that folder is gone.
        """
        if self.row is None or not follow:
            return place
        remedy = (
            "Put it back, or name another one with --cwd."
            if self.chain is None
            else f"Put it back, or delegate the work anew: `sidequest delegate {self.chain.agent}`."
        )
        return replace(place, cwd=folder_of(self.row, remedy))

    def model(self, parts: Parts, asked: str | None) -> str | None:
        """Return the model to work on: what was asked for, else what the delegation or the session ran on.

        None means the default. A session whose model cannot be used any more goes on with the default, and
        says so; a delegation is refused.

        Raises:
            SidequestError: the model of a delegation cannot be used.
        """
        if asked is not None:
            return asked
        key = self.chain.latest.model if self.chain else self.row.model if self.row else None
        if key is None:
            return None
        try:
            parts.registry.resolve(key).require_ready()
        except SidequestError as error:
            if self.chain is not None:
                raise SidequestError(
                    error.code,
                    f"The delegation ran on {key}, which cannot be used here: {error.cause}",
                    error.remedy,
                ) from error
            said = f"the session ran on {key}, which cannot be used here, and goes on with the default"
            self.notices.append(f"{said}: {one_line(error.cause)}")
            return None
        return key

    async def attach(self, session: Session, title: str) -> None:
        """Store `session` from now on; a new one gets `title`, empty means that its first prompt names it.

        Raises:
            SidequestError: `AGENT_BUSY` naming who works on it; the store failed.
        """
        self.session_id = session.id if self.row is None else self.row.id
        await session.attach(self.store, self.row.id if self.row else None)
        if self.row is None:
            if title:
                await self.store.sessions.rename(session.id, one_line(title, _TITLE_CHARS))
            return
        key = session.models.session.key
        if self.chain is None and key != self.row.model:
            await self.store.sessions.touch(session.id, now_ms(), model=key)
        self.notices.insert(0, self._going_on(self.row))

    def _going_on(self, row: SessionRow) -> str:
        if self.chain is not None:
            latest = self.chain.latest
            about = f"#{latest.number} {latest.agent} ({short_id(latest.id)})"
            return f"going on with {about} of session {short_id(row.id)}: {one_line(latest.label)}"
        title = f": {one_line(row.title)}" if row.title else ""
        return f"going on with session {short_id(row.id)} ({some(row.messages, 'message')}){title}"

    def require_rights(self, session: Session) -> None:
        """Refuse a delegation whose definition has gained tools since: a resume grants nothing new.

        Raises:
            SidequestError: `SUBAGENT_INVALID`; `SUBAGENT_UNKNOWN` when the definition is gone.
        """
        if self.chain is None:
            return
        latest = self.chain.latest
        try:
            session.delegations.require_nothing_gained(latest.id)
        except SidequestError as error:
            if error.code is ErrorCode.SUBAGENT_INVALID:
                anew = f"`sidequest delegate {latest.agent}`"
                remedy = error.remedy.replace(", with resume left out", f": {anew}")
                raise SidequestError(error.code, error.cause, remedy) from error
            raise SidequestError(
                error.code,
                f"The definition of delegation {short_id(latest.id)} cannot be used: {error.cause}",
                f"Bring the definition of {latest.agent} back, or delegate the work to another subagent.",
            ) from error

    async def forget_empty(self) -> None:
        """Remove a session that was begun here and in which nothing happened."""
        if self.row is not None or self.session_id is None:
            return
        # Who comes here after a failure of the store has told it; an empty session harms nobody.
        with suppress(SidequestError):
            row = await self.store.sessions.get(self.session_id)
            if not row.messages and not row.delegations:
                await self.store.sessions.delete(row.id, now_ms=now_ms())
                self.session_id = None


@asynccontextmanager
async def keeping(keep: Keeping, parts: Parts) -> AsyncIterator[Kept | None]:
    """Open the store of a run and find what it goes on with; None when nothing is to be stored.

    Raises:
        SidequestError: the store cannot be opened; `SESSION_UNKNOWN`; `DELEGATION_UNKNOWN`.
    """
    if keep.off:
        yield None
        return
    async with await open_to_keep(keep.store, parts.settings, parts.registry.secrets()) as store:
        kept = Kept(store)
        if keep.delegation is not None:
            owner = None if keep.session is None else (await store.sessions.get(keep.session)).id
            found = await store.delegations.find(keep.delegation, owner)
            kept.chain = await store.delegations.chain(found.session_id, found.id)
            _require_resumable(kept.chain)
            kept.row = await store.sessions.get(found.session_id)
        elif keep.newest:
            kept.row = await newest_of(store, parts.root)
        elif keep.session is not None:
            kept.row = await store.sessions.get(keep.session)
        try:
            yield kept
        finally:
            await kept.forget_empty()


def _require_resumable(chain: Chain) -> None:
    latest = chain.latest
    why = ""
    if latest.status is Status.STOPPED:
        why = "was stopped, and what was stopped is not gone on with"
    elif latest.status is not Status.RUNNING and not any(run.turns for run in chain.delegations):
        why = "did nothing that could be gone on with"
    if why:
        raise SidequestError(
            ErrorCode.SUBAGENT_INVALID,
            f"Delegation {short_id(latest.id)} of {latest.agent} {why}.",
            f"Delegate the work anew: `sidequest delegate {latest.agent}`.",
        )
