"""An event loop whose time passes only when everybody waits, and then at once.

    run_virtual(main())   # asyncio.sleep(3600) inside takes no real time

Sockets of the loop are still served: time moves only when no callback is ready and no socket has anything.
So a client and a provider on loopback see the same clock, and a run of simulated minutes takes milliseconds.

Blind spot: a thread that works while everybody else waits is given two milliseconds before time moves on, and
fifty before it moves by minutes: give clients long timeouts, so that no jump is taken for their end.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

GRACE_S, LONG_GRACE_S = 0.002, 0.05
"""Real seconds that sockets and threads are given before time moves, and before it moves by `LONG_S`."""
LONG_S = 120.0

_T = TypeVar("_T")


class _Selector(selectors.DefaultSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if ready or timeout is None or timeout <= 0:
            return ready if timeout is not None else ready or super().select(None)
        ready = super().select(GRACE_S if timeout < LONG_S else LONG_GRACE_S)
        if not ready:
            self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """`time()` starts at 0 and jumps to the next timer whenever there is nothing else to do."""

    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


def run_virtual(main: Coroutine[Any, Any, _T]) -> _T:
    """Run `main` like `asyncio.run`, without real waiting."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


def now() -> float:
    """Return the seconds that have passed in the running loop."""
    return asyncio.get_running_loop().time()
