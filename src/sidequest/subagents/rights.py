"""What a file grants: tools and permission, read so that a problem takes rights away and never adds any.

Definitions-in-the-wild, rule 2. Whatever cannot be understood leaves the read-only tools, a restriction we
cannot express (`Bash(git log:*)`, a pattern of commands) takes the whole tool, and a word that would widen
is honoured for builtin and user definitions only (specification 4.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from sidequest.subagents.definition import Permission, Scope
from sidequest.subagents.diagnostics import Log
from sidequest.subagents.fields import Fields, scalar, words
from sidequest.subagents.frontmatter import Field, Value
from sidequest.subagents.keys import Key, key_of
from sidequest.subagents.permissions import Limits, read_permission
from sidequest.subagents.tool_names import (
    ASSIGNABLE_TOOLS,
    KNOWN_ELSEWHERE,
    MUTATING_TOOLS,
    PLAIN_TOOL_WORDS,
    READ_ONLY_TOOLS,
    UNAVAILABLE_TOOLS,
    canonical_tool,
    is_denied,
    is_server_tool,
    is_star,
    plain_word,
)
from sidequest.subagents.values import is_no, is_yes

_TRUSTED_TO_WIDEN = frozenset({Scope.BUILTIN, Scope.USER})
_WIDE = frozenset({Permission.ACCEPT_EDITS, Permission.AUTO})


@dataclass(frozen=True, slots=True)
class Rights:
    """What a file grants and takes away."""

    tools: tuple[str, ...] = READ_ONLY_TOOLS
    inherit: bool = False
    disallowed: tuple[str, ...] = ()
    permission: Permission = Permission.INHERIT


def read_rights(fields: Fields, scope: Scope, log: Log) -> Rights:
    """Return what the file grants; the scope decides whether a wide permission is honoured."""
    limits = Limits()
    tools, inherit = _granted(fields, limits, log)
    for denial in fields.all(Key.DISALLOWED_TOOLS):
        limits.deny(_denied_names(denial, log), denial, log)
    for permission in fields.all(Key.PERMISSION):
        before = limits.mode
        read_permission(permission, limits, log)
        if (permission.stray or key_of(permission.name) is None) and limits.mode in _WIDE:
            limits.mode = before
    for flag in fields.all(Key.READONLY):
        limits.read_only |= not is_no(scalar(flag.value) or "yes")
    if limits.only is not None:
        inherit, tools = False, [name for name in tools if name in limits.only]
    if limits.read_only:
        limits.denied += MUTATING_TOOLS
        tools = [*READ_ONLY_TOOLS, *tools] if inherit else tools
        inherit = False
    disallowed = tuple(dict.fromkeys(limits.denied))
    return Rights(tuple(dict.fromkeys(tools)), inherit, disallowed, _permission(limits, fields, scope, log))


def _permission(limits: Limits, fields: Fields, scope: Scope, log: Log) -> Permission:
    mode = limits.mode or Permission.INHERIT
    if mode in _WIDE and scope not in _TRUSTED_TO_WIDEN:
        lines = [found.line for found in fields.all(Key.PERMISSION)]
        log.warn(
            f"Permission {mode.value} counts in builtin and user definitions only; this one asks as the "
            "session does.",
            lines[0] if lines else None,
        )
        return Permission.INHERIT
    return mode


def _granted(fields: Fields, limits: Limits, log: Log) -> tuple[list[str], bool]:
    stated = fields.all(Key.TOOLS)
    if not stated:
        stated = _capabilities(fields)
    else:
        fields.drop(Key.CAPABILITIES)
    readings = [reading for found in stated if (reading := _read_tools(found, limits, log)) is not None]
    if not readings:
        return [*READ_ONLY_TOOLS], False
    tools, inherit = readings[0]
    for more, also in readings[1:]:
        log.warn("Several keys list tools; only what all of them list is granted.", stated[1].line)
        tools, inherit = [name for name in tools if name in more], inherit and also
    return tools, inherit


def _capabilities(fields: Fields) -> list[Field]:
    """Return `capabilities` when it lists tools; for most programs it is a list of talents."""
    stated = fields.all(Key.CAPABILITIES)
    names = words(stated[0].value)[0] if stated else []
    if names and all(plain_word(name) in PLAIN_TOOL_WORDS for name in names):
        return stated
    fields.drop(Key.CAPABILITIES)
    return []


def _read_tools(found: Field, limits: Limits, log: Log) -> tuple[list[str], bool] | None:
    """Return the tools of one key and whether it inherits; None when the key has no value."""
    if isinstance(found.value, dict):
        return _read_tool_map(found.value, found, limits, log), False
    names, strange = words(found.value)
    if scalar(found.value) == "":
        return None
    if found.broken:
        log.warn(f"`{found.name}` could not be read; the subagent gets {_read_only_list()}.", found.line)
        return [*READ_ONLY_TOOLS], False
    if strange:
        log.warn(f"`{found.name}` lists names; entries that are none were left out.", found.line)
    if (not names and not strange) or [plain_word(name) for name in names] == ["none"]:
        log.warn(f"`{found.name}` is empty, so the subagent has no tools.", found.line)
        return [], False
    sorting = _Sorting(found, log)
    for name in names:
        sorting.add(name, limits)
    return sorting.result()


def _read_only_list() -> str:
    return ", ".join(READ_ONLY_TOOLS)


class _Sorting:
    """Sorts the names of one list into granted, kept, taken away and left out."""

    def __init__(self, found: Field, log: Log) -> None:
        self._found, self._log = found, log
        self._tools: list[str] = []
        self._inherit = False
        self._understood = False
        self._elsewhere: list[str] = []
        self._unknown: list[str] = []

    def add(self, name: str, limits: Limits) -> None:
        base, parenthesis, _ = name.partition("(")
        base = base.strip()
        if name[0] in "!-" and len(name) > 1:
            limits.deny([canonical_tool(name[1:]) or name[1:].strip()], self._found, self._log)
        elif is_star(name):
            self._take(*ASSIGNABLE_TOOLS)
        elif plain_word(name) == "inherit":
            self._inherit = self._understood = True
        elif is_denied(base):
            self._warn(f"A subagent does not delegate or change the session: {name} was left out.")
        elif plain_word(base) in UNAVAILABLE_TOOLS:
            self._warn(f"{base} is not available here and was left out.")
        elif parenthesis:
            self._add_restricted(name, canonical_tool(base))
        elif tool := canonical_tool(name):
            self._take(tool)
        elif is_server_tool(name):
            self._take(name)
        else:
            self._tools.append(name)
            (self._elsewhere if plain_word(name) in KNOWN_ELSEWHERE else self._unknown).append(name)

    def _take(self, *names: str) -> None:
        self._understood = True
        self._tools += names

    def _add_restricted(self, name: str, tool: str | None) -> None:
        if tool in READ_ONLY_TOOLS and tool is not None:
            self._take(tool)
            self._warn(f"{name} was read as {tool}; what stands in parentheses is not kept to here.")
        else:
            self._warn(f"{name} was left out: a tool is granted whole or not at all.")

    def _warn(self, message: str) -> None:
        self._log.warn(message, self._found.line)

    def result(self) -> tuple[list[str], bool]:
        if self._elsewhere:
            names = ", ".join(self._elsewhere)
            self._log.note(f"Kept, for a session that offers them: {names}.", self._found.line)
        for name in self._unknown:
            close = get_close_matches(name.capitalize(), ASSIGNABLE_TOOLS, n=1, cutoff=0.6)
            hint = f" Did you mean {close[0]}?" if close else ""
            self._warn(f"Unknown tool {name}; it counts only where the session offers it.{hint}")
        if not self._understood:
            self._warn(f"`{self._found.name}` names no tool known here, so {_read_only_list()} are granted.")
            self._tools += READ_ONLY_TOOLS
        return list(dict.fromkeys(self._tools)), self._inherit


def _read_tool_map(entries: dict[str, Value], found: Field, limits: Limits, log: Log) -> list[str]:
    """Read `{bash: true, write: false}`: no takes away, a plain yes grants, the rest is the default."""
    tools = [*READ_ONLY_TOOLS]
    for name, value in entries.items():
        word = (scalar(value) or "").lower()
        if is_star(name):
            tools = [*ASSIGNABLE_TOOLS] if is_yes(word) else []
        elif is_no(word) or word == "deny":
            limits.deny([canonical_tool(name) or name], found, log)
        elif is_denied(name):
            log.note(f"A subagent does not delegate or change the session: {name} was left out.", found.line)
        elif is_yes(word) or word in ("allow", "ask"):
            tools.append(canonical_tool(name) or name)
            if word == "ask":
                limits.narrow(Permission.ASK)
        else:
            log.warn(f"`{found.name}`: {name} is neither true nor false and was taken away.", found.line)
            limits.deny([canonical_tool(name) or name], found, log)
    return list(dict.fromkeys(tools))


def _denied_names(found: Field, log: Log) -> list[str]:
    names, strange = words(found.value)
    if isinstance(found.value, dict):
        names = [name for name, value in found.value.items() if not is_no(scalar(value) or "")]
    elif strange:
        log.warn(
            f"`{found.name}` lists names; every tool that can change something is taken away.", found.line
        )
        names += MUTATING_TOOLS
    if found.broken:
        log.warn(
            f"`{found.name}` could not be read in full; tools that change something are taken away.",
            found.line,
        )
        names = [*(name.strip("[]{}\"'") for name in names), *MUTATING_TOOLS]
    for name in names:
        if "(" in name:
            log.warn(f"{name} takes all of {name.partition('(')[0]} away: a tool is taken whole.", found.line)
    bases = [name.partition("(")[0].strip() for name in names]
    return [canonical_tool(base) or base for base in bases if base]
