"""Holding a stored session: a lease that is renewed while the process lives; nobody else writes it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.store.processes import this_process

if TYPE_CHECKING:
    from sidequest.store.rows import Lease
    from sidequest.store.store import Store

LEASE_MS = 30_000
"""How long a lease lasts without being renewed: another machine waits this long at most after a kill."""
RENEW_S = 10.0
_LOST = frozenset({ErrorCode.AGENT_BUSY, ErrorCode.SESSION_UNKNOWN})


@dataclass
class Hold:
    """A lease on a session, renewed in the background until `release`."""

    store: Store
    lease: Lease
    now_ms: Callable[[], int]
    _renewing: asyncio.Task[None] | None = None

    @classmethod
    async def take(cls, store: Store, session_id: str, now_ms: Callable[[], int]) -> Hold:
        """Take the session `session_id`; from a process of this machine that has died, at once.

        Of several that ask at the same time one is given it.

        Raises:
            SidequestError: `AGENT_BUSY` when another process has it, naming host, process and since when.
        """
        await store.leases.free_of_the_dead(session_id)
        lease = await store.leases.acquire(session_id, this_process(), now_ms=now_ms(), ttl_ms=LEASE_MS)
        hold = cls(store, lease, now_ms)
        hold._renewing = asyncio.create_task(hold._renew())
        return hold

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            try:
                self.lease = await self.store.leases.renew(self.lease, now_ms=self.now_ms(), ttl_ms=LEASE_MS)
            except SidequestError as error:
                # The next write of the session meets the same failure, where it can be told to somebody.
                # What is not lost is renewed again: a lock that passes costs nobody a session.
                if error.code in _LOST:
                    return

    async def release(self) -> None:
        """Let the session go; it is free at once."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait([self._renewing])
        await self.store.leases.release(self.lease)
