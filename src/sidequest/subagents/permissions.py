"""Permission keys, words and maps alike: what they take away, and how a delegate's actions are approved.

Nothing here ever grants a tool. A denial we cannot express (one pattern of commands) takes the whole tool,
and a word nobody knows is either the narrower one it resembles or not used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from sidequest.subagents.definition import Permission
from sidequest.subagents.diagnostics import Log
from sidequest.subagents.fields import scalar, words
from sidequest.subagents.frontmatter import Field, Value
from sidequest.subagents.keys import plain_key
from sidequest.subagents.tool_names import (
    MUTATING_TOOLS,
    READ_ONLY_TOOLS,
    canonical_tool,
    is_star,
    takes_something,
)

_ALL = "*"
_NARROWNESS = (Permission.ASK, Permission.INHERIT, Permission.ACCEPT_EDITS, Permission.AUTO)

_MODES: dict[str, Permission] = {
    word: mode
    for mode, line in {
        Permission.INHERIT: "inherit default workspacewrite",
        Permission.ASK: "ask prompt manual untrusted onrequest dontask",
        Permission.ACCEPT_EDITS: "acceptedits autoedit",
        Permission.AUTO: "auto fullauto allow bypass bypasspermissions yolo never dangerfullaccess",
    }.items()
    for word in line.split()
}
_READ_ONLY_MODES = frozenset({"plan", "readonly"})
_WORDS = frozenset({"deny", *_READ_ONLY_MODES, *_MODES})
_COVERED = {"edit": ("Edit", "Write"), "patch": ("Edit", "Write"), "bash": ("Bash",)}
"""Permission keys of opencode that cover more than the tool of the same name."""


@dataclass(slots=True)
class Limits:
    """What a file takes away, collected over all of its keys."""

    mode: Permission | None = None
    """The narrowest mode stated so far; None when none was."""
    denied: list[str] = field(default_factory=list)
    """Names and patterns of tools."""
    only: set[str] | None = None
    """When a map denies everything, the tools it allows after that; None when it does not."""
    read_only: bool = False
    """Whether the mutating tools are taken away."""

    def deny(self, names: Iterable[str], found: Field, log: Log) -> None:
        """Take the tools `names` away; for a name that means nothing here, all that can change something.

        `shell_exec: deny` was meant to take a tool of some other program, which may be `Bash` here.
        """
        for name in names:
            self.denied.append(name)
            if not takes_something(name):
                log.warn(
                    f"`{found.name}`: {name} is no tool known here, so {', '.join(MUTATING_TOOLS)} are taken "
                    "away with it.",
                    found.line,
                )
                self.denied += MUTATING_TOOLS

    def narrow(self, mode: Permission) -> None:
        """Keep the narrower of `mode` and what was stated before."""
        if self.mode is None or _NARROWNESS.index(mode) < _NARROWNESS.index(self.mode):
            self.mode = mode


def read_permission(found: Field, limits: Limits, log: Log) -> None:
    """Add what one permission key says to `limits`."""
    if found.broken:
        log.warn(
            f"`{found.name}` could not be read; the subagent gets {', '.join(READ_ONLY_TOOLS)}.", found.line
        )
        limits.read_only = True
    elif isinstance(found.value, dict):
        _read_permission_map(found.value, found, limits, log)
    elif (word := scalar(found.value)) is None:
        _read_permission_list(found.value, found, limits, log)
    elif word:
        _read_permission_word(word, found, limits, log)


def _read_permission_list(items: Value, found: Field, limits: Limits, log: Log) -> None:
    """Read a list of one-line maps or of words; a talent in it says nothing about rights."""
    for item in items:
        name, colon, verdict = item.partition(":") if isinstance(item, str) else ("", "", "")
        if name and not colon and plain_key(name) in _WORDS:
            _read_permission_word(name, found, limits, log)
            continue
        if isinstance(item, dict) or colon:
            entries: dict[str, Value] = item if isinstance(item, dict) else {name.strip(): verdict.strip()}
            _read_permission_map(entries, found, limits, log)
        else:
            log.warn(f"`{found.name}` is a word or a map of tools; part of it was not used.", found.line)


def _read_permission_word(word: str, found: Field, limits: Limits, log: Log) -> None:
    plain = plain_key(word)
    if plain == "deny":
        limits.denied.append(_ALL)
    elif plain in _READ_ONLY_MODES:
        limits.read_only = True
        log.note(f"`{found.name}: {word}` takes {', '.join(MUTATING_TOOLS)} away.", found.line)
    elif mode := _MODES.get(plain):
        limits.narrow(mode)
        if mode is Permission.AUTO and plain != mode.value:
            log.warn(
                f"`{found.name}: {word}` is read as auto: what the session denies stays denied.", found.line
            )
    else:
        _read_unknown_word(word, found, limits, log)


def _read_unknown_word(word: str, found: Field, limits: Limits, log: Log) -> None:
    narrowing = ("ask", "plan", "readonly", "deny")
    close = get_close_matches(plain_key(word), (*narrowing, *_MODES), n=1, cutoff=0.6)
    modes = ", ".join(Permission)
    if close and close[0] in narrowing:
        log.warn(
            f"{word!r} is no permission; it was read as {close[0]}, the narrower. One of {modes}.", found.line
        )
        _read_permission_word(close[0], found, limits, log)
    else:
        log.warn(f"{word!r} is no permission and was not used; one of {modes}.", found.line)


def _read_permission_map(entries: dict[str, Value], found: Field, limits: Limits, log: Log) -> None:
    """Read a map of tool -> allow, ask, deny or a map of patterns; or allow, ask, deny -> tools.

    The order counts: `*: deny` denies what was allowed before it. Nothing in it ever grants a tool.
    """
    for name, value in entries.items():
        plain = plain_key(name)
        if plain in ("allow", "ask", "deny") and not _is_verdict(value):
            _read_verdict_list(plain, value, found, limits, log)
            continue
        if plain == "defaultmode" and (word := scalar(value)):
            _read_permission_word(word, found, limits, log)
            continue
        verdict = _verdict(name, value, found, log)
        tools = _COVERED.get(plain) or (canonical_tool(name) or name,)
        if verdict == "deny" and is_star(name):
            limits.only = set()
        elif verdict == "deny":
            limits.deny(tools, found, log)
        elif limits.only is not None:
            limits.only.update(tools)
        if verdict == "ask":
            _ask_for(tools, name, found, limits, log)


def _mutating(names: Iterable[str]) -> bool:
    return any(name in MUTATING_TOOLS for name in names)


def _is_verdict(value: Value) -> bool:
    return plain_key(scalar(value) or "") in ("allow", "ask", "deny", "true", "false")


def _read_verdict_list(verdict: str, value: Value, found: Field, limits: Limits, log: Log) -> None:
    names: Sequence[str] = list(value) if isinstance(value, dict) else words(value)[0]
    tools = [canonical_tool(base) or base for name in names if (base := name.partition("(")[0].strip())]
    if verdict == "deny":
        limits.deny(tools, found, log)
    elif verdict == "ask" and tools:
        _ask_for(tools, ", ".join(names), found, limits, log)


def _ask_for(tools: Sequence[str], name: str, found: Field, limits: Limits, log: Log) -> None:
    if is_star(name) or _mutating(tools):
        limits.narrow(Permission.ASK)
    else:
        log.warn(
            f"`{found.name}`: {name} cannot be asked for: what only reads inside the workspace is never "
            "asked. Deny it to take it away.",
            found.line,
        )


def _verdict(name: str, value: Value, found: Field, log: Log) -> str:
    """Return allow, ask or deny; one denied pattern takes the whole tool, and so does an unknown word."""
    if isinstance(value, dict):
        verdicts = {_verdict(name, inner, found, log) for inner in value.values()}
        if "deny" in verdicts:
            log.warn(f"`{found.name}`: {name} is denied in part, so all of it is taken away.", found.line)
            return "deny"
        return "ask" if "ask" in verdicts else "allow"
    word = plain_key(scalar(value) or "")
    if word in ("allow", "true", "yes", "on"):
        return "allow"
    if word in ("ask", "deny"):
        return word
    if word not in ("false", "no", "off"):
        log.warn(f"`{found.name}`: {word!r} is no answer for {name}, so it is taken away.", found.line)
    return "deny"
