"""The sessions that this process works on: opened when something is to be done, closed when nothing is."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.events import Notice
from sidequest.core.permissions import Mode
from sidequest.runtime.permissions import Questions
from sidequest.surfaces.app.resuming import require_resumable
from sidequest.surfaces.assemble import (
    Parts,
    default_notice,
    definition_notices,
    knowing_local_windows,
    open_session,
    pins_of,
    session_options,
)
from sidequest.surfaces.kept import Kept
from sidequest.surfaces.storing import folder_of, now_ms

if TYPE_CHECKING:
    from sidequest.core.compaction import CompactionOutcome
    from sidequest.core.outcome import Outcome
    from sidequest.runtime.session import Session, TurnResult
    from sidequest.store import SessionRow, Store

IDLE_S = 60.0
"""How long a session stays open with nothing to do and nobody looking; then another process may have it."""
_TRUST = "trust the folder on the page Subagents of a server that was started in it"
_RESTORE = "Put it back, or begin another session."


@dataclass
class Live:
    """One session of this process, and the work that was begun here."""

    session: Session
    parts: Parts
    """What its newest turn was given: settings, definitions, trust."""
    work: asyncio.Task[Any] | None = None
    """The turn, compaction or resumed delegation that runs; None when it is idle."""
    failure: SidequestError | None = None
    """Why the newest work could not begin or could not be stored; None when it could."""
    watchers: int = 0
    """How many pages show it."""
    used_s: float = 0.0
    """When it was last used, by the event loop's clock."""

    @property
    def id(self) -> str:
        """Id of the session."""
        return self.session.id

    @property
    def busy(self) -> bool:
        """Whether something runs."""
        return self.work is not None and not self.work.done()


@dataclass
class LiveSessions:
    """Opens each session once, however many pages ask for it, and gives it back when it is idle."""

    store: Store
    idle_s: float = IDLE_S
    assemble: Callable[[Path | None], Parts] = field(default=lambda root: _not_assembled())
    """Reads settings and definitions for a folder."""
    failed_listeners: list[tuple[Callable[[], None], Exception]] = field(default_factory=list, init=False)
    """Listeners that raised, with what they raised; they are told nothing more."""
    _open: dict[str, Live] = field(default_factory=dict, init=False)
    _modes: dict[str, Mode] = field(default_factory=dict, init=False)
    """Permission modes that were chosen for sessions; the others have that of the settings."""
    _opening: dict[str, asyncio.Lock] = field(default_factory=dict, init=False)
    _sweeping: asyncio.Task[None] | None = field(default=None, init=False)
    _changed: set[Callable[[], None]] = field(default_factory=set, init=False)

    def get(self, session_id: str) -> Live | None:
        """Return the session when this process has it open, else None."""
        return self._open.get(session_id)

    @property
    def all(self) -> list[Live]:
        """Every open session."""
        return list(self._open.values())

    def subscribe(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` when a session is opened, closed, begins or ends work, or a question comes or goes.

        The returned function ends that.
        """
        self._changed.add(changed)
        return lambda: self._changed.discard(changed)

    async def create(
        self, *, root: Path | None = None, model: str | None = None, mode: Mode | None = None, title: str = ""
    ) -> Live:
        """Begin a session in `root` (None: the folder of the application) and keep it open.

        Raises:
            SidequestError: the folder is not there, the model cannot be used, the store failed.
        """
        parts = self.assemble(root)
        session = await open_session(parts, model=model, context=None, stream=True, mode=mode)
        if mode is not None:
            self._modes[session.id] = mode
        return await self._attached(session, Kept(self.store), parts, model, title)

    async def open(self, session_id: str) -> Live:
        """Return the session `session_id`, opened in its own folder when it is not open yet.

        Raises:
            SidequestError: `SESSION_UNKNOWN`; `AGENT_BUSY` when another process works on it; `USAGE` when
                its folder is gone.
        """
        if session_id not in self._open:
            # It may be the beginning of an id.
            session_id = (await self.store.sessions.get(session_id)).id
        async with self._lock(session_id):
            known = self._open.get(session_id)
            if known is not None:
                return known
            row = await self.store.sessions.get(session_id)
            kept = Kept(self.store, row)
            parts = self.assemble(folder_of(row, _RESTORE))
            session = await open_session(
                parts,
                model=kept.model(parts, None),
                context=None,
                stream=True,
                mode=self._modes.get(session_id),
            )
            return await self._attached(session, kept, parts, row.model, "")

    async def _attached(
        self, session: Session, kept: Kept, parts: Parts, model: str | None, title: str
    ) -> Live:
        # A key may have been set since the store was opened.
        self.store.mask(parts.registry.secrets())
        try:
            await kept.attach(session, title)
        except BaseException:
            await session.close()
            raise
        first = default_notice(parts, model, session.models.session)
        for text in (*([first] if first else ()), *kept.notices[1:], *_notices(parts)):
            session.log.emit(Notice(None, text))
        live = Live(session, parts, used_s=asyncio.get_running_loop().time())
        self._open[session.id] = live
        session.rights.questions.surface(self._tell)
        if self._sweeping is None:
            self._sweeping = asyncio.create_task(self._sweep())
        self._tell()
        return live

    async def prompt(self, session_id: str, text: str) -> Live:
        """Give the session a message; the turn goes on in the background, and the events tell of it.

        Raises:
            SidequestError: `USAGE` for an empty text, `AGENT_BUSY` while it works, what `open` raises, also
                for a session that is open: settings and definitions are read for each turn.
        """
        if not text.strip():
            raise SidequestError(ErrorCode.USAGE, "The prompt is empty.", "Write what you want to be done.")
        live = await self._renewed(session_id)
        await self._begin(live, live.session.prompt(text))
        return live

    async def compact(self, session_id: str, focus: str | None = None) -> CompactionOutcome:
        """Summarise the conversation now; `focus` says what the summary should be careful about.

        Raises:
            SidequestError: as `Session.compact` and `open`.
        """
        live = await self._idle(session_id)
        work: asyncio.Task[CompactionOutcome] = await self._begin(live, live.session.compact(focus))
        return await asyncio.shield(work)

    async def resume(self, session_id: str, delegation_id: str, instruction: str) -> Live:
        """Go on with the work of a delegation in the background, without the parent agent.

        Raises:
            SidequestError: `USAGE` for an empty instruction, `DELEGATION_UNKNOWN`, why it cannot be gone on
                with, what `prompt` raises.
        """
        if not instruction.strip():
            raise SidequestError(
                ErrorCode.USAGE, "The instruction is empty.", "Write what the subagent should do next."
            )
        row = await self.store.delegations.get(session_id, delegation_id)
        live = await self.open(session_id)
        await live.session.delegations.prepare(row.id)
        live = await self._renewed(session_id)
        require_resumable(live.session, row.agent, row.id, instruction)
        await self._begin(live, live.session.delegate(row.agent, instruction, resume=row.id))
        return live

    async def choose_model(self, session_id: str, model: str) -> None:
        """Let the session go on with another model from its next turn on.

        What was allowed for the session is asked for again then.

        Raises:
            SidequestError: `AGENT_BUSY` while it works; the model cannot be used; `USAGE` when the folder of
                the session is gone.
        """
        row = await self.store.sessions.get(session_id)
        binding = self.assemble(folder_of(row, _RESTORE)).registry.resolve(model)
        binding.require_ready()
        live = self._open.get(row.id)
        if live is not None and live.busy:
            raise _busy()
        await self.release(row.id)
        for grant in await self.store.grants.list(row.id):
            await self.store.grants.remove(row.id, grant.rule)
        await self.store.sessions.touch(row.id, now_ms(), model=binding.key)
        self._tell()

    def choose_mode(self, session_id: str, mode: Mode) -> None:
        """Let the session go on with another permission mode, for as long as this process serves.

        Raises:
            SidequestError: `AGENT_BUSY` while it works.
        """
        live = self._open.get(session_id)
        if live is not None:
            if live.busy:
                raise _busy()
            live.session.rights.mode = mode
        self._modes[session_id] = mode
        self._tell()

    def mode_of(self, session_id: str) -> Mode | None:
        """Return the permission mode that was chosen for a session; None is that of the settings."""
        live = self._open.get(session_id)
        return live.session.rights.mode if live is not None else self._modes.get(session_id)

    async def stop(self, session_id: str, delegation_id: str | None = None) -> None:
        """Stop the turn with all its delegations, or one delegation; nothing when none of it runs here."""
        live = self._open.get(session_id)
        if live is None:
            return
        if delegation_id is None:
            await live.session.stop()
        elif (record := live.session.delegations.records.get(delegation_id)) is not None:
            await live.session.delegations.stop([record])

    def questions(self) -> list[tuple[Live, Questions]]:
        """Return the queues in which somebody waits for an answer."""
        return [
            (live, live.session.rights.questions)
            for live in self._open.values()
            if len(live.session.rights.questions)
        ]

    def watch(self, session_id: str) -> Callable[[], None]:
        """Keep the session open while a page shows it; the returned function ends that."""
        live = self._open.get(session_id)
        if live is None:
            return lambda: None
        live.watchers += 1

        def leave() -> None:
            live.watchers -= 1
            live.used_s = asyncio.get_running_loop().time()

        return leave

    async def release(self, session_id: str) -> None:
        """Stop what the session does and let it go; another process may have it."""
        await self._release(session_id, lambda live: True)

    async def _release(self, session_id: str, may_go: Callable[[Live], bool]) -> None:
        # Who opens it meanwhile waits until it is free.
        async with self._lock(session_id):
            live = self._open.get(session_id)
            if live is not None and may_go(live):
                del self._open[session_id]
                await live.session.close()
                self._tell()

    async def close(self) -> None:
        """Stop everything, store the ends, and close all sessions."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        for session_id in list(self._open):
            await self.release(session_id)

    def _lock(self, session_id: str) -> asyncio.Lock:
        return self._opening.setdefault(session_id, asyncio.Lock())

    async def _idle(self, session_id: str) -> Live:
        live = await self.open(session_id)
        if live.busy:
            raise _busy()
        return live

    async def _renewed(self, session_id: str) -> Live:
        """Return an idle session with the settings, definitions and trust of this moment (specification 4.1).

        No await may stand between this and the beginning of the work.
        """
        while True:
            live = await self._idle(session_id)
            async with self._lock(live.id):  # nobody gives it back meanwhile
                if self._open.get(live.id) is live:
                    await self._renew(live)
                    return live

    async def _renew(self, live: Live) -> None:
        row = await self.store.sessions.get(live.id)
        before, parts = live.parts, self.assemble(folder_of(row, _RESTORE))
        options = session_options(parts, mode=self._modes.get(live.id))
        registry = None
        # A server is asked for its windows only when a table of the models changed.
        if parts.settings.models != before.settings.models:
            model = live.session.models.session.key
            registry = await knowing_local_windows(parts.registry, model, pins_of(parts.catalog))
        if live.busy:
            raise _busy()
        live.session.renew(options, parts.catalog, registry)
        live.parts = parts
        self.store.mask(parts.registry.secrets())
        said = set(_notices(before))
        for text in _notices(parts):
            if text not in said:
                live.session.log.emit(Notice(None, text))

    async def _begin(self, live: Live, work: Awaitable[Any]) -> asyncio.Task[Any]:
        live.failure = None
        live.work = asyncio.create_task(_awaited(work))
        live.work.add_done_callback(lambda task: self._ended(live, task))
        self._tell()
        await asyncio.sleep(0)  # a stop that comes next finds it at work
        return live.work

    def _ended(self, live: Live, task: asyncio.Task[Outcome | TurnResult]) -> None:
        live.used_s = task.get_loop().time()
        error = None if task.cancelled() else task.exception()
        if isinstance(error, SidequestError):
            live.failure = error
            live.session.log.emit(Notice(None, f"{error.cause} {error.remedy}"))
        self._tell()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self.idle_s / 4)
            for live in self.all:
                await self._release(live.id, self._is_left)

    def _is_left(self, live: Live) -> bool:
        unused_s = asyncio.get_running_loop().time() - live.used_s
        return not live.busy and not live.watchers and unused_s >= self.idle_s

    def _tell(self) -> None:
        for changed in tuple(self._changed):
            try:
                changed()
            except Exception as error:  # noqa: BLE001 - a page that fails must not end what it shows
                self.failed_listeners.append((changed, error))
                self._changed.discard(changed)


def _notices(parts: Parts) -> tuple[str, ...]:
    """Return what a person should know of trust and definitions."""
    return (*filter(None, [parts.trust_notice(_TRUST)]), *definition_notices(parts.catalog))


def _busy() -> SidequestError:
    return SidequestError(ErrorCode.AGENT_BUSY, "This session is working already.", "Wait for it or stop it.")


async def _awaited(work: Awaitable[Any]) -> Any:
    return await work


def _not_assembled() -> Parts:
    raise RuntimeError("no application owns these sessions")


async def forked(store: Store, session_id: str, through: str | None = None) -> SessionRow:
    """Copy a stored session; `through` is the newest message that comes along, None copies all of it.

    Raises:
        SidequestError: `SESSION_UNKNOWN`, `MESSAGE_UNKNOWN`.
    """
    return await store.sessions.fork(session_id, uuid.uuid4().hex, through, at_ms=now_ms())
