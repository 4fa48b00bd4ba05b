"""Single keys of a terminal for a question, and the terminal as it was afterwards, whatever ends it.

A signal that ends or stops the process while keys are read finds the terminal restored: the shell that comes
next must not be without echo.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, Protocol

END_OF_INPUT = ""
"""What a key source gives when there will be no more keys."""
_ENDING = ("SIGTERM", "SIGHUP", "SIGQUIT")
_STOPPING = "SIGTSTP"
_GOING_ON = "SIGCONT"


class Keys(Protocol):
    """Where keys come from."""

    def start(self, on_key: Callable[[str], None]) -> None:
        """Throw away what was typed before, and give every key from now on, in the loop."""
        ...

    def stop(self) -> None:
        """Give no more keys and leave the terminal as it was; may be called at any time, and twice."""
        ...


class TerminalKeys:
    """The keys of a terminal, without waiting for a line; Ctrl-C stays a signal."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._before: list[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handlers: dict[signal.Signals, Any] = {}
        """What handled the signals that are looked after while keys are read."""
        self._ending = False
        """A signal that ends or stops the process is at work: the terminal stays as it was before."""

    @classmethod
    def of_process(cls) -> TerminalKeys | None:
        """Return the keys of standard input, None when nobody could be asked there."""
        try:
            import termios
        except ImportError:
            return None
        try:
            if not (sys.stdin.isatty() and sys.stderr.isatty()):
                return None
            descriptor = sys.stdin.fileno()
            termios.tcgetattr(descriptor)
        except (AttributeError, ValueError, OSError, termios.error):
            return None
        return None if _in_background(descriptor) else cls(descriptor)

    def start(self, on_key: Callable[[str], None]) -> None:
        """Read single keys from now on."""
        import termios

        self.stop()
        # First the handlers: a signal between the two would find a terminal that nobody restores.
        self._look_after_signals()
        self._before = termios.tcgetattr(self._descriptor)
        self._set_key_mode()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._descriptor, self._read, on_key)

    def _set_key_mode(self) -> None:
        import termios

        if self._before is not None and not self._ending:
            now = [*self._before]
            now[3] &= ~(termios.ICANON | termios.ECHO)
            with suppress(OSError, termios.error):  # the terminal is gone
                termios.tcsetattr(self._descriptor, termios.TCSAFLUSH, now)

    def _read(self, on_key: Callable[[str], None]) -> None:
        try:
            data = os.read(self._descriptor, 64)
        except OSError:
            data = b""
        if not data:
            self.stop()
            on_key(END_OF_INPUT)
        elif len(data) == 1:  # an arrow key or a paste is no answer
            on_key(data.decode("latin-1"))

    def stop(self) -> None:
        """Leave the terminal as it was."""
        loop, self._loop = self._loop, None
        if loop is not None and not loop.is_closed():
            loop.remove_reader(self._descriptor)
        self._restore()
        self._before = None
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers.clear()

    def _restore(self) -> None:
        import termios

        if self._before is not None:
            try:
                termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)
            except (OSError, termios.error):  # the terminal is gone
                return

    def _look_after_signals(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for name in (*_ENDING, _STOPPING, _GOING_ON):
            number = getattr(signal, name)
            # What is ignored stays ignored (SIGHUP below nohup); None is a handler that is not Python's.
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                self._handlers[number] = signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Restore the terminal, and let the signal do what it did before."""
        which = signal.Signals(number)
        if which.name == _GOING_ON:
            if not _in_background(self._descriptor):
                self._set_key_mode()
            return
        # A shell may let the process go on before it has stopped; what stops then stops without key mode.
        self._ending = True
        self._restore()
        signal.signal(which, self._handlers[which])
        os.kill(os.getpid(), which)
        self._ending = False
        # Here again only when it did not end the process: it went on after a stop, or somebody handled it.
        if which in self._handlers:
            signal.signal(which, self._on_signal)
            if not _in_background(self._descriptor):
                self._set_key_mode()


def _in_background(descriptor: int) -> bool:
    """Say whether a change of the terminal would stop this process."""
    try:
        return os.tcgetpgrp(descriptor) != os.getpgrp()
    except OSError:  # not the terminal this process is controlled by
        return False
