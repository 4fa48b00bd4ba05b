"""The single place that masks known secrets, in all content that is written.

The types of the columns (`columns`) call `Masker` for every value that a statement carries, whoever made the
statement. It knows values, not patterns: what was given at open, and the values of variables whose name says
that they are a secret. A value is found as it is and in the escapes that JSON, HTML-safe JSON and URLs write,
at any depth of JSON inside JSON. What is content in a JSON document, and what structure, `structure` knows.

Blind spots: a value that was encoded otherwise (base64 of a file, compressed, letters spelled as escapes),
or cut in the middle. Text that no database of ours can hold (NUL, lone surrogates) becomes U+FFFD here too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sidequest.store.structure import Mask, masked_messages, masked_record

MIN_SECRET_CHARS = 8
"""Shorter values are no secrets to us: masking them would tear holes into ordinary text."""
MASK = "[masked]"
MAX_WORD_CHARS = 15
"""Longest value that may be an ordinary word, inclusive; see `worth_masking`."""
_SECRET_NAMES = ("_TOKEN", "_KEY", "_SECRET")
_ORDINARY = re.compile(r"(?:[A-Z]?[a-z]+|[A-Z]+)(?:[-_./: ](?:[A-Z]?[a-z]+|[A-Z]+))*")

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_ESCAPED_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
_SHORT_ESCAPES = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
_SLASHES = r"\\{1,63}"
"""Backslashes in front of an escaped character: 63 are six depths of JSON; a bound keeps the search quick."""
_OPEN_ESCAPE = re.compile(r"(?:\\{1,63}(?:u[0-9a-fA-F]{0,3})?|%[0-9a-fA-F]?)\Z")
"""The beginning of a character that is written as an escape."""
_PLAIN_RUN = re.compile(r"[A-Za-z0-9_.~\-]+")


def secrets_of(env: Mapping[str, str]) -> list[str]:
    """Return the values of variables named `*_TOKEN`, `*_KEY` or `*_SECRET`, in any case."""
    return [value for name, value in env.items() if name.upper().endswith(_SECRET_NAMES)]


def worth_masking(values: Iterable[str]) -> list[str]:
    """Return the values that are secrets: no short ones, and none that reads like a word or a name.

    `development`, `customer_id`, `postgres` and `lm-studio` are what many variables and local servers have
    for a key. Masking them would tear holes into ordinary text and hide nothing. Ordinary is a value of
    letters alone, in words of one case, of at most `MAX_WORD_CHARS` characters.
    """
    stripped = (value.strip() for value in values)
    return [
        value
        for value in stripped
        if len(value) >= MIN_SECRET_CHARS and (len(value) > MAX_WORD_CHARS or not _ORDINARY.fullmatch(value))
    ]


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
        self._spelled = [[re.compile(_spelling(char)) for char in value] for value in known]

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

    def record(self, document: str) -> str:
        """Return a JSON document of ours as it may be stored."""
        return self._document(document, masked_record)

    def messages(self, document: str) -> str:
        """Return pydantic-ai's JSON of a message, of a part or of a list of messages as it may be stored."""
        return self._document(document, masked_messages)

    def values(self, value: Any) -> Any:
        """Return plain values of ours with their content masked, as `record` does."""
        return masked_record(value, self._value)

    def safe_length(self, text: str) -> int:
        """Return how much of a text that is not complete may be told: what follows may begin a secret.

        Cut there, no secret is in two pieces, whatever comes next.
        """
        cut = min(
            (start for each in self._spelled if (start := _open_at(each, text)) is not None), default=-1
        )
        if cut < 0 or self._pattern is None:
            return len(text)
        for whole in self._pattern.finditer(text):
            if whole.start() < cut < whole.end():
                return whole.start()
        return cut

    def _document(self, document: str, masked: Callable[[Any, Mask], Any]) -> str:
        document = storable(document)
        if self._pattern is None or not any(core in document for core in self._cores):
            return document
        value = json.loads(document)
        wanted = masked(value, self._value)
        return document if wanted == value else to_json(wanted)

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list | tuple):
            return type(value)(self._value(item) for item in value)
        if isinstance(value, dict):
            return {self.text(key): self._value(item) for key, item in value.items()}
        return value


def _open_at(secret: Sequence[re.Pattern[str]], text: str) -> int | None:
    """Return where a secret, one expression a character, may have begun at the end of a text, or None."""
    for first in secret[0].finditer(text):
        position = first.end()
        for char in secret[1:]:
            if position == len(text):
                return first.start()
            found = char.match(text, position)
            if found is None:
                if _OPEN_ESCAPE.fullmatch(text, position):
                    return first.start()
                break
            position = found.end()
    begun = _OPEN_ESCAPE.search(text)
    return None if begun is None else begun.start()


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
