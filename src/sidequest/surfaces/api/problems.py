"""Errors of the API: problem documents (RFC 9457) with a stable code, a cause and a remedy."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from sidequest.core.errors import ErrorCode, SidequestError, bounded_message

MEDIA_TYPE = "application/problem+json"
UNAUTHORIZED = "UNAUTHORIZED"
FORBIDDEN = "FORBIDDEN"
NOT_FOUND = "NOT_FOUND"
INVALID_REQUEST = "INVALID_REQUEST"
_SHOWN_MISTAKES = 20
_log = logging.getLogger(__name__)

_STATUS: Mapping[ErrorCode, HTTPStatus] = {
    ErrorCode.USAGE: HTTPStatus.UNPROCESSABLE_ENTITY,
    ErrorCode.SETTINGS_INVALID: HTTPStatus.UNPROCESSABLE_ENTITY,
    ErrorCode.SUBAGENT_INVALID: HTTPStatus.UNPROCESSABLE_ENTITY,
    ErrorCode.MODEL_NOT_CONFIGURED: HTTPStatus.UNPROCESSABLE_ENTITY,
    ErrorCode.CONTEXT_TOO_LARGE: HTTPStatus.UNPROCESSABLE_ENTITY,
    ErrorCode.SUBAGENT_CONTEXT_OVERFLOW: HTTPStatus.UNPROCESSABLE_ENTITY,
    ErrorCode.CONTEXT_COMPACTION_FAILED: HTTPStatus.UNPROCESSABLE_ENTITY,
    ErrorCode.SESSION_UNKNOWN: HTTPStatus.NOT_FOUND,
    ErrorCode.MESSAGE_UNKNOWN: HTTPStatus.NOT_FOUND,
    ErrorCode.DELEGATION_UNKNOWN: HTTPStatus.NOT_FOUND,
    ErrorCode.QUESTION_UNKNOWN: HTTPStatus.NOT_FOUND,
    ErrorCode.SUBAGENT_UNKNOWN: HTTPStatus.NOT_FOUND,
    ErrorCode.AGENT_BUSY: HTTPStatus.CONFLICT,
    ErrorCode.STORE_CONFLICT: HTTPStatus.CONFLICT,
    ErrorCode.TURN_ABORTED: HTTPStatus.CONFLICT,
    ErrorCode.TOOL_DENIED: HTTPStatus.FORBIDDEN,
    ErrorCode.PROVIDER_RATE_LIMITED: HTTPStatus.SERVICE_UNAVAILABLE,
    ErrorCode.PROVIDER_ERROR: HTTPStatus.BAD_GATEWAY,
    ErrorCode.PROVIDER_UNAUTHORIZED: HTTPStatus.BAD_GATEWAY,
    ErrorCode.NETWORK_ERROR: HTTPStatus.BAD_GATEWAY,
    ErrorCode.STREAM_FAILED: HTTPStatus.BAD_GATEWAY,
    ErrorCode.EMPTY_MODEL_RESPONSE: HTTPStatus.BAD_GATEWAY,
    ErrorCode.TIMEOUT: HTTPStatus.GATEWAY_TIMEOUT,
    ErrorCode.MISSING_EXTRA: HTTPStatus.NOT_IMPLEMENTED,
    ErrorCode.STORE_FULL: HTTPStatus.INSUFFICIENT_STORAGE,
    ErrorCode.STORE_LOCKED: HTTPStatus.SERVICE_UNAVAILABLE,
    ErrorCode.STORE_UNREACHABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    ErrorCode.STORE_READ_ONLY: HTTPStatus.SERVICE_UNAVAILABLE,
}
"""What a code means in HTTP; codes that are not here are a defect of ours or of the store: 500."""


class Mistake(BaseModel):
    """One thing that is wrong with a request."""

    where: str = Field(description="Path of the value, for example `body.text`.")
    message: str


class Problem(BaseModel):
    """Why a request was not done."""

    type: str = Field(default="about:blank", description="Always `about:blank`: the code says what happened.")
    title: str = Field(description="The cause, in one sentence.")
    status: int = Field(description="The HTTP status.", ge=400, le=599)
    code: str = Field(description="A stable code, for example `SESSION_UNKNOWN`.")
    remedy: str = Field(description="What can be done about it, in one sentence.")
    details: dict[str, str | int | float | bool | None] = Field(
        default_factory=dict, description="Facts by name."
    )
    errors: list[Mistake] = Field(default_factory=list, description="What is wrong with the request.")


RESPONSES: dict[int | str, dict[str, Any]] = {
    "4XX": {
        "description": "Why it was not done.",
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    },
    "5XX": {
        "description": "Why it could not be done.",
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    },
}
"""How every operation documents its errors."""


def status_of_code(code: ErrorCode) -> HTTPStatus:
    """Return the HTTP status of an error code."""
    return _STATUS.get(code, HTTPStatus.INTERNAL_SERVER_ERROR)


def problem_of(error: SidequestError) -> Problem:
    """Return an error of ours as a problem document."""
    return Problem(
        title=bounded_message(error.cause),
        status=status_of_code(error.code),
        code=error.code.value,
        remedy=bounded_message(error.remedy),
        details=dict(error.failure.details),
    )


def answer(problem: Problem, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Return a problem as a response."""
    return JSONResponse(
        problem.model_dump(mode="json"), problem.status, headers=dict(headers or {}), media_type=MEDIA_TYPE
    )


def add_problems(api: FastAPI) -> None:
    """Make every error of `api` a problem document."""
    api.add_exception_handler(SidequestError, _ours)
    api.add_exception_handler(RequestValidationError, _invalid)
    api.add_exception_handler(HTTPException, _http)
    api.add_exception_handler(Exception, _unexpected)


async def _ours(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, SidequestError)
    return answer(problem_of(error))


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    mistakes = [
        Mistake(where=".".join(map(str, found["loc"])), message=str(found["msg"]))
        for found in error.errors()[:_SHOWN_MISTAKES]
    ]
    first = f": {mistakes[0].where}: {mistakes[0].message}" if mistakes else ""
    return answer(
        Problem(
            title=bounded_message(f"The request is not as it should be{first}."),
            status=HTTPStatus.UNPROCESSABLE_ENTITY,
            code=INVALID_REQUEST,
            remedy="See /api/openapi.json for what this operation takes.",
            errors=mistakes,
        )
    )


async def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    known = {
        HTTPStatus.NOT_FOUND: ("There is nothing at this path.", NOT_FOUND),
        HTTPStatus.METHOD_NOT_ALLOWED: ("This path does not do that.", "METHOD_NOT_ALLOWED"),
    }
    title, code = known.get(HTTPStatus(error.status_code), (str(error.detail), INVALID_REQUEST))
    remedy = "See /api/openapi.json for the paths there are."
    problem = Problem(title=bounded_message(title), status=error.status_code, code=code, remedy=remedy)
    return answer(problem, error.headers)


async def _unexpected(request: Request, error: Exception) -> JSONResponse:
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return answer(
        Problem(
            title=f"The server failed: {type(error).__name__}.",
            status=HTTPStatus.INTERNAL_SERVER_ERROR,
            code=ErrorCode.INTERNAL.value,
            remedy="The terminal of the server shows where it happened; report it as a defect.",
        )
    )
