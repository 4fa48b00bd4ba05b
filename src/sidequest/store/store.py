"""The store: everything that outlives the process, in one database, behind one object."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.store.database import LOCK_WAIT_MS, Database
from sidequest.store.events import Events
from sidequest.store.failures import store_error
from sidequest.store.leases import Leases
from sidequest.store.locations import Location, locate, prepare_file
from sidequest.store.masking import Masker, secrets_of, worth_masking
from sidequest.store.rows import Problem
from sidequest.store.schema import bring_up_to_date, refuse_foreign_file
from sidequest.store.search import Search
from sidequest.store.sessions import Sessions
from sidequest.store.state import Grants, SettingsState
from sidequest.store.whole_results import WholeResults

if TYPE_CHECKING:
    from types import TracebackType

    from sidequest.store.checkpoints import Checkpoints
    from sidequest.store.delegations import DelegationRows
    from sidequest.store.transcript import Transcript

_POLL_S = 0.02


class Store:
    """Sessions, transcripts, delegations, checkpoints and events in SQLite or PostgreSQL.

    Open it with `Store.open`, use it as an async context manager, from one event loop. Every method that
    writes is one transaction, and has it committed when it returns.
    """

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sweeping: asyncio.Task[None] | None = None
        self.sessions = Sessions(database)
        self.leases = Leases(database)
        self.events = Events(database)
        self.search = Search(database)
        self.grants = Grants(database)
        self.settings = SettingsState(database)
        self.whole_results = WholeResults(database)

    @classmethod
    async def open(
        cls,
        url: str | None = None,
        *,
        env: Mapping[str, str],
        secrets: Iterable[str] = (),
        lock_wait_ms: int = LOCK_WAIT_MS,
    ) -> Store:
        """Open a store, make it when it is not there, and bring its schema up to date.

        `url` is a path, `sqlite:///PATH` or `postgresql://USER@HOST/DATABASE`; None means
        `$XDG_DATA_HOME/sidequest/sidequest.db`, else the same below `~/.local/share`. `env` is the
        environment: its values named `*_TOKEN`, `*_KEY` and `*_SECRET` are masked in all content that is
        written, like `secrets`, unless they are short or ordinary words. `lock_wait_ms` is how long a write
        waits for another program's, in ms.

        Raises:
            SidequestError: `SETTINGS_INVALID` for an address that is none, `MISSING_EXTRA` without the
                driver, `STORE_NEWER`, `STORE_UNREACHABLE`, `STORE_READ_ONLY`, `STORE_FULL`,
                `STORE_LOCKED`, `STORE_DAMAGED`, `STORE_FAILED`.
        """
        location = locate(url, env)
        if location.place.file is not None:
            try:
                prepare_file(location.place.file)
            except OSError as error:
                raise store_error(error, location.place) from error
            await asyncio.to_thread(refuse_foreign_file, location.place.file)
        password = location.url.password
        masker = Masker(worth_masking([*secrets, *secrets_of(env), *([str(password)] if password else [])]))
        database = Database(location, masker, lock_wait_ms)
        try:
            await _prepare(database, location, lock_wait_ms)
        except BaseException:
            await database.close()
            raise
        store = cls(database)
        await store._sweep()
        return store

    async def _sweep(self) -> None:
        """Begin to remove what killed processes left behind; the next that opens the store goes on."""
        with suppress(SidequestError):
            left = await self.sessions.left_behind(time.time_ns() // 1_000_000)
            if left:
                self._sweeping = asyncio.create_task(self._swept(left))

    async def _swept(self, session_ids: Sequence[str]) -> None:
        with suppress(SidequestError):
            await self.sessions.sweep(session_ids)

    def mask(self, secrets: Iterable[str]) -> None:
        """Mask `secrets` too in everything that is written from now on, such as a key that was just set."""
        self._db.masker.learn(worth_masking(secrets))

    async def close(self) -> None:
        """Close every connection; a transaction that runs is finished first."""
        if self._sweeping is not None and not self._sweeping.done():
            self._sweeping.cancel()
            await asyncio.wait([self._sweeping])
        await self._db.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def name(self) -> str:
        """Where it lies, for readers: a path, or an address without its password."""
        return self._db.place.name

    def masked(self, value: Any) -> Any:
        """Return plain values as they would be stored: known secrets in their content are masked."""
        return self._db.masker.values(value)

    def safe_length(self, text: str) -> int:
        """Return how much of a text that still grows may be told: no known secret is cut in two there."""
        return self._db.masker.safe_length(text)

    @cached_property
    def transcript(self) -> Transcript:
        """Messages and tool results. Loads pydantic-ai, which listing sessions does without."""
        from sidequest.store.transcript import Transcript

        return Transcript(self._db)

    @cached_property
    def delegations(self) -> DelegationRows:
        """Delegations and their chains."""
        from sidequest.store.delegations import DelegationRows

        return DelegationRows(self._db)

    @cached_property
    def checkpoints(self) -> Checkpoints:
        """The parent's compactions."""
        from sidequest.store.checkpoints import Checkpoints

        return Checkpoints(self._db)

    async def verify(self, session_id: str | None = None) -> list[Problem]:
        """Check everything that can be derived again, of one session or of all; empty when all is well.

        Raises:
            SidequestError: `SESSION_UNKNOWN`, or the store failed.
        """
        from sidequest.store.verify import problems_of

        if session_id is not None:
            session_id = (await self.sessions.get(session_id)).id
        return await self._db.read(lambda tx: list(problems_of(tx, session_id)))


async def _prepare(database: Database, location: Location, lock_wait_ms: int) -> None:
    """Bring the schema up to date; SQLite refuses at once, without waiting, while a file turns to WAL."""
    deadline = time.monotonic() + lock_wait_ms / 1000
    while True:
        try:
            await bring_up_to_date(database)
            return
        except SidequestError as error:
            if error.code is not ErrorCode.STORE_LOCKED or time.monotonic() >= deadline:
                raise
        await asyncio.sleep(_POLL_S)
