"""Keeps other processes of the user from reading the memory and the environment of this one."""

from __future__ import annotations

import sys

_PR_SET_DUMPABLE = 4


def keep_memory_private() -> None:
    """Let no other process of the same user read this one's environment and memory, where the keys are.

    On Linux alone; elsewhere, and where the system refuses, nothing changes. Debuggers cannot attach and
    there is no core dump. It does not hold against the superuser, nor for processes that this one starts.
    """
    if sys.platform != "linux":
        return
    import ctypes

    try:
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    except (OSError, AttributeError):  # a C library without it
        return
