"""The page of one model in the settings: where it is, its key, its window and its cap."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from nicegui import ui

from sidequest.core.errors import SidequestError
from sidequest.models.providers import PROVIDERS
from sidequest.surfaces.app.settings import SettingsFile, SettingsRefused
from sidequest.surfaces.app.settings_shapes import ModelChange, ModelRow
from sidequest.surfaces.text import count, one_line, printable, some
from sidequest.surfaces.web.form import Form, Values, leave_for, one
from sidequest.surfaces.web.frame import BUILD_S, frame
from sidequest.surfaces.web.tags import Tag

if TYPE_CHECKING:
    from sidequest.surfaces.app.application import Application

_FIELDS = ("provider", "baseUrl", "apiKeyEnv", "contextWindow", "maxTokens", "inputPrice", "outputPrice")


def path_of(key: str) -> str:
    """Return the address of the page of a model."""
    return f"/settings/models?{urlencode({'key': key})}"


def add_pages(application: Application) -> None:
    """Serve `/settings/models` and `/settings/models/new`."""
    file = SettingsFile(application)

    @ui.page("/settings/models/new", response_timeout=BUILD_S)
    async def new() -> None:
        with frame(application, "Add a model", at="settings", stylesheets=("form.css", "settings.css")):
            await _Page(file, None).build()

    @ui.page("/settings/models", response_timeout=BUILD_S)
    async def change(key: str) -> None:
        with frame(application, key, at="settings", stylesheets=("form.css", "settings.css")):
            await _Page(file, key).build()


class _Page:
    """The page of one browser tab."""

    def __init__(self, file: SettingsFile, key: str | None) -> None:
        self.file = file
        self.key = key
        self.row: ModelRow | None = None

    async def build(self) -> None:
        Tag("h1", one_line(self.key) if self.key else "Add a model")
        try:
            view = await asyncio.to_thread(self.file.view)
        except SidequestError as error:
            self._refuse(f"{error.cause} {error.remedy}")
            return
        self.mark = view.mark
        self.row = next((row for row in view.models if row.key == self.key), None)
        if view.values is None or (self.key and self.row is None):
            self._refuse(view.problem or "There is no such model. It may have been removed.")
        elif variable := view.overridden.get("models"):
            self._refuse(f"The variable {variable} states the models, so they are not changed here.")
        else:
            self.begun = self._first()
            self.form = Form(_nothing, self._submitted, label="Model settings")
            self.form.element.classes("slim")
            with self.form:
                self._fields()
            self.dialogs = Tag("div")

    def _refuse(self, text: str) -> None:
        with Tag("div", classes="notice bad"):
            Tag("p", printable(text))
            Tag("a", "Back to the settings", "button", href="/settings")

    def _first(self) -> dict[str, str]:
        row = self.row
        if row is None:
            return dict.fromkeys(_FIELDS, "")
        held = (
            row.provider,
            row.base_url,
            row.api_key_env,
            row.own_window,
            row.own_max_tokens,
            row.input_price,
            row.output_price,
        )
        return dict(
            zip(
                _FIELDS,
                (
                    "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
                    for value in held
                ),
                strict=True,
            )
        )

    def _fields(self) -> None:
        form, row, held = self.form, self.row, self.begun
        with Tag("section", classes="form card"):
            if row is None:
                form.text(
                    "key",
                    "Model",
                    hint="provider/name, for example openai/gpt-5 or work/qwen.",
                    placeholder="provider/name",
                    autofocus=True,
                )
            form.text(
                "baseUrl",
                "Address",
                held["baseUrl"],
                placeholder="the provider's own",
                hint="Of an API of your own, with its /v1.",
            )
            choices = [("", "As its name says"), *((facts.id, facts.label) for facts in PROVIDERS)]
            form.choice(
                "provider",
                "Provider",
                held["provider"],
                choices,
                hint="When the name begins with another word.",
            )
        with Tag("section", classes="form card"):
            Tag("h2", "Key")
            stored = row is not None and row.key_state == "set" and row.key_source == "settings"
            said = (
                "One is stored. Leave it empty to keep it." if stored else "None is stored in the settings."
            )
            form.text("apiKey", "Key", kind="password", hint=f"{said} It is written, and never shown again.")
            if stored:
                form.box("removeKey", "yes", "Remove the stored key", ticked=False)
            usual = row.key_source if row and row.key_source != "settings" else ""
            form.text(
                "apiKeyEnv",
                "Variable with the key",
                held["apiKeyEnv"],
                placeholder=usual or "the provider's usual one",
                hint="The name of an environment variable, never the key itself.",
            )
        with Tag("section", classes="form card"):
            Tag("h2", "Size and price")
            with Tag("div", classes="pair"):
                window = f"now {count(row.window)}" if row and row.window else "from server or catalog"
                cap = f"now {count(row.max_tokens)}" if row and row.max_tokens else "from server or catalog"
                form.text(
                    "contextWindow",
                    "Context window",
                    held["contextWindow"],
                    kind="number",
                    placeholder=window,
                    hint="In tokens. It beats what server and catalog say.",
                )
                form.text(
                    "maxTokens",
                    "Max output tokens",
                    held["maxTokens"],
                    kind="number",
                    placeholder=cap,
                    hint="Of one response.",
                )
                form.text(
                    "inputPrice",
                    "Input price",
                    held["inputPrice"],
                    kind="number",
                    placeholder="from the catalog",
                    hint="US dollars for a million tokens.",
                )
                form.text(
                    "outputPrice",
                    "Output price",
                    held["outputPrice"],
                    kind="number",
                    placeholder="from the catalog",
                    hint="US dollars for a million tokens.",
                )
            offered = row is not None and row.available_for_subagents
            form.box("offered", "yes", "A parent agent may choose it for a subagent", ticked=offered)
        with Tag("div", classes="ends"):
            Tag("button", "Save", "button primary", type="submit")
            Tag("a", "Cancel", "button quiet", href="/settings")
            if row is not None and row.in_file:
                remove = Tag("button", "Remove from the settings", "button danger", type="button")
                remove.on("click", self._remove)
            self.failed = Tag("div", classes="failed", role="alert")

    async def _submitted(self, values: Values) -> None:
        key = self.key or one(values, "key").strip()
        change: dict[str, object] = {
            name: one(values, name).strip() or None
            for name in _FIELDS
            if one(values, name).strip() != self.begun[name]
        }
        if one(values, "apiKey").strip():
            change["apiKey"] = one(values, "apiKey").strip()
        elif "removeKey" in values:
            change["apiKey"] = None
        was = self.row is not None and self.row.available_for_subagents
        if ("offered" in values) != was:
            change["availableForSubagents"] = True if "offered" in values else None
        wanted = ModelChange.model_validate({**change, "mark": self.mark})
        await self._do(lambda: self.file.change_model(key, wanted))

    async def _remove(self) -> None:
        key, mark = str(self.key), self.mark
        with self.dialogs, ui.dialog() as dialog, Tag("div", classes="card dialog", role="alertdialog"):
            Tag("h2", f"Remove {one_line(key)} from the settings?")
            Tag("p", "Its table goes, and the key that is stored in it.")
            with Tag("div", classes="dialog-ends"):
                keep = Tag("button", "Keep it", "button quiet", type="button", autofocus=True)
                keep.on("click", lambda: dialog.submit(False))
                gone = Tag("button", "Remove", "button danger", type="button")
                gone.on("click", lambda: dialog.submit(True))
        if await dialog:
            await self._do(lambda: self.file.remove_model(key, mark=mark))

    async def _do(self, action: object) -> None:
        try:
            await asyncio.to_thread(action)  # type: ignore[arg-type]
        except SettingsRefused as refused:
            self.form.show({found.field: found.message for found in refused.problems}, focus_first=True)
            number = len(refused.problems)
            self._fail(f"{some(number, 'field')} {'needs' if number == 1 else 'need'} a correction.")
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
