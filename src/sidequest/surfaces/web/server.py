"""The process that serves the app: it listens, says where, and ends without losing what it did."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import sys
import webbrowser
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import uvicorn

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.surfaces.app.application import open_application
from sidequest.surfaces.web.access import Access
from sidequest.surfaces.web.serve import build

GOODBYE_S = 3
"""How long a request may still take when the server is stopped, in seconds."""


async def serve(
    root: Path,
    access: Access,
    *,
    store_url: str | None = None,
    agents_dirs: tuple[Path, ...] = (),
    ready: Callable[[tuple[str, ...]], None],
    stopping: Callable[[], None],
) -> None:
    """Serve until SIGINT or SIGTERM; what runs then is stopped and its end is stored.

    `access.port` is the port to listen at, 0 for any that is free; it becomes the one that was taken. `ready`
    is given the link, for each address, when a browser can open it; `stopping` is called when the server is
    told to end.

    Raises:
        SidequestError: `USAGE` when the address cannot be had; what `open_application` raises.
    """
    listening = bind(access)
    try:
        async with open_application(root, store_url=store_url, agents_dirs=agents_dirs) as application:
            config = uvicorn.Config(
                build(application, access),
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                ws="websockets-sansio",
                timeout_graceful_shutdown=GOODBYE_S,
            )
            await _Server(config, lambda: ready(access.new_links()), stopping).serve([listening])
    finally:
        listening.close()


def bind(access: Access) -> socket.socket:
    """Take the address of `access` and note its port there.

    Raises:
        SidequestError: `USAGE` when it is in use, not of this machine, or not allowed.
    """
    family = socket.AF_INET6 if ":" in access.host else socket.AF_INET
    taken = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind((access.host, access.port))
        # A server that only binds would share the port with one that listens already.
        taken.listen(socket.SOMAXCONN)
    except OSError as error:
        taken.close()
        raise _not_to_be_had(access, error) from error
    taken.setblocking(False)
    access.port = taken.getsockname()[1]
    return taken


def _not_to_be_had(access: Access, error: OSError) -> SidequestError:
    where = f"{access.host}:{access.port}"
    if error.errno == errno.EADDRINUSE:
        cause = f"Another program listens at {where}."
        return SidequestError(ErrorCode.USAGE, cause, "Give another --port; 0 takes one that is free.")
    if isinstance(error, PermissionError):
        cause = f"You may not listen at {where}."
        return SidequestError(ErrorCode.USAGE, cause, "Give a --port above 1023.")
    reason = error.strerror or str(error)
    return SidequestError(
        ErrorCode.USAGE, f"Cannot listen at {where}: {reason}.", "Give --host an address of this machine."
    )


class _Server(uvicorn.Server):
    """uvicorn, which says when it is ready and leaves the end of the process to its caller."""

    def __init__(
        self, config: uvicorn.Config, ready: Callable[[], None], stopping: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._ready = ready
        self._stopping = stopping

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer, and say so."""
        await super().startup(sockets)
        if self.started:
            self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End; the second signal ends without waiting for requests.

        The signal is not raised again behind the server, as uvicorn does: sessions are still to be closed.
        """
        if self.should_exit:
            self.force_exit = True
            return
        self.should_exit = True
        self._stopping()


def open_browser(link: str) -> None:
    """Open `link` in a browser that has a window; without one, nothing happens."""
    windows = (
        sys.platform in ("win32", "darwin") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
    if windows:
        asyncio.get_running_loop().run_in_executor(None, webbrowser.open, link)
