"""Ctrl-C and other ends: the first stops the work and shows what there is, the second quits at once."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any

from sidequest.runtime.scratch import remove_scratch
from sidequest.runtime.session import Session
from sidequest.runtime.workspace import Workspace

_SHOW_CURSOR = b"\x1b[?25h\n"
_ENDING = ("SIGINT", "SIGTERM", "SIGHUP")


class Interrupts:
    """Watches for signals that end the process while a session is open; enter it inside the running loop.

    `say` tells the person that the first one was seen; `on_quit` is called before the second one quits.
    """

    def __init__(
        self,
        session: Session,
        say: Callable[[], None],
        *,
        terminal: bool,
        on_quit: Callable[[], None] | None = None,
    ) -> None:
        self.stopped = False
        """Whether somebody asked to stop."""
        self.signal: signal.Signals | None = None
        """The signal that asked for it, None when none did."""
        self._session = session
        self._say = say
        self._terminal = terminal
        self._on_quit = on_quit
        self._loop = asyncio.get_running_loop()
        self._job: asyncio.Task[None] | None = None
        self._before: dict[signal.Signals, Any] = {}

    @property
    def exit_code(self) -> int | None:
        """The exit code that tells which signal it was, as shells count; None when there was none."""
        return None if self.signal is None else 128 + self.signal

    def __enter__(self) -> Interrupts:
        for name in _ENDING:
            number = getattr(signal, name, None)
            # What is ignored stays ignored (SIGHUP below nohup); Ctrl-C never is.
            if number is not None and (name == "SIGINT" or signal.getsignal(number) is not signal.SIG_IGN):
                # Not the loop's own handler: that one waits for a loop that a busy model may be blocking.
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def stop(self) -> None:
        """Stop the session in the background; what runs settles as stopped."""
        if not self.stopped:
            self.stopped = True
            self._job = self._loop.create_task(self._session.stop())

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        which = signal.Signals(number)
        if which.name == "SIGHUP":
            _let_go_of_terminal()
        if self.signal is not None:
            if self._on_quit is not None:
                self._on_quit()
            _quit_now(self._session.workspace, 128 + number, terminal=self._terminal)
        self.signal = which
        self._loop.call_soon_threadsafe(self._first)

    def _first(self) -> None:
        self.stop()
        self._say()


def _let_go_of_terminal() -> None:
    """Write nowhere from now on where a terminal was: it is gone, and each word to it would be an error."""
    for descriptor in (1, 2):
        with suppress(OSError):
            if stat.S_ISCHR(os.fstat(descriptor).st_mode):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, descriptor)
                os.close(nowhere)


def _quit_now(workspace: Workspace, code: int, *, terminal: bool) -> None:
    """Leave without waiting for anything; the terminal gets its cursor back, and no command goes on."""
    workspace.leftovers.kill_all()
    if workspace.scratch is not None:
        remove_scratch(workspace.scratch)
    if terminal:
        with suppress(OSError):
            os.write(sys.stderr.fileno(), _SHOW_CURSOR)
    os._exit(code)
