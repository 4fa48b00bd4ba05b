"""The application: the settings, the store and the sessions that a served process works with."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sidequest.surfaces.app.live import LiveSessions
from sidequest.surfaces.assemble import Parts, Place, assemble

if TYPE_CHECKING:
    from sidequest.store import Store


@dataclass
class Application:
    """One for each process. Pages and API get everything from here and keep nothing of their own."""

    root: Path
    """Folder that new sessions work in unless another is named; absolute."""
    env: Mapping[str, str]
    """Environment of the process: settings variables and keys of providers."""
    store: Store
    live: LiveSessions
    """Sessions that this process works on."""
    agents_dirs: tuple[Path, ...] = ()
    """More folders with definitions, named on the command line."""

    def parts(self, root: Path | None = None) -> Parts:
        """Read settings, definitions and models anew: what was saved a moment ago counts.

        `root` None is the folder of the application.

        Raises:
            SidequestError: `SETTINGS_INVALID`; `USAGE` for a folder that is not there.
        """
        return assemble(Place(root or self.root, self.agents_dirs), self.env)


@asynccontextmanager
async def open_application(
    root: Path,
    *,
    store_url: str | None = None,
    agents_dirs: tuple[Path, ...] = (),
    env: Mapping[str, str] | None = None,
) -> AsyncIterator[Application]:
    """Open the application; leaving it stops what runs, stores its end and closes the store.

    `store_url` None is the store of the settings; `env` None the environment of the process.

    Raises:
        SidequestError: the settings are wrong, the folder is not there, the store cannot be opened.
    """
    from sidequest.store import Store

    env = os.environ if env is None else env
    parts = assemble(Place(root, agents_dirs), env)
    address = store_url if store_url is not None else parts.settings.store
    async with await Store.open(address, env=env, secrets=parts.registry.secrets()) as store:
        live = LiveSessions(store)
        application = Application(parts.root, env, store, live, agents_dirs)
        live.assemble = application.parts
        try:
            yield application
        finally:
            await live.close()
