"""One way to SQLite and PostgreSQL: whole transactions in, values or one kind of error out.

SQLite runs in WAL mode with one writer: transactions of this process queue behind a lock, those of other
processes wait for `lock_wait_ms`. Commits are synchronous (FULL): a power cut loses nothing that was
committed, like PostgreSQL by default. NORMAL would be enough for a killed process and saves one sync a
commit (0.2 ms on our machine, some milliseconds on a slow disk), which is nothing beside a model request.

A transaction runs in a thread from begin to commit, and the event loop waits for it once. An asynchronous
driver goes to its thread and back for every statement, which costs more than the statements of a small one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeAlias, TypeVar

from sqlalchemy import Connection, Engine, Row, Table, case, create_engine, event, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.store.columns import mask_with
from sidequest.store.failures import Place, store_error
from sidequest.store.locations import Location
from sidequest.store.masking import Masker, storable
from sidequest.store.tables import leases, sessions
from sidequest.store.unfinished import PAUSE_S, is_whole

Result = TypeVar("Result")
Work = Callable[[Connection], Result]
"""A transaction: called once, in a thread, with a connection; committed when it returns, undone when it
raises."""

AnyRow: TypeAlias = Row[*tuple[Any, ...]]

LOCK_WAIT_MS = 5_000
CONNECT_TIMEOUT_S = 10
_NETWORK = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}
"""When a server counts as gone that is not heard of any more; without, a thread would wait for hours."""
_MERGED_PAGES = 500
"""Pages of the search index that are merged in one transaction."""
_KEPT_OPEN, _MORE_AT_ONCE = 5, 10
"""Connections: as many threads, so that none waits for one."""


def _nothing(result: object) -> None:
    """Do nothing after a commit."""


class Database:
    """Runs transactions. Not shared between event loops; `close` it."""

    def __init__(self, location: Location, masker: Masker, lock_wait_ms: int = LOCK_WAIT_MS) -> None:
        self.masker = masker
        self.place: Place = location.place
        self.is_sqlite = location.is_sqlite
        self.held: dict[str, str] = {}
        """Sessions whose lease was taken through this store, and the holder's id."""
        self._engine = _engine(location, masker, lock_wait_ms)
        reading: dict[str, Any] = {"sidequest_begin": "BEGIN"}
        if not self.is_sqlite:
            reading |= {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        self._reader = self._engine.execution_options(**reading)
        self._writer = self._engine.execution_options(sidequest_begin="BEGIN IMMEDIATE")
        self._threads = ThreadPoolExecutor(_KEPT_OPEN + _MORE_AT_ONCE, "store")
        self._one_writer = asyncio.Lock()
        self._writes: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def close(self) -> None:
        """Close every connection; transactions that run or wait for their turn are finished first."""
        self._closed = True
        while waiting := [job for job in self._writes if not job.done()]:
            await asyncio.wait(waiting)
        await _to_its_end(asyncio.ensure_future(asyncio.to_thread(self._end)))

    def _end(self) -> None:
        self._threads.shutdown()
        self._engine.dispose()

    async def read(self, work: Work[Result]) -> Result:
        """Run `work` on one snapshot of the database.

        Raises:
            SidequestError: the database refused; see `store_error`.
        """
        self._refuse_when_closed()
        return await self._answer(self._start(self._reader, work))

    async def write(self, work: Work[Result], then: Callable[[Result], None] = _nothing) -> Result:
        """Run `work` as one transaction: all of it is stored, or nothing.

        `then` is called with its result once it is committed, on SQLite before the next write of this
        process, also when the caller was cancelled. A caller that is cancelled meanwhile is told so after the
        transaction has ended, never in its middle.

        Raises:
            SidequestError: the database refused; nothing of `work` is stored.
        """
        self._refuse_when_closed()
        job = asyncio.create_task(self._write(work, then))
        self._writes.add(job)
        job.add_done_callback(self._writes.discard)
        return await _to_its_end(job)

    async def write_session(
        self,
        session_id: str,
        work: Work[Result],
        *,
        fenced: bool = True,
        then: Callable[[Result], None] = _nothing,
    ) -> Result:
        """Run `work` as one transaction that is alone on the session; `then` as `write` has it.

        `fenced` False is for the lease itself: whose it is is then the question.

        Raises:
            SidequestError: `SESSION_UNKNOWN`; `AGENT_BUSY` when this store held the session's lease and
                another process has taken it over; what `write` raises.
        """

        def guarded(tx: Connection) -> Result:
            self._lock_session(tx, session_id, fenced)
            return work(tx)

        return await self.write(guarded, then)

    def _lock_session(self, tx: Connection, session_id: str, fenced: bool) -> None:
        whole = is_whole(sessions.c.id)
        found = select(sessions.c.id).where(sessions.c.id == session_id, whole).with_for_update(of=sessions)
        if tx.execute(found).one_or_none() is None:
            raise unknown_session(session_id)
        if not fenced or session_id not in self.held:
            return
        # In a statement of its own: what waited for the lock would still see the lease of before.
        query = select(leases.c.holder, leases.c.host, leases.c.pid).where(leases.c.session_id == session_id)
        holder = tx.execute(query).one_or_none()
        mine = self.held.get(session_id)
        if mine is None:  # given back meanwhile
            return
        if holder is None or holder.holder != mine:
            raise SidequestError(
                ErrorCode.AGENT_BUSY,
                f"Session {session_id} was taken over by another process while this one did not answer.",
                "Open the session again when the other process has ended.",
                host=holder and holder.host,
                pid=holder and holder.pid,
            )

    async def let_others_write(self) -> None:
        """Wait between two transactions that belong together as long as others need to take their turn."""
        await asyncio.sleep(PAUSE_S if self.is_sqlite else 0)

    async def forget_removed(self) -> None:
        """Take the words of removed messages out of the files of SQLite; a server sees to that by itself.

        The search index keeps them until its pieces are merged, the log of changes until it is written back.
        """
        if not self.is_sqlite:
            return
        pages = -_MERGED_PAGES
        while await self.write(partial(_merge_index, pages=pages)):
            pages = _MERGED_PAGES
            await self.let_others_write()
        self._refuse_when_closed()
        work = asyncio.get_running_loop().run_in_executor(self._threads, self._write_back)
        await self._answer(_to_its_end(work))

    def _write_back(self) -> None:
        connection = self._engine.raw_connection()
        try:
            cursor = connection.cursor()
            # Who reads at this moment is not waited for: others would have to wait too.
            waited = cursor.execute("PRAGMA busy_timeout").fetchone()[0]
            cursor.execute("PRAGMA busy_timeout = 0")
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            cursor.execute(f"PRAGMA busy_timeout = {waited}")
            cursor.close()
        finally:
            connection.close()

    async def _write(self, work: Work[Result], then: Callable[[Result], None]) -> Result:
        if not self.is_sqlite:
            return await self._commit(work, then)
        async with self._one_writer:
            return await self._commit(work, then)

    async def _commit(self, work: Work[Result], then: Callable[[Result], None]) -> Result:
        # Also when the loop ends and cancels the very task of the write: its caller waits for it.
        return await self._answer(_to_its_end(self._start(self._writer, work, then)))

    def _start(
        self, engine: Engine, work: Work[Result], then: Callable[[Result], None] = _nothing
    ) -> asyncio.Future[Result]:
        def transact() -> Result:
            try:
                with engine.begin() as connection:
                    result = work(connection)
            except StopIteration as error:  # no future can carry it: whoever waits would wait for ever
                raise RuntimeError("a transaction raised StopIteration") from error
            then(result)
            return result

        return asyncio.get_running_loop().run_in_executor(self._threads, transact)

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise SidequestError(
                ErrorCode.STORE_FAILED, f"The store at {self.place.name} is closed.", "Open it again."
            )

    async def _answer(self, transaction: Awaitable[Result]) -> Result:
        try:
            return await transaction
        except (SQLAlchemyError, OSError) as error:
            raise store_error(error, self.place) from error


async def _to_its_end(job: asyncio.Future[Result]) -> Result:
    """Return what `job` gives; whoever is cancelled meanwhile is told so when it has ended."""
    try:
        return await asyncio.shield(job)
    except asyncio.CancelledError as cancelled:
        while not job.done():
            try:
                await asyncio.wait([job])
            except asyncio.CancelledError:
                continue
        failure = None if job.cancelled() else job.exception()
        if failure is not None:
            raise cancelled from failure
        raise


def upsert(tx: Connection, table: Table, key: dict[str, Any], values: dict[str, Any]) -> None:
    """Insert a row with the primary key `key`, or set `values` on the one that has it."""
    insert = sqlite.insert if tx.dialect.name == "sqlite" else postgresql.insert
    statement = insert(table).values(**key, **values)
    tx.execute(statement.on_conflict_do_update(index_elements=list(key), set_=values))


def touch(tx: Connection, session_id: str, at_ms: int) -> None:
    """Move the session's time of the last change forward to `at_ms`, never back."""
    known = sessions.c.updated_at_ms
    newer = case((known < at_ms, at_ms), else_=known)
    tx.execute(update(sessions).where(sessions.c.id == session_id).values(updated_at_ms=newer))


def unknown_session(session_id: str) -> SidequestError:
    """Return the error for an id that no session has."""
    return SidequestError(
        ErrorCode.SESSION_UNKNOWN,
        f"There is no session {session_id}.",
        "`sidequest sessions list` shows what there is.",
    )


def _engine(location: Location, masker: Masker, lock_wait_ms: int) -> Engine:
    try:
        if location.is_sqlite:
            engine = create_engine(
                location.url,
                pool_size=_KEPT_OPEN,
                max_overflow=_MORE_AT_ONCE,
                connect_args={"timeout": lock_wait_ms / 1000},
            )
            event.listen(engine, "connect", _prepare_sqlite)
        else:
            given_network = {
                name: value for name, value in _NETWORK.items() if name not in location.url.query
            }
            options = f"-c lock_timeout={lock_wait_ms} -c client_encoding=UTF8"
            given = location.url.query.get("options")
            engine = create_engine(
                location.url,
                pool_size=_KEPT_OPEN,
                max_overflow=_MORE_AT_ONCE,
                pool_pre_ping=True,
                connect_args={
                    "connect_timeout": CONNECT_TIMEOUT_S,
                    "options": f"{given} {options}" if given else options,
                    **given_network,
                },
            )
    except ImportError as error:
        extra = "app" if location.is_sqlite else "postgres"
        raise SidequestError(
            ErrorCode.MISSING_EXTRA,
            f"The driver for the store at {location.place.name} is not installed.",
            f"Install it with: pip install 'sidequest[{extra}]'.",
        ) from error

    mask_with(engine, masker)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        if location.is_sqlite:
            connection.exec_driver_sql(connection.get_execution_options().get("sidequest_begin", "BEGIN"))

    @event.listens_for(engine, "before_cursor_execute", retval=True)
    def clean(
        connection: Connection, cursor: Any, statement: str, parameters: Any, context: Any, many: bool
    ) -> tuple[str, Any]:
        return statement, _storable(parameters)

    return engine


def _storable(parameters: Any) -> Any:
    """Return the parameters of a statement with what no database holds spelled otherwise, in every text."""
    if isinstance(parameters, str):
        return storable(parameters)
    if isinstance(parameters, Mapping):
        return {name: _storable(value) for name, value in parameters.items()}
    if isinstance(parameters, tuple):
        return tuple(map(_storable, parameters))
    if isinstance(parameters, list):
        return [_storable(value) for value in parameters]
    return parameters


def _merge_index(tx: Connection, pages: int) -> bool:
    """Merge pieces of the search index and say whether there is more to do; a negative number begins it."""
    driver: Any = tx.connection.driver_connection
    before = driver.total_changes
    tx.exec_driver_sql("INSERT INTO search_index (search_index, rank) VALUES ('merge', ?)", (pages,))
    return bool(driver.total_changes - before >= 2)


def _prepare_sqlite(connection: Any, record: object) -> None:
    # The driver would begin transactions on its own and only before some statements: we say when.
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "secure_delete=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
