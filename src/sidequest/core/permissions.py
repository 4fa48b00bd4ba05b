"""What a tool call may do: one decision from mode, definition, deny rules and the call (specification 4.8).

Deny rules come first, in every mode, before anything that allows. A definition may narrow the session's
mode and never widen it. What is left is decided by the mode: reading inside the workspace is free, everything
else is asked for, done, or refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

from sidequest.core.actions import EDIT_TOOLS, PROTECTED, READ_TOOLS, Action, granted_folder, grants_of
from sidequest.core.commands import MAX_COMMAND_CHARS, MAX_ORDERED, command_parts, denied_command
from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.path_rules import denied_below, plain_matches, plain_rules

__all__ = [
    "EDIT_TOOLS",
    "MAX_COMMAND_CHARS",
    "MAX_ORDERED",
    "MAX_RULES",
    "MAX_RULE_CHARS",
    "PROTECTED",
    "READ_TOOLS",
    "Action",
    "Decision",
    "DenyRules",
    "Mode",
    "Verdict",
    "command_parts",
    "decide",
    "denied_below",
    "effective_mode",
    "granted_folder",
    "grants_of",
    "parse_mode",
]

MAX_RULES = 256
"""Most deny rules of each kind, inclusive."""
MAX_RULE_CHARS = 512
"""Longest deny rule in characters, inclusive."""


class Mode(StrEnum):
    """How actions are approved; the narrowest first."""

    ASK = "ask"
    """Edits, commands and folders outside the workspace are asked for."""
    ACCEPT_EDITS = "accept-edits"
    """Edits inside the workspace are done; commands and folders outside are asked for."""
    AUTO = "auto"
    """Everything that no rule denies is done."""


_WIDTH = {Mode.ASK: 0, Mode.ACCEPT_EDITS: 1, Mode.AUTO: 2}


def effective_mode(session: Mode, definition: Mode | None) -> Mode:
    """Return the narrower of the session's mode and a definition's; None inherits the session's.

    A definition takes rights away: `auto` in a file does not lift a session that asks.
    """
    if definition is None or _WIDTH[definition] >= _WIDTH[session]:
        return session
    return definition


class Verdict(StrEnum):
    """What happens with an action."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict and why."""

    verdict: Verdict
    reason: str
    """One sentence: which rule or mode decided."""


@dataclass(frozen=True, slots=True)
class DenyRules:
    """What is refused in every mode: tool names, path globs, beginnings of commands.

    Raises:
        SidequestError: `SETTINGS_INVALID` for too many, too long or empty rules, and for a path rule that
            would match nothing.
    """

    tools: tuple[str, ...] = ()
    """Names or globs, in any case: `Bash`, `mcp__*`."""
    paths: tuple[str, ...] = ()
    """Globs over the absolute path or its end: `**/.env`, `*.{key,pem}`, `/etc/*`; a folder covers its files.

    A rule begins with `/`, with `~/` for the home folder, or with a name that may stand in any folder.
    """
    commands: tuple[str, ...] = ()
    """A command is denied when one of its parts holds the words of a rule in their order: `git push`.

    Quotes, paths, options, redirections and wrappers between or before the words do not help, and a part
    whose command is not written out (`$x push`) is denied as soon as there is a rule. `git push` also is
    `git-push`, the program behind it. This is a guard against mistakes and simple tricks. It knows words, not
    what they do: another command to the same end (`git send-pack`, `unlink` for `rm`) takes its own rule, and
    a text that is decoded or fetched first cannot be seen in the command.
    """
    spellings: tuple[tuple[str, str], ...] = ()
    """What path rules are called besides, as rule and plain rule: where the links of their paths lead.

    A rule about `~/` is that of any folder until it is spelled here.
    """

    def __post_init__(self) -> None:
        for kind, rules in (("tools", self.tools), ("paths", self.paths), ("commands", self.commands)):
            if len(rules) > MAX_RULES:
                raise _invalid(f"There are {len(rules)} deny rules for {kind}.", f"At most {MAX_RULES}.")
            for rule in rules:
                if not rule.strip() or len(rule) > MAX_RULE_CHARS:
                    raise _invalid(
                        f"A deny rule for {kind} is empty or too long.",
                        f"Write 1 to {MAX_RULE_CHARS} characters.",
                    )
        for rule in self.paths:
            try:
                plain_rules(rule)
            except ValueError as error:
                raise _invalid(
                    f"The deny rule {rule!r} for paths {error}.",
                    "Begin it with /, with ~/ for your own home folder, or with a name that may stand in any "
                    "folder, and write ? for a sign that belongs to a name.",
                ) from None

    def plain_paths(self) -> Iterator[tuple[str, str]]:
        """Give each path rule with the plain rules that it stands for, its spellings included."""
        spelled: dict[str, list[str]] = {}
        for rule, plain in self.spellings:
            spelled.setdefault(rule, []).append(plain)
        for rule in self.paths:
            written = plain_rules(rule)
            if rule in spelled:
                written = tuple(plain for plain in written if not plain.startswith("~"))
            yield from ((rule, plain) for plain in (*written, *spelled.get(rule, ())))

    def match(self, action: Action) -> str | None:
        """Return the rule that denies `action`, or None."""
        for rule in self.tools:
            if fnmatchcase(action.tool.casefold(), rule.casefold()):
                return f"tools: {rule}"
        if action.path is not None:
            names = dict.fromkeys((*action.names, action.path))
            for rule, plain in self.plain_paths():
                if any(plain_matches(name, plain) for name in names):
                    return f"paths: {rule}"
        if action.command is not None and self.commands:
            return denied_command(action.command, self.commands)
        return None


def decide(action: Action, mode: Mode, rules: DenyRules) -> Decision:
    """Decide about `action` under the effective `mode`.

    Worked case: `Edit` inside the workspace is asked for with `ask`, done with `accept-edits` and `auto`,
    and refused in all three when a rule names its path or `.git` is in it.
    """
    denied = rules.match(action)
    if denied is not None:
        return Decision(Verdict.DENY, f"a deny rule of the settings ({denied})")
    if action.protected and action.tool in EDIT_TOOLS:
        return Decision(Verdict.DENY, f"the workspace: tools change nothing in {PROTECTED}, git does")
    if mode is Mode.AUTO:
        return Decision(Verdict.ALLOW, "permission mode auto")
    if not action.inside:
        return Decision(Verdict.ASK, "the path is outside the workspace")
    if action.tool in READ_TOOLS:
        return Decision(Verdict.ALLOW, "reading inside the workspace")
    if action.tool in EDIT_TOOLS and mode is Mode.ACCEPT_EDITS:
        return Decision(Verdict.ALLOW, "permission mode accept-edits")
    if action.tool == "Task":
        return Decision(Verdict.ALLOW, "delegating grants nothing by itself")
    return Decision(Verdict.ASK, f"permission mode {mode.value}")


def parse_mode(text: str) -> Mode:
    """Return the mode that `text` names.

    Raises:
        SidequestError: `SETTINGS_INVALID`, naming the modes.
    """
    try:
        return Mode(text.strip().lower())
    except ValueError:
        raise _invalid(f"{text!r} is no permission mode.", f"Use one of: {', '.join(Mode)}.") from None


def _invalid(cause: str, remedy: str) -> SidequestError:
    return SidequestError(ErrorCode.SETTINGS_INVALID, cause, remedy)
