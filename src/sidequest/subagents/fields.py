"""The keys of one file, by meaning: spelling families united, duplicates and misspellings reported."""

from __future__ import annotations

from collections.abc import Iterable

from sidequest.subagents.diagnostics import Log
from sidequest.subagents.frontmatter import Field, Value
from sidequest.subagents.keys import NEVER_RUN, Key, key_of, near_miss, plain_key, spelling_rank

BLANK_WORDS = frozenset({"", "~", "null"})
"""What stands for "no value" in a scalar."""

_NARROWING = frozenset({Key.DISALLOWED_TOOLS, Key.PERMISSION, Key.READONLY, Key.ALLOWED_CONTEXTS})
"""Keys a misspelling of which still counts: leaving it out would widen what the file allows."""


class Fields:
    """Groups the fields of a file by key.

    Of several spellings of a scalar the usual one counts, then the first. Keys that decide about rights are
    all handed out, because only their combination takes away enough.
    """

    def __init__(self, fields: Iterable[Field], log: Log) -> None:
        self._log = log
        self._by_key: dict[Key, list[Field]] = {}
        self._foreign: dict[str, Field] = {}
        for field in fields:
            key = self._key(field)
            if key is None:
                self._foreign.setdefault(plain_key(field.name), field)
            else:
                self._by_key.setdefault(key, []).append(field)
        for group in self._by_key.values():
            group.sort(key=lambda field: spelling_rank(field.name) if key_of(field.name) else 99)

    def _key(self, field: Field) -> Key | None:
        key = key_of(field.name)
        if key is not None:
            return key
        meant = near_miss(field.name)
        if meant is None:
            return None
        question = f"Unknown key `{field.name}`: did you mean `{meant.value}`?"
        if meant in _NARROWING:
            self._log.warn(f"{question} It was read so, as far as it takes something away.", field.line)
            return meant
        self._log.warn(f"{question} It was not used.", field.line)
        return None

    def __bool__(self) -> bool:
        return bool(self._by_key)

    def all(self, key: Key) -> list[Field]:
        """Return every field of a key that decides about rights, the usual spelling first."""
        return self._by_key.get(key, [])

    def one(self, key: Key) -> Field | None:
        """Return the field that counts for `key`, or None; the others are reported."""
        group = self._by_key.get(key, [])
        for other in group[1:]:
            if other.value != group[0].value:
                self._log.warn(
                    f"`{other.name}` was not used: `{group[0].name}` on line {group[0].line} counts.",
                    other.line,
                )
        return group[0] if group else None

    def text(self, key: Key) -> tuple[str, int | None]:
        """Return the scalar of `key` and its line; blank, with the line, when it is no scalar."""
        field = self.one(key)
        if field is None:
            return "", None
        word = scalar(field.value)
        if word is None:
            self._log.warn(f"`{field.name}` is one value, not a list or a map; it was not used.", field.line)
        return word or "", field.line

    def drop(self, key: Key) -> None:
        """Treat the fields of `key` as keys of another program."""
        for field in self._by_key.pop(key, []):
            self._foreign.setdefault(plain_key(field.name), field)

    def foreign(self) -> tuple[str, ...]:
        """Return the names of the keys that are kept and not used, and note them once."""
        names = tuple(field.name for field in sorted(self._foreign.values(), key=lambda field: field.line))
        idle = [name for name in names if plain_key(name) in NEVER_RUN]
        kept = [name for name in names if name not in idle]
        said = [f"Kept and not used: {', '.join(kept)}."] if kept else []
        if idle:
            said.append(f"Kept and never run: {', '.join(idle)}.")
        if said:
            self._log.note(" ".join(said))
        return names


def scalar(value: Value) -> str | None:
    """Return the word that `value` is; a list of one is a word too (4.2); None when it is none."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, str):
        return None
    word = value.strip()
    return "" if word.lower() in BLANK_WORDS else word


def words(value: Value) -> tuple[list[str], bool]:
    """Return the entries of a list or of a comma list, and whether some entry was no word.

    Commas inside parentheses do not separate. A line without commas is split at blanks.
    """
    if isinstance(value, str):
        return _split(value), False
    if isinstance(value, dict):
        return [], True
    found: list[str] = []
    strange = False
    for item in value:
        if isinstance(item, str):
            found += _split(item)
        else:
            strange = True
    return found, strange


def _split(text: str) -> list[str]:
    separators = "," if "," in text else ", \t\n"
    parts, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character in separators and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return [word for part in parts if (word := part.strip().strip("\"'").strip())]
