"""A definition that was changed -> its file, with only those lines changed that have to be.

People write these files by hand, with comments, with keys of other programs and in an order of their own.
A save keeps all of that. What was written is read back; when it does not mean what was asked for, wider
changes are tried, and at last the save is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.subagents.definition import Reader, Scope, SubagentDefinition
from sidequest.subagents.diagnostics import Log
from sidequest.subagents.frontmatter import Field, read_document
from sidequest.subagents.keys import Key, key_of, spelling_rank
from sidequest.subagents.parse import parse_definition
from sidequest.subagents.restyle import value_lines
from sidequest.subagents.write import stated_values

_TOGETHER: tuple[frozenset[Key], ...] = (
    frozenset({Key.TOOLS, Key.CAPABILITIES, Key.DISALLOWED_TOOLS, Key.READONLY, Key.PERMISSION}),
    frozenset({Key.MODEL, Key.PROVIDER, Key.FALLBACK_MODELS}),
    frozenset({Key.CONTEXT, Key.ALLOWED_CONTEXTS}),
)
"""Keys that are read together: what one of them says depends on the others."""
_FENCE = "---"
_BREAK = re.compile(r"(\r\n|\r|\n)")


def rewrite(original: bytes, changed: SubagentDefinition, *, path: str) -> bytes:
    """Return `original`, a file that loads, changed so that it is read as `changed` under the name `path`.

    Keys whose meaning did not change keep their lines to the byte; so do comments, keys of other programs,
    the order of keys, line endings, and the body unless it changed.

    Raises:
        SidequestError: `SUBAGENT_INVALID` when the file does not load, is not UTF-8, or cannot be changed so
            that it means what was asked for.
    """
    before = parse_definition(original, path=changed.path or path, scope=changed.scope).definition
    if before is None:
        raise _refused("it does not load")
    try:
        sheet = _Sheet.of(original)
    except UnicodeDecodeError as error:
        raise _refused("it is not UTF-8") from error
    wanted, had = stated_values(changed), stated_values(before)
    keys = {key for key in {*wanted, *had} if wanted.get(key) != had.get(key)}
    body = None if changed.body == before.body else changed.body
    for _ in range(3):
        data = sheet.written(keys, wanted, body)
        again = parse_definition(data, path=path, scope=changed.scope).definition
        missed = None if again is None else differing_keys(again, changed)
        if not missed and missed is not None:
            return data
        if missed is None or missed <= keys:
            break
        keys |= missed
    raise _refused("some of its lines cannot be understood apart from each other")


def _refused(reason: str) -> SidequestError:
    return SidequestError(
        ErrorCode.SUBAGENT_INVALID,
        f"The file cannot be changed here: {reason}.",
        "Change it in a text editor, or copy it as your own under another name.",
    )


def differing_keys(again: SubagentDefinition, wanted: SubagentDefinition) -> set[Key] | None:
    """Return the keys, with those read together, of which `again` says something else than `wanted`.

    The prompt is among them as `Key.PROMPT`; None means that they differ in something no key says.
    """
    found, asked = stated_values(again), stated_values(wanted)
    missed = {key for key in {*found, *asked} if found.get(key) != asked.get(key)}
    if again.body != wanted.body:
        missed.add(Key.PROMPT)
    for group in _TOGETHER:
        if missed & group:
            missed |= group
    if not missed and _meaning(again) != _meaning(wanted):
        return None
    return missed


def _meaning(definition: SubagentDefinition) -> SubagentDefinition:
    """Return the definition without what says where and how it was written."""
    return replace(definition, path=None, reader=Reader.STRICT, foreign=(), scope=Scope.USER)


@dataclass(frozen=True, slots=True)
class _Part:
    """One key of the frontmatter: its own lines, and the comments and blank lines behind them."""

    name: str
    lines: tuple[str, ...]
    rest: tuple[str, ...] = ()

    @property
    def key(self) -> Key | None:
        return key_of(self.name)


@dataclass(frozen=True, slots=True)
class _Sheet:
    """A file taken apart so that putting it together again gives the same bytes. Lines keep their ends."""

    first: tuple[str, ...]
    """The fence, and comments before the first key."""
    parts: tuple[_Part, ...]
    last: tuple[str, ...]
    """The closing fence and the body."""
    end: str
    """How lines end in this file."""

    @classmethod
    def of(cls, original: bytes) -> _Sheet:
        """Take apart a file that loads.

        Raises:
            UnicodeDecodeError: it is not UTF-8.
        """
        pieces = _BREAK.split(original.decode("utf-8"))
        lines = [
            text + (pieces[2 * at + 1] if 2 * at + 1 < len(pieces) else "")
            for at, text in enumerate(pieces[::2])
        ]
        close = next(at for at, line in enumerate(lines[1:], 1) if line.startswith(_FENCE))
        fields = sorted(read_document(original, Log("")).fields, key=lambda field: field.line)
        starts = [field.line - 1 for field in fields] + [close]
        if len(set(starts)) < len(starts):
            raise _refused("several of its keys stand on one line")
        parts = [
            _part(field, lines[at:stop]) for field, at, stop in zip(fields, starts, starts[1:], strict=False)
        ]
        end = pieces[1] if len(pieces) > 1 else "\n"
        return cls(tuple(lines[: starts[0]]), tuple(parts), tuple(lines[close:]), end)

    def written(self, keys: Iterable[Key], values: Mapping[Key, Any], body: str | None) -> bytes:
        """Return the file with `keys` as `values` has them, and another body unless that is None."""
        parts = list(self.parts)
        for key in sorted(keys, key=list(Key).index):
            self._put(parts, key, values.get(key))
        head = [line for part in parts for line in (*part.lines, *part.rest)]
        last = list(self.last)
        if body is not None:
            last = [last[0].rstrip("\r\n") + self.end, self.end]
            last += [line + self.end for line in body.strip().split("\n")]
        return "".join([*self.first, *head, *last]).encode()

    def _put(self, parts: list[_Part], key: Key, value: Any) -> None:
        places = [at for at, part in enumerate(parts) if part.key is key]
        counts = min(places, key=lambda at: spelling_rank(parts[at].name), default=None)
        for at in places:
            if at != counts or value is None:
                # What the author wrote beside it stays.
                parts[at] = _Part("", (), parts[at].rest)
        if value is None:
            return
        if counts is not None:
            old = parts[counts]
            parts[counts] = _Part(old.name, self._lines(key, value, old), old.rest)
            return
        rank = list(Key).index(key)
        before = [at for at, part in enumerate(parts) if part.key and list(Key).index(part.key) < rank]
        new = _Part(key.value, self._lines(key, value, None))
        parts.insert(before[-1] + 1 if before else len(parts), new)
        if before:
            # A comment that stood behind the key before it speaks of what comes after.
            held = parts[before[-1]]
            parts[before[-1]], parts[before[-1] + 1] = replace(held, rest=()), replace(new, rest=held.rest)

    def _lines(self, key: Key, value: Any, old: _Part | None) -> tuple[str, ...]:
        given = [line.rstrip("\r\n") for line in old.lines] if old else []
        name = old.name if old and spelling_rank(old.name) == 0 else key.value
        return tuple(line + self.end for line in value_lines(key, name, value, given))


def _part(field: Field, lines: list[str]) -> _Part:
    """Split the lines of a key from the blank lines and comments that follow them."""
    is_block = re.search(r":\s*[|>][-+0-9]{0,2}\s*(?:#.*)?$", lines[0].rstrip()) is not None
    stop = len(lines)
    while stop > 1 and _is_remark(lines[stop - 1], indented=not is_block):
        stop -= 1
    return _Part(field.name, tuple(lines[:stop]), tuple(lines[stop:]))


def _is_remark(line: str, *, indented: bool) -> bool:
    text = line.strip()
    return not text or (text if indented else line).startswith("#")
