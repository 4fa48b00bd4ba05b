"""Waiting for a person is no run time: while a question of an agent waits, its time limits stand still.

Who asks and who measures are far apart: a gate asks in the middle of a tool call. So what an agent's time
depends on is a variable of the context in which the agent runs, and no sibling sees it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol


class Pausable(Protocol):
    """Something that measures time."""

    def pause(self) -> None:
        """Stand still from now on."""
        ...

    def resume(self) -> None:
        """Go on from where it stood still."""
        ...


@dataclass
class RunTime:
    """What measures the time of one agent, and how many questions of that agent wait for a person."""

    _measures: list[Pausable] = field(default_factory=list, init=False)
    _waiting: int = field(default=0, init=False)

    def measured_by(self, measure: Pausable) -> None:
        """Let `measure` stand still while questions wait; to be called while none does."""
        self._measures.append(measure)

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Hold the time of the agent; calls that ask at the same time hold it until the last is answered."""
        self._waiting += 1
        if self._waiting == 1:
            for measure in self._measures:
                measure.pause()
        try:
            yield
        finally:
            self._waiting -= 1
            if not self._waiting:
                for measure in self._measures:
                    measure.resume()

    @contextmanager
    def of_this_agent(self) -> Iterator[None]:
        """Make this the time of the agent that runs inside, with everything that it starts there."""
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)


_CURRENT: ContextVar[RunTime | None] = ContextVar("run_time", default=None)


@contextmanager
def waiting_for_a_person() -> Iterator[None]:
    """Hold the time of the agent at hand, if there is one, as long as a question of it waits."""
    current = _CURRENT.get()
    if current is None:
        yield
        return
    with current.standing_still():
        yield


class Deadline:
    """Calls `due` once, in the running loop, when `seconds` have passed in which it did not stand still."""

    def __init__(self, seconds: float, due: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._left = seconds
        self._due = due
        self._timer: asyncio.TimerHandle | None = None
        self._over = False
        self.resume()

    def pause(self) -> None:
        """Stand still from now on."""
        if self._timer is not None:
            self._left = max(0.0, self._timer.when() - self._loop.time())
            self._timer.cancel()
            self._timer = None

    def resume(self) -> None:
        """Go on from where it stood still."""
        if not self._over and self._timer is None:
            self._timer = self._loop.call_later(self._left, self._strike)

    def cancel(self) -> None:
        """Never call `due` from now on."""
        self.pause()
        self._over = True

    def _strike(self) -> None:
        self._over, self._timer = True, None
        self._due()
