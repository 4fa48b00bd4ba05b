"""A list of pieces on a page that follows a list of values: only what changed is sent to the browser."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from nicegui.element import Element

Value_contra = TypeVar("Value_contra", contravariant=True)
Value = TypeVar("Value")


class Piece(Protocol[Value_contra]):
    """What shows one value."""

    @property
    def element(self) -> Element:
        """The element that is in the list."""

    def show(self, value: Value_contra) -> None:
        """Show another value of the same kind."""


@dataclass
class _Shown(Generic[Value]):
    value: Value
    sameness: Hashable
    piece: Piece[Value]


class KeyedList(Generic[Value]):
    """The pieces of `container`, one for each value, in order.

    `key` tells values apart, `sameness` recognises one that got another key and says the same, as an answer
    does that is read from the store once its turn is over: its piece stays. `make` builds a piece.
    """

    def __init__(
        self,
        container: Element,
        *,
        key: Callable[[Value], str],
        sameness: Callable[[Value], Hashable],
        make: Callable[[Value], Piece[Value]],
    ) -> None:
        self.container = container
        self._key, self._sameness, self._make = key, sameness, make
        self._shown: dict[str, _Shown[Value]] = {}

    def show(self, values: Sequence[Value]) -> None:
        """Show `values`: keep what is the same, change what changed, add and remove the rest."""
        wanted = {self._key(value): value for value in values}
        free = {(type(old.value), old.sameness): key for key, old in self._shown.items() if key not in wanted}
        found: dict[str, _Shown[Value]] = {}
        for key, value in wanted.items():
            found[key] = self._piece(key, value, free)
        kept = {id(new.piece) for new in found.values()}
        for old in self._shown.values():
            if id(old.piece) not in kept:
                old.piece.element.delete()
        self._shown = found
        self._in_order()

    def _piece(self, key: str, value: Value, free: dict[tuple[type, Hashable], str]) -> _Shown[Value]:
        sameness = self._sameness(value)
        known = self._shown.get(key)
        if known is None and (taken := free.pop((type(value), sameness), None)) is not None:
            known = self._shown[taken]
        if known is None:
            with self.container:
                return _Shown(value, sameness, self._make(value))
        if known.value != value:
            known.piece.show(value)
        return _Shown(value, sameness, known.piece)

    def _in_order(self) -> None:
        children = self.container.default_slot.children
        for place, shown in enumerate(self._shown.values()):
            if children[place] is not shown.piece.element:
                shown.piece.element.move(self.container, place)
