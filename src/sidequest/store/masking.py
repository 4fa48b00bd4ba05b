"""The single place that masks known secrets, in everything that is written.

`Masker` stands in front of the database driver: every text that a statement carries goes through it, whoever
made the statement. It knows values, not patterns: what was given at open, and the values of variables whose
name says that they are a secret. A value is found as it is and in the escapes that JSON, HTML-safe JSON and
URLs write, at any depth of JSON inside JSON.

Blind spots: a value that was encoded otherwise (base64 of a file, compressed, letters spelled as escapes),
or cut in the middle. Text that no database of ours can hold (NUL, lone surrogates) becomes U+FFFD here too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

MIN_SECRET_CHARS = 8
"""Shorter values are no secrets to us: masking them would tear holes into ordinary text."""
MASK = "[masked]"
_SECRET_NAMES = ("_TOKEN", "_KEY", "_SECRET")

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_ESCAPED_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
_SHORT_ESCAPES = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
_SLASHES = r"\\{1,63}"
"""Backslashes in front of an escaped character: 63 are six depths of JSON; a bound keeps the search quick."""
_PLAIN_RUN = re.compile(r"[A-Za-z0-9_.~\-]+")


def secrets_of(env: Mapping[str, str]) -> list[str]:
    """Return the values of variables named `*_TOKEN`, `*_KEY` or `*_SECRET`, in any case."""
    return [value for name, value in env.items() if name.upper().endswith(_SECRET_NAMES)]


def storable(text: str) -> str:
    """Return `text` with NUL and lone surrogates as U+FFFD: PostgreSQL holds neither of them."""
    return _UNSTORABLE.sub("\ufffd", text)


def to_json(value: object) -> str:
    """Return `value` as compact JSON that both databases hold and can read: NUL in a string is U+FFFD."""
    return readable_json(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def readable_json(document: str) -> str:
    """Return JSON with NUL spelled as U+FFFD: PostgreSQL's functions for JSON refuse it."""
    return _ESCAPED_NUL.sub(r"\1\\ufffd", document) if "\\u0000" in document else document


class Masker:
    """Replaces known secrets by `[masked]`; values below `MIN_SECRET_CHARS` characters are left out."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._values: frozenset[str] = frozenset()
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Mask `secrets` too, from now on: what was written before stays as it is."""
        values = self._values | {storable(value.strip()) for value in secrets}
        if values == self._values and values:
            return
        self._values = values
        known = sorted((v for v in values if len(v) >= MIN_SECRET_CHARS), key=lambda v: (-len(v), v))
        # The longest run that no encoding changes: looking for it first keeps the expression off most texts.
        self._cores = sorted({max(_PLAIN_RUN.findall(value) or [""], key=len) for value in known})
        self._pattern = re.compile("|".join(map(_spellings, known))) if known else None

    def text(self, text: str) -> str:
        """Return `text` as it may be stored; JSON stays JSON, with its structure and its layout."""
        text = storable(text)
        if self._pattern is None or not any(core in text for core in self._cores):
            return text
        masked = self._pattern.sub(MASK, text)
        if masked == text or text[:1] not in ("{", "[", '"'):
            return masked
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return masked
        # A match may begin inside an escape or run over a quote: what the strings say decides.
        wanted = self._value(value)
        if wanted == value:
            return text
        return masked if _says(masked, wanted) else to_json(wanted)

    def parameters(self, parameters: Any) -> Any:
        """Return the parameters of a statement with every text in them masked; anything else is untouched."""
        if isinstance(parameters, str):
            return self.text(parameters)
        if isinstance(parameters, Mapping):
            return {name: self.parameters(value) for name, value in parameters.items()}
        if isinstance(parameters, tuple):
            return tuple(map(self.parameters, parameters))
        if isinstance(parameters, list):
            return [self.parameters(value) for value in parameters]
        return parameters

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self._value(item) for item in value]
        if isinstance(value, dict):
            return {self.text(key): self._value(item) for key, item in value.items()}
        return value


def _says(document: str, value: object) -> bool:
    try:
        return bool(json.loads(document) == value)
    except ValueError:
        return False


def _spellings(secret: str) -> str:
    return "".join(map(_spelling, secret))


def _spelling(char: str) -> str:
    """Return an expression for the ways to write `char`; backslashes double with each depth of JSON."""
    if _PLAIN_RUN.match(char):
        return re.escape(char)
    units = char.encode("utf-16-be").hex()
    ways = [
        _SLASHES if char == "\\" else f"(?:{_SLASHES})?{re.escape(char)}",
        "".join(f"{_SLASHES}u{_any_case(units[i : i + 4])}" for i in range(0, len(units), 4)),
        "".join(f"%{_any_case(f'{byte:02x}')}" for byte in char.encode()),
    ]
    if char in _SHORT_ESCAPES:
        ways.append(f"{_SLASHES}{_SHORT_ESCAPES[char]}")
    return f"(?:{'|'.join(ways)})"


def _any_case(digits: str) -> str:
    return "".join(d if d.isdigit() else f"[{d}{d.upper()}]" for d in digits)
