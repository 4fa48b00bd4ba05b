"""The editor of one subagent: its fields, and beside them the file and the budget that result."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from nicegui import ui

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.surfaces.app.agent_drafts import Draft, FieldProblem
from sidequest.surfaces.app.agent_shapes import AgentFile
from sidequest.surfaces.app.agents import Agents, DraftRefused
from sidequest.surfaces.text import one_line, printable, some
from sidequest.surfaces.web.agent_fields import AgentFields, draft_of, model_choices
from sidequest.surfaces.web.agent_preview import AgentPreview
from sidequest.surfaces.web.fallbacks import pins_of
from sidequest.surfaces.web.form import Form, Values, ask_before_leaving, focus, leave_for
from sidequest.surfaces.web.frame import BUILD_S, frame
from sidequest.surfaces.web.tags import Tag

if TYPE_CHECKING:
    from sidequest.surfaces.app.application import Application

_SHEETS = ("form.css", "agents.css")


def add_pages(application: Application) -> None:
    """Serve `/agents/new` and `/agents/edit`."""
    agents = Agents(application)

    @ui.page("/agents/new", response_timeout=BUILD_S)
    async def new(copy: str = "", scope: str | None = None, path: str | None = None) -> None:
        with frame(application, "New subagent", at="agents", stylesheets=_SHEETS):
            source = await _read(agents, copy, scope, path or None) if copy else None
            draft = _copied(source) if source else Draft()
            await _Editor(application, draft, None).build(
                f"Copy of {source.shown_name}" if source else "New subagent"
            )

    @ui.page("/agents/edit", response_timeout=BUILD_S)
    async def edit(name: str, path: str | None = None) -> None:
        with frame(application, f"Edit {name}", at="agents", stylesheets=_SHEETS):
            file = await _read(agents, name, "user", path or None)
            if file is not None and file.body is None:
                _refused(
                    "This file does not load.", "Correct it in a text editor: its diagnostics say where."
                )
            elif file is not None:
                await _Editor(application, _draft(file), file).build(f"Edit {one_line(file.shown_name)}")


async def _read(agents: Agents, name: str, scope: str | None, path: str | None) -> AgentFile | None:
    try:
        return await asyncio.to_thread(lambda: agents.read(name, scope=scope, path=path))
    except SidequestError as error:
        _refused(error.cause, error.remedy)
        return None


def _refused(cause: str, remedy: str) -> None:
    with Tag("div", classes="notice bad"):
        Tag("p", printable(f"{cause} {remedy}"))
        Tag("a", "Back to the subagents", "button", href="/agents")


def _draft(file: AgentFile) -> Draft:
    known = {name: getattr(file, name) for name in Draft.model_fields if hasattr(file, name)}
    return Draft.model_validate(known | {"name": file.shown_name, "body": file.body or ""})


def _copied(file: AgentFile) -> Draft:
    draft = _draft(file)
    # Two files of one's own cannot have one name; a copy of another's is meant to come before it.
    return draft.model_copy(update={"name": f"{draft.name} copy"}) if file.editable else draft


class _Editor:
    """The editor in one browser tab."""

    def __init__(self, application: Application, draft: Draft, file: AgentFile | None) -> None:
        self.agents = Agents(application)
        self.file = file
        self.first = draft
        """What the fields began with: what still is as here is not written."""
        self.draft = draft
        self.active = file is None or file.enabled
        """Whether it is to be switched on; that is kept beside the file."""
        self.preset = ""
        """Name of the preset whose texts the fields hold."""
        self.tried = False
        """Whether a save was refused: from then on problems are shown while they are being corrected."""

    async def build(self, title: str) -> None:
        with Tag("div", classes="page-head"):
            Tag("h1", title)
        if self.file is None:
            self.presets = {agent.name: agent for agent in await asyncio.to_thread(self.agents.presets)}
        self.models = await asyncio.to_thread(model_choices, self.agents.application)
        with Tag("div", classes="editor"):
            self.form = Form(
                self._changed,
                self._submitted,
                label=title,
                draft=self.file.mark if self.file else "new",
                restored=self._restored,
            )
            self.beside = Tag("aside", classes="beside", aria_label="Preview")
        self.dialogs = Tag("div")
        with self.beside:
            self.preview = AgentPreview()
        self._fill()
        await self._look()

    def _fill(self) -> None:
        """Build the fields of the draft."""
        self.form.clear()
        with self.form:
            if self.file is None:
                self._preset_chips()
            self.fields = AgentFields(
                self.form, self.draft, self.models, editing=self.file is not None, active=self.active
            )
            self.fields.fallbacks.changed = self._changed
            with Tag("div", classes="ends"):
                Tag("button", "Save", "button primary", type="submit")
                Tag("a", "Cancel", "button quiet", href="/agents")
                self.failed = Tag("div", classes="failed", role="alert")

    def _preset_chips(self) -> None:
        with Tag("fieldset", classes="labelled"):
            Tag("legend", "Begin with", "label")
            with Tag("div", classes="presets"):
                for name in ("", *self.presets):
                    self._preset_chip(name)

    def _preset_chip(self, name: str) -> None:
        label = one_line(self.presets[name].shown_name) if name else "Blank"
        pressed = "true" if name == self.preset else "false"

        async def choose(values: Values) -> None:
            self.draft = self._drafted(values)
            before = self._texts_of(self.preset)
            if (
                self.draft.name,
                self.draft.description,
                self.draft.body,
            ) != before and not await self._replace():
                return
            self.preset = name
            # Model, fallbacks, limits and permission stay (specification 4.9).
            given = self.presets[name] if name else None
            name_of, description, body = self._texts_of(name)
            self.draft = self.draft.model_copy(
                update={
                    "name": name_of,
                    "description": description,
                    "body": body,
                    "tools": given.tools if given else Draft().tools,
                    "inherit_tools": False,
                }
            )
            self.tried = False
            self._fill()
            ask_before_leaving()
            await self._look()
            focus(f"preset-{name or 'blank'}")

        self.form.button(label, choose, "chip-button", id=f"preset-{name or 'blank'}", aria_pressed=pressed)

    def _texts_of(self, preset: str) -> tuple[str, str, str]:
        if not preset:
            return "", "", ""
        given = self.presets[preset]
        return given.shown_name, given.description, given.body or ""

    async def _replace(self) -> bool:
        if not any((self.draft.name.strip(), self.draft.description.strip(), self.draft.body.strip())):
            return True
        with self.dialogs, ui.dialog() as dialog, Tag("div", classes="card dialog", role="alertdialog"):
            Tag("h2", "Replace what you wrote?")
            Tag("p", "Name, description, tools and prompt are replaced. Everything else stays.")
            with Tag("div", classes="dialog-ends"):
                keep = Tag("button", "Keep it", "button quiet", type="button", autofocus=True)
                keep.on("click", lambda: dialog.submit(False))
                Tag("button", "Replace", "button danger", type="button").on(
                    "click", lambda: dialog.submit(True)
                )
        return bool(await dialog)

    def _drafted(self, values: Values) -> Draft:
        self.fields.fallbacks.take(values)
        self.active = "active" in values
        return draft_of(values, self.first, self.fields.fallbacks.pins)

    async def _restored(self, values: Values) -> None:
        """Put back what was written before the page was loaded anew."""
        self.draft = draft_of(values, self.first, pins_of(values))
        self._fill()
        ask_before_leaving()
        await self._look()

    async def _changed(self, values: Values) -> None:
        self.draft = self._drafted(values)
        await self._look()

    async def _look(self) -> None:
        """Show what the draft would become."""
        draft = self.draft
        name, path = (self.file.name, self.file.path) if self.file else (None, None)
        given = self._difference() if self.file else draft
        try:
            shown = await asyncio.to_thread(lambda: self.agents.preview(given, name=name, path=path))
        except SidequestError as error:
            self.preview.refuse(f"{error.cause} {error.remedy}")
            return
        if draft is not self.draft:
            return  # a newer change is being looked at
        self.preview.show(shown)
        self.fields.show(shown, new=self.file is None or shown.name != self.file.name)
        if self.tried:
            self._show_problems(shown.problems)

    def _difference(self) -> Draft:
        """Return only what differs from the beginning, so that the rest of the file stays as it is."""
        return Draft(
            **{
                name: getattr(self.draft, name)
                for name in Draft.model_fields
                if getattr(self.draft, name) != getattr(self.first, name)
            }
        )

    def _show_problems(
        self, problems: tuple[FieldProblem, ...] | list[FieldProblem], *, jump: bool = False
    ) -> None:
        self.form.show({problem.field: problem.message for problem in problems}, focus_first=jump)
        self.failed.clear()
        if problems:
            with self.failed:
                verb = "needs" if len(problems) == 1 else "need"
                Tag("p", f"{some(len(problems), 'field')} {verb} a correction.", "error")

    async def _submitted(self, values: Values) -> None:
        self.draft = self._drafted(values)
        await self._save()

    async def _save(self) -> None:
        try:
            saved = await asyncio.to_thread(self._store)
        except DraftRefused as refused:
            self.tried = True
            self._show_problems(list(refused.problems), jump=True)
            await self._look()
        except SidequestError as error:
            self._say_refused(error)
        else:
            leave_for(f"/agents?saved={saved.name}")

    def _store(self) -> AgentFile:
        file = self.file
        if file is None:
            saved = self.agents.create(self.draft)
        else:
            saved = self.agents.update(file.name, self._difference(), mark=file.mark, path=file.path)
        if saved.enabled == self.active:
            return saved
        return self.agents.switch(saved.name, on=self.active, scope=saved.scope, path=saved.path)

    def _say_refused(self, error: SidequestError) -> None:
        self.failed.clear()
        with self.failed:
            Tag("p", printable(f"{error.cause} {error.remedy}"), "error")
            if error.code is ErrorCode.STORE_CONFLICT and self.file is not None:
                button = Tag("button", "Put my changes into the file as it is now", "button", type="button")
                button.on("click", self._save_anew)

    async def _save_anew(self) -> None:
        """Save what was changed here into the file as somebody else left it."""
        assert self.file is not None
        file = self.file
        try:
            now = await asyncio.to_thread(lambda: self.agents.read(file.name, path=file.path))
        except SidequestError as error:
            self._say_refused(error)
            return
        self.file = now
        await self._save()
