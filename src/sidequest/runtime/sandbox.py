"""The sandbox that commands run in, when a session wants one: bubblewrap, through the harness.

Inside, a command sees the system read-only, writes in the workspace and the scratch folder only, and has no
network. It is no wall against a command that reads secrets of the user: those it still sees.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from sidequest.core.errors import ErrorCode, SidequestError

if TYPE_CHECKING:
    from pydantic_ai.workspaces import LocalWorkspaceBackend, Workspace

PROBE_TIMEOUT_S = 10


class Sandbox(StrEnum):
    """Whether commands run in a sandbox."""

    OFF = "off"
    AUTO = "auto"
    """Where it works, and without one elsewhere."""
    REQUIRE = "require"
    """Always; a session does not open where it does not work."""


@cache
def bubblewrap_works() -> bool:
    """Say whether `bwrap` is installed and may make a namespace here; it is tried once per process."""
    program = shutil.which("bwrap")
    if program is None:
        return False
    trial = [program, "--unshare-user", "--unshare-net", "--ro-bind", "/", "/", "true"]
    try:
        return (
            subprocess.run(trial, capture_output=True, timeout=PROBE_TIMEOUT_S, check=False).returncode == 0
        )
    except (OSError, subprocess.TimeoutExpired):
        return False


def commands_of(
    backend: LocalWorkspaceBackend,
    sandbox: Sandbox,
    writable: Path | None = None,
    works: Callable[[], bool] = bubblewrap_works,
) -> LocalWorkspaceBackend | Workspace:
    """Return what runs the commands of `backend`: itself, or a sandbox around it.

    `writable` is a folder that commands may write to besides the workspace.

    Raises:
        SidequestError: `SETTINGS_INVALID` when a sandbox is required and does not work here.
    """
    if sandbox is Sandbox.OFF:
        return backend
    if not works():
        if sandbox is Sandbox.AUTO:
            return backend
        raise SidequestError(
            ErrorCode.SETTINGS_INVALID,
            "A sandbox for commands is required, and bubblewrap does not work here.",
            "Install bubblewrap and allow user namespaces, or set sandbox to auto or off.",
        )
    from pydantic_ai.workspaces import Workspace
    from pydantic_ai_harness.bubblewrap_sandbox import BubblewrapWorkspace

    also = ["--bind", str(writable), str(writable)] if writable is not None else []
    return BubblewrapWorkspace(Workspace(backend), bwrap_args=also)
