"""The settings over HTTP."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from sidequest.surfaces.api.api import build_api
from sidequest.surfaces.app.application import Application
from tests.app.conftest import anyio_backend
from tests.surfaces.conftest import home, tree

__all__ = ["anyio_backend", "home", "tree"]

pytestmark = pytest.mark.anyio
SECRET = "fake-secret-value"


@pytest.fixture
async def api(tree: Path) -> AsyncIterator[httpx.AsyncClient]:
    nothing: Any = None
    app = build_api(Application(tree, dict(os.environ), nothing, nothing))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api") as client:
        yield client


async def test_values_are_changed_and_read(api: httpx.AsyncClient):
    mark = (await api.get("/settings")).json()["mark"]
    changed = await api.patch("/settings", json={"maxTurns": 20, "mark": mark})
    assert changed.json()["values"]["maxTurns"] == 20
    late = await api.patch("/settings", json={"maxTurns": 30, "mark": mark})
    assert (late.status_code, late.json()["code"]) == (409, "STORE_CONFLICT")


async def test_a_key_goes_in_and_never_comes_out(api: httpx.AsyncClient, home: Path):
    model = {"baseUrl": "http://127.0.0.1:9/v1", "apiKey": SECRET, "contextWindow": 9000}
    made = await api.patch("/settings/models/work/big", json=model)
    assert made.status_code == 200
    assert SECRET in (home / ".config/sidequest/config.toml").read_text()
    assert SECRET not in made.text + (await api.get("/settings")).text
    wrong = await api.patch("/settings/models/work/big", json={"apiKey": SECRET, "baseUrl": "no"})
    assert (wrong.status_code, SECRET in wrong.text) == (422, False)
    assert wrong.json()["details"] == {
        "baseUrl": "should be an address that starts with http:// or https://."
    }
    gone = await api.delete("/settings/models/work/big")
    assert all(row["key"] != "work/big" for row in gone.json()["models"])


async def test_what_cannot_be_is_named_by_field(api: httpx.AsyncClient):
    refused = await api.patch("/settings", json={"maxRunning": 99})
    assert (refused.status_code, list(refused.json()["details"])) == (422, ["maxRunning"])
