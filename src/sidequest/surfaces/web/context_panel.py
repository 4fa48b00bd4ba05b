"""The context of a session or of a delegation: what fills it, how its size went, and each request."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from nicegui import ui

from sidequest.core.errors import SidequestError
from sidequest.surfaces.app.context_window import (
    WINDOW_EVENTS,
    ContextWindow,
    context_window,
    share_of,
)
from sidequest.surfaces.app.reading import events_of
from sidequest.surfaces.text import count, some
from sidequest.surfaces.web.delegation_card import name_of
from sidequest.surfaces.web.drawing import size_plot
from sidequest.surfaces.web.tags import Tag

if TYPE_CHECKING:
    from sidequest.surfaces.web.session_desk import SessionDesk

ROWS = 100
"""Most requests in the table, the newest ones."""


class ContextPanel:
    """A panel beside the conversation, or behind it on a narrow page; closed until somebody asks for it."""

    def __init__(self, desk: SessionDesk) -> None:
        self._desk = desk
        self._lane: str | None = None
        self._windows: dict[str, int | None] = {}
        self._seen: ContextWindow | None = None
        self.open = False
        with Tag("aside", classes="panel", aria_label="Context", hidden=True, tabindex=-1) as self.element:
            with Tag("div", classes="panel-head"):
                self._title = Tag("h2", "Context")
                close = Tag("button", "Close", "button small-button quiet", type="button")
                close.on("click", self.close)
            self._model = Tag("p", classes="small")
            self._body = Tag("div", classes="panel-body")
        self.element.on("keydown.escape", self.close)

    async def show(self, lane: str | None) -> None:
        """Open it for the session (None) or a delegation."""
        self._lane, self._seen = lane, None
        self.open = True
        self.element.attribute("hidden", value=False)
        # It remembers what opened it: there one goes on when it is closed.
        self._run(
            "if (!panel.contains(document.activeElement)) panel.opener = document.activeElement; "
            "panel.focus({ preventScroll: true })"
        )
        await self.refresh()
        # On a narrow page it is a part of the page, behind a conversation that may be long.
        self._run('panel.scrollIntoView({ block: "start" })')

    def _run(self, script: str) -> None:
        """Run a script on `panel` when the browser has drawn what was sent before."""
        found = f'document.getElementById("{self.element.html_id}")'
        ui.run_javascript(f"setTimeout(() => {{ const panel = {found}; if (panel) {{ {script}; }} }}, 50)")

    def close(self) -> None:
        """Close it."""
        self.open = False
        self.element.attribute("hidden", value=True)
        ui.run_javascript(f'document.getElementById("{self.element.html_id}").opener?.focus()')

    async def refresh(self) -> None:
        """Read what was told since."""
        if not self.open:
            return
        desk, lane = self._desk, self._lane
        found: list[ContextWindow] = []

        async def read() -> None:
            events = await events_of(desk.application, desk.session_id, 0, WINDOW_EVENTS, lane)
            found.append(context_window(events))

        if not await desk.attempt(read()) or found[0] == self._seen:
            return
        self._seen = found[0]
        work = desk.watched.view.works.get(lane) if lane else None
        self._title.text = f"Context of {name_of(work)}" if work else "Context of the session"
        model = work.view.model if work else desk.watched.view.row.model or ""
        window = await self._window(model)
        self._model.text = f"{model} · window {count(window)} tokens" if window else model
        self._body.clear()
        with self._body:
            self._draw(found[0], window)

    def _draw(self, seen: ContextWindow, window: int | None) -> None:
        newest = seen.newest
        if newest is None:
            Tag("p", "No request has left yet.", "quiet-text")
            return
        Tag("h3", "What fills the window")
        parts = seen.parts(window)
        total = sum(part.tokens for part in parts) or 1
        words = ", ".join(f"{part.label} {count(part.tokens)}" for part in parts)
        with Tag("div", classes="fill-bar", role="img", aria_label=f"{words} tokens"):
            for part in parts:
                share = part.tokens / total * 100
                Tag("span", classes=f"fill {part.kind}", title=part.label).style(f"width: {share:.2f}%")
        with Tag("dl", classes="legend"):
            for part in parts:
                with Tag("div", classes="legend-row"):
                    with Tag("dt"):
                        Tag("span", classes=f"swatch {part.kind}", aria_hidden="true")
                        Tag("span", part.label)
                    Tag("dd", f"{count(part.tokens)}")
                    Tag("dd", _percent(part.tokens / total), "small")
        Tag("h3", "Size over time")
        ui.html(size_plot(seen), sanitize=True).classes("plot-box")
        shrinks = len(seen.shrinks)
        lost = sum(shrunk.degraded for shrunk in seen.shrinks)
        said = f"{some(shrinks - lost, 'compaction')}"
        Tag("p", said if not lost else f"{said}, {lost} without a summary", "small")
        self._table(seen)

    def _table(self, seen: ContextWindow) -> None:
        Tag("h3", "Requests")
        if len(seen.requests) > ROWS:
            Tag("p", f"The newest {ROWS} of {count(len(seen.requests))}.", "small")
        with Tag("div", classes="table-box", tabindex=0), Tag("table", classes="requests"):
            with Tag("thead"), Tag("tr"):
                for head in ("#", "Time", "Tokens", "Full", "Mostly"):
                    Tag("th", head, scope="col")
            with Tag("tbody"):
                # What happened since the newest request stands above it.
                _shrunk(seen, len(seen.requests))
                for sent in reversed(seen.requests[-ROWS:]):
                    with Tag("tr"):
                        Tag("td", str(sent.number))
                        Tag("td", datetime.fromtimestamp(sent.at_ms / 1000).strftime("%H:%M:%S"))
                        Tag("td", count(sent.tokens))
                        Tag("td", f"{sent.tokens / max(1, sent.hard_limit):.0%}")
                        Tag("td", share_of(sent))
                    _shrunk(seen, sent.number - 1)

    async def _window(self, model: str) -> int | None:
        """Return the context window of a model, None when it is not known any more."""
        if model not in self._windows:
            row = self._desk.watched.view.row
            folder = Path(row.root) if row.root else None
            try:
                parts = await asyncio.to_thread(self._desk.application.parts, folder)
                self._windows[model] = parts.registry.resolve(model).budget().window if model else None
            except SidequestError:
                self._windows[model] = None
        return self._windows[model]


def _shrunk(seen: ContextWindow, behind: int) -> None:
    """Put the rows of what replaced history when `behind` requests had left into the table at hand."""
    for shrunk in reversed(seen.shrinks):
        if shrunk.behind == behind:
            what = "reduced without a summary" if shrunk.degraded else "compacted"
            sizes = f"{count(shrunk.tokens_before)} → {count(shrunk.tokens_after)}"
            with Tag("tr", classes="shrunk"):
                Tag("td", f"{what}: {sizes} tokens", colspan=5)


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.005 else "<1%"
