"""Sessions: made, found, listed, renamed, removed, forked and cut."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Select, and_, func, insert, select, true, update

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.store.branches import begin_copy, copy_messages, copy_results, cut_branch, end_copy
from sidequest.store.database import AnyRow, Database, touch, unknown_session
from sidequest.store.leases import busy, clock, lease_of
from sidequest.store.rows import NewSession, SessionRow, Truncated
from sidequest.store.search import Query, indexed, matching
from sidequest.store.tables import delegations, messages, sessions
from sidequest.store.unfinished import ROWS_OF_A_STEP, is_whole, left_behind, mark, remove_some, unmark

DEFAULT_LISTED = 50
SHOWN_CANDIDATES = 5
_NEWEST_FIRST = (sessions.c.updated_at_ms.desc(), sessions.c.created_at_ms.desc(), sessions.c.id)


class Sessions:
    """The sessions of a store."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def create(self, new: NewSession) -> SessionRow:
        """Store a new session without messages.

        Raises:
            SidequestError: `STORE_CONFLICT` when the id is taken.
        """

        def add(tx: Connection) -> SessionRow:
            tx.execute(
                insert(sessions).values(
                    id=new.id,
                    title=new.title,
                    root=new.root,
                    model=new.model,
                    created_at_ms=new.created_at_ms,
                    updated_at_ms=new.created_at_ms,
                )
            )
            return _one(tx, new.id)

        return await self._db.write(add)

    async def get(self, prefix: str) -> SessionRow:
        """Return the session with that id, or the only one whose id begins so.

        Raises:
            SidequestError: `SESSION_UNKNOWN`, also when several ids begin so; it names them.
        """

        def find(tx: Connection) -> SessionRow:
            rows = tx.execute(_rows().where(func.substr(sessions.c.id, 1, len(prefix)) == prefix)).all()
            exact = [row for row in rows if row.id == prefix]
            if exact or (prefix and len(rows) == 1):
                return _as_row((exact or rows)[0])
            if not prefix or not rows:
                raise unknown_session(prefix or "without an id")
            ids = [row.id for row in rows]
            more = f" and {len(ids) - SHOWN_CANDIDATES} more" if len(ids) > SHOWN_CANDIDATES else ""
            raise SidequestError(
                ErrorCode.SESSION_UNKNOWN,
                f"Several sessions begin with {prefix}: {', '.join(ids[:SHOWN_CANDIDATES])}{more}.",
                "Write more of the id.",
            )

        return await self._db.read(find)

    async def list(
        self,
        search: str = "",
        *,
        limit: int = DEFAULT_LISTED,
        offset: int = 0,
        root: str | None = None,
        title: str = "",
    ) -> list[SessionRow]:
        """Return sessions, the one that was used last first, `limit` at most, without the first `offset`.

        With `search` only those whose title, or one of whose messages, holds every word of it; delegates'
        messages count. `root` takes those that work in this folder, as it is stored; None takes all. `title`
        takes those whose title holds this text, whatever the case of its letters; empty takes all.
        """
        query = Query.of(search)
        of_root = and_(is_whole(sessions.c.id), true() if root is None else sessions.c.root == root)

        def find(tx: Connection) -> list[SessionRow]:
            newest_first = _rows().where(of_root).order_by(*_NEWEST_FIRST)
            if not search.strip() and not title:
                return [_as_row(row) for row in tx.execute(newest_first.limit(limit).offset(offset))]
            # Case is a matter of Unicode, of which SQLite knows ASCII alone: titles are compared here.
            titles = select(sessions.c.id, sessions.c.title).where(of_root).order_by(*_NEWEST_FIRST)
            wanted = title.casefold()
            named = [row for row in tx.execute(titles) if wanted in row.title.casefold()]
            found = (row.id for row in named)
            if search.strip():
                if not query.words:
                    return []
                said = _sessions_with(tx, query)
                found = (
                    row.id
                    for row in named
                    if query.appears_in(row.title) or (row.id in said and _said_in(tx, query, row.id))
                )
            chosen = sessions.c.id.in_(list(islice(found, offset, offset + limit)))
            return [_as_row(row) for row in tx.execute(newest_first.where(chosen))]

        return await self._db.read(find)

    async def rename(self, session_id: str, title: str) -> None:
        """Give a session another title.

        Raises:
            SidequestError: `SESSION_UNKNOWN`.
        """
        change = update(sessions).where(sessions.c.id == session_id).values(title=title)
        await self._db.write_session(session_id, lambda tx: tx.execute(change))

    async def touch(
        self, session_id: str, at_ms: int, *, model: str | None = None, root: str | None = None
    ) -> None:
        """Note that a session was used at `at_ms`, with which model and in which folder; None leaves it.

        Raises:
            SidequestError: `SESSION_UNKNOWN`.
        """

        def use(tx: Connection) -> None:
            touch(tx, session_id, at_ms)
            values = {"model": model, "root": root}
            changed = {name: value for name, value in values.items() if value is not None}
            if changed:
                tx.execute(update(sessions).where(sessions.c.id == session_id).values(changed))

        await self._db.write_session(session_id, use)

    async def spend(self, session_id: str, cost_usd: float) -> None:
        """Add what was spent to the account of a session, in US dollars; a fork begins with an empty one.

        Raises:
            SidequestError: `SESSION_UNKNOWN`.
        """
        added = update(sessions).where(sessions.c.id == session_id)
        change = added.values(spent_usd=sessions.c.spent_usd + cost_usd)
        await self._db.write_session(session_id, lambda tx: tx.execute(change))

    async def delete(self, session_id: str, *, now_ms: int) -> None:
        """Remove a session with everything that belongs to it.

        It is gone for every reader at once; its rows go in steps, between which others write. What a failure
        leaves of it, the next that opens the store removes.

        Raises:
            SidequestError: `SESSION_UNKNOWN`; `AGENT_BUSY` when another process works on it.
        """

        def hide(tx: Connection) -> None:
            lease = lease_of(tx, session_id)
            mine = self._db.held.get(session_id)
            if lease is not None and lease.holder.id != mine and lease.expires_at_ms > clock(tx, now_ms):
                raise busy(lease)
            mark(tx, session_id, now_ms, removing=True)

        await self._db.write_session(session_id, hide)
        self._db.held.pop(session_id, None)
        await self._remove(session_id)
        await self._db.forget_removed()

    async def _remove(self, session_id: str) -> None:
        while await self._db.write(lambda tx: remove_some(tx, session_id)):
            await self._db.let_others_write()

    async def left_behind(self, now_ms: int) -> Sequence[str]:
        """Return ids of sessions that a process began to copy or to remove, and left when it ended."""
        return await self._db.read(lambda tx: left_behind(tx, now_ms))

    async def sweep(self, session_ids: Sequence[str]) -> None:
        """Remove what `left_behind` returned."""
        for session_id in session_ids:
            await self._remove(session_id)
        await self._db.forget_removed()

    async def fork(
        self,
        session_id: str,
        new_id: str,
        through_message_id: str | None = None,
        *,
        at_ms: int,
        title: str | None = None,
    ) -> SessionRow:
        """Copy a session through one of the parent's messages, inclusive; None copies all of it.

        Messages, results, delegations and checkpoints keep their ids, so what the text says about them stays
        true, and belong to the new session. Checkpoints beyond the branch are left behind. A delegation
        that was started inside the branch comes whole; if it runs, its copy is interrupted; a report that
        was delivered beyond the branch is undelivered in it. Events, the lease and grants do not come along:
        rights are asked for again. `title` None keeps the title.

        A long one is copied in steps, between which others write; it is there for readers when it is whole.

        Raises:
            SidequestError: `SESSION_UNKNOWN`; `MESSAGE_UNKNOWN`; `STORE_CONFLICT` when `new_id` is taken, or
                when the source was cut or removed meanwhile.
        """

        def begin(tx: Connection) -> Sequence[int]:
            source = _one(tx, session_id)
            through = _cut_position(tx, session_id, through_message_id)
            anchor = through_message_id or _id_at(tx, session_id, through)
            tx.execute(
                insert(sessions).values(
                    id=new_id,
                    title=source.title if title is None else title,
                    root=source.root,
                    model=source.model,
                    created_at_ms=at_ms,
                    updated_at_ms=at_ms,
                    forked_from=session_id,
                    forked_through=anchor,
                )
            )
            mark(tx, new_id, at_ms, removing=False)
            return begin_copy(tx, session_id, new_id, through)

        def end(tx: Connection) -> SessionRow:
            end_copy(tx, session_id, new_id, at_ms)
            unmark(tx, new_id)
            return _one(tx, new_id)

        def at_once(tx: Connection) -> SessionRow | Sequence[int]:
            row_ids = begin(tx)
            if len(row_ids) > ROWS_OF_A_STEP:
                return row_ids
            copy_messages(tx, session_id, new_id, row_ids)
            copy_results(tx, session_id, new_id, row_ids)
            return end(tx)

        begun = await self._db.write_session(session_id, at_once, fenced=False)
        if isinstance(begun, SessionRow):
            return begun
        try:
            for copy in (copy_messages, copy_results):
                for start in range(0, len(begun), ROWS_OF_A_STEP):
                    some = begun[start : start + ROWS_OF_A_STEP]
                    await self._db.let_others_write()
                    await self._db.write(partial(copy, source=session_id, target=new_id, row_ids=some))
            await self._db.let_others_write()
            return await self._db.write_session(session_id, end, fenced=False)
        except BaseException:
            with suppress(SidequestError):  # the mark stays: it is removed later
                await self._remove(new_id)
            raise

    async def truncate(self, session_id: str, after_message_id: str | None) -> Truncated:
        """Remove the parent's rows behind a message; None removes all of them.

        Checkpoints whose anchor goes with them, and delegations that were started behind the cut, go too. A
        report whose delivery is removed is undelivered again. Events stay: they tell what happened.

        Raises:
            SidequestError: `SESSION_UNKNOWN`; `MESSAGE_UNKNOWN`; `AGENT_BUSY` when a delegation that was
                started behind the cut still runs.
        """

        def cut(tx: Connection) -> Truncated:
            through = 0 if after_message_id is None else _cut_position(tx, session_id, after_message_id)
            return cut_branch(tx, session_id, through)

        return await self._db.write_session(session_id, cut)


def _sessions_with(tx: Connection, query: Query) -> set[str]:
    """Return the ids of sessions in which the index has the words of `query`."""
    rows = messages.c.row_id.in_(indexed(tx, query))
    return set(tx.execute(select(messages.c.session_id).distinct().where(rows)).scalars())


def _rows() -> Select[*tuple[Any, ...]]:
    # Positions and numbers have no gaps: the newest one is how many there are, at the cost of one look-up.
    rows = (
        select(func.coalesce(func.max(messages.c.position), 0))
        .where(messages.c.session_id == sessions.c.id, messages.c.delegation_id.is_(None))
        .scalar_subquery()
    )
    newest = func.coalesce(func.max(delegations.c.number), 0)
    delegated = select(newest).where(delegations.c.session_id == sessions.c.id).scalar_subquery()
    shown = is_whole(sessions.c.id)
    return select(sessions, rows.label("messages"), delegated.label("delegations")).where(shown)


def _one(tx: Connection, session_id: str) -> SessionRow:
    return _as_row(tx.execute(_rows().where(sessions.c.id == session_id)).one())


def _as_row(row: AnyRow) -> SessionRow:
    return SessionRow(
        id=row.id,
        title=row.title,
        root=row.root,
        model=row.model,
        created_at_ms=row.created_at_ms,
        updated_at_ms=row.updated_at_ms,
        messages=row.messages,
        delegations=row.delegations,
        forked_from=row.forked_from,
        forked_through=row.forked_through,
        spent_usd=row.spent_usd,
    )


def _said_in(tx: Connection, query: Query, session_id: str) -> bool:
    if not query.literals:
        return True
    return next(matching(tx, query, session_id, None), None) is not None


def _cut_position(tx: Connection, session_id: str, message_id: str | None) -> int:
    """Return the position of a row of the parent; of the newest one for None, 0 when there is none."""
    lane = (messages.c.session_id == session_id) & messages.c.delegation_id.is_(None)
    if message_id is None:
        return tx.execute(select(func.max(messages.c.position)).where(lane)).scalar_one() or 0
    found = select(messages.c.position).where(lane, messages.c.id == message_id)
    position: int | None = tx.execute(found).scalar_one_or_none()
    if position is None:
        raise SidequestError(
            ErrorCode.MESSAGE_UNKNOWN,
            f"The parent of session {session_id} has no message {message_id}.",
            "`sidequest sessions show` prints the ids.",
        )
    return position


def _id_at(tx: Connection, session_id: str, position: int) -> str | None:
    found: str | None = tx.execute(
        select(messages.c.id).where(
            messages.c.session_id == session_id,
            messages.c.delegation_id.is_(None),
            messages.c.position == position,
        )
    ).scalar_one_or_none()
    return found
