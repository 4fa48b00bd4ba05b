"""The API of an application in a folder, a home and a store of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from sidequest.surfaces.api.api import build_api
from sidequest.surfaces.app.application import Application
from tests.app.conftest import Opened, anyio_backend, empty_store, home, opened, ready_store, tree

__all__ = ["anyio_backend", "api", "empty_store", "home", "opened", "ready_store", "tree"]
QUESTION = "Where is BERTH_LIMIT defined?"


@dataclass
class Api:
    """The API and the application behind it."""

    client: httpx2.AsyncClient
    application: Application

    async def get(self, path: str, status: int = 200, **options: Any) -> Any:
        """Return what a path gives; the status is checked."""
        return await self.send("GET", path, status, **options)

    async def post(self, path: str, body: Any = None, status: int = 200) -> Any:
        """Send a body and return the answer; the status is checked."""
        return await self.send("POST", path, status, json={} if body is None else body)

    async def send(self, method: str, path: str, status: int, **options: Any) -> Any:
        """Return the JSON of an answer, None when it has no body."""
        answer = await self.client.request(method, path, **options)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    async def begin(self, **body: Any) -> str:
        """Begin a session and return its id."""
        return (await self.post("/sessions", body, 201))["id"]

    async def done(self, session_id: str) -> None:
        """Wait for the work of a session."""
        live = self.application.live.get(session_id)
        assert live is not None and live.work is not None
        await live.work

    async def ask(self, session_id: str, text: str = QUESTION) -> int:
        """Give a prompt, wait for its end and return the number that its events come after."""
        accepted = await self.post(f"/sessions/{session_id}/prompts", {"text": text}, 202)
        await self.done(session_id)
        return accepted["after"]


ApiFactory = Callable[[], AbstractAsyncContextManager[Api]]


@pytest.fixture
def api(opened: Opened) -> ApiFactory:
    """Open the application and its API; each time as another process would."""

    @asynccontextmanager
    async def open_it() -> AsyncIterator[Api]:
        async with opened() as application:
            transport = httpx2.ASGITransport(app=build_api(application), raise_app_exceptions=False)
            async with httpx2.AsyncClient(transport=transport, base_url="http://api") as client:
                yield Api(client, application)

    return open_it
