"""Where runs are stored: opening the store that option, variable or settings name; picking a session in it.

Nothing here loads pydantic-ai: `sessions list` must not.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.store import processes

if TYPE_CHECKING:
    from sidequest.store import Lease, SessionRow, Store
    from sidequest.surfaces.settings import Settings

_FEW = 50
"""Sessions that are looked at before all of them are."""


@dataclass(frozen=True, slots=True)
class Keeping:
    """Where a run is stored, and which session it goes on with."""

    store: str | None = None
    """Address that beats variable and settings; None takes theirs, else the user's data folder."""
    off: bool = False
    """Whether nothing is stored."""
    newest: bool = False
    """Whether it goes on with the newest session of the folder."""
    session: str | None = None
    """Id, or the beginning of one, of the session it goes on with, or that `delegation` belongs to."""
    delegation: str | None = None
    """Id, or the beginning of one, of the delegation it goes on with."""

    def check(self) -> None:
        """Refuse options that contradict each other.

        Raises:
            SidequestError: `USAGE`.
        """
        given = [
            option
            for option, value in (
                ("--store", self.store is not None),
                ("--continue", self.newest),
                ("--session", self.session is not None),
            )
            if value
        ]
        if self.off and given:
            raise _usage(f"--no-store and {given[0]} contradict each other.", "Leave one of them out.")
        if self.newest and self.session is not None:
            raise _usage("--continue and --session contradict each other.", "Leave one of them out.")


def now_ms() -> int:
    """Return the time in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


async def open_to_keep(url: str | None, settings: Settings, secrets: Iterable[str]) -> Store:
    """Open the store of a run; one that is not there is made. `url` None takes that of the settings.

    Raises:
        SidequestError: it cannot be opened; the remedy also says how to run without one.
    """
    from sidequest.store import Store

    try:
        return await Store.open(url if url is not None else settings.store, env=os.environ, secrets=secrets)
    except SidequestError as error:
        if error.code is ErrorCode.SETTINGS_INVALID:
            raise
        remedy = f"{error.remedy.rstrip('.')}; --no-store runs without keeping anything."
        raise SidequestError(error.code, error.cause, remedy) from error


@asynccontextmanager
async def existing_store(url: str | None) -> AsyncIterator[Store]:
    """Open a store to look at what is there; None takes that of the settings.

    Raises:
        SidequestError: `USAGE` when `url` names a file that is not there; the store cannot be opened.
    """
    from sidequest.store import Store
    from sidequest.store.locations import locate
    from sidequest.surfaces.settings import load_settings

    settings = load_settings()
    file = None if url is None else locate(url, os.environ).place.file
    if file is not None and not file.exists():
        raise _usage(f"There is no store at {file}.", "Name an existing one, or leave --store out.")
    secrets = [entry.api_key.get_secret_value() for entry in settings.models.values() if entry.api_key]
    address = url if url is not None else settings.store
    async with await Store.open(address, env=os.environ, secrets=secrets) as store:
        yield store


async def newest_of(store: Store, root: Path) -> SessionRow:
    """Return the session of the folder `root` that was used last.

    One with a conversation goes before those that hold delegations alone; one that holds nothing is none.

    Raises:
        SidequestError: `SESSION_UNKNOWN` when there is none.
    """
    wanted = _resolved(root)
    for limit in (_FEW, sys.maxsize):
        rows = await store.sessions.list(limit=limit, root=wanted)
        found = next((row for row in rows if row.messages), None)
        if found is not None:
            return found
        if len(rows) < limit:
            delegated = next((row for row in rows if row.delegations), None)
            if delegated is not None:
                return delegated
            break
    raise SidequestError(
        ErrorCode.SESSION_UNKNOWN,
        f"There is no session of the folder {wanted} to continue.",
        "Leave --continue out to begin one; `sidequest sessions list` shows those of other folders.",
    )


def is_held(lease: Lease | None) -> bool:
    """Say whether somebody works on a session at this moment."""
    return processes.is_held(lease, now_ms())


def folder_of(row: SessionRow, remedy: str) -> Path:
    """Return the folder a session works in.

    Raises:
        SidequestError: `USAGE` with `remedy` when it is gone, or there never was one.
    """
    if row.root is None:
        raise _usage(f"Session {row.id} has no folder.", remedy)
    if not Path(row.root).is_dir():
        raise _usage(f"The folder {row.root} of session {row.id} is gone.", remedy)
    return Path(row.root)


def _resolved(folder: Path) -> str:
    return str(folder.resolve())


def _usage(cause: str, remedy: str) -> SidequestError:
    return SidequestError(ErrorCode.USAGE, cause, remedy)
