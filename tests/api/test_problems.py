"""Errors over HTTP: problem documents with a stable code, the cause as title, and a remedy."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.surfaces.api.problems import add_problems, status_of_code
from tests.api.conftest import ApiFactory

pytestmark = pytest.mark.anyio
OWN_FAILURES = {
    "INTERNAL",
    "UNEXPECTED_DELEGATION_REJECTION",
    "STORE_FAILED",
    "STORE_DAMAGED",
    "STORE_NEWER",
} | {
    code
    for code in ErrorCode
    if code.startswith("SUBAGENT_") and code.rpartition("_")[2] in ("REPORT", "TRUNCATED", "LIMIT", "TIMEOUT")
}
"""Codes of outcomes that no operation answers with, and of defects: 500 is right."""


async def raising(error: Exception) -> httpx2.Response:
    api = FastAPI()
    add_problems(api)

    @api.get("/")
    async def fail() -> None:
        raise error

    transport = httpx2.ASGITransport(app=api, raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://api") as client:
        return await client.get("/")


async def test_an_error_of_ours_says_code_cause_remedy_and_facts() -> None:
    answer = await raising(
        SidequestError(ErrorCode.AGENT_BUSY, "It works.", "Wait for it.", providerStatus=409)
    )
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json() == {
        "type": "about:blank",
        "title": "It works.",
        "status": 409,
        "code": "AGENT_BUSY",
        "remedy": "Wait for it.",
        "details": {"providerStatus": 409},
        "errors": [],
    }


@pytest.mark.parametrize("code", sorted(set(ErrorCode) - OWN_FAILURES))
def test_no_code_that_a_caller_can_cause_is_a_failure_of_the_server(code: str) -> None:
    assert status_of_code(ErrorCode(code)) is not HTTPStatus.INTERNAL_SERVER_ERROR


async def test_a_defect_says_that_it_is_one_and_nothing_of_its_inside(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answer = await raising(ValueError("a secret of the inside"))
    assert (answer.status_code, answer.json()["code"]) == (500, "INTERNAL")
    assert "secret" not in answer.text
    assert "a secret of the inside" in caplog.text


async def test_keys_in_an_error_are_not_sent() -> None:
    cause = "The key sk-abcdefghijklmnopqrst was refused."
    answer = await raising(SidequestError(ErrorCode.PROVIDER_UNAUTHORIZED, cause, "Set another."))
    assert "sk-abc" not in answer.text


@pytest.mark.parametrize(
    ("method", "path", "body", "where"),
    [
        ("POST", "/sessions", {"titel": "x"}, "body.titel"),
        ("POST", "/sessions", {"permissionMode": "yolo"}, "body.permissionMode"),
        ("POST", "/sessions/x/prompts", {"text": ""}, "body.text"),
        ("POST", "/sessions/x/prompts", [], "body"),
        ("GET", "/sessions?limit=0", None, "query.limit"),
        ("GET", "/sessions/x/events?after=-1", None, "query.after"),
        ("POST", "/permissions/x", {"decision": "maybe"}, "body.decision"),
    ],
)
async def test_a_wrong_request_names_the_value(
    api: ApiFactory, method: str, path: str, body: Any, where: str
) -> None:
    async with api() as it:
        problem = await it.send(method, path, 422, json=body)
        assert (problem["code"], problem["errors"][0]["where"]) == ("INVALID_REQUEST", where)


async def test_what_is_no_json_is_a_wrong_request(api: ApiFactory) -> None:
    async with api() as it:
        headers = {"content-type": "application/json"}
        problem = await it.send("POST", "/sessions", 422, content=b"{", headers=headers)
        assert problem["code"] == "INVALID_REQUEST"


async def test_a_path_or_a_method_that_is_not_there_is_a_problem_too(api: ApiFactory) -> None:
    async with api() as it:
        assert (await it.get("/nowhere", 404))["code"] == "NOT_FOUND"
        assert (await it.send("DELETE", "/sessions", 405))["code"] == "METHOD_NOT_ALLOWED"


async def test_a_folder_that_is_not_there_is_named(api: ApiFactory) -> None:
    async with api() as it:
        for root in ("/nowhere", "~nobody-of-that-name/x", "a\0b", "a" * 300):
            problem = await it.post("/sessions", {"root": root}, 422)
            assert problem["code"] == "USAGE"


async def test_the_document_says_how_errors_look_and_loads_nothing_from_elsewhere(api: ApiFactory) -> None:
    async with api() as it:
        document = await it.get("/openapi.json")
        assert {"title", "status", "code", "remedy"} <= set(
            document["components"]["schemas"]["Problem"]["properties"]
        )
        for path in document["paths"].values():
            for operation in path.values():
                assert "application/problem+json" in operation["responses"]["4XX"]["content"]
        for path in ("/docs", "/redoc"):
            await it.get(path, 404)


async def test_the_document_says_how_one_comes_in(api: ApiFactory) -> None:
    async with api() as it:
        document = await it.get("/openapi.json")
        schemes = document["components"]["securitySchemes"]
        assert (schemes["token"]["scheme"], schemes["cookie"]["in"]) == ("bearer", "cookie")
        assert document["security"] == [{"token": []}, {"cookie": []}]
