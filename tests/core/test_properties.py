"""What holds for every history (needs 1): it ends, it shrinks, it never breaks, and the brief survives."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart

from sidequest.core.budget import ContextBudget
from sidequest.core.compaction import (
    Compacted,
    CompactionOutcome,
    Degraded,
    Overflow,
    Unchanged,
    compact,
    degraded_messages,
)
from sidequest.core.tokens import TokenMeter, estimate_message, reported_tokens
from sidequest.core.transcript import TranscriptError, Validator, head_system, seed, snapshot, validate
from tests.core.builders import (
    Summariser,
    brief,
    exchange,
    heuristic,
    repeatable,
    request_tokens,
    says,
    stored,
    texts_of,
)
from tests.core.histories import (
    SUMMARISERS,
    briefs,
    budgets,
    delegations,
    flags,
    marks_of,
    rounds,
    sessions,
    summarisers,
)


@dataclass(frozen=True)
class Case:
    """What the ladder is applied with, beside a history and a summariser."""

    budget: ContextBudget
    overhead: int = 0
    factor: float = 1.0


cases = st.builds(
    Case, budgets, st.sampled_from([0, 0, 300, 1_500, 9_000]), st.sampled_from([1.0, 1.0, 1.4, 3.0])
)


def applied(
    history: Sequence[ModelMessage], case: Case, summariser: Summariser, force: bool
) -> CompactionOutcome:
    """Apply the ladder once and check what must hold whatever the history is."""
    validate(history)
    before, budget, overhead, factor = stored(history), case.budget, case.overhead, case.factor
    tokens = TokenMeter().measure(history, overhead, factor)
    outcome = asyncio.run(
        compact(history, budget=budget, summarise=summariser, overhead=overhead, force=force, factor=factor)
    )
    assert stored(history) == before
    assert isinstance(outcome, Unchanged) == (budget.fits(tokens) and not force)
    assert len(summariser.asked) <= 1
    for request in summariser.asked:
        assert request_tokens(request) * factor <= budget.summary_room[0]
        assert all(mark in request.prompt for part in _results(history) for mark in marks_of(part))
    if isinstance(outcome, Compacted | Degraded):
        validate(outcome.messages)
        after = heuristic(outcome.messages)
        assert (after + overhead) * factor < budget.hard_limit
        assert after < heuristic(history)
        assert outcome.tokens_after == TokenMeter().measure(outcome.messages, overhead, factor)
        assert outcome.tokens_after < outcome.tokens_before == tokens
        assert head_system(outcome.messages) == head_system(history)
    return outcome


def _results(history: Sequence[ModelMessage]) -> list[ToolReturnPart]:
    parts = (part for message in history for part in message.parts)
    return [part for part in parts if isinstance(part, ToolReturnPart)]


def _must_overflow(history: Sequence[ModelMessage], text: str, case: Case) -> bool:
    """Whether not even the brief alone is below the limit and smaller than what there is."""
    room = min(case.budget.hard_limit / case.factor - case.overhead, heuristic(history))
    return estimate_message(brief(text)) + _system_tokens(history) >= room - 1


def _system_tokens(history: Sequence[ModelMessage]) -> int:
    return estimate_message(ModelRequest(parts=head_system(history)))


@repeatable(120)
@given(st.data(), briefs, cases)
def test_a_delegation_compacted_again_and_again(data, text, case):
    history = data.draw(delegations(text))
    for _ in range(3):
        outcome = applied(history, case, SUMMARISERS[data.draw(summarisers)](), data.draw(flags))
        if isinstance(outcome, Overflow):
            assert _must_overflow(history, text, case)
            return
        if not isinstance(outcome, Unchanged):
            assert texts_of(outcome.messages, "brief") == [text]
            assert len(texts_of(outcome.messages, "summary")) == isinstance(outcome, Compacted)
            history = list(outcome.messages)
        history += data.draw(rounds(3))


@repeatable(60)
@given(st.data(), cases)
def test_a_session_compacted_again_and_again(data, case):
    history = data.draw(sessions())
    for _ in range(2):
        outcome = applied(history, case, SUMMARISERS[data.draw(summarisers)](), data.draw(flags))
        if isinstance(outcome, Overflow):
            return
        if not isinstance(outcome, Unchanged):
            assert len(texts_of(outcome.messages, None)) == 1
            history = list(outcome.messages)
        history += data.draw(rounds(3))


@repeatable(100)
@given(st.data(), briefs, st.integers(1, 6_000))
def test_degradation_keeps_the_brief_and_a_suffix_of_whole_rounds(data, text, limit):
    history = data.draw(delegations(text))
    kept = degraded_messages(history, limit=limit)
    if kept is None:
        assert estimate_message(brief(text)) + _system_tokens(history) >= limit
        return
    validate(kept)
    assert heuristic(kept) < limit
    assert texts_of(kept, "brief") == [text]
    assert not any(map(reported_tokens, kept))
    parts = [id(part) for message in history for part in message.parts]
    places = [parts.index(id(part)) for message in kept for part in message.parts]
    assert places == sorted(places)


@repeatable(100)
@given(rounds(), st.integers(1, 6_000))
def test_a_seed_is_the_task_and_what_fits_of_the_newest(history, limit):
    chain = [brief("the task"), *history]
    before = stored(chain)
    seeded = seed("the task", chain, limit=limit).messages
    validate([*seeded, brief("go on")])
    assert texts_of(seeded[:1], "original") == ["the task"]
    assert texts_of(seeded[1:], "original") + texts_of(seeded, "brief") == []
    assert heuristic(seeded) < limit or len(seeded) == 1
    assert not any(map(reported_tokens, seeded))
    assert stored(chain) == before


def _said(history: Sequence[ModelMessage]) -> list[object]:
    return [part for message in history for part in message.parts]


@repeatable(100)
@given(st.data(), flags)
def test_a_snapshot_of_any_moment_is_a_valid_beginning_of_the_branch(data, same_model):
    branch = data.draw(sessions())
    moment = branch[: data.draw(st.integers(1, len(branch)))]
    before = stored(moment)
    fork = snapshot(moment, same_model=same_model)
    validate([*fork, brief()])
    assert stored(moment) == before
    assert _said(fork) == _said(moment)[: len(_said(fork))]
    assert not any(map(reported_tokens, fork))


BRANCH = [brief(), *exchange("a", "c1"), *exchange("b", "c2"), says("text"), ModelRequest(parts=[])]


def _problems(validator: Validator, history: Sequence[ModelMessage]) -> tuple[str, ...]:
    try:
        validator.check(history)
    except TranscriptError as error:
        return error.problems
    return ()


@repeatable(150)
@given(st.data())
def test_a_validator_that_remembers_says_what_a_fresh_one_says(data):
    validator, history = Validator(), list(BRANCH)
    validator.check(history)
    for _ in range(4):
        start = data.draw(st.integers(0, len(history)))
        stop = data.draw(st.integers(start, len(history)))
        history[start:stop] = data.draw(st.lists(st.sampled_from(BRANCH), max_size=2))
        assert _problems(validator, history) == _problems(Validator(), history)
