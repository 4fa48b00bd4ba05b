"""The types of the columns that hold text: each one says whether it is content, which is masked, or not.

There is no way to write a column around its type. A test refuses a text column without one of these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from sqlalchemy import Dialect, Engine, Text
from sqlalchemy.types import TypeDecorator

from sidequest.store.masking import Masker

_MASKERS: WeakKeyDictionary[Dialect, Masker] = WeakKeyDictionary()
"""The masker of each open database, by the object that SQLAlchemy hands to a type."""


def mask_with(engine: Engine, masker: Masker) -> None:
    """Let `masker` mask what is written through `engine`."""
    _MASKERS[engine.dialect] = masker


class Structure(TypeDecorator[str]):
    """Ids, kinds, statuses, folders, models: stored as they are."""

    impl = Text
    cache_ok = True


class _Masked(TypeDecorator[str]):
    impl = Text
    cache_ok = True
    mask: ClassVar[Callable[[Masker, str], str]]

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        """Return what is written for `value`."""
        return type(self).mask(_MASKERS[dialect], value) if isinstance(value, str) else value


class Content(_Masked):
    """A text that a person, a model or a tool wrote."""

    cache_ok = True
    mask = Masker.text


class Record(_Masked):
    """A JSON document of ours, or one value in JSON."""

    cache_ok = True
    mask = Masker.record


class Messages(_Masked):
    """JSON of pydantic-ai: a message, a part of one, or a list of messages."""

    cache_ok = True
    mask = Masker.messages
