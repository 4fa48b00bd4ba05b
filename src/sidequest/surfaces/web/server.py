"""The process that serves the app: it listens, says where, and ends without losing what it did."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import sys
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

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
    """Serve until SIGINT, SIGTERM or SIGHUP; what runs then is stopped and its end is stored.

    `access.port` is the port to listen at, 0 for any that is free; it becomes the one that was taken. `ready`
    is given the link, for each address, when a browser can open it; `stopping` is called when the server is
    told to end.

    Raises:
        SidequestError: `USAGE` when the address cannot be had; what `open_application` raises.
    """
    listening = bind(access)
    try:
        with _Ending(stopping) as ending:
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
                server = _Server(config, lambda: ready(access.new_links()), ending)
                await server.serve([listening])
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


class _Ending:
    """Keeps SIGTERM and SIGHUP from ending the process before and after the server has run.

    uvicorn hears SIGINT and SIGTERM while it runs; sessions are opened before and closed behind that.
    """

    def __init__(self, stopping: Callable[[], None]) -> None:
        self.asked = False
        """Whether the process was told to end."""
        self.server: uvicorn.Server | None = None
        """The server that is told, too."""
        self._stopping = stopping
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _Ending:
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            # What is ignored stays ignored: SIGHUP below nohup.
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self.ask)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def ask(self, number: int, frame: FrameType | None) -> None:
        """End; the second signal ends without waiting for requests."""
        if self.server is not None:
            self.server.force_exit = self.asked
            self.server.should_exit = True
        if not self.asked:
            self.asked = True
            with suppress(OSError):  # a terminal that is gone
                self._stopping()


class _Server(uvicorn.Server):
    """uvicorn, which says when it is ready and leaves the end of the process to its caller."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None], ending: _Ending) -> None:
        super().__init__(config)
        self._ready = ready
        self._ending = ending
        ending.server = self
        self.should_exit = ending.asked

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer, and say so."""
        await super().startup(sockets)
        if self.started:
            self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End; the second signal ends without waiting for requests.

        The signal is not raised again behind the server, as uvicorn does: sessions are still to be closed.
        """
        self._ending.ask(sig, frame)


def open_browser(link: str) -> None:
    """Open `link` in a browser that has a window; without one, nothing happens."""
    windows = (
        sys.platform in ("win32", "darwin") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
    if windows:
        asyncio.get_running_loop().run_in_executor(None, webbrowser.open, link)
