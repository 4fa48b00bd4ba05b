"""Error codes, and the one exception that carries them to a reader.

Every failure a user or a model can meet has a stable code, one sentence of cause and one sentence of
remedy (specification 6.1). What a *provider's* answer means is decided in `provider_errors`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

MAX_MESSAGE_CHARS = 600
"""Longest message stored with a failure, in characters, inclusive (specification 6.1)."""


class ErrorCode(StrEnum):
    """Stable codes of specification 6.1, and the ones this project adds for its own input checks."""

    PROVIDER_RATE_LIMITED = "PROVIDER_RATE_LIMITED"
    PROVIDER_ERROR = "PROVIDER_ERROR"
    PROVIDER_UNAUTHORIZED = "PROVIDER_UNAUTHORIZED"
    NETWORK_ERROR = "NETWORK_ERROR"
    TIMEOUT = "TIMEOUT"
    STREAM_FAILED = "STREAM_FAILED"
    MODEL_NOT_CONFIGURED = "MODEL_NOT_CONFIGURED"
    CONTEXT_TOO_LARGE = "CONTEXT_TOO_LARGE"
    CONTEXT_COMPACTION_FAILED = "CONTEXT_COMPACTION_FAILED"
    TURN_ABORTED = "TURN_ABORTED"
    EMPTY_MODEL_RESPONSE = "EMPTY_MODEL_RESPONSE"
    SUBAGENT_CONTEXT_OVERFLOW = "SUBAGENT_CONTEXT_OVERFLOW"
    SUBAGENT_NO_REPORT = "SUBAGENT_NO_REPORT"
    SUBAGENT_OUTPUT_TRUNCATED = "SUBAGENT_OUTPUT_TRUNCATED"
    SUBAGENT_TURN_LIMIT = "SUBAGENT_TURN_LIMIT"
    SUBAGENT_DURATION_TIMEOUT = "SUBAGENT_DURATION_TIMEOUT"
    SUBAGENT_COST_LIMIT = "SUBAGENT_COST_LIMIT"
    SUBAGENT_INVALID = "SUBAGENT_INVALID"
    SUBAGENT_UNKNOWN = "SUBAGENT_UNKNOWN"
    UNEXPECTED_DELEGATION_REJECTION = "UNEXPECTED_DELEGATION_REJECTION"
    INTERNAL = "INTERNAL"
    TOOL_DENIED = "TOOL_DENIED"
    AGENT_BUSY = "AGENT_BUSY"
    SETTINGS_INVALID = "SETTINGS_INVALID"
    MISSING_EXTRA = "MISSING_EXTRA"
    USAGE = "USAGE"
    STORE_FAILED = "STORE_FAILED"
    """The database refused for a reason that has no code of its own; the message carries its words."""
    STORE_FULL = "STORE_FULL"
    STORE_LOCKED = "STORE_LOCKED"
    STORE_UNREACHABLE = "STORE_UNREACHABLE"
    STORE_READ_ONLY = "STORE_READ_ONLY"
    STORE_DAMAGED = "STORE_DAMAGED"
    STORE_NEWER = "STORE_NEWER"
    """The database was written by a newer version of sidequest."""
    STORE_CONFLICT = "STORE_CONFLICT"
    """What was asked for contradicts what is stored: an id used twice, a report delivered twice."""
    SESSION_UNKNOWN = "SESSION_UNKNOWN"
    MESSAGE_UNKNOWN = "MESSAGE_UNKNOWN"
    DELEGATION_UNKNOWN = "DELEGATION_UNKNOWN"
    QUESTION_UNKNOWN = "QUESTION_UNKNOWN"
    """The question of a permission is not waiting: it was answered, or what asked it has ended."""


def code_of(text: str) -> ErrorCode:
    """Return a stored code; one that this version does not know is INTERNAL, a failure without a remedy."""
    return ErrorCode(text) if text in set(ErrorCode) else ErrorCode.INTERNAL


RETRIABLE: frozenset[ErrorCode] = frozenset(
    {
        ErrorCode.PROVIDER_RATE_LIMITED,
        ErrorCode.PROVIDER_ERROR,
        ErrorCode.NETWORK_ERROR,
        ErrorCode.TIMEOUT,
        ErrorCode.STREAM_FAILED,
        ErrorCode.EMPTY_MODEL_RESPONSE,
    }
)
"""Codes that sending the same request again may cure; single failures can still say otherwise."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SECRET = re.compile(
    r"(?i)\b(?:sk|pk|rk|xai|gsk|ghp|gho|hf)[-_][A-Za-z0-9_\-]{12,}"
    r"|(?<=bearer )[A-Za-z0-9._\-]{12,}"
    r"|\bAIza[A-Za-z0-9_\-]{20,}"
)


def bounded_message(text: str, limit: int = MAX_MESSAGE_CHARS) -> str:
    """Return `text` without control characters and key-like words, at most `limit` characters.

    Worked number: a text of 700 characters comes back as 599 characters and an ellipsis, 600 in all.
    """
    cleaned = _SECRET.sub("[redacted]", _CONTROL.sub(" ", text)).strip()
    return cleaned if len(cleaned) <= limit else cleaned[: limit - 1] + "…"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something ended badly, as data: what is stored, shown and told to the parent model."""

    code: ErrorCode
    message: str
    """At most `MAX_MESSAGE_CHARS` characters, secrets removed."""
    retriable: bool = False
    details: Mapping[str, str | int | float | bool | None] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """Facts by name, for example `providerStatus` or `hardLimit`. Empty when there are none."""
    remedy: str = field(default="", compare=False)
    """The end of `message` that says what can be done; empty when it says nothing of the kind. Not stored."""

    @property
    def cause(self) -> str:
        """`message` without its remedy."""
        return self.message.removesuffix(self.remedy).rstrip() if self.remedy else self.message

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", bounded_message(self.message))
        object.__setattr__(self, "details", MappingProxyType(dict(self.details)))


class SidequestError(Exception):
    """A failure with a stable code, a cause and a remedy, written for its reader.

    `cause` says what is wrong in one sentence; `remedy` says what the reader can do, in one sentence.
    Keyword facts end up in `failure.details`.
    """

    def __init__(
        self,
        code: ErrorCode,
        cause: str,
        remedy: str,
        *,
        retriable: bool | None = None,
        **details: str | int | float | bool | None,
    ) -> None:
        super().__init__(f"{cause} {remedy}".strip())
        self.code = code
        self.cause = cause
        self.remedy = remedy
        self.failure = Failure(
            code=code,
            message=f"{cause} {remedy}".strip(),
            retriable=code in RETRIABLE if retriable is None else retriable,
            details=details,
            remedy=remedy,
        )


OVERFLOW_GUIDANCE = (
    "Narrow the task to fewer files or one question, delegate to a model with a larger context window, "
    "or have the subagent read less at once (slices and searches instead of whole files)."
)
"""What a parent model can do about `SUBAGENT_CONTEXT_OVERFLOW` (specification 3.9)."""


FIXED_PART_GUIDANCE = (
    "Delegate to a model with a larger context window, or to a subagent with fewer tools and a shorter "
    "prompt: another task would not fit either."
)
"""What a parent model can do when the fixed part of a request is too large."""


def window_remark(learned: int | None, told: int | None) -> str:
    """Return why a model leaves less than its settings promise, to be put behind a number; else nothing.

    `learned` is the window that the provider stated or showed, `told` the one of settings or catalog, both in
    tokens; None when nothing was learned.
    """
    if learned is None:
        return ""
    instead = f", not the {told:,} of settings or catalog" if told else ""
    return f" (its provider accepts {learned:,} in all{instead})"


def subagent_overflow(
    model: str,
    tokens: int,
    hard_limit: int,
    fixed: int = 0,
    *,
    learned: int | None = None,
    told: int | None = None,
) -> SidequestError:
    """Return the terminal overflow of a delegation on `model`; all sizes in tokens.

    `fixed` is the part that no compaction can shrink: instructions and tool schemas. When it alone reaches
    `hard_limit` the sentence says so, because narrowing the task would not help then. `tokens` below
    `hard_limit` mean that the provider refused what fits by our count. `learned` and `told` are those of
    `window_remark`.
    """
    why = window_remark(learned, told)
    if fixed >= hard_limit:
        cause = (
            f"The instructions and tool schemas alone are {fixed:,} tokens and the model {model} leaves "
            f"{hard_limit:,} for a request{why}."
        )
        guidance = FIXED_PART_GUIDANCE
    elif tokens < hard_limit:
        cause = (
            f"The provider of the model {model} refused the context of the delegation as too large, although "
            f"it is {tokens:,} tokens by our count and the limit is {hard_limit:,}."
        )
        guidance = OVERFLOW_GUIDANCE
    else:
        cause = (
            f"The context of the delegation is {tokens:,} tokens and does not fit the model {model}, even "
            f"after compaction and reduction: it leaves {hard_limit:,} for a request{why}."
        )
        guidance = OVERFLOW_GUIDANCE
    return SidequestError(
        ErrorCode.SUBAGENT_CONTEXT_OVERFLOW,
        cause,
        guidance,
        model=model,
        tokens=tokens,
        hardLimit=hard_limit,
        fixed=fixed,
    )
