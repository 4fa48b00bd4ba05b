"""The API put together: an application of its own, mounted at `/api`, with its OpenAPI document."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, FastAPI

from sidequest.surfaces.api.agents import agents_router
from sidequest.surfaces.api.delegations import delegations_router
from sidequest.surfaces.api.events import events_router
from sidequest.surfaces.api.permissions import permissions_router
from sidequest.surfaces.api.problems import RESPONSES, Problem, add_problems
from sidequest.surfaces.api.sessions import sessions_router
from sidequest.surfaces.api.settings import settings_router

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidequest.surfaces.app.application import Application

PREFIX = "/api"
"""Where the API is mounted."""
ROUTERS: tuple[Callable[[Application], APIRouter], ...] = (
    sessions_router,
    delegations_router,
    events_router,
    permissions_router,
    agents_router,
    settings_router,
)
"""One function for each noun; paths are those below the prefix."""


def build_api(application: Application) -> FastAPI:
    """Return the API of `application`; its document is at `/api/openapi.json`."""
    api = FastAPI(
        title="sidequest",
        version=version("sidequest"),
        description="What the web app's pages stand on, and what a script can use.",
        docs_url=None,  # these pages would load their scripts from another host
        redoc_url=None,
        responses=RESPONSES,
    )
    add_problems(api)
    for router in ROUTERS:
        api.include_router(router(application))
    _complete_document(api)
    return api


_SCHEMES: dict[str, dict[str, str]] = {
    "token": {"type": "http", "scheme": "bearer", "description": "The token of `--token`, for scripts."},
    "cookie": {
        "type": "apiKey",
        "in": "cookie",
        "name": "sidequest_PORT",
        "description": "What the link gives a browser; PORT is that of the server. A request that changes "
        "something must also have the server's own `Origin`.",
    },
}
"""How a request says who sends it; the guard before the API checks it."""


def _complete_document(api: FastAPI) -> None:
    """Put into the API's own document what no operation has in its types: problems, and who may come in."""
    written = api.openapi

    def openapi() -> dict[str, Any]:
        document = written()
        schema = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        document["components"]["schemas"] |= {**schema.pop("$defs"), "Problem": schema}
        document["components"]["securitySchemes"] = _SCHEMES
        document["security"] = [{name: []} for name in _SCHEMES]
        return document

    api.openapi = openapi  # type: ignore[method-assign]
