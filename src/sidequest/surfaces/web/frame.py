"""What every page stands in: the way past the header, the names of the pages, who waits, light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nicegui import ui

from sidequest.surfaces.text import some
from sidequest.surfaces.web.reconnection import catch_up
from sidequest.surfaces.web.tags import Tag

if TYPE_CHECKING:
    from sidequest.surfaces.app.application import Application

STATIC = "/static"
"""Where our stylesheets are served."""
THEME_COOKIE = "sidequest_theme"
"""Cookie with the look that a person chose: `light` or `dark`; without it the system's is taken."""
BUILD_S = 60.0
"""How long a page may take until it can be sent, in seconds: a busy machine is no error."""
_YEAR_S = 365 * 24 * 3600
_DARK = {"light": False, "dark": True}
_NEXT = {"auto": "light", "light": "dark", "dark": "auto"}
_SYMBOLS = {"auto": "◐", "light": "○", "dark": "●"}
_WORDS = {"auto": "as the system", "light": "light", "dark": "dark"}


@dataclass(frozen=True, slots=True)
class Destination:
    """A page that the header leads to."""

    key: str
    label: str
    path: str


DESTINATIONS = (
    Destination("sessions", "Sessions", "/"),
    Destination("agents", "Subagents", "/agents"),
    Destination("settings", "Settings", "/settings"),
)


@contextmanager
def frame(
    application: Application, title: str, *, at: str, stylesheets: tuple[str, ...] = ()
) -> Iterator[None]:
    """Put what is built inside into the main part of a page.

    `title` is that of the browser's tab; `at` the key of the destination that is marked as the current one,
    empty for none; `stylesheets` are names of files in `static/` beside `base.css`.
    """
    ui.page_title(f"{title} - sidequest" if title else "sidequest")
    for name in ("base.css", *stylesheets):
        ui.add_head_html(f'<link rel="stylesheet" href="{STATIC}/{name}">')
    ui.add_head_html(f'<script src="{STATIC}/writing.js" defer></script>')
    ui.add_head_html(f'<script src="{STATIC}/connection.js" defer></script>')
    ui.context.client.on_connect(catch_up)
    content = ui.context.client.content
    content.classes("page").props("tabindex=-1")
    with ui.header(wrap=False).classes("top"):
        Tag("a", "Skip to the content", "skip", href=f"#{content.html_id}")
        Tag("a", "sidequest", "brand", href="/")
        with Tag("nav", classes="places", aria_label="Pages"):
            for place in DESTINATIONS:
                Tag("a", place.label, href=place.path, aria_current="page" if place.key == at else None)
        _waiting(application)
        _theme_switch()
    with content:
        yield


def _waiting(application: Application) -> None:
    """Say how many questions wait in all sessions, and lead to the oldest of them."""
    sign = Tag("a", classes="waiting", role="status", hidden=True)

    def show() -> None:
        queues = application.live.questions()
        number = sum(len(questions) for _, questions in queues)
        sign.text = f"{some(number, 'question')} waiting" if number else ""
        sign.attribute("hidden", not number)
        sign.attribute("href", f"/sessions/{queues[0][0].id}" if queues else None)

    show()
    ui.context.client.on_delete(application.live.subscribe(show))


def _theme_switch() -> None:
    theme = ui.context.client.request.cookies.get(THEME_COOKIE, "auto")
    theme = theme if theme in _NEXT else "auto"
    look = ui.dark_mode(_DARK.get(theme))
    button = Tag("button", classes="theme", type="button")

    def show(chosen: str) -> None:
        button.text = _SYMBOLS[chosen]
        words = f"Look: {_WORDS[chosen]}. Change it to {_WORDS[_NEXT[chosen]]}."
        button.attribute("aria_label", words)
        button.attribute("title", words)

    def change() -> None:
        nonlocal theme
        theme = _NEXT[theme]
        look.value = _DARK.get(theme)
        age = _YEAR_S if theme in _DARK else 0
        cookie = f"{THEME_COOKIE}={theme}; path=/; max-age={age}; samesite=strict"
        ui.run_javascript(f'document.cookie = "{cookie}"')
        show(theme)

    show(theme)
    button.on("click", change)
