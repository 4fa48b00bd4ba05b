"""Runs commands on this machine and knows what they leave running."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from sidequest.runtime.leftovers import Family, Leftovers

if TYPE_CHECKING:
    import anyio.abc
    from pydantic_ai.workspaces import LocalWorkspaceBackend

STARTED: ContextVar[list[Family] | None] = ContextVar("started", default=None)
"""Where the families of the commands that this context runs are noted; None when nobody asks."""


def shell_backend(root: Path, env: Mapping[str, str], leftovers: Leftovers) -> LocalWorkspaceBackend:
    """Return what runs commands in `root`; `leftovers` is told of each process that it starts."""
    from pydantic_ai.workspaces import LocalWorkspaceBackend

    at_work: dict[int, Family] = {}

    class Shell(LocalWorkspaceBackend):
        """The two places of the backend where the number of a command's process is known."""

        async def _wait_and_collect_output(
            self,
            process: anyio.abc.Process,
            stdout_buffer: bytearray,
            stderr_buffer: bytearray,
            absolute_deadline: float | None,
        ) -> int:
            family = at_work[process.pid] = leftovers.begun(process.pid)
            started = STARTED.get()
            if started is not None:
                started.append(family)
            code = await super()._wait_and_collect_output(
                process, stdout_buffer, stderr_buffer, absolute_deadline
            )
            at_work.pop(process.pid, None)
            return code

        async def _terminate(self, process: anyio.abc.Process) -> PermissionError | None:
            # Before its group is killed the chains of parents are whole, also to those that left it. Not
            # awaited: who cancels twice would interrupt it.
            family = at_work.pop(process.pid, None)
            leftovers.kill(family if family is not None else leftovers.begun(process.pid))
            return await super()._terminate(process)

    return Shell(root, env=env)
