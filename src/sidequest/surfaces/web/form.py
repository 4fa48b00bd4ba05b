"""Forms of plain HTML fields, each with its label, its hint and its error.

The browser keeps what a person types: a field is given its first value and is never written again, so
nothing the server says meanwhile can take a letter away. What all fields hold comes with each change, a
moment after the last one, and with the submit. Leaving a page with changes asks first.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from nicegui import ui
from nicegui.events import GenericEventArguments

from sidequest.surfaces.web.tags import Tag

Values = dict[str, list[str]]
"""What the fields hold, by name; a box that is not ticked is not there."""
Choices = Sequence[tuple[str, str]]
"""Values and what is shown for them."""
Handler = Callable[[Values], Awaitable[None]]

_READ = "const o = {}; for (const [k, v] of new FormData(f)) (o[k] ??= []).push(v); emit(o);"
_ASK = (
    "if (!window.asksToLeave) { window.asksToLeave = (leaving) => { leaving.preventDefault(); };"
    " window.addEventListener('beforeunload', window.asksToLeave); }"
)
_LATER = (
    f"(e) => {{ const f = e.currentTarget; {_ASK} clearTimeout(f.later);"
    f" f.later = setTimeout(() => {{ {_READ} }}, 250); }}"
)
_NOW = f"(e) => {{ e.preventDefault(); const f = e.currentTarget; clearTimeout(f.later); {_READ} }}"
_CLICK = f"(e) => {{ const f = e.currentTarget.form; clearTimeout(f.later); {_READ} }}"


def leave_for(path: str) -> None:
    """Go to another page of ours without asking: what was changed is stored."""
    ui.run_javascript(
        "window.removeEventListener('beforeunload', window.asksToLeave); window.asksToLeave = null;"
        f" window.forgetDrafts?.(); window.location.assign({json.dumps(path)})"
    )


def ask_before_leaving() -> None:
    """Ask before the page is left, after a change that was not typed."""
    ui.run_javascript(_ASK)


def focus(html_id: str) -> None:
    """Move the focus to an element, and open what it is folded into."""
    ui.run_javascript(
        f"setTimeout(() => {{ const e = document.getElementById({json.dumps(html_id)});"
        " if (!e) return; const d = e.closest('details'); if (d) d.open = true;"
        " e.focus({preventScroll: true}); e.scrollIntoView({block: 'center'}); }, 50)"
    )


def field_id(name: str) -> str:
    """Return the id of the element with the field `name`."""
    return f"field-{name}"


class Form:
    """A form; use it as a context to build fields inside.

    With a `draft`, a name that changes with what the fields begin with, a page that is loaded anew gives
    `restored` what they held before; no password is among it.
    """

    def __init__(
        self,
        changed: Handler,
        submitted: Handler,
        *,
        label: str,
        draft: str | None = None,
        restored: Handler | None = None,
    ) -> None:
        self.element = Tag("form", classes="form", novalidate=True, autocomplete="off", aria_label=label)
        self.element.on("input", _with_values(changed), js_handler=_LATER)
        self.element.on("submit", _with_values(submitted), js_handler=_NOW)
        if draft is not None and restored is not None:
            self.element.attribute("data_draft", draft)
            self.element.on("restored", _with_values(restored), js_handler="(e) => emit(e.detail)")
        self._errors: dict[str, tuple[Tag, Tag]] = {}

    def __enter__(self) -> Form:
        self.element.__enter__()
        return self

    def __exit__(self, *of_error: Any) -> None:
        self.element.__exit__(*of_error)

    def clear(self) -> None:
        """Take all fields out, to build others."""
        self.element.clear()
        self._errors.clear()

    def button(self, text: str, clicked: Handler, classes: str = "button", **attributes: Any) -> Tag:
        """Add a button that is told what the fields hold."""
        button = Tag("button", text, classes, type="button", **attributes)
        button.on("click", _with_values(clicked), js_handler=_CLICK)
        return button

    def text(
        self, name: str, label: str, value: str = "", *, hint: str = "", kind: str = "text", **attributes: Any
    ) -> Tag:
        """Add a field of one line and return its hint; `kind` is `text`, `number` or `password`."""
        with self._labelled(name, label, hint) as place:
            place.field = Tag(
                "input",
                classes="field number" if kind == "number" else "field",
                type="password" if kind == "password" else "text",
                inputmode="decimal" if kind == "number" else None,
                autocomplete="new-password" if kind == "password" else None,
                maxlength=2000,
                **place.attributes,
                **_first("value", value or None),
                **attributes,
            )
        return place.hint

    def area(
        self,
        name: str,
        label: str,
        value: str,
        *,
        rows: int,
        hint: str = "",
        mono: bool = False,
        disabled: bool = False,
    ) -> Tag:
        """Add a field of several lines and return its hint."""
        with self._labelled(name, label, hint) as place:
            place.field = Tag(
                "textarea",
                value,
                "field area mono" if mono else "field area",
                rows=rows,
                maxlength=200_000,
                disabled=disabled,
                **place.attributes,
            )
        return place.hint

    def place_for(self, name: str) -> None:
        """Make room for what is wrong with several fields together."""
        group = Tag("div", id=field_id(name), tabindex=-1)
        with group:
            self._errors[name] = (group, Tag("p", classes="error", hidden=True))

    def choice(
        self, name: str, label: str, value: str, choices: Choices, *, hint: str = "", disabled: bool = False
    ) -> Tag:
        """Add a choice of one and return its hint."""
        with self._labelled(name, label, hint) as place:
            place.field = select(value, choices, disabled=disabled, **place.attributes)
        return place.hint

    @contextmanager
    def boxes(self, name: str, label: str, *, hint: str = "") -> Iterator[None]:
        """Group tick boxes, which are built inside, under a label."""
        with Tag("fieldset", classes="labelled boxes", id=field_id(name), tabindex=-1) as group:
            Tag("legend", label, "label")
            with Tag("div", classes="box-list"):
                yield
            Tag("p", hint, "hint", id=f"{field_id(name)}-hint", hidden=not hint)
            self._errors[name] = (group, Tag("p", classes="error", id=f"{field_id(name)}-error", hidden=True))

    def box(
        self, name: str, value: str, label: str, *, ticked: bool, mark: str = "", disabled: bool = False
    ) -> None:
        """Add a tick box; `mark` is a short remark behind its label."""
        with Tag("label", classes="box"):
            Tag(
                "input",
                type="checkbox",
                name_=name,
                value=value,
                disabled=disabled,
                **_first("checked", True if ticked else None),
            )
            Tag("span", label)
            if mark:
                Tag("span", mark, "box-mark")

    @contextmanager
    def _labelled(self, name: str, label: str, hint: str) -> Iterator[_Place]:
        place = _Place(name)
        with Tag("div", classes="labelled"):
            Tag("label", label, "label", for_=field_id(name))
            yield place
            place.hint = Tag("p", hint, "hint", id=f"{field_id(name)}-hint", hidden=not hint)
            error = Tag("p", classes="error", id=f"{field_id(name)}-error", hidden=True)
        self._errors[name] = (place.field, error)

    def show(self, problems: Mapping[str, str], *, focus_first: bool = False) -> None:
        """Show what is wrong beside each field, and nothing beside the others."""
        for name, (field, error) in self._errors.items():
            message = problems.get(name, "")
            if error.text != message:
                error.text = message
                error.attribute("hidden", not message)
                field.attribute("aria_invalid", "true" if message else None)
        first = next((name for name in self._errors if name in problems), None)
        if focus_first and first is not None:
            focus(field_id(first))


class _Place:
    """One labelled field while it is built."""

    field: Tag
    hint: Tag

    def __init__(self, name: str) -> None:
        self.attributes: dict[str, Any] = {
            "id": field_id(name),
            "name_": name,
            "aria_describedby": f"{field_id(name)}-hint {field_id(name)}-error",
        }


def select(value: str, choices: Choices, **attributes: Any) -> Tag:
    """Build a native list to choose one from; a value that is not among the choices is added as it is."""
    known = [*choices] if any(value == key for key, _ in choices) else [*choices, (value, value)]
    with Tag("select", classes="field", **attributes) as element:
        for key, shown in known:
            Tag("option", shown, value=key, **_first("selected", True if key == value else None))
    return element


def _first(name: str, value: str | bool | None) -> dict[str, Any]:
    """Return what a field begins with: an attribute, which says nothing once a person changed the field."""
    return {f"^{name}": value}


def _with_values(handler: Handler) -> Callable[[GenericEventArguments], Awaitable[None]]:
    client = ui.context.client

    async def handle(event: GenericEventArguments) -> None:
        # The element that was clicked may be gone before the handler is done.
        with client:
            await handler(_values(event.args))

    return handle


def _values(sent: Any) -> Values:
    """Return what a browser sent, as far as it is what our script sends."""
    if not isinstance(sent, dict):
        return {}
    return {
        str(name): [text.replace("\r\n", "\n") for text in texts if isinstance(text, str)]
        for name, texts in sent.items()
        if isinstance(texts, list)
    }


def one(values: Values, name: str) -> str:
    """Return what a field with one value holds; empty when it is not there."""
    return values.get(name, [""])[0]
