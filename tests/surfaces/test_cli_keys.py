"""The terminal is as it was after a question, whatever ended it; each case on its own pseudo-terminal."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator

import pytest

PROGRAM = """
import asyncio, sys
from sidequest.surfaces.cli.keys import TerminalKeys

async def main():
    keys = TerminalKeys.of_process()
    keys.start(lambda key: print("key", key, flush=True))
    print("asked", flush=True)
    await asyncio.sleep(30)

asyncio.run(main())
"""


class Session:
    """A program that asks at a terminal, in a process group of its own as a job of a shell is."""

    def __init__(self) -> None:
        self.master, slave = pty.openpty()
        self.slave = slave
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdin=slave, stdout=slave, stderr=slave, process_group=0
        )
        self.sent = b""

    def wait_for(self, text: bytes) -> None:
        deadline = time.monotonic() + 60
        while text not in self.sent:
            assert select.select([self.master], [], [], max(0, deadline - time.monotonic()))[0], self.sent
            self.sent += os.read(self.master, 65536)

    @property
    def in_key_mode(self) -> bool:
        return not termios.tcgetattr(self.slave)[3] & (termios.ICANON | termios.ECHO)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(60)
        os.close(self.slave)
        os.close(self.master)


@pytest.fixture
def asking() -> Iterator[Session]:
    """A program that waits for a key."""
    session = Session()
    session.wait_for(b"asked")
    assert session.in_key_mode
    yield session
    session.close()


def until(condition: Callable[[], bool]) -> None:
    """Wait for something another process does."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def stopped(process: subprocess.Popen[bytes]) -> bool:
    """Say whether a process is stopped, as the kernel tells it."""
    with open(f"/proc/{process.pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "T"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP])
def test_a_signal_that_ends_the_process_leaves_the_terminal_as_it_was(
    asking: Session, number: signal.Signals
) -> None:
    asking.process.send_signal(number)
    assert asking.process.wait(60) == -number, "the signal does what it always does"
    assert not asking.in_key_mode


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
def test_a_stop_restores_the_terminal_and_going_on_reads_keys_again(asking: Session) -> None:
    for _ in range(2):
        asking.process.send_signal(signal.SIGTSTP)
        until(lambda: stopped(asking.process))
        assert not asking.in_key_mode
        asking.process.send_signal(signal.SIGCONT)
        until(lambda: asking.in_key_mode)
    os.write(asking.master, b"y")
    asking.wait_for(b"key y")


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
def test_a_process_that_goes_on_before_it_has_stopped_never_stops_in_key_mode(asking: Session) -> None:
    def reads_keys() -> bool:
        if not stopped(asking.process):
            return asking.in_key_mode
        assert not asking.in_key_mode
        asking.process.send_signal(signal.SIGCONT)
        return False

    for _ in range(300):
        asking.process.send_signal(signal.SIGTSTP)
        while asking.in_key_mode:  # without a pause: what comes now is between the terminal and the stop
            pass
        asking.process.send_signal(signal.SIGCONT)
        until(reads_keys)
    os.write(asking.master, b"y")
    asking.wait_for(b"key y")
