"""Which process this is, and whether another one that holds a session is known to have ended.

A process number alone says little: it is given again, and another container may have the same one. So the id
of a holder also carries the boot and the process namespace that the number counts in, and when the process
started, in clock ticks after boot; no setting of the clock changes those.
"""

from __future__ import annotations

import os
import socket
import uuid
from pathlib import Path

from sidequest.store.rows import Holder, Lease

_SEPARATOR = "|"
_PROC = Path("/proc")
_STATE, _START = 0, 19
"""Places in `/proc/PID/stat` behind the name of the program, which is in brackets."""


def this_process() -> Holder:
    """Return a holder that stands for one session of this process."""
    pid = os.getpid()
    facts = _facts(pid)
    mark = [_numbered_in(), facts[_START]] if facts else []
    return Holder(_SEPARATOR.join([uuid.uuid4().hex, *mark]), socket.gethostname(), pid)


def is_dead(holder: Holder) -> bool:
    """Say whether a process is known to have ended; of another machine or container nothing is known."""
    if os.name != "posix" or holder.host != socket.gethostname():
        return False
    _, *mark = holder.id.split(_SEPARATOR)
    if mark and mark[0] != _numbered_in():
        return False
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # it is there, and another user's
    facts = _facts(holder.pid)
    if facts is None:
        return False
    # One that ended and that its parent has not asked for is a zombie: it writes nothing more.
    return facts[_STATE] in {"Z", "X"} or (len(mark) > 1 and mark[1] != facts[_START])


def is_held(lease: Lease | None, now_ms: int) -> bool:
    """Say whether somebody works on a session: the lease has not run out, and its process is not dead."""
    return lease is not None and lease.expires_at_ms > now_ms and not is_dead(lease.holder)


def _facts(pid: int) -> list[str] | None:
    """Return what the system tells of a process, None where it tells nothing."""
    try:
        return (_PROC / str(pid) / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return None


def _numbered_in() -> str:
    """Return what the numbers of processes count in: this boot and this namespace; empty when not known."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text("utf-8").strip()
        return f"{boot} {(_PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return ""
