"""Pages for what cannot be shown: nothing at an address, and a page that failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import Request, Response
from nicegui import Client, core, ui
from starlette.exceptions import HTTPException

from sidequest.core.errors import SidequestError
from sidequest.surfaces.web.frame import frame
from sidequest.surfaces.web.tags import Tag

if TYPE_CHECKING:
    from sidequest.surfaces.app.application import Application


def add_pages(application: Application) -> None:
    """Serve errors as pages: NiceGUI's own would show what the inside of the program said."""

    @core.app.exception_handler(404)
    async def nothing_here(request: Request, error: HTTPException) -> Response:
        with Client(ui.page(""), request=request) as client:
            _say(application, "Nothing is here", "There is no page at this address.")
            return client.build_response(request, 404)

    core.app.on_page_exception(lambda error: _failed(application, error))


def _failed(application: Application, error: Exception) -> None:
    if isinstance(error, SidequestError):
        _say(application, "This page cannot be shown", f"{error.cause} {error.remedy}")
        return
    what = f"The server failed: {type(error).__name__}. Its terminal shows where; report it as a defect."
    _say(application, "This page failed", what)


def _say(application: Application, title: str, text: str) -> None:
    with frame(application, title, at=""):
        Tag("h1", title)
        Tag("p", text)
        Tag("a", "All sessions", href="/")
