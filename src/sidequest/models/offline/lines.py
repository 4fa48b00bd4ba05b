"""Reading tool results line by line, and recognising what a line is: a definition, a heading, a fact."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

MAX_LINE_CHARS = 500
"""What lies beyond this in one line is not looked at: generated or minified text."""
SHOWN_LINE_CHARS = 200
"""Longest quotation of one line."""

_HIT = re.compile(r"(.+?):(\d+):(.*)")
_CONTEXT = re.compile(r"(.+?)-(\d+)-(.*)")
_HEADER = re.compile(r"\[(.+?) \| (\d+) lines?\]")
_NUMBERED = re.compile(r"(?=[ \d]{6}) *(\d+)\t(.*)")
"""A line of a read. The number is six wide at least: a narrower one lost its first digits to a cut."""
_NOTICE = re.compile(r"\s*(?:\[.*\]|\.\.\. \(.*\))\s*")
_CUT = re.compile(r"\s*\[.*\b(?:cut|characters?|shortened|omitted|truncated)\b.*\]\s*")
"""A notice that a text was cut in its middle, perhaps within a line."""
_CITED = re.compile(r"(?m)^[ \t]*(?:[-*] +)?`?([^\s:`]+?):(\d+)(?:`?: ?| - )(.*)$")

_KEYWORD = re.compile(
    r"\s*(?:(?:export|default|public|private|protected|internal|static|abstract|final|async|pub(?:\(\w+\))?)\s+)*"
    r"(?:def|class|fn|func|function|struct|enum|interface|trait|type|const|let|var|val|module|namespace|message)\s+"
    r"(?:\([^)]*\)\s*)?([\w$]+)"
)
_STATEMENT = (
    r"(?!(?:assert|await|case|elif|else|except|for|if|match|print|raise|return|try|while|with|yield)\b)"
)
_ASSIGNED = re.compile(
    rf"\s*(?:[-*]\s+)?[\"'`]?{_STATEMENT}([A-Za-z_$][\w.$ -]*?)[\"'`]?\s*(?::[^=]*)?"
    r"(?::=|=(?![=>]))\s*(\S.*)?"
)
_KEYED = re.compile(
    rf"\s*(?:[-*]\s+)?[\"'`]?{_STATEMENT}([A-Za-z_$][\w.$ -]{{0,60}}?)[\"'`]?\s*:(?!:)\s*(\S.*)?"
)
_HEADING = re.compile(r"\s{0,3}#{1,6}\s+(\S.*)|=+ (\S.*)")
_IMPORT = re.compile(
    r"\s*(?:import\b|from\s+\S+\s+import\b|#include\b|use\s+\w|(?:const|let|var)\s.*=\s*require\()"
)
_FACT = re.compile(r"\s*(?:[-*]\s+)?(?:FACT\b.*|[A-Z][A-Z0-9_]{2,}\s*(?::[^=]*)?[=:]\s*\S.*)")
_TEST_PATH = re.compile(
    r"(?:^|/)(?:tests?|testing|spec|__tests__|fixtures?)(?:/|$)|(?:^|/)test_[^/]*$|_test\.\w+$|\.(?:test|spec)\.\w+$"
)
_DOC_PATH = re.compile(r"\.(?:md|rst|txt|adoc)$|(?:^|/)docs?/", re.IGNORECASE)
_NOISE_PATH = re.compile(
    r"(?:^|/)(?:node_modules|dist|build|vendor|\.venv|site-packages)/|\.(?:lock|min\.\w+|map|svg)$"
)


@dataclass(frozen=True, slots=True)
class Definition:
    """What a line defines."""

    name: str
    value: str = ""
    """Right-hand side of an assignment or a key; empty for functions, classes and headings."""


@dataclass(slots=True)
class Reading:
    """What a tool result showed: lines of files by path and line number, counted from 1."""

    lines: dict[tuple[str, int], str] = field(default_factory=dict)
    matches: int = 0
    """Matching lines of a search; context lines are not counted."""
    total: int | None = None
    """Lines of the file that was read, when the result says so."""
    path: str | None = None
    """Path as the header of a read states it."""
    cut: bool = False
    """A notice says that something is not shown."""


def read_search(result: str) -> Reading:
    """Read what Grep returned: `path:line:text`, context as `path-line-text`, notices in brackets."""
    reading = Reading()
    for line in _whole_lines(result):
        if hit := _HIT.fullmatch(line):
            reading.lines[hit[1], int(hit[2])] = hit[3]
            reading.matches += 1
        elif _NOTICE.fullmatch(line):
            reading.cut = True
        elif line != "--" and (around := _CONTEXT.fullmatch(line)):
            reading.lines[around[1], int(around[2])] = around[3]
    return reading


def _whole_lines(result: str) -> list[str]:
    """Return the lines of a result without those that touch a cut in its middle and may be fragments."""
    lines = result.splitlines()
    cuts = [at for at, line in enumerate(lines) if 0 < at < len(lines) - 1 and _CUT.fullmatch(line)]
    fragments = {at + step for at in cuts for step in (-1, 1)} - {len(lines) - 1}
    return [line for at, line in enumerate(lines) if at not in fragments]


def read_file(result: str, path: str) -> Reading:
    """Read what Read returned for `path`: a header, then numbered lines; notices are passed over."""
    reading = Reading(path=path)
    for line in _whole_lines(result):
        if numbered := _NUMBERED.fullmatch(line):
            reading.lines[path, int(numbered[1])] = numbered[2]
        elif reading.total is None and (header := _HEADER.match(line)):
            reading.total, reading.path = int(header[2]), header[1]
        elif _NOTICE.fullmatch(line):
            reading.cut = True
    return reading


def read_paths(result: str) -> tuple[str, ...]:
    """Read what Glob returned: one path a line; sentences and notices are passed over."""
    return tuple(
        line.strip()
        for line in result.splitlines()
        if line.strip() and not _NOTICE.fullmatch(line) and not line.rstrip().endswith((".", ":"))
    )


def cited_lines(text: str) -> Iterator[tuple[str, int, str]]:
    """Yield path, line and quotation of every `path:line: text` in a report or a summary."""
    for cited in _CITED.finditer(text):
        yield cited[1], int(cited[2]), cited[3]


def definition_of(line: str) -> Definition | None:
    """Return what a line defines: a function, a class, a constant, a key, a heading; None for other lines."""
    if ":" not in line and "=" not in line and "#" not in line and not _KEYWORD.match(line):
        return None
    if found := _KEYWORD.match(line):
        assigned = _ASSIGNED.match(line[found.start(1) :])
        return Definition(found[1], (assigned[2] or "") if assigned else "")
    if found := _HEADING.fullmatch(line):
        return Definition(found[1] or found[2])
    if "=" in line and (found := _ASSIGNED.fullmatch(line)):
        return None if _is_argument(line) else Definition(found[1].strip(), found[2] or "")
    if ":" in line and (found := _KEYED.fullmatch(line)) and not line.rstrip().endswith("("):
        return Definition(found[1].strip(), found[2] or "")
    return None


def _is_argument(line: str) -> bool:
    """Say whether `name=value,` is an argument of a call that goes over several lines."""
    return line[:1].isspace() and re.match(r"\s*\w+=\S", line) is not None and line.rstrip()[-1] in ",)"


def explains(following: str, line: str) -> bool:
    """Say whether a line belongs to the definition before it: indented further, a docstring, a comment."""
    return indent(following) > indent(line) or following.lstrip().startswith(('"""', "#", "//", "*", "'"))


def indent(line: str) -> int:
    """Return how far a line is indented, in characters; a tab counts as one."""
    return len(line) - len(line.lstrip())


def opens_block(line: str) -> bool:
    """Say whether what follows a line, further indented, belongs to it."""
    return line.rstrip()[-1:] in {":", "{", "(", "["}


def is_heading(line: str) -> bool:
    """Say whether the line is a heading of a document."""
    return _HEADING.fullmatch(line) is not None


def is_import(line: str) -> bool:
    """Say whether the line only brings a name in from elsewhere."""
    return _IMPORT.match(line) is not None


def is_fact(line: str) -> bool:
    """Say whether a line states something by its looks: `NAME = value`, `NAME: value`, `FACT ...`."""
    return len(line) <= MAX_LINE_CHARS and _FACT.fullmatch(line) is not None


def is_test(path: str) -> bool:
    """Say whether a path belongs to tests."""
    return _TEST_PATH.search(path) is not None


def is_document(path: str) -> bool:
    """Say whether a path holds prose."""
    return _DOC_PATH.search(path) is not None


def is_noise(path: str) -> bool:
    """Say whether a path is generated, vendored or a lock file."""
    return _NOISE_PATH.search(path) is not None


def shown(line: str) -> str:
    """Return a line for quoting: trimmed, and at most `SHOWN_LINE_CHARS` characters."""
    text = line.strip()
    return text if len(text) <= SHOWN_LINE_CHARS else text[: SHOWN_LINE_CHARS - 1] + "…"
