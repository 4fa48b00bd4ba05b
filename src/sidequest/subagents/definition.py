"""What a subagent is: the definition, as data, and the questions that can be asked of it.

A definition says what may be done; what a delegation can really do is the definition's tools among those
the session offers, minus what the session denies. Parsing lives in `parse`, files in `catalog`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from sidequest.core.budget import MAX_OUTPUT_CAP_TOKENS
from sidequest.core.context_modes import ContextMode
from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.subagents.tool_names import (
    ASSIGNABLE_TOOLS,
    DENIED_TO_DELEGATES,
    MUTATING_TOOLS,
    READ_ONLY_TOOLS,
    AssignableTool,
    denies,
    grants,
    is_denied,
)

__all__ = [
    "ASSIGNABLE_TOOLS",
    "DENIED_TO_DELEGATES",
    "MAX_NAME_CHARS",
    "MUTATING_TOOLS",
    "READ_ONLY_TOOLS",
    "SUMMARY_LIMIT_CHARS",
    "AssignableTool",
    "ModelPin",
    "Permission",
    "Reader",
    "Scope",
    "SubagentDefinition",
    "Thinking",
    "definition_as_dict",
    "normalise_name",
]

MAX_NAME_CHARS = 40
"""Longest id of a subagent, in characters, inclusive (specification 4.2)."""
SUMMARY_LIMIT_CHARS = 600
"""Longest description in the roster, in characters, inclusive (definitions-in-the-wild, rule 7)."""

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class Scope(StrEnum):
    """Where a definition comes from, highest precedence first."""

    NAMED = "named"
    """A folder the user named for this session."""
    USER = "user"
    """`~/.agents/subagents`."""
    PROJECT = "project"
    """A folder of the repository; off until the user trusts it."""
    FOREIGN = "foreign"
    """A folder of another program, read in place."""
    BUILTIN = "builtin"


class Reader(StrEnum):
    """Which of the two readers understood a file's frontmatter."""

    STRICT = "strict"
    """As YAML."""
    LENIENT = "lenient"
    """Line by line, because the YAML was not valid."""


class Thinking(StrEnum):
    """How much a model is asked to think; `OMIT` sends no setting at all."""

    OFF = "off"
    MINIMAL = "minimal"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    XHIGH = "xhigh"
    MAX = "max"
    OMIT = "omit"


class Permission(StrEnum):
    """How the actions of a delegate are approved (specification 4.8)."""

    INHERIT = "inherit"
    """As the session does it."""
    ASK = "ask"
    ACCEPT_EDITS = "accept-edits"
    AUTO = "auto"


@dataclass(frozen=True, slots=True)
class ModelPin:
    """A model a definition asks for, as it was written.

    `key` is `provider/model` or a bare alias such as `sonnet`; whether it exists is decided where models
    are known, and a pin that does not exist is never replaced silently. `thinking` None means the
    definition's own setting.
    """

    key: str
    thinking: Thinking | None = None

    @property
    def provider(self) -> str | None:
        """What stands before the first slash, or None for an alias."""
        head, slash, _ = self.key.partition("/")
        return head if slash else None

    def __str__(self) -> str:
        return f"{self.key}|{self.thinking.value}" if self.thinking else self.key


def normalise_name(text: str) -> str:
    """Return the id that `text` stands for: `Code Reviewer`, `code_reviewer.md` give `code-reviewer`.

    Lower case, accents folded, everything but letters and digits of ASCII turned into single dashes, at
    most 40 characters. Empty when nothing is left, as with a name in Chinese only.
    """
    text = text.strip()
    if not re.search(r"\s", text):
        text = re.split(r"[/\\]", text.rstrip("/\\"))[-1]
    text = re.sub(r"\.md$", "", text, flags=re.IGNORECASE)
    folded = unicodedata.normalize("NFKD", text).casefold()
    letters = "".join(character for character in folded if not unicodedata.combining(character))
    return re.sub(r"[^a-z0-9]+", "-", letters).strip("-")[:MAX_NAME_CHARS].rstrip("-")


def definition_as_dict(definition: SubagentDefinition) -> dict[str, Any]:
    """Return a definition as plain values, as it is stored with a delegation."""
    return {
        item.name: _plain(getattr(definition, item.name))
        for item in fields(definition)
        if getattr(definition, item.name) not in (None, (), False, "")
    }


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, StrEnum | ModelPin) else value


@dataclass(frozen=True, slots=True)
class SubagentDefinition:
    """A subagent: its identity, its prompt, its rights and its limits.

    Raises:
        SidequestError: `SUBAGENT_INVALID` when the name is not an id, the description or the body is blank,
            or a limit is out of its range.
    """

    name: str
    """The id: matches `[a-z0-9][a-z0-9-]{0,39}`; see `normalise_name`."""
    description: str
    """What it is for, in full. The roster gets `summary()`."""
    body: str
    """The prompt. Part of the fixed overhead of every request of a delegation."""
    shown_name: str = ""
    """The name as its author wrote it, for screens. Empty becomes `name`."""
    tools: tuple[str, ...] = READ_ONLY_TOOLS
    """Tools in the order of the file: our six, and names or patterns the session may or may not offer."""
    inherit_tools: bool = False
    """Whether everything the session offers is granted, besides `tools`."""
    disallowed_tools: tuple[str, ...] = ()
    """Names and patterns that are taken away, whatever grants them."""
    model: ModelPin | None = None
    """None means the session's model."""
    fallback_models: tuple[ModelPin, ...] = ()
    """Tried in this order when `model` fails."""
    thinking: Thinking | None = None
    """None means as the session does."""
    permission: Permission = Permission.INHERIT
    max_tokens: int | None = None
    """Most output tokens per response, 1 to 200,000 inclusive; None follows the model (record 0210)."""
    max_turns: int | None = None
    """Most requests of one run, at least 1; None means no limit."""
    max_seconds: float | None = None
    """Most wall time of one run, above 0; None means no limit."""
    max_cost_usd: float | None = None
    """Most US dollars of one run, above 0; None means no limit. Not enforced where no price is known."""
    context: ContextMode | None = None
    """The default context mode; None leaves it to the session."""
    allowed_contexts: tuple[ContextMode, ...] = ()
    """Modes a delegation may run in; empty means every mode."""
    scope: Scope = Scope.NAMED
    path: str | None = None
    """The file it was read from, or None when it was made in code."""
    reader: Reader = Reader.STRICT
    foreign: tuple[str, ...] = ()
    """Keys of the file that are kept there and not used, as written, once each."""

    def __post_init__(self) -> None:
        if not self.shown_name:
            object.__setattr__(self, "shown_name", self.name)
        problem = self._problem()
        if problem:
            raise SidequestError(
                ErrorCode.SUBAGENT_INVALID,
                f"The definition of subagent {self.name!r} is not valid: {problem}",
                "Correct the definition.",
            )

    def _problem(self) -> str | None:
        for name in ("tools", "disallowed_tools", "fallback_models", "allowed_contexts"):
            if not isinstance(getattr(self, name), tuple):
                return f"{name} is a tuple, for example tools=('Read',)."
        if not _NAME.fullmatch(self.name):
            return "a name has 1 to 40 small letters, digits and dashes, and starts with a letter or digit."
        if not self.description.strip():
            return "it has no description."
        if not self.body.strip():
            return "it has no prompt."
        if self.max_tokens is not None and not 1 <= self.max_tokens <= MAX_OUTPUT_CAP_TOKENS:
            return f"maxTokens is from 1 to {MAX_OUTPUT_CAP_TOKENS}."
        if self.max_turns is not None and self.max_turns < 1:
            return "maxTurns is at least 1."
        if self.max_seconds is not None and not self.max_seconds > 0:
            return "maxSeconds is above 0."
        if self.max_cost_usd is not None and not self.max_cost_usd > 0:
            return "maxCostUsd is above 0."
        return None

    def summary(self, limit: int = SUMMARY_LIMIT_CHARS) -> str:
        r"""Return the description for the roster: one line, at most `limit` characters, inclusive.

        Example dialogues are left out, and `\n` that was never decoded counts as a blank. A longer text
        ends in an ellipsis. Worked number: a description of 5,732 characters gives 600 or fewer.
        """
        text = self.description.replace("\\n", " ").replace("\\t", " ")
        before = re.split(r"<example\b", text, maxsplit=1, flags=re.IGNORECASE)[0]
        lead = re.sub(r"(?i)\s*\b(?:for example|examples?)\s*:?\s*$", "", before)
        line = " ".join(_CONTROL.sub(" ", lead if lead.strip() else text).split())
        if len(line) <= limit:
            return line
        cut = line[: max(0, limit - 1)]
        at_word = cut.rsplit(" ", 1)[0]
        return ((at_word if len(at_word) > limit // 2 else cut).rstrip() + "…")[:limit]

    @property
    def tools_label(self) -> str:
        """The tools as the roster names them: `inherit`, `inherit + A, B`, a comma list or `none` (3.3)."""
        named = ", ".join(tool for tool in self.tools if not self._denied(tool))
        if self.inherit_tools:
            return f"inherit + {named}" if named else "inherit"
        return named or "none"

    def granted_tools(self, available: Iterable[str]) -> tuple[str, ...]:
        """Return which of the tool names in `available` this definition grants, as the session spells them.

        With `inherit_tools` that is everything, in the session's order; otherwise what `tools` lists, in
        the definition's order. Tools denied to delegates and `disallowed_tools` are never among them.
        """
        offered = [
            name for name in dict.fromkeys(available) if not is_denied(name) and not self._denied(name)
        ]
        if self.inherit_tools:
            return tuple(offered)
        return tuple(dict.fromkeys(name for listed in self.tools for name in offered if grants(listed, name)))

    def _denied(self, name: str) -> bool:
        return any(denies(denial, name) for denial in self.disallowed_tools)

    @property
    def can_mutate(self) -> bool:
        """Whether it may change files or run commands; one that inherits counts as able to (4.4)."""
        return self.inherit_tools or any(
            tool in MUTATING_TOOLS for tool in self.granted_tools(ASSIGNABLE_TOOLS)
        )
