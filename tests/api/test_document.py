"""Requests made up from the OpenAPI document: whatever is sent, the server answers and never fails."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, settings

from sidequest.surfaces.api.api import build_api
from tests.api.conftest import QUESTION
from tests.surfaces.conftest import SOURCES
from tests.web.served import Served, serve

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
TOKEN = "a-token-of-scripts"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
DOCUMENT = build_api(cast(Any, None)).openapi()
schema = schemathesis.openapi.from_dict(DOCUMENT)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server in a folder and a home of its own."""
    root, home = tmp_path_factory.mktemp("harbour"), tmp_path_factory.mktemp("home")
    for name, text in SOURCES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    with serve(root, home, "--token", TOKEN) as server:
        yield server


@pytest.fixture(scope="module")
def known(served: Served) -> Mapping[str, str]:
    """Ids of what there is."""
    with httpx2.Client(base_url=f"{served.url}/api", headers=HEADERS, timeout=60) as client:
        session = client.post("/sessions", json={}).json()["id"]
        client.post(f"/sessions/{session}/prompts", json={"text": QUESTION}).raise_for_status()
        while not (found := client.get(f"/sessions/{session}/delegations").json()["delegations"]):
            pass
        return {"session_id": session, "delegation_id": found[0]["id"], "name": "explorer"}


def answer(case: schemathesis.Case, served: Served) -> Any:
    """Send a request and return the answer; a failure of the server fails the test."""
    got = case.call(base_url=f"{served.url}/api", headers=HEADERS, timeout=60)
    assert got.status_code < 500, f"{case.method} {case.formatted_path}: {got.text}"
    if got.status_code >= 400:
        assert got.headers["content-type"] == ["application/problem+json"]
    return got


@schema.parametrize()
@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_no_request_makes_the_server_fail(
    case: schemathesis.Case, served: Served, known: Mapping[str, str]
) -> None:
    answer(case, served)
    endless = case.path.endswith("/stream")
    if endless or case.method == "DELETE" or not case.path_parameters.keys() & known.keys():
        return
    case.path_parameters = {name: known.get(name, value) for name, value in case.path_parameters.items()}
    answer(case, served)


def test_the_server_still_answers_and_told_of_no_failure(served: Served) -> None:
    assert httpx2.get(f"{served.url}/api/sessions", headers=HEADERS).status_code == 200
    log = Path(served.home / "serve.log").read_text()
    assert "Traceback" not in log
