"""How a delegation ended: decided in one place, from facts (specification 3.1, DESIGN "Statuses")."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sidequest.core.errors import ErrorCode, Failure

REPORT_LIMIT_CHARS = 12_000
"""Longest report handed to a parent, in characters, inclusive (specification 3.1)."""
REPORT_CUT_MARKER = "\n\n[… the middle of this report was cut to fit {limit} characters …]\n\n"
DEGRADED_NOTE = (
    "Note: the context of this delegation exceeded the window and older working history was discarded "
    "without a summary, so this report may be incomplete."
)


class Status(StrEnum):
    """Where a delegation stands; every value but `RUNNING` is final."""

    RUNNING = "running"
    COMPLETED = "completed"
    PARTIAL = "partial"
    """A limit struck and there is usable text."""
    FAILED = "failed"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"
    """The process died while it ran."""


class StopReason(StrEnum):
    """Why a run ended; `STOP` is the only one that belongs to a complete report."""

    STOP = "stop"
    LENGTH = "length"
    """The last answer was cut by the output cap."""
    TURN_LIMIT = "turn_limit"
    TIME_LIMIT = "time_limit"
    COST_LIMIT = "cost_limit"
    CONTENT_FILTER = "content_filter"
    """The provider ended the answer for what it says."""
    ERROR = "error"
    NO_REPORT = "no_report"
    STOPPED = "stopped"


LIMITS: dict[StopReason, tuple[ErrorCode, str]] = {
    StopReason.TURN_LIMIT: (ErrorCode.SUBAGENT_TURN_LIMIT, "turn limit"),
    StopReason.TIME_LIMIT: (ErrorCode.SUBAGENT_DURATION_TIMEOUT, "time limit"),
    StopReason.COST_LIMIT: (ErrorCode.SUBAGENT_COST_LIMIT, "cost limit"),
}
"""Code and name of each limit that a definition or a setting may give."""


@dataclass(frozen=True, slots=True)
class ModelFailure:
    """A model that was tried or skipped, with the code and the provider's or our own sentence."""

    model: str
    code: ErrorCode
    message: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and money of a delegation, over all its models and its summary requests."""

    requests: int = 0
    input_tokens: int = 0
    """Input, cache reads and cache writes included."""
    output_tokens: int = 0
    cost_usd: float | None = None
    """US dollars; None when a price is unknown, never a guess."""

    @property
    def total_tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    def plus(self, other: Usage) -> Usage:
        """Add `other`; the cost is unknown as soon as a side that used tokens does not know its own."""
        known = [u.cost_usd for u in (self, other) if u.total_tokens or u.cost_usd is not None]
        cost = None if not known or any(c is None for c in known) else sum(c for c in known if c is not None)
        return Usage(
            self.requests + other.requests,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            cost,
        )


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What is known when a run stops; `settle` turns it into an outcome."""

    report: str = ""
    """Last assistant text with content, or empty."""
    report_is_final: bool = True
    """Whether that text came after the last tool result."""
    stop_requested: bool = False
    failure: Failure | None = None
    limit: StopReason | None = None
    """Which limit made the last turn the last one; None when none did."""
    filtered: bool = False
    """The provider's content filter ended the newest answer."""
    broken_off: str = ""
    """The provider's word when it ended the newest answer for a trouble of its own; empty when it did not."""
    output_cut: bool = False
    """The answer that holds the report was cut by the output cap."""


@dataclass(frozen=True, slots=True)
class Ending:
    """The single decision about a run: status, reason, and the failure when there is one."""

    status: Status
    stop_reason: StopReason
    failure: Failure | None = None


def settle(facts: RunFacts) -> Ending:
    """Decide how a run ended. The order is the precedence of specification 3.1.

    Stopped by somebody, then failed, then no text, then ended by a content filter or a trouble of the
    provider, then cut by the output cap, then ended by a limit, then text that is older than the last tool
    result, then completed. Usable text with a limit is `partial`; a failure keeps its text but is never shown
    as success.
    """
    if facts.stop_requested:
        return Ending(Status.STOPPED, StopReason.STOPPED)
    if facts.failure is not None:
        return Ending(Status.FAILED, StopReason.ERROR, facts.failure)
    if not facts.report.strip():
        if facts.broken_off:
            return Ending(Status.FAILED, StopReason.ERROR, _broken_off(facts, "without any text"))
        if facts.limit is not None:
            code, name = LIMITS[facts.limit]
            message = f"The subagent reached its {name} without writing a report."
            return Ending(Status.FAILED, facts.limit, Failure(code, message))
        if facts.output_cut:
            message = "The output cap cut the answer before any text was written. Raise maxTokens."
            return Ending(
                Status.FAILED, StopReason.LENGTH, Failure(ErrorCode.SUBAGENT_OUTPUT_TRUNCATED, message)
            )
        message = "The subagent ended without writing a report."
        return Ending(Status.FAILED, StopReason.NO_REPORT, Failure(ErrorCode.SUBAGENT_NO_REPORT, message))
    if facts.filtered:
        message = "The provider's content filter ended the answer; the report may be incomplete."
        return Ending(Status.PARTIAL, StopReason.CONTENT_FILTER, Failure(ErrorCode.PROVIDER_ERROR, message))
    if facts.broken_off:
        return Ending(Status.PARTIAL, StopReason.ERROR, _broken_off(facts, "early; the report is incomplete"))
    if facts.output_cut:
        message = "The report was cut by the output cap. Raise maxTokens or ask for a shorter report."
        return Ending(
            Status.PARTIAL, StopReason.LENGTH, Failure(ErrorCode.SUBAGENT_OUTPUT_TRUNCATED, message)
        )
    if facts.limit is not None:
        code, name = LIMITS[facts.limit]
        message = f"The subagent reached its {name}; the report covers what it had found by then."
        return Ending(Status.PARTIAL, facts.limit, Failure(code, message))
    if not facts.report_is_final:
        message = (
            "The subagent ended without a final report; this is its last text before later tool results."
        )
        return Ending(Status.PARTIAL, StopReason.NO_REPORT, Failure(ErrorCode.SUBAGENT_NO_REPORT, message))
    return Ending(Status.COMPLETED, StopReason.STOP)


def _broken_off(facts: RunFacts, how: str) -> Failure:
    message = f"The provider ended the answer {how} ({facts.broken_off})."
    return Failure(ErrorCode.PROVIDER_ERROR, message)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything a surface or a parent may know about a delegation that ended."""

    delegation_id: str
    agent: str
    status: Status
    stop_reason: StopReason
    report: str
    """Raw text of the subagent, not bounded."""
    model: str
    """Key of the model that really ran last."""
    context_mode: str
    elapsed_s: float
    turns: int = 0
    tool_calls: int = 0
    usage: Usage = Usage()
    failure: Failure | None = None
    model_failures: tuple[ModelFailure, ...] = ()
    compactions: int = 0
    degradations: int = 0
    unfinished_tool: str | None = None
    """Name of a tool that was running when the run ended, or None."""

    @property
    def degraded(self) -> bool:
        """Whether history was lost without a summary."""
        return self.degradations > 0


def bound_text(text: str, limit: int, marker: str = REPORT_CUT_MARKER, offset: int = 0) -> str:
    """Trim `text` and cut its middle so that at most `limit` characters are left (specification 3.1).

    Head and tail share what the marker leaves, the head taking the odd character. A text that is cut is
    exactly `limit` long; one shorter at most where `marker` has numbers. Worked number: 20,000 characters and
    a limit of 12,000 give 12,000.

    `marker` may name `{limit}`, `{cut}`, how many characters are left out, and `{place}`, where the first of
    them stands when `offset` characters come before `text`.
    """
    text = text.strip()
    if len(text) <= limit:
        return text
    end = offset + len(text)
    available = limit - len(marker.format(limit=limit, cut=end, place=end))
    head, tail = max(0, -(-available // 2)), max(0, available // 2)
    note = marker.format(limit=limit, cut=len(text) - head - tail, place=offset + head)
    if available <= 0:
        return note.strip()[:limit]
    # The numbers may be shorter than was reckoned with.
    tail += limit - len(note) - head - tail
    note = marker.format(limit=limit, cut=len(text) - head - tail, place=offset + head)
    return text[:head] + note + (text[-tail:] if tail else "")


def whole_report(outcome: Outcome) -> str:
    """Return all that there is to read of a delegation: model failures, the degradation note, the body."""
    note = DEGRADED_NOTE if outcome.degraded else ""
    return "\n\n".join(block for block in (_failures(outcome), note, _body(outcome)) if block).strip()


def _failures(outcome: Outcome) -> str:
    return "\n\n".join(f"Model {f.model} failed ({f.code}): {f.message}" for f in outcome.model_failures)


def report_text(outcome: Outcome, limit: int = REPORT_LIMIT_CHARS, marker: str = REPORT_CUT_MARKER) -> str:
    """Return what the parent model reads: model failures, the degradation note, the body; bounded.

    `limit` is in characters, inclusive, and covers the whole (specification 3.1). The note is never cut: when
    the whole is too long, failures keep a quarter of what the note leaves and the body takes the rest. A
    `limit` below the length of the note gives the note alone. What `marker` says of places is about
    `whole_report`.
    """
    whole = whole_report(outcome)
    if not outcome.degraded or len(whole) <= limit:
        return bound_text(whole, limit, marker)
    failures, body = _failures(outcome), _body(outcome)
    offset = len(whole) - len(body)
    breaks = 2 * (bool(failures) + bool(body))
    room = max(0, limit - len(DEGRADED_NOTE) - breaks)
    failures = bound_text(failures, room // 4, marker)
    body = bound_text(body, room - len(failures), marker, offset)
    return "\n\n".join(block for block in (failures, DEGRADED_NOTE, body) if block)


def _turns(outcome: Outcome) -> str:
    return "1 turn" if outcome.turns == 1 else f"{outcome.turns} turns"


def _body(outcome: Outcome) -> str:
    said = outcome.report.strip()
    match outcome.status:
        case Status.COMPLETED:
            return said
        case Status.PARTIAL:
            why = outcome.failure.message if outcome.failure else "A limit struck."
            return f"Partial report: {why}\n\n{said}"
        case Status.FAILED:
            why = outcome.failure.message if outcome.failure else "The run failed."
            code = f" [{outcome.failure.code}]" if outcome.failure else ""
            head = f"{outcome.agent} failed after {_turns(outcome)}{code}: {why}"
            return f"{head}\n\nLast output:\n{said}" if said else head
        case _:
            head = f"{outcome.agent} was {outcome.status.value} after {_turns(outcome)}."
            return f"{head}\n\nLast output:\n{said}" if said else head
