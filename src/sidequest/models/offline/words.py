"""What a question asks for: its rare words and identifiers, and the shape of answer it wants."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from sidequest.models.offline.terms import Term, terms_of


class Aim(StrEnum):
    """The shape of answer a question wants."""

    WHERE = "where"
    VALUE = "value"
    LIST = "list"
    """Every line that matches."""
    EXPLAIN = "explain"
    SWEEP = "sweep"
    """Read every file of a folder, page by page."""


@dataclass(frozen=True, slots=True)
class Query:
    """A question, understood as far as this engine can."""

    question: str
    terms: tuple[Term, ...]
    """Heaviest first; order of the question among equals."""
    aim: Aim
    files: tuple[str, ...] = ()
    """Files and file patterns the question names."""
    folders: tuple[str, ...] = ()
    wants_tests: bool = False
    wants_docs: bool = False
    thorough: bool = False
    """The question asks for care; more is read."""

    @property
    def strong(self) -> tuple[Term, ...]:
        """Identifiers and quotations."""
        return tuple(term for term in self.terms if term.strong)

    @property
    def patterns(self) -> tuple[str, ...]:
        """File patterns among `files`, such as `*.py`."""
        return tuple(name for name in self.files if "*" in name)

    @property
    def searchable(self) -> tuple[Term, ...]:
        """Terms worth a search of their own."""
        return tuple(term for term in self.terms if term.searchable)

    def with_terms(self, more: Iterable[Term]) -> Query:
        """Return the query with further terms, without repeating any."""
        known = {term.text for term in self.terms}
        return replace(self, terms=(*self.terms, *(term for term in more if term.text not in known)))


_QUOTED = re.compile(r"`([^`\n]{2,80})`|\"([^\"\n]{2,80})\"|“([^”\n]{2,80})”|(?<!\w)'([^'\n]{2,60})'(?!\w)")
_EXTENSIONS = (
    "c|cc|cfg|conf|cpp|cs|css|csv|go|h|hpp|html|ini|java|js|json|jsonl|jsx|kt|lock|log|lua|md|mjs|php|proto|py|pyi|"
    "rb|rs|rst|scala|sh|sql|svelte|swift|toml|ts|tsx|txt|vue|xml|yaml|yml|zig"
)
_FILE = re.compile(rf"(?<![\w/*.-])(?:\.{{0,2}}/)?(?:[\w.@+*-]+/)*[\w.@+*-]+\.(?:{_EXTENSIONS})(?![\w/-])")
_FOLDER = re.compile(r"(?<![\w/*.-])(?:\.{1,2}/)?(?:[\w.@+-]+/)+(?:[\w.@+-]*[\w+])?(?![\w/])")
_KNOWN_FOLDERS = frozenset(
    ("app", "benchmarks", "doc", "docs", "lib", "pkg", "scripts", "src", "test", "tests", "tools")
)
_TASK = re.compile(r"(?im)^[ \t]*task[ \t]*:(.*(?:\n.*)*)")
_QUESTION = re.compile(r"(?im)^[ \t]*question[ \t]*:\s*(.+(?:\n(?!\s*\n).*)*)")
_TAGGED = re.compile(r"(?is)<(task|question|brief)>\s*(.*?)\s*</\1>")
_ENCLOSED = re.compile(r"(?s)<enclosed\b[^>]*>.*</enclosed>")
_LANGUAGES = {
    "python": "*.py",
    "markdown": "*.md",
    "text": "*.txt",
    "json": "*.json",
    "yaml": "*.yaml",
    "toml": "*.toml",
    "javascript": "*.js",
    "typescript": "*.ts",
    "rust": "*.rs",
}
_SWEEP = re.compile(
    r"(?i)\b(?:read|open|go through)\b[^.?!\n]{0,40}\b(?:every|each|all)\b"
    r"[^.?!\n]{0,40}\b(?:files?|documents?|notes)\b"
)
_READ = re.compile(r"(?i)\bread\b")
MAX_RANGE = 100
"""Most files of a range such as `note-01.txt to note-32.txt`."""
_LIST = re.compile(
    r"(?i)\bwhere\b[^.?!\n]{0,60}\b(?:used|called|referenced|imported|raised)\b"
    r"|\bwho (?:calls|uses)\b|\bcallers\b|\b(?:list|enumerate)\b|\bwhich files\b"
    r"|\b(?:find|show|report|collect|name|give|quote|get)\b[^.?!\n]{0,30}\b(?:all|every|each)\b"
    r"|\b(?:all|every) (?:\w+ )?(?:places?|uses?|usages?|occurrences?|callers?|references?|lines?)\b"
)
_VALUE = re.compile(
    r"(?i)\bvalues?\b|\bdefaults?\b|\bset to\b|\bwhat number\b"
    r"|\bhow (?:many|much|long|large|big|small|often)\b"
)
_WHERE = re.compile(r"(?i)\bwhere\b|\bwhich (?:file|module|line|function|class)\b|\blocate\b|\bdefined\b")
_THOROUGH = re.compile(
    r"(?i)\b(?:thorough(?:ly)?|exhaustive(?:ly)?|in depth|in detail|careful(?:ly)?|complete(?:ly)?)\b"
)


def query_of(brief: str) -> Query:
    """Understand a question or a brief.

    When the text has a part marked as the task (`Question: ...`, `Task: ...`, `<task>`), only that counts.
    """
    question = question_of(brief)
    rest, quoted = _take_quoted(question)
    files, folders, rest = _take_paths(rest, quoted)
    quoted = [text for text in quoted if text not in files and text not in folders]
    patterns = [(word, pattern) for word, pattern in _LANGUAGES.items() if f"{word} files" in rest.lower()]
    for word, _ in patterns:
        rest = re.sub(rf"(?i)\b{word} files", " , ", rest)
    terms = terms_of(rest, quoted)
    if not any(term.searchable for term in terms):
        terms = [replace(term, searchable=True) for term in terms]
    ordered = sorted(terms, key=lambda term: -term.weight)
    lower = question.lower()
    return Query(
        question=question,
        terms=tuple(ordered),
        aim=_aim(question, len(files)),
        files=tuple(_expanded(files, question)) or tuple(pattern for _, pattern in patterns),
        folders=tuple(folders),
        wants_tests=bool(re.search(r"\btests?\b", lower)),
        wants_docs=bool(re.search(r"\b(docs?|documentation|readme|changelog|markdown|notes?)\b", lower)),
        thorough=bool(_THOROUGH.search(question)),
    )


def question_of(brief: str) -> str:
    """Return the part of a brief that is marked as the question or task, or all but what is put with it."""
    brief = _ENCLOSED.sub("", brief)
    for pattern, group in ((_TASK, 1), (_TAGGED, 2), (_QUESTION, 1)):
        found = pattern.search(brief)
        if found and found[group].strip():
            brief = found[group]
    return brief.strip()


def _take_quoted(question: str) -> tuple[str, list[str]]:
    quoted = [next(filter(None, groups)).strip() for groups in _QUOTED.findall(question)]
    return _QUOTED.sub(" , ", question), [text for text in quoted if text]


def _take_paths(rest: str, quoted: Iterable[str]) -> tuple[list[str], list[str], str]:
    files = _FILE.findall(rest)
    rest = _FILE.sub(" , ", rest)
    folders = [text for text in _FOLDER.findall(rest) if _is_folder(text)]
    for text in folders:
        rest = rest.replace(text, " , ")
    for text in quoted:
        if _FILE.fullmatch(text):
            files.append(text)
        elif _FOLDER.fullmatch(text) and _is_folder(text):
            folders.append(text)
    return list(dict.fromkeys(files)), [text.rstrip("/") for text in dict.fromkeys(folders)], rest


def _is_folder(text: str) -> bool:
    first = text.lstrip("./").split("/")[0]
    return text.endswith("/") or text.startswith(".") or first in _KNOWN_FOLDERS or text.count("/") > 1


def _expanded(files: list[str], question: str) -> list[str]:
    """Fill in ranges: `note-01.txt to note-03.txt` names three files; at most `MAX_RANGE` of them."""
    names: list[str] = []
    for name in files:
        before = names[-1] if names else ""
        if before and re.search(
            rf"{re.escape(before)}`? *(?:to|through|until|-|–|\.\.\.?) *`?{re.escape(name)}", question
        ):
            names += _between(before, name)
        names.append(name)
    return list(dict.fromkeys(names))


def _between(first: str, last: str) -> list[str]:
    low, high = (re.fullmatch(r"(.*?)(\d+)(\D*)", name) for name in (first, last))
    if not low or not high or (low[1], low[3]) != (high[1], high[3]):
        return []
    numbers = range(int(low[2]) + 1, min(int(high[2]), int(low[2]) + MAX_RANGE))
    return [f"{low[1]}{number:0{len(low[2])}d}{low[3]}" for number in numbers]


def _aim(question: str, files: int) -> Aim:
    if _SWEEP.search(question) or (files > 1 and _READ.search(question)):
        return Aim.SWEEP
    if _LIST.search(question):
        return Aim.LIST
    if _VALUE.search(question):
        return Aim.VALUE
    return Aim.WHERE if _WHERE.search(question) else Aim.EXPLAIN
