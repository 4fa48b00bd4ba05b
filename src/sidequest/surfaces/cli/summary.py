"""How a run or a delegation ended, for a person: aligned facts, and warnings in plain words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from sidequest.core.outcome import DEGRADED_NOTE, LIMITS, Outcome, Status, StopReason, Usage
from sidequest.surfaces.cli.narration import Tone
from sidequest.surfaces.cli.plain import TONES
from sidequest.surfaces.cli.screen import Screen, put_labelled
from sidequest.surfaces.text import count, duration, money, one_line, short_id, some

if TYPE_CHECKING:
    from sidequest.runtime.session import TurnResult

_LABEL_COLUMNS = 14

Fact = tuple[str, str, Tone]


def outcome_facts(outcome: Outcome) -> Iterator[Fact]:
    """Give what a person wants to know about a delegation that ended, in order."""
    how = _how(outcome.status.value, outcome.stop_reason, outcome.elapsed_s)
    yield "status", how, TONES.get(outcome.status, Tone.PLAIN)
    yield "model", f"{outcome.model}, {outcome.context_mode} context", Tone.QUIET
    yield "work", f"{some(outcome.turns, 'turn')}, {some(outcome.tool_calls, 'tool')}", Tone.QUIET
    yield "tokens", _spent(outcome.usage), Tone.QUIET
    if outcome.compactions:
        yield "compactions", count(outcome.compactions), Tone.QUIET
    yield from _troubles((outcome,))


def turn_facts(result: TurnResult) -> Iterator[Fact]:
    """Give what a person wants to know about a turn of the parent and its delegations, in order."""
    done = "done" if result.ok else "stopped" if result.stop_reason is StopReason.STOPPED else "failed"
    how = _how(done, result.stop_reason, result.elapsed_s)
    yield "status", how, Tone.GOOD if result.ok else Tone.BAD
    yield "model", result.model, Tone.QUIET
    yield "parent", f"{some(result.turns, 'turn')}, {_spent(result.usage)}", Tone.QUIET
    if result.delegations:
        total = Usage()
        for outcome in result.delegations:
            total = total.plus(outcome.usage)
        turns = sum(outcome.turns for outcome in result.delegations)
        ended = _ended(result.delegations)
        yield "delegations", f"{ended}: {some(turns, 'turn')}, {_spent(total)}", Tone.QUIET
        yield "total", _spent(result.total_usage), Tone.QUIET
    if compactions := result.compactions + sum(outcome.compactions for outcome in result.delegations):
        yield "compactions", count(compactions), Tone.QUIET
    if result.degradations:
        yield "degraded", "yes: the parent lost older history without a summary", Tone.WARN
    yield from _troubles(result.delegations)


def stored_facts(result: TurnResult | Outcome, session_id: str | None) -> Iterator[Fact]:
    """Give the ids by which other commands find what was stored; nothing when it was not."""
    if session_id is None:
        return
    if isinstance(result, Outcome):
        yield "delegation", short_id(result.delegation_id), Tone.QUIET
    yield "session", short_id(session_id), Tone.QUIET


def _troubles(outcomes: tuple[Outcome, ...]) -> Iterator[Fact]:
    for outcome in outcomes:
        who = f"{outcome.agent}: " if len(outcomes) > 1 else ""
        if outcome.degraded:
            yield "degraded", f"{who}yes, {outcome.degradations}x; the report may be incomplete", Tone.WARN
        for failure in outcome.model_failures:
            said = f"{who}{failure.model} failed ({failure.code}): {one_line(failure.message)}"
            yield "model failure", said, Tone.WARN
        if outcome.unfinished_tool:
            yield "unfinished", f"{who}{outcome.unfinished_tool} was running when it ended", Tone.WARN


def _how(word: str, reason: StopReason, elapsed_s: float) -> str:
    why = "" if reason.value == word else f" ({reason.value})"
    return f"{word}{why} in {duration(elapsed_s)}"


def _ended(outcomes: tuple[Outcome, ...]) -> str:
    counted = {status: sum(outcome.status is status for outcome in outcomes) for status in Status}
    return ", ".join(f"{number} {status.value}" for status, number in counted.items() if number)


def _spent(usage: Usage) -> str:
    sizes = f"{count(usage.input_tokens)} in + {count(usage.output_tokens)} out tokens"
    # Where no answer came there is no price that could be unknown.
    cost = usage.cost_usd if usage.requests or usage.total_tokens else usage.cost_usd or 0.0
    return f"{sizes}, {money(cost)}"


def put_facts(screen: Screen, facts: Iterator[Fact]) -> None:
    """Print facts on the progress output, the names in a column of their own."""
    for name, value, tone in facts:
        put_labelled(screen.err, name, Text(one_line(value), tone), _LABEL_COLUMNS)


_CUT_SHORT = {
    **{reason: f"the {name} was reached" for reason, (_, name) in LIMITS.items()},
    StopReason.LENGTH: "the output cap cut it",
    StopReason.CONTENT_FILTER: "the provider's content filter ended it",
}
"""Why an answer is not complete, in words."""


def warning_of_turn(result: TurnResult) -> str | None:
    """Return the line that must not be missed although the exit code is 0, or None."""
    why = _CUT_SHORT.get(result.stop_reason)
    return f"warning: the answer may be incomplete: {why}" if result.ok and why else None


def warning_of(outcome: Outcome) -> str | None:
    """Return the line that must not be missed although the exit code is 0, or None."""
    if outcome.status is Status.PARTIAL:
        why = outcome.failure.message if outcome.failure else "a limit struck."
        return f"warning: partial report: {one_line(why)}"
    if outcome.status is Status.COMPLETED and outcome.degraded:
        return f"warning: {one_line(DEGRADED_NOTE.removeprefix('Note: '))}"
    return None
