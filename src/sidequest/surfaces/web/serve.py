"""The app put together: the API, the pages of NiceGUI, our stylesheets, and the guard before all of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI
from nicegui import core, ui
from starlette.staticfiles import StaticFiles

from sidequest.surfaces.api.api import PREFIX, build_api
from sidequest.surfaces.web import agents_page, error_pages, session_page, sessions_page, settings_page
from sidequest.surfaces.web.frame import STATIC
from sidequest.surfaces.web.security import Guard

if TYPE_CHECKING:
    from sidequest.surfaces.app.application import Application
    from sidequest.surfaces.web.access import Access

PAGES = (sessions_page, session_page, agents_page, error_pages)
"""Modules with an `add_pages(application)`; the settings take who may come in, too."""
RECONNECT_S = 20.0
"""How long a page that lost its connection can take up where it was; later it is loaded anew."""


def build(application: Application, access: Access) -> FastAPI:
    """Return the whole web app. NiceGUI has one set of pages for each process: the newest call counts."""
    app = FastAPI(title="sidequest", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(Guard, access=access)
    app.mount(PREFIX, build_api(application))
    app.mount(STATIC, StaticFiles(directory=Path(__file__).parent / "static"))
    for pages in PAGES:
        pages.add_pages(application)
    settings_page.add_pages(application, access)
    _mount_pages(app)
    return app


def _mount_pages(app: FastAPI) -> None:
    # NiceGUI lets any origin talk to its socket, and one application of a process run with it once.
    core.sio.eio.cors_allowed_origins = None
    core.app.user_middleware.clear()
    core.app.middleware_stack = None
    ui.run_with(
        app,
        title="sidequest",
        dark=None,
        language="en-US",
        reconnect_timeout=RECONNECT_S,
        tailwind=False,
        gzip_middleware_factory=None,
        show_welcome_message=False,
    )
