"""The keys of a frontmatter: spelling families, keys of other programs, and near misses.

Case, `-`, `_` and blanks never count in a key (specification 4.2). The families and the foreign keys are
the ones of definitions-in-the-wild, section 1.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from enum import StrEnum


class Key(StrEnum):
    """A key this project understands; the value is the spelling that `write` uses."""

    NAME = "name"
    DESCRIPTION = "description"
    TOOLS = "tools"
    CAPABILITIES = "capabilities"
    DISALLOWED_TOOLS = "disallowedTools"
    READONLY = "readonly"
    MODEL = "model"
    PROVIDER = "provider"
    FALLBACK_MODELS = "fallbackModels"
    THINKING = "thinkingLevel"
    PERMISSION = "permission"
    MAX_TOKENS = "maxTokens"
    MAX_TURNS = "maxTurns"
    MAX_SECONDS = "maxSeconds"
    MAX_COST = "maxCostUsd"
    CONTEXT = "context"
    ALLOWED_CONTEXTS = "allowedContexts"
    PROMPT = "prompt"


_FAMILIES: dict[Key, str] = {
    Key.NAME: "name",
    Key.DESCRIPTION: "description",
    Key.TOOLS: "tools allowedtools",
    Key.CAPABILITIES: "capabilities",
    Key.DISALLOWED_TOOLS: (
        "disallowedtools deniedtools denytools denied excludetools excludedtools blockedtools disabledtools"
    ),
    Key.READONLY: "readonly",
    Key.MODEL: "model modeloverride modelid",
    Key.PROVIDER: "provider",
    Key.FALLBACK_MODELS: "fallbackmodels fallbackmodel fallbacks fallback",
    Key.THINKING: "thinkinglevel thinking effort modelreasoningeffort reasoningeffort reasoning",
    Key.PERMISSION: "permission permissions permissionmode approvalmode sandboxmode",
    Key.MAX_TOKENS: "maxtokens maxoutputtokens",
    Key.MAX_TURNS: "maxturns maxsteps steps",
    Key.MAX_SECONDS: "maxseconds maxduration maxdurationseconds timeoutseconds timeoutmins",
    Key.MAX_COST: "maxcostusd maxcost maxbudgetusd",
    Key.CONTEXT: "context defaultcontext contextmode fork inheritcontext",
    Key.ALLOWED_CONTEXTS: "allowedcontexts allowedcontext",
    Key.PROMPT: "prompt developerinstructions systemprompt",
}
_BY_SPELLING = {
    spelling: (key, rank) for key, line in _FAMILIES.items() for rank, spelling in enumerate(line.split())
}

_FOREIGN = (
    "color type priority hooks triggers metadata version author category tags id created updated "
    "constraints behavior communication integration optimization examples dependencies platform "
    "execution limits mode temperature topp argumenthint userinvocable disablemodelinvocation handoffs "
    "agents target hidden mcpservers mcp extensions excludeextensions promptmode isolated isolation "
    "systempromptmode inheritprojectcontext inheritskills defaultreads defaultprogress aliases output "
    "memory skills kind proactive nicknamecandidates background license "
    "idletimeout idletimeoutseconds"
)
FOREIGN_KEYS: frozenset[str] = frozenset(_FOREIGN.split())
"""Keys of other programs: kept in the file, never run, never an error."""

NEVER_RUN: frozenset[str] = frozenset({"hooks", "mcpservers", "mcp", "execution", "extensions"})
"""Foreign keys that make their own program start something; here they start nothing."""


def plain_key(text: str) -> str:
    """Return `text` as keys are compared: lower case, without `-`, `_` and blanks."""
    return re.sub(r"[-_\s]", "", text).lower()


def key_of(text: str) -> Key | None:
    """Return the key that `text` spells, in any spelling of its family, or None."""
    found = _BY_SPELLING.get(plain_key(text))
    return found[0] if found else None


def spelling_rank(text: str) -> int:
    """Return how close a spelling is to the usual one of its family; 0 is the usual one."""
    return _BY_SPELLING[plain_key(text)][1]


def near_miss(text: str, cutoff: float = 0.8) -> Key | None:
    """Return the key that `text` probably meant, or None; keys of other programs are no misses.

    `cutoff` is the least likeness, from 0 to 1: `tolls` and `tools` are 0.8 alike.
    """
    word = plain_key(text)
    if len(word) < 4 or word in _BY_SPELLING or word in FOREIGN_KEYS:
        return None
    close = get_close_matches(word, _BY_SPELLING, n=1, cutoff=cutoff)
    return _BY_SPELLING[close[0]][0] if close else None
