"""`sidequest serve`: the web app on this machine, until Ctrl-C."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.surfaces.cli.errors import Exit
from sidequest.surfaces.cli.private_memory import keep_memory_private

_PARTS_OF_WEB = frozenset(
    {"fastapi", "nicegui", "sse_starlette", "starlette", "tomlkit", "uvicorn", "websockets"}
)


@dataclass(frozen=True, slots=True)
class Serving:
    """What is served, where, and to whom."""

    cwd: Path
    host: str
    port: int
    """0 takes a port that is free."""
    token: str | None
    store: str | None
    agents_dirs: tuple[Path, ...]
    open: bool
    """Whether a browser is opened."""
    names: tuple[str, ...] = ()
    """Host names by which a proxy passes requests on."""


def execute(serving: Serving) -> int:
    """Serve until Ctrl-C and return the exit code.

    Raises:
        SidequestError: `MISSING_EXTRA`; `USAGE` for an address that cannot be had or is not guarded; the
            settings are wrong, the store cannot be opened.
    """
    keep_memory_private()
    try:
        from sidequest.surfaces.web.access import Access
        from sidequest.surfaces.web.server import open_browser, serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _PARTS_OF_WEB:
            raise
        raise SidequestError(
            ErrorCode.MISSING_EXTRA,
            f"The web app needs the package {error.name}, which is not installed.",
            'Run: pip install "sidequest[web]"',
        ) from error

    def ready(links: tuple[str, ...]) -> None:
        link, *others = links
        print(f"open   {link}", flush=True)
        for other in others:
            print(f"or     {other}", flush=True)
        print("       the link works once; Ctrl-C ends the server", file=sys.stderr)
        if serving.open:
            open_browser(link)

    def stopping() -> None:
        print("stopping", file=sys.stderr)

    asyncio.run(
        serve(
            serving.cwd,
            Access(serving.host, serving.token, serving.port, frozenset(serving.names)),
            store_url=serving.store,
            agents_dirs=serving.agents_dirs,
            ready=ready,
            stopping=stopping,
        )
    )
    return Exit.DONE
