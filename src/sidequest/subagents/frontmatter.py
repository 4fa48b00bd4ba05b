"""Bytes of a definition file -> its keys, with their lines, and its body.

Two readers (definitions-in-the-wild, rules 1 and 3). The strict one is YAML in which every scalar stays the
word that was written: `off`, `yes` and `1.0` are text. When YAML refuses, the lenient one goes line by
line: a key at column 0 opens a value, anything else continues the value before it. Each such value is
tried as YAML on its own first, so that one bad line spoils one key and not the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from sidequest.core.context_modes import parse_context_mode
from sidequest.subagents.definition import Reader
from sidequest.subagents.diagnostics import Log
from sidequest.subagents.keys import FOREIGN_KEYS, Key, key_of, near_miss, plain_key

if TYPE_CHECKING:
    from yaml import Node

MAX_DOCUMENT_BYTES = 32 * 1024
"""Largest definition file, in bytes, inclusive (specification 4.1)."""

Value: TypeAlias = "str | list[Value] | dict[str, Value]"

_FENCE = "---"
_MAX_NODES = 5_000
_MAX_BRACKETS = 1_000
"""PyYAML takes quadratic time for nested brackets; no file of the census has a tenth of this."""
_KEY_LINE = re.compile(r"([A-Za-z][\w -]{0,39}?)\s*:(?:\s+|$|(?=[^\s/]))(.*)")
_PATH = re.compile(
    r"(?:[A-Za-z]:)?(?:[^\s:*?\"<>|]*[/\\][^\s:*?\"<>|]+|[^\s:*?\"<>|]+\.md|[^:*?\"<>|]*[/\\][^:*?\"<>|]+\.md)"
)
_BLOCK_SCALAR = re.compile(r"[|>][-+0-9]{0,2}")
_TEXT_KEYS = frozenset({Key.NAME, Key.DESCRIPTION, Key.PROMPT})
_SPOKEN_KEYS = frozenset({Key.DESCRIPTION, Key.PROMPT})
_NARROWING_KEYS = frozenset({Key.DISALLOWED_TOOLS, Key.PERMISSION, Key.READONLY, Key.ALLOWED_CONTEXTS})


@dataclass(frozen=True, slots=True)
class Field:
    """One key of a frontmatter."""

    name: str
    """As written."""
    value: Value
    line: int
    """Line in the file, the first is 1."""
    broken: bool = False
    """Whether the value could not be read; `value` is then the raw text."""
    source: tuple[str, ...] = ()
    """The lines of the file that hold it."""
    stray: bool = False
    """Whether it stands inside of another key: it may take away, and nothing else."""


@dataclass(frozen=True, slots=True)
class Document:
    """A definition file taken apart. `fields` is empty when there is no usable frontmatter."""

    fields: tuple[Field, ...] = ()
    body: str = ""
    reader: Reader = Reader.STRICT
    claimed: str = ""
    """The name the file claims, as far as it can be told from a file that does not load; or empty."""


class _Unreadable(Exception):
    """YAML refused; `line` counts from 0 within the text that was given to it."""

    def __init__(self, cause: str, line: int | None = None) -> None:
        super().__init__(cause)
        self.cause = cause
        self.line = line


def read_document(data: bytes, log: Log) -> Document:
    """Take a file apart; what is wrong goes to `log`, as an error when nothing can be loaded from it."""
    if len(data) > MAX_DOCUMENT_BYTES:
        log.error(f"The file is larger than {MAX_DOCUMENT_BYTES:,} bytes, the most a definition has.")
        head = data[:MAX_DOCUMENT_BYTES].decode("utf-8", "replace")
        return Document(claimed=_claimed_name(head.splitlines()))
    text = _decode(data, log)
    lines = text.split("\n")
    if symlink_target(text):
        log.error("This looks like a symlink checked out as text: the whole file is one path.", 1)
        return Document()
    if lines[0].rstrip() != _FENCE:
        log.error(_no_frontmatter(lines), 1)
        return Document(body=text.strip())
    end = next((index for index in range(1, len(lines)) if lines[index].startswith(_FENCE)), None)
    if end is None:
        log.error("The frontmatter that opens on line 1 is never closed: add a line with ---.", 1)
        return Document(claimed=_claimed_name(lines))
    block, body = lines[1:end], "\n".join(lines[end + 1 :]).strip()
    try:
        return Document(tuple(_read_strict(block, 2, log)), body)
    except _Unreadable as problem:
        place = 2 + problem.line if problem.line is not None else None
        log.note(f"Not valid YAML ({problem.cause}), so the keys were read line by line.", place)
        return Document(tuple(_read_lenient(block, 2, log)), body, Reader.LENIENT)


def symlink_target(text: str) -> str | None:
    """Return the path when `text` is nothing but one, as Git writes a symlink on some systems, else None."""
    line = text.strip()
    if "\n" in line or len(line) > 1024 or not _PATH.fullmatch(line):
        return None
    return line


def _decode(data: bytes, log: Log) -> str:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        log.note("The file is UTF-16; UTF-8 is what other programs expect.")
        text = data.decode("utf-16", "replace")
    else:
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as problem:
            line = data[: problem.start].count(b"\n") + 1
            log.warn("The file is not UTF-8; unreadable characters were replaced.", line)
            text = data.decode("utf-8", "replace")
    if "\0" in text:
        log.error("The file holds binary data, not text.")
    return text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _no_frontmatter(lines: Sequence[str]) -> str:
    first = next((number for number, line in enumerate(lines, 1) if line.strip()), 1)
    if lines[first - 1].strip() == _FENCE:
        return f"The frontmatter does not begin on line 1 but with the --- of line {first}: move it up."
    return "There is no frontmatter, so there is no description: begin the file with ---."


def _claimed_name(lines: Iterable[str]) -> str:
    for line in lines:
        match = _KEY_LINE.match(line)
        if match and key_of(match[1]) is Key.NAME:
            return _unquote(_without_comment(match[2]))
    return ""


def _read_strict(lines: Sequence[str], first_line: int, log: Log) -> list[Field]:
    import yaml

    text = "\n".join(lines) + "\n"
    if text.count("[") + text.count("{") > _MAX_BRACKETS:
        raise _Unreadable("too many brackets")
    try:
        root = yaml.compose(text, Loader=yaml.BaseLoader)
        pairs = _top_level(root)
        budget = [_MAX_NODES]
        found = [(name, node, _plain(node, budget), at) for name, node, at in pairs]
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        raise _Unreadable(problem.problem or "syntax", mark.line if mark else None) from problem
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as problem:
        raise _Unreadable(type(problem).__name__) from problem
    starts = [text.count("\n", 0, at) for *_, at in found]
    fields = []
    for index, (name, node, value, _) in enumerate(found):
        stop = starts[index + 1] if index + 1 < len(starts) else len(lines)
        line = first_line + starts[index]
        if key_of(name) in _SPOKEN_KEYS and isinstance(value, str):
            value = _with_hash(value, node, text, name, line, log)
        fields.append(Field(name, value, line, source=tuple(lines[starts[index] : stop])))
    return fields


def _top_level(root: Node | None) -> list[tuple[str, Node, int]]:
    import yaml

    if root is None:
        return []
    if not isinstance(root, yaml.MappingNode):
        raise _Unreadable("there are no keys", 0)
    pairs = []
    for key, value in root.value:
        if not isinstance(key, yaml.ScalarNode):
            raise _Unreadable("a key is not a word", key.start_mark.line)
        pairs.append((_joined(key.value), value, key.start_mark.index))
    return pairs


def _plain(node: Node, budget: list[int]) -> Value:
    """Turn a node into plain data; the budget stops aliases that would multiply."""
    import yaml

    budget[0] -= 1
    if budget[0] < 0:
        raise _Unreadable("too many values")
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, budget) for item in node.value]
    if isinstance(node, yaml.MappingNode):
        result: dict[str, Value] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _Unreadable("a key is not a word", key.start_mark.line)
            if key.value in result:
                # The later one would win, and it may be the one that allows more.
                raise _Unreadable(f"{key.value!r} stands twice in one map", key.start_mark.line)
            result[_joined(key.value)] = _plain(value, budget)
        return result
    return _joined(str(node.value))


def _joined(text: str) -> str:
    """Join surrogate pairs, which JSON-style escapes produce, and replace lone ones."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _with_hash(value: str, node: Node, text: str, name: str, line: int, log: Log) -> str:
    """Give a plain text back what YAML silently cut as a comment: `fixes bug #3` is meant as text."""
    if getattr(node, "style", None) is not None or not value:
        return value
    rest = text[node.end_mark.index :].split("\n", 1)[0].rstrip()
    if not rest.lstrip().startswith("#"):
        return value
    log.note(f"YAML would cut `{name}` at ` #`; the whole line was kept.", line)
    return value + rest


@dataclass(frozen=True, slots=True)
class _Chunk:
    name: str
    header: str
    line: int
    rest: tuple[str, ...] = ()


def _read_lenient(lines: Sequence[str], first_line: int, log: Log) -> list[Field]:
    chunks: list[_Chunk] = []
    denials: list[Field] = []
    for number, line in enumerate(lines, first_line):
        line = "" if line.startswith("#") else line
        match = _KEY_LINE.match(line)
        if match and _opens(match[1], match[2], chunks):
            chunks.append(_Chunk(match[1], match[2], number))
        elif chunks:
            chunks[-1] = replace(chunks[-1], rest=(*chunks[-1].rest, line))
            denials += _stray_denial(line, number, log)
        elif line.strip():
            log.warn("This line stands before the first key and was left out.", number)
    return [_chunk_field(chunk, log) for chunk in chunks] + denials


def _opens(name: str, value: str, before: Sequence[_Chunk]) -> bool:
    """Say whether a line that looks like a key is one, and not the dialogue of an example."""
    if not before or key_of(before[-1].name) not in _SPOKEN_KEYS:
        return True
    if name[0].isupper() and before[0].name[0].islower():
        return False
    key = key_of(name)
    if key is None:
        return plain_key(name) in FOREIGN_KEYS or near_miss(name, 0.88) is not None
    if key is Key.CONTEXT and plain_key(name) == "context" and parse_context_mode(_unquote(value)) is None:
        return False
    return key in _NARROWING_KEYS or all(key_of(chunk.name) is not key for chunk in before)


def _stray_denial(line: str, number: int, log: Log) -> list[Field]:
    """A denial counts wherever it stands, because leaving it out would widen what the file grants."""
    match = _KEY_LINE.match(line.strip())
    value = _without_comment(match[2]) if match else ""
    if not match or not value or key_of(match[1]) not in _NARROWING_KEYS:
        return []
    log.warn(f"`{match[1]}` is indented; what it takes away was taken away all the same.", number)
    return [Field(match[1], value, number, stray=True)]


def _chunk_field(chunk: _Chunk, log: Log) -> Field:
    source = (f"{chunk.name}: {chunk.header}".rstrip(), *chunk.rest)
    text = [_untabbed(line) for line in source]
    if key_of(chunk.name) in (Key.TOOLS, Key.DISALLOWED_TOOLS):
        text = [re.sub(r"(^|[\s,\[])(\*)(?=\s*(?:[,\]#]|$))", r'\1"*"', line) for line in text]
    try:
        fields = _read_strict(text, chunk.line, log)
    except _Unreadable:
        fields = []
    if len(fields) == 1 and fields[0].name == chunk.name:
        return replace(fields[0], source=source)
    value, broken = _raw_value(chunk, log)
    return Field(chunk.name, value, chunk.line, broken, source)


def _untabbed(line: str) -> str:
    indent = len(line) - len(line.lstrip(" \t"))
    return line[:indent].replace("\t", "  ") + line[indent:]


def _raw_value(chunk: _Chunk, log: Log) -> tuple[Value, bool]:
    key = key_of(chunk.name)
    if key in _TEXT_KEYS:
        return _raw_text(chunk, log), False
    rest = [_without_comment(line.strip()) for line in chunk.rest]
    rest = [line for line in rest if line]
    header = _without_comment(chunk.header)
    if not header and rest and all(line.startswith("-") for line in rest):
        return [_unquote(line[1:].strip()) for line in rest], False
    whole = "\n".join([header, *rest] if header else rest)
    broken = bool(rest) or bool(re.search(r"[\[\]{}]", whole)) or any(whole.count(q) % 2 for q in "\"'")
    return (whole if broken or "," in whole else _unquote(whole)), broken


def _raw_text(chunk: _Chunk, log: Log) -> str:
    odd = [number for number, line in enumerate(chunk.rest, chunk.line + 1) if _KEY_LINE.match(line.strip())]
    if odd:
        log.warn(f"This line looks like a key and was read as more text of `{chunk.name}`.", odd[0])
    if not chunk.header or _BLOCK_SCALAR.fullmatch(chunk.header.strip()):
        separator = "\n" if chunk.header.strip().startswith("|") else " "
        paragraphs = "\n".join(line.strip() for line in chunk.rest).strip().split("\n\n")
        return _unquote("\n".join(paragraph.replace("\n", separator) for paragraph in paragraphs))
    text = chunk.header.strip()
    for line in chunk.rest:
        text += (" " if line[:1].isspace() else "\n") + line.strip()
    return _unquote(text.strip())


def _without_comment(text: str) -> str:
    """Drop ` # comment` from a value that is not quoted."""
    text = text.strip()
    if text.startswith("#"):
        return ""
    return text if text[:1] in "\"'" else re.split(r"\s#", text, maxsplit=1)[0].rstrip()


_ESCAPES = {"n": "\n", "t": "\t", "r": "\n", '"': '"', "\\": "\\", "/": "/"}


def _unquote(text: str) -> str:
    """Remove one pair of quotes, and decode the escapes of double ones once; an open quote is dropped."""
    text = text.strip()
    quote = text[:1]
    if quote not in ('"', "'") or not quote:
        return text
    inner = text[1:-1] if len(text) > 1 and text.endswith(quote) else text[1:]
    if quote == "'":
        return inner.replace("''", "'")
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[0]), inner)
