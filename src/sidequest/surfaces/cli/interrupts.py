"""Ctrl-C: the first one stops the work and shows what there is, the second one quits at once."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from sidequest.runtime.session import Session
from sidequest.runtime.workspace import Workspace
from sidequest.surfaces.cli.errors import Exit

_SHOW_CURSOR = b"\x1b[?25h\n"


class Interrupts:
    """Watches for SIGINT while a session works; enter it inside the running event loop.

    `say` tells the person that the first Ctrl-C was seen; `on_quit` is called before the second one quits.
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
        self.interrupted = False
        """Whether that was Ctrl-C."""
        self._session = session
        self._say = say
        self._terminal = terminal
        self._on_quit = on_quit
        self._loop = asyncio.get_running_loop()
        self._job: asyncio.Task[None] | None = None
        self._before: Any = None

    def __enter__(self) -> Interrupts:
        # Not the loop's own handler: that one waits for a loop that a busy model may be blocking.
        self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    def stop(self) -> None:
        """Stop the session in the background; what runs settles as stopped."""
        if not self.stopped:
            self.stopped = True
            self._job = self._loop.create_task(self._session.stop())

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.interrupted:
            if self._on_quit is not None:
                self._on_quit()
            _quit_now(self._session.workspace, terminal=self._terminal)
        self.interrupted = True
        self._loop.call_soon_threadsafe(self._first)

    def _first(self) -> None:
        self.stop()
        self._say()


def _quit_now(workspace: Workspace, *, terminal: bool) -> None:
    """Leave without waiting for anything; the terminal gets its cursor back, and no command goes on."""
    workspace.leftovers.kill_all()
    if workspace.scratch is not None:
        shutil.rmtree(workspace.scratch, ignore_errors=True)
    if terminal:
        os.write(sys.stderr.fileno(), _SHOW_CURSOR)
    os._exit(Exit.INTERRUPTED)
