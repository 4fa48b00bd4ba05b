"""A gate that one thread may open while an event loop in another waits at it."""

from __future__ import annotations

import asyncio
import threading


class Gate:
    """Closed until `open` is called, then open for good.

    Like `asyncio.Event`, but safe to use between threads, so also with a provider that runs in its own.
    """

    def __init__(self) -> None:
        self._opened = threading.Event()
        self._waiting: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        self._lock = threading.Lock()

    def open(self) -> None:
        """Let everyone through, now and later."""
        with self._lock:
            self._opened.set()
            for event, loop in self._waiting.items():
                loop.call_soon_threadsafe(event.set)

    async def wait(self) -> None:
        """Wait in an event loop until the gate is open; returns at once when it is."""
        event = asyncio.Event()
        with self._lock:
            if self._opened.is_set():
                return
            self._waiting[event] = asyncio.get_running_loop()
        try:
            await event.wait()
        finally:
            with self._lock:
                del self._waiting[event]

    def wait_blocking(self, timeout: float) -> bool:
        """Block this thread until the gate is open, at most `timeout` seconds; False when time ran out."""
        return self._opened.wait(timeout)
