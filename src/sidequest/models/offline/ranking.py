"""Which of the lines seen answer the question best."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from typing import NamedTuple

from sidequest.models.offline.knowledge import Knowledge, Place
from sidequest.models.offline.lines import (
    MAX_LINE_CHARS,
    Definition,
    definition_of,
    indent,
    is_document,
    is_heading,
    is_import,
    is_noise,
    is_test,
    opens_block,
)
from sidequest.models.offline.terms import Term, identifier_parts
from sidequest.models.offline.words import Aim, Query

_DEFINES = 8.0
"""Gain of the line that defines the very identifier asked for."""
_SAYS_IT_ALL = 6.0
"""Gain of a definition whose name is made of words of the question only, two at least."""
_AT_TOP = 1.0
"""Gain of a definition that is not indented: a module's own, not a local one."""
_NAMES = 2.5
"""Gain of a definition whose name contains a term, and of a heading."""
_STATES_VALUE = 3.0
_TOGETHER = 2.0
"""Gain for each further term on one line."""
_IN_FILE = 0.8
"""Gain for each further term somewhere in the file, up to four."""
_IN_PATH = 1.5
MAX_BLOCK_LINES = 250
"""Most lines of a block that are looked at."""
_MAX_GAP = 10


class Ranked(NamedTuple):
    """A line and how well it answers. A tuple, because a long history makes thousands of them."""

    path: str
    line: int
    text: str
    score: float
    terms: tuple[str, ...]
    """Texts of the terms it contains."""
    exact: bool = False
    """It contains an identifier or quotation of the question as a whole word."""
    definition: Definition | None = None
    """Set when the line defines something the question names."""

    @property
    def place(self) -> Place:
        """Path and line number."""
        return self.path, self.line


def rank(known: Knowledge, query: Query | None = None) -> list[Ranked]:
    """Return the lines seen that contain a telling term of the question, best first; ties by place."""
    query = query or known.query
    telling = {term.text for term in query.searchable}
    matches: dict[Place, dict[str, float]] = {}
    for place, text in known.found.items():
        found = match_terms(text, query.terms)
        if not telling.isdisjoint(found):
            matches[place] = found
    rarity = _rarity(matches)
    in_file: dict[str, set[str]] = {}
    for (path, _), found in matches.items():
        in_file.setdefault(path, set()).update(found)
    by_path = {path: _path_factor(path, query) for path in in_file}
    ranked = [
        _ranked(place, known.found[place], found, query, rarity, len(in_file[place[0]]), by_path[place[0]])
        for place, found in matches.items()
    ]
    ranked = [r._replace(score=r.score + 0.5) if r.place in known.kept else r for r in ranked]
    ranked = _within_named_files(ranked, query)
    return sorted(ranked, key=lambda r: (-r.score, r.path, r.line))


def _within_named_files(ranked: list[Ranked], query: Query) -> list[Ranked]:
    """Keep to the files that a question for a list names, as long as they hold anything."""
    if query.aim not in {Aim.LIST, Aim.SWEEP} or not query.files:
        return ranked
    return [hit for hit in ranked if is_named(hit.path, query)] or ranked


def is_named(path: str, query: Query) -> bool:
    """Say whether the question names this file, by path, by name or by a pattern."""
    name = path.rsplit("/", 1)[-1]
    return any(
        fnmatch(path, wanted) or fnmatch(name, wanted) or path.endswith("/" + wanted.lstrip("./"))
        for wanted in query.files
    )


def match_terms(text: str, terms: tuple[Term, ...]) -> dict[str, float]:
    """Return the terms a line contains, by text, with how well it contains them."""
    if len(text) > MAX_LINE_CHARS:
        text = text[:MAX_LINE_CHARS]
    lower = text.lower()
    found: dict[str, float] = {}
    for term in terms:
        for needle in term.needles:
            if needle in lower:
                grade = term.match(text, lower)
                if grade:
                    found[term.text] = grade
                break
    return found


def block_of(known: Knowledge, ranked: Sequence[Ranked]) -> list[Ranked]:
    """Return the best line and the lines of the block it opens: `class ErrorCode:` with its members.

    Empty unless the best line defines what was asked for in so many words and its block was read. Comments
    and texts in the block are passed over. A summary keeps members only, so gaps between kept lines are
    no end of the block.
    """
    best = ranked[0] if ranked else None
    if best is None or best.exact or best.definition is None or not opens_block(best.text):
        return []
    members, gap, inside_text = [best], 0, False
    for number in range(best.line + 1, best.line + MAX_BLOCK_LINES):
        text = known.found.get((best.path, number))
        gap = gap + 1 if text is None else 0
        stripped = text.strip() if text is not None else ""
        if gap > (_MAX_GAP if best.place in known.kept else 0):
            break
        if text is None or not stripped:
            continue
        if indent(text) <= indent(best.text):
            break
        quotes = stripped.count('"""')
        if not inside_text and not quotes and not stripped.startswith("#"):
            members.append(Ranked(best.path, number, text, best.score, best.terms))
        inside_text ^= quotes % 2 == 1
    return members if len(members) > 2 else []


def _rarity(matches: Mapping[Place, Mapping[str, float]]) -> dict[str, float]:
    counts = Counter(term for found in matches.values() for term in found)
    return {term: 1 / (1 + math.log10(1 + count / 8)) for term, count in counts.items()}


def _path_factor(path: str, query: Query) -> tuple[float, float]:
    """Return what a line gains from the words of its path, and the factor for the kind of file."""
    words = set(identifier_parts(path))
    gain = _IN_PATH * sum(
        any(word.startswith(part) for word in words)
        for term in query.searchable
        for part in [term.needles[0]]
        if len(part) > 2
    )
    factor = 1.0
    if is_noise(path):
        factor *= 0.2
    if is_test(path) and not query.wants_tests:
        factor *= 0.45
    elif is_document(path) and not query.wants_docs:
        factor *= 0.7
    return min(gain, 2 * _IN_PATH), factor


def _ranked(
    place: Place,
    text: str,
    found: Mapping[str, float],
    query: Query,
    rarity: Mapping[str, float],
    terms_in_file: int,
    by_path: tuple[float, float],
) -> Ranked:
    asked = {term.text: term for term in query.terms if term.text in found}
    score = sum(term.weight * found[name] * rarity[name] for name, term in asked.items())
    carrying = [name for name, term in asked.items() if term.searchable and found[name] >= 0.4]
    score += _TOGETHER * max(0, len(carrying) - 1) + _IN_FILE * min(4, terms_in_file - 1)
    definition = definition_of(text[:MAX_LINE_CHARS])
    gain, defines = _definition_gain(definition, text, asked, found, query)
    path_gain, factor = by_path
    score = (score + gain + (path_gain if carrying else 0.0)) * factor
    if is_import(text):
        score *= 0.4
    return Ranked(
        path=place[0],
        line=place[1],
        text=text,
        score=round(score, 4),
        terms=tuple(asked),
        exact=any(term.strong and found[name] >= 0.8 for name, term in asked.items()),
        definition=definition if defines else None,
    )


def _definition_gain(
    definition: Definition | None,
    text: str,
    asked: Mapping[str, Term],
    found: Mapping[str, float],
    query: Query,
) -> tuple[float, bool]:
    if definition is None:
        return 0.0, False
    parts = identifier_parts(definition.name)
    name = "".join(parts)
    value_gain = (
        _STATES_VALUE if query.aim is Aim.VALUE and definition.value and not is_heading(text) else 0.0
    )
    best = 0.0
    for key, term in asked.items():
        wanted = "".join(identifier_parts(term.text))
        if name == wanted and (found[key] >= 0.8 or not term.strong) and len(wanted) > 1:
            best = max(best, _DEFINES if term.strong else _NAMES + 1.5)
        elif len(term.needles) > 1 and definition.name.lower() in term.needles:
            best = max(best, _SAYS_IT_ALL)
        elif found[key] and any(needle in definition.name.lower() for needle in term.needles):
            best = max(best, _NAMES if term.searchable else 0.5)
    if not best:
        return 0.0, False
    if len(parts) > 1 and all(
        any(part.startswith(n) for t in asked.values() for n in t.needles) for part in parts
    ):
        best = max(best, _SAYS_IT_ALL)
    at_top = 0.0 if text[:1].isspace() else _AT_TOP
    return best + value_gain + at_top, best > 0.5
