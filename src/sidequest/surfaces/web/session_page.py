"""The page of one session: its conversation, its delegations, its questions, and where one writes to it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from nicegui import background_tasks, ui

from sidequest.core.errors import SidequestError
from sidequest.surfaces.app.entries import Divider, Group, blocks
from sidequest.surfaces.app.resuming import resumable_now
from sidequest.surfaces.app.watching import Watched
from sidequest.surfaces.stored_rows import title_of
from sidequest.surfaces.storing import now_ms
from sidequest.surfaces.text import one_line
from sidequest.surfaces.web.composer import Composer
from sidequest.surfaces.web.context_panel import ContextPanel
from sidequest.surfaces.web.delegation_group import DelegationGroup, Works
from sidequest.surfaces.web.form import focus
from sidequest.surfaces.web.frame import BUILD_S, STATIC, frame
from sidequest.surfaces.web.gauge import Gauge
from sidequest.surfaces.web.keyed import KeyedList, Piece
from sidequest.surfaces.web.question_card import QuestionCard
from sidequest.surfaces.web.said import (
    Spoken,
    compaction_words,
    fork_session,
    sameness,
    spoken,
)
from sidequest.surfaces.web.session_desk import SessionDesk
from sidequest.surfaces.web.tags import Tag

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from sidequest.surfaces.app.application import Application
    from sidequest.surfaces.app.work import Work

PAUSE_S = 0.1
"""Least time between two updates of a page, however many events come."""
CHARS_A_SECOND = 40_000
"""How much growing text is laid out in a second at most: a long answer is updated less often."""
PANEL_PAUSE_S = 1.0
"""Least time between two readings of the open context panel."""
_TITLE_CHARS = 80
_Shown: TypeAlias = "Spoken | Works"


def add_pages(application: Application) -> None:
    """Serve `/sessions/{id}`."""

    @ui.page("/sessions/{session_id}", response_timeout=BUILD_S)
    async def page(session_id: str) -> None:
        try:
            watched = await Watched.open(application, session_id)
        except SidequestError as error:
            with frame(application, "No such session", at="sessions", stylesheets=("session.css",)):
                Tag("h1", "This session cannot be shown")
                Tag("p", error.cause)
                Tag("a", "All sessions", href="/")
            return
        styles = ("markdown.css", "session.css", "delegations.css", "context.css")
        with frame(application, title_of(watched.view.row), at="sessions", stylesheets=styles):
            ui.add_head_html(f'<script src="{STATIC}/session.js" defer></script>')
            _SessionPage(application, watched)


class _SessionPage:
    """The page of one browser tab."""

    def __init__(self, application: Application, watched: Watched) -> None:
        self._application = application
        self._watched = watched
        self._desk = SessionDesk(application, watched)
        self._changed = asyncio.Event()
        self._groups: dict[str, DelegationGroup] = {}
        self._opened_ms = now_ms()
        self._told: set[Hashable] = set()
        self._leave: Callable[[], object] = lambda: None
        self._watching = False
        self._chosen = False
        """Whether model or mode may have been changed, here or in another window."""
        self._panel_at = 0.0
        self._gone = False
        """Whether the page is not there any more: nothing of it may be drawn."""
        self._header()
        self._earlier = Tag("button", "Show earlier messages", "link-button earlier", type="button")
        self._earlier.on("click", self._show_earlier)
        self._empty = Tag("p", "Nothing was said yet. Write below what should be done.", "quiet-text empty")
        with Tag("section", classes="conversation", aria_label="Conversation") as conversation:
            self._list: KeyedList[_Shown] = KeyedList(
                conversation, key=lambda value: value.key, sameness=_sameness, make=self._piece
            )
        self._panel = ContextPanel(self._desk)
        with Tag("div", classes="desk"):
            self._error = Tag("p", classes="complaint", role="alert", hidden=True)
            self._question = QuestionCard(self._desk)
            self._composer = Composer(self._desk)
        self._desk.complain = self._complain
        self._desk.inspect = self._panel.show
        self._draw()
        self._keep_open()
        watched.changed = self._changed.set
        client = ui.context.client
        client.on_delete(application.live.subscribe(self._live_changed))
        tasks = [
            background_tasks.create(self._follow(), name="a page follows its session"),
            background_tasks.create(self._redraw(), name="a page is drawn"),
            background_tasks.create(self._composer.fill(), name="models of a session"),
        ]
        client.on_delete(lambda: self._end(tasks))
        client.on_delete(lambda: self._leave())

    def _is_gone(self) -> bool:
        return self._gone

    def _end(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        self._gone = True
        for task in tasks:
            task.cancel()

    def _header(self) -> None:
        row = self._watched.view.row
        with Tag("div", classes="session-head"):
            with Tag("div", classes="session-title"):
                self._title = Tag("h1", tabindex=-1)
                self._rename_form()
            with Tag("div", classes="session-facts"):
                Tag("span", row.root or "no folder", "mono folder", title=row.root or "")
            with Tag("div", classes="session-tools"):
                self._gauge = Gauge("Context of the session")
                context = Tag("button", "Context", "button small-button", type="button")
                context.on("click", lambda: self._panel.show(None))
                self._renaming = Tag("button", "Rename", "button small-button quiet", type="button")
                self._renaming.on("click", self._open_rename)
                fork = Tag("button", "Fork", "button small-button quiet", type="button")
                fork.on("click", lambda: fork_session(self._desk, None))

    def _rename_form(self) -> None:
        with Tag("form", classes="rename", hidden=True) as self._rename:
            field = Tag(
                "input",
                classes="field",
                type="text",
                aria_label="Title",
                maxlength=_TITLE_CHARS,
                required=True,
            )
            Tag("button", "Save", "button small-button primary", type="submit")
            cancel = Tag("button", "Cancel", "button small-button quiet", type="button")
            cancel.on("click", self._close_rename)
        self._title_field = field
        self._rename.on("keydown.escape", self._close_rename)
        self._rename.on(
            "submit",
            lambda event: self._save_title(str(event.args)),
            js_handler=f"""(event) => {{
              event.preventDefault();
              emit(document.getElementById("{field.html_id}").value);
            }}""",
        )

    def _open_rename(self) -> None:
        self._title_field.attribute("value", one_line(self._watched.view.row.title))
        self._rename.attribute("hidden", value=False)
        ui.run_javascript(f'document.getElementById("{self._title_field.html_id}").focus()')

    def _close_rename(self) -> None:
        self._rename.attribute("hidden", value=True)
        focus(self._renaming.html_id)

    async def _save_title(self, title: str) -> None:
        title = one_line(title, _TITLE_CHARS)
        if not title:
            return
        store = self._application.store
        if await self._desk.attempt(store.sessions.rename(self._watched.session_id, title)):
            self._rename.attribute("hidden", value=True)
            await self._watched.load()
            focus(self._title.html_id)

    def _piece(self, value: _Shown) -> Piece[_Shown]:
        if isinstance(value, Works):
            group = DelegationGroup(self._desk, value)
            self._groups[value.key] = group
            return group  # type: ignore[return-value]
        return spoken(self._desk, value)  # type: ignore[return-value]

    def _draw(self) -> None:
        view = self._watched.view
        works = self._works()
        shown = [
            Works(block.key, tuple(works[key] for key in block.ids if key in works))
            if isinstance(block, Group)
            else block
            for block in blocks(view.entries)
        ]
        self._list.show([value for value in shown if not isinstance(value, Works) or value.works])
        keys = {value.key for value in shown}
        self._groups = {key: group for key, group in self._groups.items() if key in keys}
        self._empty.attribute("hidden", bool(shown))
        self._earlier.attribute("hidden", view.complete)
        self._title.text = title_of(view.row)
        self._gauge.element.attribute("hidden", not view.parent.hard_limit)
        self._gauge.show(view.parent.tokens, view.parent.hard_limit)
        self._composer.show()
        self._question.show()
        self._notify(shown)

    def _works(self) -> dict[str, Work]:
        """Return the delegations with what no event tells: which ask a person, and which can be resumed."""
        view = self._watched.view
        live = self._application.live.get(self._watched.session_id)
        usable = resumable_now(live, view.resumable, working=view.working)
        asking = {question.delegation_id for question in self._desk.questions}
        return {
            key: replace(work, asking=key in asking and work.running, resumable=key in usable)
            for key, work in view.works.items()
        }

    def _notify(self, shown: list[_Shown]) -> None:
        """Tell of each compaction of the session that happened while somebody looked, once."""
        for value in shown:
            if not isinstance(value, Divider) or sameness(value) in self._told:
                continue
            self._told.add(sameness(value))
            if value.at_ms >= self._opened_ms:
                # A colour of ours: Quasar's own text colour beats every stylesheet.
                ui.notify(compaction_words(value), position="top", classes="toast", textColor="ink")

    def _complain(self, text: str) -> None:
        self._error.text = text
        self._error.attribute("hidden", not text)

    def _complain_only(self, text: str) -> None:
        if text:
            self._complain(text)

    def _live_changed(self) -> None:
        self._keep_open()
        self._chosen = True
        self._changed.set()

    def _keep_open(self) -> None:
        """Hold the session open while this page shows it; it may be opened, closed and opened again."""
        is_open = self._application.live.get(self._watched.session_id) is not None
        if is_open and not self._watching:
            self._leave = self._application.live.watch(self._watched.session_id)
        self._watching = is_open

    async def _show_earlier(self) -> None:
        await self._desk.attempt(self._watched.earlier())

    async def _follow(self) -> None:
        try:
            await self._watched.run()
        except* SidequestError as errors:
            for error in errors.exceptions:
                self._complain(str(error))

    async def _redraw(self) -> None:
        while not self._is_gone():
            running = self._panel.open or any(group.running for group in self._groups.values())
            # Not `wait_for`: in Python 3.11 it forgets a cancellation that comes together with news.
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0 if running else None):
                    await self._changed.wait()
            if self._is_gone():
                return
            changed = self._changed.is_set()
            self._changed.clear()
            with self._list.container:
                if changed:
                    self._draw()
                for group in self._groups.values():
                    group.tick()
                await self._refresh_panel()
                if self._chosen:
                    self._chosen = False
                    # What somebody was told is not taken away by what the page does by itself.
                    await self._desk.attempt(self._take_choices(), complain=self._complain_only)
            await asyncio.sleep(max(PAUSE_S, self._growing() / CHARS_A_SECOND))

    async def _take_choices(self) -> None:
        row = await self._application.store.sessions.get(self._watched.session_id)
        if (row.model, row.title) != (self._watched.view.row.model, self._watched.view.row.title):
            await self._watched.load()
        await self._composer.take_choices()

    async def _refresh_panel(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._panel.open and now - self._panel_at >= PANEL_PAUSE_S:
            self._panel_at = now
            await self._panel.refresh()

    def _growing(self) -> int:
        items = self._watched.view.turn.items
        return len(getattr(items[-1], "text", "")) if items else 0


def _sameness(value: _Shown) -> Hashable:
    return value.key if isinstance(value, Works) else sameness(value)
