"""The processes of this machine, as far as one needs to know them to end those that a command left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PS_TIMEOUT_S = 10
_PS = ("ps", "-A", *(f"-o{column}=" for column in ("pid", "ppid", "pgid", "stat", "lstart", "comm")))
_PS_WORDS = 9
"""Words before the name: four columns, and five of the date in `lstart`."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process at the moment of a look. Number and start together are its identity: numbers are reused."""

    pid: int
    parent: int
    group: int
    session: int
    """Number of its session; that of its group where the system does not tell."""
    started: str
    """When it started, in the system's own unit; only to be compared."""
    running: bool
    """False for one that has ended and was not collected yet. It keeps its number."""
    stopped: bool
    """Whether it runs and does nothing until it is sent SIGCONT."""
    name: str

    @property
    def identity(self) -> tuple[int, str]:
        """What no other process has, ever."""
        return self.pid, self.started

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid})"


def processes() -> dict[int, Process]:
    """Return all processes by number; what ends meanwhile may be missing.

    They come from /proc, without one (macOS) from `ps`. Where neither can be read nothing is known, and the
    answer is empty.
    """
    if not _has_proc():
        return _told_by_ps()
    numbers = (int(name) for name in os.listdir("/proc") if name.isdecimal())  # noqa: PTH208 - read often
    return {number: found for number in numbers if (found := process(number)) is not None}


def process(pid: int) -> Process | None:
    """Return the process with that number, None when there is none."""
    if not _has_proc():
        return _told_by_ps().get(pid)
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - read often
            head, _, tail = file.read().rpartition(")")
    except OSError:
        return None
    fields = tail.split()
    if len(fields) < 20:
        return None
    state, parent, group, session, started = fields[0], *fields[1:4], fields[19]
    return Process(
        pid,
        int(parent),
        int(group),
        int(session),
        started,
        running=state not in "ZXx",
        stopped=state in "Tt",
        name=head.partition("(")[2],
    )


def send(target: Process, number: signal.Signals) -> bool:
    """Send a signal to `target`, and to no stranger that has its number by now.

    Returns False when it may not be signalled (it runs as another user); one that is gone is passed over.
    """
    try:
        if sys.platform == "linux" and _has_proc():
            _send_by_descriptor(target, number)
        else:
            os.kill(target.pid, number)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return True


def _send_by_descriptor(target: Process, number: signal.Signals) -> None:
    if sys.platform != "linux":
        return
    try:
        descriptor = os.pidfd_open(target.pid)
    except (ProcessLookupError, PermissionError):
        raise
    except OSError:  # a kernel without them
        if _is_same(process(target.pid), target):
            os.kill(target.pid, number)
        return
    try:
        # The descriptor stays with the process it was opened for, so what holds now holds for the signal.
        if _is_same(process(target.pid), target):
            signal.pidfd_send_signal(descriptor, number)
    finally:
        os.close(descriptor)


def _is_same(now: Process | None, target: Process) -> bool:
    return now is not None and now.started == target.started


@cache
def _has_proc() -> bool:
    """Say whether /proc is there and counts processes as this process does."""
    try:
        return Path("/proc/self").readlink().name == str(os.getpid()) and Path("/proc/self/stat").is_file()
    except OSError:
        return False


def _told_by_ps() -> dict[int, Process]:
    try:
        told = subprocess.run(
            _PS,
            capture_output=True,
            timeout=PS_TIMEOUT_S,
            check=True,
            text=True,
            errors="replace",
            env={**os.environ, "LC_ALL": "C"},
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    return {found.pid: found for line in told.splitlines() if (found := _ps_line(line)) is not None}


def _ps_line(line: str) -> Process | None:
    words = line.split(maxsplit=_PS_WORDS)
    if len(words) <= _PS_WORDS:
        return None
    pid, parent, group = (int(word) for word in words[:3])
    state, started = words[3], " ".join(words[4:_PS_WORDS])
    return Process(
        pid,
        parent,
        group,
        group,
        started,
        running=not state.startswith("Z"),
        stopped=state.startswith("T"),
        name=words[_PS_WORDS].rsplit("/", 1)[-1],
    )
