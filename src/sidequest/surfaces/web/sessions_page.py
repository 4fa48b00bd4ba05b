"""The page Sessions: begin one, find one, and rename, fork or delete it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from nicegui import background_tasks, ui

from sidequest.core.errors import SidequestError
from sidequest.core.permissions import Mode
from sidequest.surfaces.app.deleting import delete_session
from sidequest.surfaces.app.listing import Activity, Listed, list_sessions
from sidequest.surfaces.app.live import forked
from sidequest.surfaces.assemble import existing_folder
from sidequest.surfaces.paths import Shortener
from sidequest.surfaces.stored_rows import size_of, title_of
from sidequest.surfaces.storing import now_ms
from sidequest.surfaces.text import ago, one_line, short_id
from sidequest.surfaces.web.frame import BUILD_S, frame
from sidequest.surfaces.web.permission_words import MODE_WORDS
from sidequest.surfaces.web.tags import Tag
from sidequest.surfaces.web.writing import Writing

if TYPE_CHECKING:
    from sidequest.surfaces.app.application import Application

PAGE_SIZE = 50
REFRESH_S = 5.0
"""How often what other processes do is looked up."""
_PAUSE_S = 0.1
_ARROWS = """(event) => {
  const items = [...event.currentTarget.querySelectorAll(".q-item")];
  const at = items.indexOf(document.activeElement), last = items.length - 1;
  const to = {
    ArrowDown: at < last ? at + 1 : 0, ArrowUp: at > 0 ? at - 1 : last, Home: 0, End: last,
  }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  items[to].focus();
}"""
"""Moves the focus in a menu."""
_SIGNS = {
    Activity.WORKING: ("works", "accent"),
    Activity.ASKING: ("asks you", "warn"),
    Activity.ELSEWHERE: ("in another process", ""),
}


def add_pages(application: Application) -> None:
    """Serve `/`."""

    @ui.page("/", response_timeout=BUILD_S)
    async def page() -> None:
        with frame(application, "Sessions", at="sessions", stylesheets=("sessions.css",)):
            await _Page(application).build()


class _Page:
    """The page of one browser tab."""

    def __init__(self, application: Application) -> None:
        self.application = application
        self.search = ""
        self.limit = PAGE_SIZE
        self.rows: dict[str, _Row] = {}
        self.looking = False
        self.begun = ""
        """Address of the session that is being begun here; empty when none is."""
        self.paths = Shortener(application.root, Path.home())

    async def build(self) -> None:
        Tag("h1", "Sessions")
        self._composer()
        with Tag("section", classes="sessions", aria_label="Stored sessions"):
            ui.input(placeholder="Search titles and messages", on_change=self._searched).props(
                'outlined dense clearable debounce=250 type=search aria-label="Search sessions"'
            ).classes("search")
            self.list = Tag("ul", classes="session-list")
            self.note = Tag("p", classes="quiet-text empty", role="status", hidden=True)
            self.more = Tag("button", "Show more", "button", type="button", hidden=True)
            self.more.on("click", self._show_more)
        self.dialogs = Tag("div")  # outside of the rows: a row that goes must not take a dialog with it
        await self.refresh()
        client = ui.context.client
        client.on_delete(self.application.live.subscribe(self._changed))
        # The clock of "3 minutes ago", and what other processes did.
        ui.timer(REFRESH_S, self.refresh, immediate=False)

    def _composer(self) -> None:
        with Tag("form", classes="begin card") as form:
            self.prompt = Tag(
                "textarea",
                classes="begin-prompt",
                rows=2,
                placeholder="What should be done?",
                aria_label="What should be done?",
                autocomplete="off",
                autofocus=True,
            )
            with Tag("div", classes="begin-facts"):
                with Tag("details", classes="begin-choices small"):
                    Tag("summary", "Folder, model and permissions")
                    self._choices()
                self.start = Tag("button", "Start", "button primary", type="submit")
        Writing(self.prompt, "prompt", self._begin, _complain, self._go).sent_by(form, "submit")

    def _choices(self) -> None:
        parts = self.application.parts()
        first = parts.settings.default_model or parts.registry.default().key
        models = {"": f"{first} (default)"}
        models |= {b.key: b.key if b.ready else f"{b.key} (not ready)" for b in parts.registry.listed()}
        modes = {"": f"{MODE_WORDS[parts.settings.permission_mode]} (default)"}
        modes |= {mode.value: words for mode, words in MODE_WORDS.items()}
        with Tag("div", classes="begin-fields"):
            self.folder = ui.input("Folder", value=str(self.application.root)).props("outlined dense")
            self.model = ui.select(models, label="Model", value="").props("outlined dense options-dense")
            self.mode = ui.select(modes, label="Permissions", value="").props("outlined dense options-dense")

    async def _begin(self, text: str) -> bool:
        """Begin one session, however often it is asked for meanwhile."""
        if self.begun:
            return False

        async def begin() -> None:
            root = existing_folder(
                Path(str(self.folder.value or "").strip() or self.application.root), "Folder"
            )
            mode = Mode(self.mode.value) if self.mode.value else None
            live = await self.application.live.create(root=root, model=self.model.value or None, mode=mode)
            await self.application.live.prompt(live.id, text)
            self.begun = f"/sessions/{live.id}"

        self.begun = "/"
        self.start.attribute("disabled", True)
        if await _told(begin):
            return True
        self.begun = ""
        self.start.attribute("disabled", None)
        return False

    def _go(self) -> None:
        """Show the session that was begun; who comes back to this page may begin another one."""
        ui.navigate.to(self.begun)
        self.begun = ""
        self.start.attribute("disabled", None)

    async def _searched(self, event: object) -> None:
        self.search = str(getattr(event, "value", None) or "")
        self.limit = PAGE_SIZE
        await self.refresh()

    async def _show_more(self) -> None:
        self.limit += PAGE_SIZE
        await self.refresh()

    def _changed(self) -> None:
        """Look once for however many changes come at the same moment."""
        if not self.looking:
            self.looking = True
            background_tasks.create(self._look(), name="refresh the list of sessions")

    async def _look(self) -> None:
        await asyncio.sleep(_PAUSE_S)
        self.looking = False
        await self.refresh()

    async def refresh(self) -> None:
        """Show the list as it is now; what did not change is left alone, so that the focus stays."""
        try:
            listing = await list_sessions(self.application, self.search, limit=self.limit)
        except SidequestError as error:
            self._say(f"{error.cause} {error.remedy}")
            return
        now = now_ms()
        self.more.attribute("hidden", not listing.more)
        nothing = "Nothing says that." if self.search.strip() else "Nothing was asked yet."
        self._say("" if listing.sessions else nothing)
        for gone in self.rows.keys() - {listed.row.id for listed in listing.sessions}:
            self.rows.pop(gone).element.delete()
        for place, listed in enumerate(listing.sessions):
            row = self.rows.get(listed.row.id)
            if row is None:
                with self.list:
                    row = self.rows[listed.row.id] = _Row(self)
            row.show(listed, ago(listed.row.updated_at_ms, now))
            if self.list.default_slot.children.index(row.element) != place:
                row.element.move(target_index=place)

    def _say(self, text: str) -> None:
        self.note.text = text
        self.note.attribute("hidden", not text)

    async def rename(self, listed: Listed) -> None:
        with self.dialogs, ui.dialog() as dialog, Tag("form", classes="card dialog") as form:
            Tag("h2", "Rename the session")
            title = ui.input("Title", value=listed.row.title).props("outlined dense autofocus")
            with Tag("div", classes="dialog-ends"):
                Tag("button", "Cancel", "button quiet", type="button").on("click", dialog.close)
                Tag("button", "Rename", "button primary", type="submit")
            form.on(
                "submit",
                lambda: dialog.submit(str(title.value or "")),
                js_handler="(e) => { e.preventDefault(); emit(); }",
            )
        wanted = one_line(await dialog or "")
        if wanted:
            await self._do(lambda: self.application.store.sessions.rename(listed.row.id, wanted))

    async def fork(self, listed: Listed) -> None:
        async def fork() -> None:
            copy = await forked(self.application.store, listed.row.id)
            ui.navigate.to(f"/sessions/{copy.id}")

        await self._do(fork)

    async def delete(self, listed: Listed) -> None:
        with self.dialogs, ui.dialog() as dialog, Tag("div", classes="card dialog", role="alertdialog"):
            Tag("h2", "Delete this session?")
            Tag("p", f"{title_of(listed.row)} ({size_of(listed.row)}). It cannot be brought back.")
            with Tag("div", classes="dialog-ends"):
                keep = Tag("button", "Keep it", "button quiet", type="button", autofocus=True)
                keep.on("click", lambda: dialog.submit(False))
                Tag("button", "Delete", "button danger", type="button").on(
                    "click", lambda: dialog.submit(True)
                )
        if await dialog:
            await self._do(lambda: delete_session(self.application, listed.row.id))

    async def _do(self, action: Callable[[], Awaitable[object]]) -> None:
        await _told(action)
        await self.refresh()


class _Row:
    """A session in the list. It is kept while it is listed, so that focus and menu stay."""

    def __init__(self, page: _Page) -> None:
        self.page = page
        self.listed: Listed | None = None
        self.menu: ui.menu | None = None
        with Tag("li", classes="session-row") as self.element:
            with Tag("div", classes="session-about"):
                self.title = Tag("a", classes="session-title")
                self.facts = Tag("p", classes="small session-facts")
            self.sign = Tag("span")
            self.actions = ui.button(icon="more_horiz", on_click=self._open).classes("session-actions")
            self.actions.props("flat round dense aria-haspopup=menu")

    def _open(self) -> None:
        """Make the menu when it is first wanted: fifty of them take longer than the rest of the page."""
        if self.menu is not None:
            return
        with self.actions, ui.menu().props("auto-close") as self.menu:
            ui.menu_item("Rename", lambda: self._take(self.page.rename))
            ui.menu_item("Fork", lambda: self._take(self.page.fork))
            ui.menu_item("Delete", lambda: self._take(self.page.delete)).classes("danger")
        self.menu.on("keydown", js_handler=_ARROWS)
        self.menu.open()

    async def _take(self, action: Callable[[Listed], Awaitable[None]]) -> None:
        if self.listed is not None:
            await action(self.listed)

    def show(self, listed: Listed, when: str) -> None:
        """Show the session as it is now; `when` says how long ago it was used."""
        self.listed, row = listed, listed.row
        self.title.text = title_of(row)
        self.title.attribute("href", f"/sessions/{row.id}")
        facts = [when, size_of(row), self.page.paths.folder(row.root)]
        if row.forked_from:
            facts.append(f"fork of {short_id(row.forked_from)}")
        self.facts.text = " · ".join(filter(None, facts))
        words, tone = _SIGNS.get(listed.activity, ("", ""))
        self.sign.text = words
        self.sign.classes(replace=f"chip {tone}")
        self.sign.attribute("hidden", not words)
        self.actions.props["aria-label"] = f"Actions of {title_of(row)}"
        self.actions.update()


async def _told(action: Callable[[], Awaitable[object]]) -> bool:
    """Do something for the person; a refusal is shown to them, and False is returned."""
    try:
        await action()
    except SidequestError as error:
        _complain(f"{error.cause} {error.remedy}")
        return False
    return True


def _complain(text: str) -> None:
    ui.notify(text, type="negative", multi_line=True, close_button="Close")
