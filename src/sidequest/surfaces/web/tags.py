"""Plain HTML elements with text in them. Text becomes a text node: nothing in it is read as markup."""

from __future__ import annotations

from nicegui.elements.mixins.text_element import TextElement


class Tag(TextElement):
    """An element such as `h1`, `p`, `a` or `button`; use it as a context to put others into it.

    `classes` are those of our stylesheets. Attributes are given by name; `aria_label` becomes `aria-label`,
    and a leading or trailing underscore is left out (`for_`). True gives an attribute without a value; None
    and False leave it out.
    """

    def __init__(
        self, name: str, text: str = "", classes: str = "", **attributes: str | int | bool | None
    ) -> None:
        super().__init__(tag=name, text=text)
        if classes:
            self.classes(classes)
        for key, value in attributes.items():
            self.attribute(key, value)

    def attribute(self, name: str, value: str | int | bool | None) -> None:
        """Set an attribute, named as in the constructor; None and False take it away."""
        name = name.strip("_").replace("_", "-")
        value = None if value is False else "" if value is True else value
        if self._props.get(name) == value:
            return
        if value is None:
            self._props.pop(name, None)
        else:
            self._props[name] = value
        self.update()
