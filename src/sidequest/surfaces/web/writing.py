"""A field whose text is sent: taken once, and emptied when it was taken (`static/writing.js`)."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from nicegui import ui

from sidequest.surfaces.text import count

if TYPE_CHECKING:
    from nicegui.events import GenericEventArguments

    from sidequest.surfaces.web.tags import Tag

_ON_KEY = """(event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  if (event.target.dataset.busy === undefined) window.sendText(event.target, emit);
}"""


class Writing:
    """Sends what is written in `field`, which is kept as the draft `name` until then.

    `take` is given the text and says whether it was taken; `complain` shows a sentence to the person; `then`
    is called behind a text that was taken, when the field is empty.
    """

    def __init__(
        self,
        field: Tag,
        name: str,
        take: Callable[[str], Awaitable[bool]],
        complain: Callable[[str], object],
        then: Callable[[], object] = lambda: None,
    ) -> None:
        self._field, self._take, self._complain, self._then = field, take, complain, then
        self._keys: dict[str, bool] = {}
        """Whether the text with a key was taken; False while that is not decided."""
        field.attribute("data_draft", name)
        field.on("keydown", self._came, js_handler=_ON_KEY)

    def sent_by(self, element: Tag, event: str) -> None:
        """Send the text at an event of another element too: the click of a button, the submit of a form."""
        element.on(
            event,
            self._came,
            js_handler="(event) => { event.preventDefault(); "
            f"window.sendText({self._by_id}, emit); {self._by_id}.focus(); }}",
        )

    @property
    def _by_id(self) -> str:
        return f'document.getElementById("{self._field.html_id}")'

    async def _came(self, event: GenericEventArguments) -> None:
        given = event.args
        if not isinstance(given, dict):
            return
        if "tooLong" in given:
            chars = given["tooLong"] if isinstance(given["tooLong"], int) else 0
            self._complain(
                f"This text is too long to send: it has {count(chars)} characters, and about 900,000 bytes "
                "fit. Put it into a file and name the file."
            )
            return
        key, text = str(given.get("key", "")), str(given.get("text", ""))
        if self._keys.get(key) is False:
            return  # it came twice, and the first is in hand
        known = taken = self._keys.setdefault(key, False)
        try:
            taken = known or await self._take(text)
        finally:
            if taken:
                self._keys[key] = True
            else:
                del self._keys[key]
            arguments = json.dumps([self._field.html_id, key, taken])
            ui.run_javascript(f"window.textAnswered(...{arguments})")
        if taken and not known:
            self._then()
