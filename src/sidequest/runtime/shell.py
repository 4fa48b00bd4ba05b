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

    class Shell(LocalWorkspaceBackend):
        """The two places of the backend where the number of a command's process is known."""

        async def _wait_and_collect_output(
            self,
            process: anyio.abc.Process,
            stdout_buffer: bytearray,
            stderr_buffer: bytearray,
            absolute_deadline: float | None,
        ) -> int:
            family = leftovers.begun(process.pid)
            started = STARTED.get()
            if started is not None:
                started.append(family)
            try:
                return await super()._wait_and_collect_output(
                    process, stdout_buffer, stderr_buffer, absolute_deadline
                )
            except BaseException:
                # It is killed by its group behind this; here the chains of parents are still whole. Not
                # awaited: who cancels twice would interrupt it.
                leftovers.kill(family)
                raise

    return Shell(root, env=env)
