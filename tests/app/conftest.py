"""An application in a folder, a home and a store of its own."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from sidequest.surfaces.app.application import Application, open_application
from tests.surfaces.conftest import empty_store, home, ready_store, tree

__all__ = ["anyio_backend", "empty_store", "home", "opened", "ready_store", "tree"]

Opened = Callable[[], AbstractAsyncContextManager[Application]]


@pytest.fixture
def opened(tree: Path, ready_store: Path) -> Opened:
    """Open the application of the small project; each time as another process would."""

    @asynccontextmanager
    async def open_it() -> AsyncIterator[Application]:
        async with open_application(tree, env=dict(os.environ)) as application:
            yield application

    return open_it


@pytest.fixture
def anyio_backend() -> str:
    """The event loop of tests that are marked with `anyio`."""
    return "asyncio"
