"""The words and identifiers of a question as things to look for, in all their spellings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sidequest.models.offline.vocabulary import COMMON, STOP

_TOKEN = re.compile(r"[A-Za-z_$][\w$]*(?:(?:\.|::|->|-)[\w$]+)*|\d[\w.,]*\w|\d|[^\W\d_]{2,}")
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_]+")
_ENDINGS = (
    ("ation", 9),
    ("ations", 10),
    ("ion", 8),
    ("ions", 9),
    ("ies", 6),
    ("ing", 7),
    ("ed", 6),
    ("s", 4),
)
"""Endings of English words, with the least length of a word that loses them."""
_SHORT_STEM = 4
"""A word with a stem this short is only found in its own forms: mode and modes, but not model."""
_FORM = re.compile(r"(?:s|d|r|es|ed|er|ing)?(?![A-Za-z0-9])|(?=[A-Z_])")


@dataclass(frozen=True, slots=True)
class Term:
    """Something to look for, in all the ways it may be spelled."""

    text: str
    """As the question spells it."""
    weight: float
    """How much a line gains that contains it."""
    needles: tuple[str, ...]
    """Lower-case spellings; the first is the one asked for."""
    strong: bool = False
    """An identifier or a quotation: searched first, and exactly."""
    searchable: bool = True
    """False for words too common to search for alone; they still count on a line."""

    def match(self, text: str, lower: str) -> float:
        """Return how well a line contains the term: 1.0 as asked, less for other spellings, 0.0 not at all.

        `lower` is `text` in lower case. Identifiers inside longer identifiers count 0.4; plain words must
        begin at a word boundary (a hump of a camel-case name is one).
        """
        best = 0.0
        for needle in self.needles:
            at = lower.find(needle)
            while at >= 0:
                best = max(best, self._grade(text, at, needle))
                if best == 1.0:
                    return best
                at = lower.find(needle, at + 1)
        return best

    def _grade(self, text: str, at: int, needle: str) -> float:
        end = at + len(needle)
        before = text[at - 1] if at else " "
        after = text[end] if end < len(text) else " "
        hump = text[at : at + 1].isupper() and before.islower()
        if not self.strong:
            if len(needle) <= _SHORT_STEM and not _FORM.match(text, end):
                return 0.0
            if not before.isalnum() or hump:
                return 1.0
            return 0.3 if len(needle) >= 6 else 0.0
        if before.isalnum() or after.isalnum() or before == "_" or after == "_":
            return 0.4
        if text[at:end] == self.text:
            return 1.0
        return 0.8 if len(self.needles) > 1 else 0.55


def identifier_parts(text: str) -> list[str]:
    """Return the words of an identifier in lower case: `HARD_LIMIT` and `hardLimit` give hard, limit."""
    return [part.lower() for part in _PARTS.findall(text)]


def spellings(text: str) -> tuple[str, ...]:
    """Return the lower-case spellings of an identifier: as given, snake, kebab, joined, spaced."""
    parts = identifier_parts(text)
    found = [text.lower()]
    if len(parts) > 1:
        found += ["_".join(parts), "-".join(parts), "".join(parts), " ".join(parts)]
    return tuple(dict.fromkeys(found))


def stem(word: str) -> str:
    """Return the beginning that the forms of a word share: degrade, degraded, degradation give degrad."""
    word = word.lower()
    for ending, least in _ENDINGS:
        if word.endswith(ending) and len(word) >= least and not word.endswith("ss"):
            word = word[: -len(ending)]
            if ending == "ing" and len(word) > 3 and word[-1] == word[-2]:
                word = word[:-1]
            break
    return word[:-1] if word.endswith("e") and len(word) > 5 else word


def terms_of(rest: str, quoted: Iterable[str]) -> list[Term]:
    """Return the terms of a question, each once: quotations, then what stands outside of them (`rest`)."""
    return _unique(_terms(rest, quoted))


def _terms(rest: str, quoted: Iterable[str]) -> Iterator[Term]:
    for text in quoted:
        text = text.removesuffix("()")
        yield Term(text, 6.0, spellings(text) if " " not in text else (text.lower(),), strong=True)
        yield from _components(text)
    previous: tuple[str, int] | None = None
    for token in _TOKEN.finditer(rest):
        word = token[0]
        term = _term(word, shouting=rest.isupper())
        if term is None:
            previous = None
            continue
        yield term
        yield from _components(word)
        plain = not term.strong and term.searchable and word.isalpha()
        if plain and previous and rest[previous[1] : token.start()] == " ":
            yield _phrase(previous[0], word)
        previous = (word, token.end()) if plain else None


def _term(word: str, *, shouting: bool) -> Term | None:
    lower = word.lower()
    if lower in STOP or lower in {"e.g", "i.e"}:
        return None
    if word[0].isdigit():
        return Term(word, 2.0, (lower,), searchable=len(word) > 2)
    if _is_identifier(word):
        return Term(word, 5.0, spellings(word), strong=True)
    if word.isupper() and len(word) > 2 and not shouting:
        return Term(word, 4.0, (lower,), strong=True)
    if "-" in word:
        return Term(word, 3.0, spellings(word))
    if lower in COMMON:
        return Term(word, 0.4, (stem(word),), searchable=False)
    if len(word) < 3 and word.isascii():
        return None
    weight = 2.0 if word[0].isupper() and not word.isupper() else 1.2 + 0.05 * min(len(word), 12)
    return Term(word, weight, (stem(word),))


def _is_identifier(word: str) -> bool:
    return bool(
        "_" in word.strip("_")
        or re.search(r"[a-z0-9][A-Z]|[A-Z]{2,}[a-z]{2}|[.$]|::|->", word)
        or (re.search(r"\d", word) and re.search(r"[A-Za-z]", word))
    )


def _components(word: str) -> Iterator[Term]:
    """Yield the names of a dotted name: `ContextBudget.of` is defined as two names, never as one."""
    pieces = [piece for piece in re.split(r"\.|::|->", word) if piece]
    if len(pieces) < 2 or " " in word:
        return
    for piece in pieces:
        if len(piece) > 2 and piece.lower() not in STOP:
            yield Term(piece, 3.5, spellings(piece), strong=True)


def _phrase(first: str, second: str) -> Term:
    head, tail = first.lower(), stem(second)
    return Term(f"{first} {second}", 3.0, tuple(f"{head}{sign}{tail}" for sign in (" ", "_", "-", "")))


def _unique(terms: Iterable[Term]) -> list[Term]:
    kept: dict[str, Term] = {}
    for term in terms:
        kept.setdefault(term.needles[0], term)
    return list(kept.values())
