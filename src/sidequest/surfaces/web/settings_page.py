"""The page Settings: values in force, models and their keys; a variable that beats a setting is named."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from nicegui import ui

from sidequest.core.errors import SidequestError
from sidequest.surfaces.app.settings import SettingsFile, SettingsRefused
from sidequest.surfaces.app.settings_shapes import (
    DenyLists,
    ModelRow,
    SettingsChange,
    SettingsValues,
    SettingsView,
)
from sidequest.surfaces.text import count, printable, some
from sidequest.surfaces.web import model_page
from sidequest.surfaces.web.form import Choices, Form, Values, leave_for, one
from sidequest.surfaces.web.frame import BUILD_S, frame
from sidequest.surfaces.web.new_link import new_link
from sidequest.surfaces.web.permission_words import MODE_WORDS
from sidequest.surfaces.web.tags import Tag

if TYPE_CHECKING:
    from sidequest.surfaces.app.application import Application
    from sidequest.surfaces.web.access import Access

_CONTEXTS = {"independent": "Independent: the task alone", "fork": "Fork: the conversation so far"}
_SANDBOX = {
    "off": "Off",
    "auto": "Auto: in bubblewrap where it works",
    "require": "Require: no command without bubblewrap",
}
_LIMITS = (
    ("maxTurns", "Turns", "no limit", "Model requests of one turn of the parent agent."),
    ("maxSeconds", "Seconds", "no limit", "Wall time after which a turn is asked for its answer."),
    ("maxCostUsd", "US dollars", "no limit", "For a session with all of its delegations."),
    ("maxRunning", "Delegations at once", "10", "Of one session, 1 to 10."),
    ("maxTotal", "Delegations in all", "100", "Over the life of a session."),
)
_SOURCES = {
    "user": "your settings",
    "server": "its server",
    "catalog": "the public catalog",
    "assumed": "assumed",
    "unknown": "assumed",
}
"""Who states a number, in words."""


def add_pages(application: Application, access: Access) -> None:
    """Serve `/settings` and the page of one model below it."""
    model_page.add_pages(application)

    @ui.page("/settings", response_timeout=BUILD_S)
    async def page(saved: str = "") -> None:
        with frame(application, "Settings", at="settings", stylesheets=("form.css", "settings.css")):
            await _Page(SettingsFile(application), saved).build()
            new_link(access)


class _Page:
    """The page of one browser tab."""

    def __init__(self, file: SettingsFile, saved: str) -> None:
        self.file = file
        self.saved = saved

    async def build(self) -> None:
        Tag("h1", "Settings")
        try:
            self.view = view = await asyncio.to_thread(self.file.view)
        except SidequestError as error:
            _notice(f"{error.cause} {error.remedy}", "bad")
            return
        with Tag("p", classes="quiet-text lead"):
            Tag("span", "Kept in " if view.exists else "Nothing is set yet. A save makes ")
            Tag("code", printable(view.place))
            Tag("span", ". They count from the next prompt on, in open sessions too.")
        if self.saved:
            _notice("Saved.", "good")
        if view.values is None:
            _notice(f"{view.problem} Until then nothing can be changed here.", "bad")
            return
        if view.problem:
            _notice(view.problem, "warn")
        self._general(view, view.values)
        _models(view)

    def _general(self, view: SettingsView, values: SettingsValues) -> None:
        self.form = Form(_nothing, self._submitted, label="Settings")
        with self.form:
            with Tag("section", classes="form", aria_label="Sessions"):
                Tag("h2", "Sessions")
                with Tag("div", classes="pair"):
                    self._choice("defaultModel", "Default model", values.default_model, _model_choices(view))
                    self._choice(
                        "permissionMode", "Permission", values.permission_mode, list(MODE_WORDS.items())
                    )
                    self._choice(
                        "defaultContext",
                        "Context of a delegation",
                        values.default_context,
                        list(_CONTEXTS.items()),
                    )
                    self._choice("sandbox", "Sandbox for commands", values.sandbox, list(_SANDBOX.items()))
            with Tag("section", classes="form", aria_label="Limits"):
                Tag("h2", "Limits")
                with Tag("div", classes="pair narrow"):
                    for name, label, empty, hint in _LIMITS:
                        self._number(name, label, _held(view, name), empty, hint)
            self._deny(values.deny)
            with Tag("div", classes="ends"):
                Tag("button", "Save", "button primary", type="submit")
                self.failed = Tag("div", classes="failed", role="alert")

    def _choice(self, name: str, label: str, value: str | None, choices: Choices) -> None:
        beaten = self.view.overridden.get(name, "")
        self.form.choice(name, label, value or "", choices, hint=_beaten(beaten), disabled=bool(beaten))

    def _number(self, name: str, label: str, value: str, empty: str, hint: str) -> None:
        beaten = self.view.overridden.get(name, "")
        said = " ".join(filter(None, (hint, _beaten(beaten))))
        self.form.text(name, label, value, kind="number", placeholder=empty, hint=said, disabled=bool(beaten))

    def _deny(self, deny: DenyLists) -> None:
        beaten = self.view.overridden.get("deny", "")
        with Tag("section", classes="form", aria_label="Deny rules"):
            Tag("h2", "Deny rules")
            said = "One for each line. They are refused in every mode, before anything that allows."
            Tag("p", f"{said} {_beaten(beaten)}", "hint")
            with Tag("div", classes="pair narrow"):
                for name, label, hint, held in (
                    ("denyTools", "Tools", "Names or globs: mcp__*", deny.tools),
                    ("denyPaths", "Paths", "Globs: **/.env, *.pem", deny.paths),
                    ("denyCommands", "Commands", "Words in their order: git push", deny.commands),
                ):
                    self.form.area(name, label, "\n".join(held), rows=4, hint=hint, disabled=bool(beaten))
            self.form.place_for("deny")

    async def _submitted(self, values: Values) -> None:
        change = _change(values, self.view)
        try:
            await asyncio.to_thread(self.file.change, change)
        except SettingsRefused as refused:
            self.form.show({found.field: found.message for found in refused.problems}, focus_first=True)
            self._fail(f"{some(len(refused.problems), 'setting')} cannot be as it is.")
        except SidequestError as error:
            self._fail(f"{error.cause} {error.remedy}")
        else:
            leave_for("/settings?saved=yes")

    def _fail(self, text: str) -> None:
        self.failed.clear()
        with self.failed:
            Tag("p", printable(text), "error")


async def _nothing(values: Values) -> None:
    """There is nothing to look at before the save."""


def _beaten(variable: str) -> str:
    return f"The variable {variable} beats this setting." if variable else ""


def _notice(text: str, tone: str) -> None:
    with Tag("div", classes=f"notice {tone}", role="status"):
        Tag("p", printable(text))


def _model_choices(view: SettingsView) -> Choices:
    first = f"Choose by itself (now {view.default_now})" if view.default_now else "Choose by itself"
    rows = [(row.key, row.key if row.ready else f"{row.key} (not ready)") for row in view.models]
    return [("", first), *rows]


def _held(view: SettingsView, name: str) -> str:
    """Return a number as its field shows it; empty where the default counts."""
    assert view.values is not None
    value = view.values.model_dump()[name]
    if value is None or (name, value) in (("maxRunning", 10), ("maxTotal", 100)):
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _change(values: Values, view: SettingsView) -> SettingsChange:
    """Return what the form changed; what a variable beats has no field to change it with."""
    assert view.values is not None
    held = view.values.model_dump()
    change: dict[str, object] = {}
    for name in ("defaultModel", "permissionMode", "defaultContext", "sandbox"):
        if name in values and (one(values, name) or None) != held[name]:
            change[name] = one(values, name) or None
    for name, *_ in _LIMITS:
        if name in values and one(values, name).strip() != _held(view, name):
            change[name] = one(values, name).strip() or None
    if "denyTools" in values:
        rules = {
            kind: _lines(one(values, f"deny{kind.capitalize()}")) for kind in ("tools", "paths", "commands")
        }
        if rules != {kind: list(held["deny"][kind]) for kind in rules}:
            change["deny"] = rules
    return SettingsChange.model_validate({**change, "mark": view.mark})


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n") if line.strip()]


def _models(view: SettingsView) -> None:
    with Tag("section", classes="models", aria_label="Models and keys"):
        with Tag("div", classes="page-head"):
            Tag("h2", "Models and keys")
            Tag("a", "Add a model", "button", href="/settings/models/new")
        Tag("p", "A key is written to the settings file and never shown again, not even to you.", "hint")
        if variable := view.overridden.get("models"):
            _notice(_beaten(variable), "warn")
        with Tag("ul", classes="model-list"):
            for row in view.models:
                _row(row, default=row.key == view.default_now)


def _row(row: ModelRow, *, default: bool) -> None:
    with Tag("li", classes="model"):
        with Tag("div", classes="model-head"):
            Tag("h3", printable(row.key), "mono model-name")
            if default:
                Tag("span", "default", "chip accent")
            if not row.ready:
                Tag("span", "not ready", "chip warn")
            Tag("a", "Change", "link", href=model_page.path_of(row.key), aria_label=f"Change {row.key}")
        with Tag("dl", classes="model-facts"):
            window = _stated(row, row.window, row.window_source) or "128,000, assumed"
            cap = _stated(row, row.max_tokens, row.max_tokens_source) or "8,192, assumed"
            facts = (
                ("Window", window),
                ("Output", cap),
                ("For a request", f"below {count(row.hard_limit)}"),
                ("Key", key_words(row)),
            )
            for label, value in facts:
                with Tag("div"):
                    Tag("dt", label)
                    Tag("dd", printable(value))
        if row.reason and row.key_state != "missing":
            Tag("p", printable(row.reason), "small warn-text")


def _stated(row: ModelRow, number: int | None, source: str) -> str:
    """Return a number of tokens and who states it; empty when nobody does."""
    if not number:
        return ""
    who = "the engine" if row.key.startswith("offline/") and source == "server" else _SOURCES[source]
    return f"{count(number)}, {who}"


def key_words(row: ModelRow) -> str:
    """Return whether there is a key and where it is from."""
    if row.key_state == "unneeded":
        return "none needed"
    if row.key_state == "missing":
        return f"not set ({row.key_source})"
    return "set in the settings" if row.key_source == "settings" else f"set, from {row.key_source}"
