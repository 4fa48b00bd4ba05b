"""A store that notes what it is asked for, and that can be made to refuse."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.events import Numbered
from sidequest.store import Store

READS = {
    "get",
    "list",
    "load",
    "history",
    "newest",
    "newest_number",
    "after",
    "chain",
    "undelivered",
    "unsettled",
}


class WatchedStore:
    """Passes everything on to `store`.

    `calls` holds the names of the calls that write, such as `transcript.append`, in their order. `refuse` is
    asked first and gives the error of a call that shall fail, or None. `before` is awaited ahead of a call.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.calls: list[str] = []
        self.refuse: Callable[[str], SidequestError | None] = lambda name: None
        self.before: dict[str, Callable[[], Any]] = {}
        self._awaited: list[tuple[str, int, asyncio.Event]] = []

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._store, name)
        return value if callable(value) or isinstance(value, str) else _Watched(self, name, value)

    def note(self, numbered: Numbered) -> None:
        """Note an event among the calls."""
        self.add(numbered.event.type)

    def add(self, name: str) -> None:
        """Note a name."""
        self.calls.append(name)
        for awaited, times, event in self._awaited:
            if self.calls.count(awaited) >= times:
                event.set()

    async def seen(self, name: str, times: int = 1) -> None:
        """Wait until `name` was noted so often."""
        event = asyncio.Event()
        self._awaited.append((name, times, event))
        if self.calls.count(name) < times:
            async with asyncio.timeout(60):
                await event.wait()

    def break_at(self, *names: str, code: ErrorCode = ErrorCode.STORE_FULL) -> None:
        """Refuse the calls with these names from now on; all that write when none is given."""
        error = SidequestError(code, "The store is broken.", "Mend it.")
        self.refuse = lambda name: error if not names or name in names else None

    def mend(self) -> None:
        """Refuse nothing more."""
        self.refuse = lambda name: None

    def stop_taking(self) -> None:
        """Take nothing more but the lease that is given back: what a killed process would leave behind."""
        error = SidequestError(ErrorCode.STORE_UNREACHABLE, "The process is gone.", "")
        self.refuse = lambda name: None if name == "leases.release" else error


class _Watched:
    def __init__(self, watched: WatchedStore, part: str, target: Any) -> None:
        self._watched, self._part, self._target = watched, part, target

    def __getattr__(self, method: str) -> Any:
        call = getattr(self._target, method)
        if method in READS:
            return call
        name = f"{self._part}.{method}"

        async def passed_on(*args: Any, **options: Any) -> Any:
            self._watched.add(name)
            if name in self._watched.before:
                await self._watched.before[name]()
            error = self._watched.refuse(name)
            if error is not None:
                raise error
            return await call(*args, **options)

        return passed_on
