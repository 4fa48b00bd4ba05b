"""Whether a process runs, asked by its number."""

from __future__ import annotations

import os
import time
from pathlib import Path


def ends(pid: int) -> bool:
    """Whether the process is gone, at once or in a moment: a signal is not delivered synchronously."""
    deadline = time.monotonic() + 60
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.005)
    return not is_running(pid)


def is_running(pid: int) -> bool:
    """Whether the process still runs; one that has ended and was not collected does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        try:
            os.kill(pid, 0)
        except OSError:
            return False
        return not Path("/proc").is_dir()
    return state != "Z"
