"""Subagents over HTTP: the operations of specification 4.9, and their problem documents."""

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
from tests.surfaces.conftest import home, tree, write_definition

__all__ = ["anyio_backend", "home", "tree"]

pytestmark = pytest.mark.anyio
NEW = {"name": "Tide Reader", "description": "Reads tides.", "body": "Read them.", "tools": ["Read"]}


@pytest.fixture
async def api(tree: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the API of an application that has no sessions."""
    nothing: Any = None
    app = build_api(Application(tree, dict(os.environ), nothing, nothing))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api") as client:
        yield client


async def test_a_subagent_is_created_read_changed_switched_and_removed(api: httpx.AsyncClient, home: Path):
    made = await api.post("/agents", json=NEW)
    assert (made.status_code, made.json()["name"]) == (201, "tide-reader")
    read = (await api.get("/agents/tide-reader")).json()
    assert (read["body"], read["maxTokens"], read["budget"]["model"]) == (
        "Read them.",
        None,
        "offline/extractive",
    )
    changed = await api.patch("/agents/tide-reader", json={"maxTokens": 4000, "mark": read["mark"]})
    assert (changed.status_code, changed.json()["maxTokens"]) == (200, 4000)
    off = await api.put("/agents/tide-reader/enabled", json={"enabled": False})
    assert off.json()["state"] == "disabled"
    assert (await api.delete("/agents/tide-reader")).status_code == 204
    assert list((home / ".agents/subagents").iterdir()) == []


async def test_the_list_has_groups(api: httpx.AsyncClient):
    found = (await api.get("/agents")).json()
    assert [group["kind"] for group in found["groups"]] == ["builtin", "mine"]
    assert found["trust"]["trusted"] is False


async def test_each_field_that_is_wrong_is_named_in_the_problem(api: httpx.AsyncClient):
    refused = await api.post("/agents", json={**NEW, "name": "", "maxTokens": "many"})
    problem = refused.json()
    assert (refused.status_code, problem["code"]) == (422, "SUBAGENT_INVALID")
    assert list(problem["details"]) == ["name", "maxTokens"]


async def test_a_change_of_a_file_that_changed_meanwhile_is_a_conflict(api: httpx.AsyncClient, home: Path):
    made = (await api.post("/agents", json=NEW)).json()
    file = home / ".agents/subagents/tide-reader.md"
    file.write_text(file.read_text() + "More.\n")
    refused = await api.patch("/agents/tide-reader", json={"description": "x", "mark": made["mark"]})
    assert (refused.status_code, refused.json()["code"]) == (409, "STORE_CONFLICT")


async def test_a_name_nobody_has_is_not_found(api: httpx.AsyncClient):
    missing = await api.get("/agents/nobody")
    assert (missing.status_code, missing.json()["code"]) == (404, "SUBAGENT_UNKNOWN")


async def test_a_file_of_another_scope_is_not_mistaken_for_ones_own(
    api: httpx.AsyncClient, home: Path, tree: Path
):
    write_definition(
        tree / ".claude/agents", "tide-reader", "---\nname: tide-reader\ndescription: d\n---\nGo.\n"
    )
    await api.post("/agents", json=NEW)
    theirs = {"scope": "project"}
    gone = await api.delete("/agents/tide-reader", params=theirs)
    changed = await api.patch("/agents/tide-reader", params=theirs, json={"description": "x"})
    assert [(answer.status_code, answer.json()["code"]) for answer in (gone, changed)] == [(422, "USAGE")] * 2
    assert (await api.delete("/agents/tide-reader", params={"scope": "nobodys"})).status_code == 404
    assert (home / ".agents/subagents/tide-reader.md").exists()


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/agents", {**NEW, "modell": "x"}),
        ("PATCH", "/agents/tide-reader", {"maxToken": 3}),
        ("POST", "/agents/preview", {"draft": {**NEW, "tool": "Bash"}}),
        ("PUT", "/agents/tide-reader/enabled", {"enabled": True, "on": True}),
        ("PUT", "/trust", {"trusted": True, "folder": "/"}),
        ("PATCH", "/settings", {"maxTurn": 3}),
        ("PATCH", "/settings", {"deny": {"tool": ["Bash"]}}),
        ("PATCH", "/settings/models/a/b", {"headers": {}}),
    ],
)
async def test_a_field_that_nobody_knows_is_refused(
    api: httpx.AsyncClient, method: str, path: str, body: dict[str, Any]
):
    answer = await api.request(method, path, json=body)
    assert answer.status_code == 422


async def test_a_preview_shows_the_file_and_the_budget(api: httpx.AsyncClient):
    shown = (await api.post("/agents/preview", json={"draft": NEW})).json()
    assert shown["text"].startswith("---\nname: Tide Reader\n")
    assert shown["budget"]["hardLimit"] == shown["budget"]["window"] - shown["budget"]["headroom"]


async def test_a_switch_is_shown_as_it_stands_also_where_something_else_keeps_a_file_off(
    api: httpx.AsyncClient, tree: Path
):
    write_definition(tree / ".agents/subagents", "pilot", "---\nname: pilot\ndescription: d\n---\n\nGo.\n")
    for on in (False, True):
        answer = (await api.put("/agents/pilot/enabled", json={"enabled": on})).json()
        assert (answer["state"], answer["enabled"]) == ("untrusted", on)


async def test_the_project_is_trusted_as_it_was_shown(api: httpx.AsyncClient, tree: Path):
    write_definition(tree / ".agents/subagents", "pilot", "---\nname: pilot\ndescription: d\n---\n\nGo.\n")
    seen = (await api.get("/trust")).json()
    old = await api.put("/trust", json={"trusted": True, "mark": "other"})
    new = await api.put("/trust", json={"trusted": True, "mark": seen["mark"]})
    assert (old.status_code, new.json()["trusted"]) == (409, True)


@pytest.mark.parametrize("text", ['"\\ud800"', '"a\\u0000b"', "[]", "null", "1e400"])
async def test_odd_values_are_refused_or_taken_and_never_a_failure(api: httpx.AsyncClient, text: str):
    for field in ("name", "description", "body", "model", "maxTokens", "tools"):
        body = f'{{"name": "odd", "description": "d", "body": "b", "{field}": {text}}}'
        answer = await api.post("/agents", content=body, headers={"content-type": "application/json"})
        assert answer.status_code in (201, 422), (field, answer.text)
        await api.delete("/agents/odd")
