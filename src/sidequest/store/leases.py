"""Who works on a session: one process at a time, until its lease runs out.

On a server its clock decides: those of two machines may differ by more than a lease lasts. SQLite is one
machine with one clock, the caller's. Times go in and come out by the caller's clock.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import UTC, datetime

from sqlalchemy import Connection, delete, select, text, update

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.store.database import AnyRow, Database, upsert
from sidequest.store.processes import is_dead
from sidequest.store.rows import Holder, Lease
from sidequest.store.tables import leases

_SERVER_MS = text("SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)")


class Leases:
    """Takes, renews and gives back the right to write a session.

    While a store holds a lease, each of its transactions on that session checks that nobody has taken it
    over. So a process that was frozen for longer than its lease cannot write into another's conversation.
    """

    def __init__(self, database: Database) -> None:
        self._db = database

    async def acquire(self, session_id: str, holder: Holder, *, now_ms: int, ttl_ms: int) -> Lease:
        """Take the lease until `now_ms + ttl_ms`, exclusive; one that has run out is taken over.

        Taking one's own again renews it.

        Raises:
            SidequestError: `AGENT_BUSY` naming the holder; `SESSION_UNKNOWN`.
        """

        def take(tx: Connection) -> Lease:
            current = lease_of(tx, session_id)
            now = clock(tx, now_ms)
            ahead = now_ms - now
            if current is not None and current.holder.id != holder.id and current.expires_at_ms > now:
                raise busy(_moved(current, ahead))
            same = current is not None and current.holder.id == holder.id
            since = current.since_ms if current is not None and same else now
            values = {
                "holder": holder.id,
                "host": holder.host,
                "pid": holder.pid,
                "since_ms": since,
                "expires_at_ms": now + ttl_ms,
            }
            upsert(tx, leases, {"session_id": session_id}, values)
            return Lease(session_id, holder, since + ahead, now_ms + ttl_ms)

        def hold(lease: Lease) -> None:
            self._db.held[session_id] = holder.id

        had = self._db.held.get(session_id) == holder.id
        try:
            return await self._db.write_session(session_id, take, fenced=False, then=hold)
        except asyncio.CancelledError:
            # Who is cancelled never learns that the lease was taken, and could not give it back.
            if not had and self._db.held.get(session_id) == holder.id:
                await self.release(Lease(session_id, holder, now_ms, now_ms + ttl_ms))
            raise

    async def renew(self, lease: Lease, *, now_ms: int, ttl_ms: int) -> Lease:
        """Extend a lease to `now_ms + ttl_ms`; one that ran out and that nobody took is still ours.

        Raises:
            SidequestError: `AGENT_BUSY` when another process has taken it over; `SESSION_UNKNOWN`.
        """

        def extend(tx: Connection) -> Lease:
            current = lease_of(tx, lease.session_id)
            now = clock(tx, now_ms)
            ahead = now_ms - now
            if current is None or current.holder.id != lease.holder.id:
                raise busy(_moved(current, ahead)) if current else _lost(lease)
            expires = now + ttl_ms
            tx.execute(
                update(leases).where(leases.c.session_id == lease.session_id).values(expires_at_ms=expires)
            )
            return Lease(lease.session_id, lease.holder, current.since_ms + ahead, expires + ahead)

        return await self._db.write_session(lease.session_id, extend, fenced=False)

    async def release(self, lease: Lease) -> None:
        """Give a lease back; nothing happens when it is no longer ours, or the session is gone."""
        mine = (leases.c.session_id == lease.session_id) & (leases.c.holder == lease.holder.id)
        held, session_id, holder_id = self._db.held, lease.session_id, lease.holder.id

        def give_back(tx: Connection) -> None:
            tx.execute(delete(leases).where(mine))
            # Before others write: they would take what was given back for taken over.
            if held.get(session_id) == holder_id:
                del held[session_id]

        was_held = held.get(session_id) == holder_id
        try:
            await self._db.write(give_back)
        except SidequestError:
            if was_held:
                held.setdefault(session_id, holder_id)
            raise

    async def free_of_the_dead(self, session_id: str) -> None:
        """Give back the lease of a process of this machine that was killed; one that lives keeps it.

        What that process had in hand is stored or was never told to anybody, and a dead process writes
        nothing. Only the lease that was looked at is given back, not one that was taken over meanwhile.
        """
        lease = await self.get(session_id)
        if lease is not None and is_dead(lease.holder):
            await self.release(lease)

    async def get(self, session_id: str) -> Lease | None:
        """Return who holds the session, also when the lease has run out, or None."""

        def find(tx: Connection) -> Lease | None:
            lease = lease_of(tx, session_id)
            return None if lease is None else _moved(lease, _ahead(tx))

        return await self._db.read(find)

    async def all(self) -> list[Lease]:
        """Return every lease there is, also those that have run out."""

        def find(tx: Connection) -> list[Lease]:
            ahead = _ahead(tx)
            return [_moved(_as_lease(row), ahead) for row in tx.execute(select(leases))]

        return await self._db.read(find)


def clock(tx: Connection, caller_ms: int) -> int:
    """Return the time by which leases are measured, where it is `caller_ms` for the caller; in ms."""
    if tx.dialect.name == "sqlite":
        return caller_ms
    return int(tx.execute(_SERVER_MS).scalar_one())


def _ahead(tx: Connection) -> int:
    """Return how much this machine's clock is ahead of the one that decides, in ms."""
    here = time.time_ns() // 1_000_000
    return here - clock(tx, here)


def _moved(lease: Lease, ms: int) -> Lease:
    return replace(lease, since_ms=lease.since_ms + ms, expires_at_ms=lease.expires_at_ms + ms)


def lease_of(tx: Connection, session_id: str) -> Lease | None:
    """Return the lease on a session, with times by the clock that decides, or None."""
    row = tx.execute(select(leases).where(leases.c.session_id == session_id)).one_or_none()
    return None if row is None else _as_lease(row)


def _as_lease(row: AnyRow) -> Lease:
    return Lease(row.session_id, Holder(row.holder, row.host, row.pid), row.since_ms, row.expires_at_ms)


def busy(lease: Lease) -> SidequestError:
    """Return the error that names who works on the session."""
    holder = lease.holder
    since = datetime.fromtimestamp(lease.since_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return SidequestError(
        ErrorCode.AGENT_BUSY,
        f"Session {lease.session_id} is in use by process {holder.pid} on {holder.host} since {since}.",
        "End that process or wait for it; to work beside it, fork the session.",
        retriable=True,
        host=holder.host,
        pid=holder.pid,
        sinceMs=lease.since_ms,
        expiresAtMs=lease.expires_at_ms,
    )


def _lost(lease: Lease) -> SidequestError:
    return SidequestError(
        ErrorCode.AGENT_BUSY,
        f"The right to write session {lease.session_id} was given back or taken over.",
        "Open the session again.",
    )
