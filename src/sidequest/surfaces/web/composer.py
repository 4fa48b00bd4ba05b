"""Where a person writes to a session: the text, sending and stopping, the model and the permission mode."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING

from sidequest.core.errors import SidequestError
from sidequest.core.permissions import Mode
from sidequest.surfaces.web.permission_words import MODE_WORDS
from sidequest.surfaces.web.tags import Tag
from sidequest.surfaces.web.writing import Writing

if TYPE_CHECKING:
    from sidequest.surfaces.web.session_desk import SessionDesk

COMPACT = "/compact"
"""What is typed to summarise the conversation; what follows says what the summary should be careful about."""
_COMPACT_CALL = re.compile(rf"{COMPACT}(?:\s+(?P<focus>.*))?", re.IGNORECASE | re.DOTALL)


class Composer:
    """The lower end of the page."""

    def __init__(self, desk: SessionDesk) -> None:
        self._desk = desk
        self._shown: tuple[str | None, Mode] | None = None
        """Model and mode when the choices were filled last."""
        self._usual = Mode.ASK
        """The mode of the settings."""
        with Tag("form", classes="composer", aria_label="Message") as self.element:
            self.element.on("submit", lambda: None, js_handler="(event) => event.preventDefault()")
            self._field = Tag(
                "textarea",
                classes="composer-text",
                rows=1,
                placeholder="What should be done?",
                aria_label="Message to the agent. Enter sends, Shift and Enter begins a new line.",
                autocomplete="off",
            )
            writing = Writing(self._field, "message", self._send, lambda text: desk.complain(text))
            with Tag("div", classes="composer-row"):
                self._model = Tag("select", classes="choice model-choice", aria_label="Model")
                self._mode = Tag("select", classes="choice", aria_label="Permission mode")
                self._compact = Tag(
                    "button", "Compact", "button small-button quiet", type="button", title="Same as /compact"
                )
                self._working = Tag("span", classes="working", role="status")
                self._stop = Tag("button", "Stop", "button small-button", type="button", hidden=True)
                self._submit = Tag("button", "Send", "button small-button primary", type="button")
        chosen = "(event) => emit(event.target.value)"
        self._model.on("change", lambda event: self._choose_model(str(event.args)), js_handler=chosen)
        self._mode.on("change", lambda event: self._choose_mode(str(event.args)), js_handler=chosen)
        self._compact.on("click", lambda: self._send(COMPACT))
        self._stop.on("click", self._stop_it)
        writing.sent_by(self._submit, "click")
        self.show()

    def show(self) -> None:
        """Show whether it works, and let only that be changed that can be."""
        view = self._desk.watched.view
        idle = self._desk.idle
        here = self._desk.application.live.get(self._desk.session_id) is not None
        self._field.attribute("data-busy", not idle)
        for control in (self._model, self._mode, self._compact, self._submit):
            control.attribute("disabled", not idle)
        self._submit.attribute("hidden", not idle)
        self._stop.attribute("hidden", idle or not here)
        waiting = view.turn.waiting_for
        elsewhere = "" if here else " in another process"
        words = f"Waiting: {waiting}" if waiting else f"Working{elsewhere}"
        asked = bool(self._desk.questions)
        self._working.text = "" if idle else "Waits for your permission" if asked else words
        self._working.classes(**{"add" if asked else "remove": "asking"})

    async def fill(self) -> None:
        """Offer the models of the folder of the session, and show what is chosen."""
        row = self._desk.watched.view.row
        application = self._desk.application
        try:
            parts = await asyncio.to_thread(application.parts, Path(row.root) if row.root else None)
        except SidequestError as error:
            self._desk.complain(f"{error.cause} {error.remedy}")
            return
        row = self._desk.watched.view.row  # what was chosen meanwhile counts
        keys = [binding.key for binding in parts.registry.listed() if binding.ready]
        try:
            current = row.model or parts.registry.default().key
        except SidequestError:
            current = row.model or ""
        models = dict.fromkeys([*([current] if current else []), *keys])
        _options(self._model, {key: key for key in models}, current)
        self._usual = parts.settings.permission_mode
        mode = application.live.mode_of(self._desk.session_id) or self._usual
        self._shown = (row.model, mode)
        _options(self._mode, {str(mode): words for mode, words in MODE_WORDS.items()}, str(mode))

    async def take_choices(self) -> None:
        """Show what was chosen in another window."""
        mode = self._desk.application.live.mode_of(self._desk.session_id) or self._usual
        if self._shown is not None and self._shown != (self._desk.watched.view.row.model, mode):
            await self.fill()

    async def _send(self, text: str) -> bool:
        live, key = self._desk.application.live, self._desk.session_id
        call = _COMPACT_CALL.fullmatch(text.strip())
        if call is not None:
            return await self._desk.attempt(live.compact(key, call["focus"] or None))
        return await self._desk.attempt(live.prompt(key, text))

    async def _stop_it(self) -> None:
        await self._desk.attempt(self._desk.application.live.stop(self._desk.session_id))

    async def _choose_model(self, key: str) -> None:
        await self._desk.attempt(self._desk.application.live.choose_model(self._desk.session_id, key))
        await self._desk.watched.load()
        await self.fill()

    async def _choose_mode(self, word: str) -> None:
        async def choose() -> None:
            self._desk.application.live.choose_mode(self._desk.session_id, Mode(word))

        await self._desk.attempt(choose())
        await self.fill()


def _options(select: Tag, words: dict[str, str], current: str) -> None:
    select.clear()
    with select:
        for value, text in words.items():
            Tag("option", text, value=value, selected=value == current)
