"""The sandbox that commands run in, when a session wants one: bubblewrap, through the harness.

Inside, a command sees the system read-only, writes in the workspace and the scratch folder only, and has no
network. Where the system allows it, it sees and signals no process but its own, and what it leaves running
ends with it. Hooks and configuration of repositories in the workspace are read-only: the user's next commit
runs them outside. It is no wall against a command that reads secrets of the user: those it still sees.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.runtime.repositories import guard_of

if TYPE_CHECKING:
    from pydantic_ai.workspaces import CommandResult, LocalWorkspaceBackend
    from pydantic_ai_harness.bubblewrap_sandbox import BubblewrapWorkspace

PROBE_TIMEOUT_S = 10
_OWN_PROCESSES = ("--unshare-pid",)
_TELL_WHAT_ENDS = """\
sh -c "$1"
code=$?
left=
for entry in /proc/[0-9]*; do
  case ${entry#/proc/} in 1 | $$) continue ;; esac
  {
    read -r name <"$entry/comm" &&
      while read -r key state rest && [ "$key" != State: ]; do :; done <"$entry/status"
  } 2>/dev/null || continue
  [ "$state" = Z ] || left="$left${left:+, }$name"
done
[ -z "$left" ] || printf '[ended with the command, as the sandbox ends: %s]\\n' "$left" >&2
exit $code
"""
"""Runs a command and says which processes it leaves running: they end with the namespace of the sandbox."""


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
    return program is not None and _starts(program, "--unshare-net")


@cache
def own_processes_work() -> bool:
    """Say whether a sandbox may have a process namespace here; containers often forbid the /proc it needs."""
    program = shutil.which("bwrap")
    return program is not None and _starts(program, *_OWN_PROCESSES, "--proc", "/proc")


def _starts(program: str, *options: str) -> bool:
    trial = [program, "--unshare-user", "--ro-bind", "/", "/", *options, "true"]
    try:
        return (
            subprocess.run(trial, capture_output=True, timeout=PROBE_TIMEOUT_S, check=False).returncode == 0
        )
    except (OSError, subprocess.TimeoutExpired):
        return False


class RunsCommands(Protocol):
    """What runs shell commands."""

    async def run(self, command: str, *, shell: bool, timeout: float | None) -> CommandResult:
        """Run `command` and return its output and exit code; `timeout` is in seconds."""
        ...


@dataclass
class SandboxedCommands:
    """Runs each command in a sandbox of its own, around `backend`."""

    backend: LocalWorkspaceBackend
    writable: Path | None
    """A folder that commands may write to besides the workspace."""
    own_processes: bool
    """Whether a command has a process namespace of its own."""
    _mounts: tuple[str, ...] = field(default=(), init=False)
    _sandbox: BubblewrapWorkspace | None = field(default=None, init=False)

    async def run(self, command: str, *, shell: bool, timeout: float | None) -> CommandResult:
        """Run `command` as the backend would outside."""
        root = Path(await self.backend.working_dir())
        guard = await asyncio.to_thread(guard_of, root)
        sandbox = self._with(tuple(guard.mounts))
        try:
            if self.own_processes and shell:
                result = await sandbox.run(["sh", "-c", _TELL_WHAT_ENDS, "sh", command], timeout=timeout)
            else:
                result = await sandbox.run(command, shell=shell, timeout=timeout)
        finally:
            removed = guard.restore()
        if removed:
            told = f"[removed, because git would run what it names: {', '.join(removed)}]"
            result = replace(result, stderr=f"{result.stderr}{told}\n")
        return result

    def _with(self, mounts: tuple[str, ...]) -> BubblewrapWorkspace:
        """Return a sandbox with these mounts; one that is used again need not be tried again."""
        from pydantic_ai.workspaces import Workspace
        from pydantic_ai_harness.bubblewrap_sandbox import BubblewrapWorkspace

        if self._sandbox is None or mounts != self._mounts:
            also = ["--bind", str(self.writable), str(self.writable)] if self.writable is not None else []
            own = _OWN_PROCESSES if self.own_processes else ()
            self._mounts = mounts
            self._sandbox = BubblewrapWorkspace(Workspace(self.backend), bwrap_args=[*also, *mounts, *own])
        return self._sandbox


def ends_what_it_leaves(commands: RunsCommands) -> bool:
    """Say whether what a command leaves running is to end with it: then its process namespace ends."""
    return isinstance(commands, SandboxedCommands) and commands.own_processes


def commands_of(
    backend: LocalWorkspaceBackend,
    sandbox: Sandbox,
    writable: Path | None = None,
    works: Callable[[], bool] = bubblewrap_works,
) -> RunsCommands:
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
    return SandboxedCommands(backend, writable, own_processes_work())
