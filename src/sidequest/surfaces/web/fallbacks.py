"""The ordered list of fallback models in the editor."""

from __future__ import annotations

from functools import partial

from nicegui import ui

from sidequest.subagents.definition import Thinking
from sidequest.surfaces.text import one_line
from sidequest.surfaces.web.form import Choices, Form, Handler, Values, ask_before_leaving, focus, one, select
from sidequest.surfaces.web.tags import Tag

_LEVELS = [("", "thinking as above")] + [
    (level.value, level.value) for level in Thinking if level is not Thinking.OMIT
]


class Fallbacks:
    """Rows that can be moved and removed, and a choice of what to add; `changed` is told of each change."""

    changed: Handler

    def __init__(self, form: Form, pins: list[str], models: Choices) -> None:
        self._form, self._models = form, models
        self._rows = [_parted(pin) for pin in pins]
        with form.boxes(
            "fallbackModels", "Fallback models", hint="Tried in this order when the model cannot be used."
        ):
            self._list = Tag("ol", classes="fallbacks")
            with Tag("div", classes="adding"):
                self._picker = Tag("div", classes="adding-choice")
                form.button("Add", self._add, "button", id="fallback-add")
        self._build()

    @property
    def pins(self) -> tuple[str, ...]:
        """The models in order, as a definition holds them."""
        return tuple(f"{key}|{level}" if level else key for key, level in self._rows)

    def take(self, values: Values) -> None:
        """Take over the thinking levels that were chosen."""
        levels = values.get("fallbackThinking", [])
        if len(levels) == len(self._rows):
            self._rows = [(key, level) for (key, _), level in zip(self._rows, levels, strict=True)]

    def _build(self) -> None:
        self._list.clear()
        self._list.attribute("hidden", not self._rows)
        with self._list:
            for place, (key, level) in enumerate(self._rows):
                self._row(place, key, level)
        self._picker.clear()
        taken = {key for key, _ in self._rows}
        left = [(key, shown) for key, shown in self._models if key not in taken]
        with self._picker:
            select(
                "",
                [("", "Choose a model"), *left],
                name_="fallbackNew",
                aria_label="Model to add",
                id="fallback-new",
            )

    def _row(self, place: int, key: str, level: str) -> None:
        name = one_line(key, 80)
        with Tag("li", classes="fallback"):
            Tag("input", type="hidden", name_="fallbackModel", value=key)
            Tag("span", name, "mono fallback-name")
            select(level, _LEVELS, name_="fallbackThinking", aria_label=f"Thinking of {name}")
            last = len(self._rows) - 1
            for sign, words, step, off in (("↑", "up", -1, place == 0), ("↓", "down", 1, place == last)):
                self._form.button(
                    sign,
                    partial(self._move, place, step),
                    "button icon",
                    id=f"fallback-{words}-{place}",
                    aria_label=f"Move {name} {words}",
                    disabled=off,
                )
            self._form.button(
                "✕",
                partial(self._remove, place),
                "button icon",
                id=f"fallback-remove-{place}",
                aria_label=f"Remove {name}",
            )

    async def _move(self, place: int, step: int, values: Values) -> None:
        self.take(values)
        other = place + step
        if 0 <= other < len(self._rows):
            self._rows[place], self._rows[other] = self._rows[other], self._rows[place]
            edge = other in (0, len(self._rows) - 1)
            words = ("down" if step < 0 else "up") if edge else ("up" if step < 0 else "down")
            await self._redone(values, f"fallback-{words}-{other}")

    async def _remove(self, place: int, values: Values) -> None:
        self.take(values)
        del self._rows[place]
        await self._redone(
            values, f"fallback-remove-{min(place, len(self._rows) - 1)}" if self._rows else "fallback-new"
        )

    async def _add(self, values: Values) -> None:
        self.take(values)
        key = one(values, "fallbackNew")
        if not key:
            ui.run_javascript("document.getElementById('fallback-new')?.focus()")
            return
        self._rows.append((key, ""))
        await self._redone(values, "fallback-new")

    async def _redone(self, values: Values, focused: str) -> None:
        self._build()
        ask_before_leaving()
        focus(focused)
        await self.changed({**values, "fallbackThinking": [level for _, level in self._rows]})


def pins_of(values: Values) -> tuple[str, ...]:
    """Return the models in order that the fields of a form hold."""
    keys, levels = values.get("fallbackModel", []), values.get("fallbackThinking", [])
    return tuple(f"{key}|{level}" if level else key for key, level in zip(keys, levels, strict=False))


def _parted(pin: str) -> tuple[str, str]:
    key, bar, level = pin.rpartition("|")
    return (key, level) if bar and level in list(Thinking) else (pin, "")
