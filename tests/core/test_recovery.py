"""What is done about a failed request: each kind, with what was tried for it, gives one action (3.7, 6)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidequest.core.errors import ErrorCode
from sidequest.core.provider_errors import Kind, Meaning
from sidequest.core.recovery import (
    MAX_GUESSES,
    MAX_RATE_RETRIES,
    MAX_TRANSIENT_RETRIES,
    MIN_USEFUL_OUTPUT_TOKENS,
    RATE_CAP_S,
    RATE_JITTER,
    SAFETY_TOKENS,
    Action,
    CompactNow,
    DropOutputLimit,
    GiveUp,
    LowerOutput,
    NextModel,
    Recovery,
    RepairHistory,
    ShrinkMedia,
    Wait,
)
from tests.core.builders import repeatable

RETRIABLE = {Kind.RATE, Kind.NETWORK, Kind.TIMEOUT, Kind.STREAM, Kind.SERVER}
TRANSIENT = sorted(RETRIABLE - {Kind.RATE})
HOPELESS = [Kind.AUTH, Kind.NOT_FOUND, Kind.REQUEST, Kind.CUT, Kind.UNKNOWN]


def meant(kind: Kind, **facts: Any) -> Meaning:
    code = facts.pop("code", ErrorCode.PROVIDER_ERROR)
    return Meaning(kind, code, facts.pop("retriable", kind in RETRIABLE), **facts)


def decisions(meaning: Meaning, count: int, **options: Any) -> list[Action]:
    """What one recovery decides when the same failure comes `count` times."""
    recovery = Recovery()
    return [recovery.decide(meaning, **options) for _ in range(count)]


TABLE: list[tuple[str, Meaning, dict[str, Any], list[Action]]] = [
    ("the owner cancelled", meant(Kind.CANCELLED), {}, [GiveUp(), GiveUp()]),
    ("input too long", meant(Kind.INPUT), {}, [CompactNow(), NextModel(), NextModel()]),
    (
        "input too long, window stated",
        meant(Kind.INPUT, limit_tokens=8_000),
        {},
        [CompactNow(8_000), NextModel()],
    ),
    ("the fixed part is too long", meant(Kind.INPUT, irreducible=True), {}, [NextModel()]),
    (
        "input fits beside less output",
        meant(Kind.SUM, input_tokens=9_000, limit_tokens=10_000),
        {},
        [LowerOutput(936), LowerOutput(936), CompactNow(10_000), NextModel()],
    ),
    ("sum without numbers", meant(Kind.SUM), {}, [CompactNow(), NextModel()]),
    (
        "sum that leaves too little for an answer",
        meant(Kind.SUM, input_tokens=9_681, limit_tokens=10_000),
        {},
        [CompactNow(10_000), NextModel()],
    ),
    (
        "output over the model's cap",
        meant(Kind.OUTPUT, limit_tokens=4_096),
        {"output_limit": 9_000},
        [LowerOutput(4_096), LowerOutput(4_096), NextModel()],
    ),
    (
        "output over an unknown cap",
        meant(Kind.OUTPUT),
        {"output_limit": 9_001},
        [LowerOutput(4_500), LowerOutput(4_500), NextModel()],
    ),
    ("output refused, none was sent", meant(Kind.OUTPUT), {}, [DropOutputLimit(), NextModel()]),
    ("too many bytes", meant(Kind.BYTES), {}, [ShrinkMedia(), NextModel()]),
    ("broken history", meant(Kind.BROKEN), {}, [RepairHistory(), NextModel()]),
    ("rate limit over the whole quota", meant(Kind.RATE, incurable=True), {}, [NextModel()]),
    (
        "unexplained refusal near the window",
        meant(Kind.UNKNOWN, retriable=False, near_limit=True),
        {},
        [CompactNow(), NextModel()],
    ),
    (
        "413 without a word, far from the window",
        meant(Kind.UNKNOWN, retriable=False, code=ErrorCode.CONTEXT_TOO_LARGE),
        {},
        [CompactNow(), NextModel()],
    ),
    (
        "opaque refusal",
        meant(Kind.UNKNOWN, retriable=False, opaque=True),
        {},
        [DropOutputLimit(), NextModel()],
    ),
    (
        "opaque refusal near the window",
        meant(Kind.UNKNOWN, retriable=False, opaque=True, near_limit=True),
        {},
        [CompactNow(), DropOutputLimit(), NextModel()],
    ),
    ("an unknown failure", meant(Kind.UNKNOWN, retriable=True), {}, [Wait(1), Wait(2)]),
    *((f"{kind} fails once", meant(kind, retriable=False), {}, [NextModel()]) for kind in HOPELESS),
    *((f"{kind} is waited for", meant(kind), {}, [Wait(1), Wait(2), Wait(4), Wait(8)]) for kind in TRANSIENT),
    ("a certificate is not waited for", meant(Kind.NETWORK, retriable=False), {}, [NextModel()]),
]


@pytest.mark.parametrize(
    ("meaning", "options", "actions"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_the_decision_table(meaning: Meaning, options: dict[str, Any], actions: list[Action]) -> None:
    assert decisions(meaning, len(actions), **options) == actions


def test_every_kind_is_in_the_table() -> None:
    assert {meaning.kind for _, meaning, _, _ in TABLE} == set(Kind)


class TestWaits:
    def test_a_rate_limit_doubles_from_two_seconds_to_thirty(self) -> None:
        waits = decisions(meant(Kind.RATE), MAX_RATE_RETRIES + 1)
        assert waits == [Wait(s) for s in (2, 4, 8, 16, 30, 30, 30, 30, 30, 30)] + [NextModel()]

    def test_a_transient_failure_doubles_from_one_second_to_eight(self) -> None:
        waits = decisions(meant(Kind.SERVER), MAX_TRANSIENT_RETRIES + 1)
        assert waits == [Wait(s) for s in (1, 2, 4, 8, 8, 8, 8, 8, 8, 8)] + [NextModel()]

    @pytest.mark.parametrize("kind", [Kind.RATE, Kind.SERVER])
    def test_what_the_provider_asks_for_is_waited_exactly(self, kind: Kind) -> None:
        asked = meant(kind, retry_after_s=97.5)
        assert decisions(asked, 3, jitter=0.9) == [Wait(97.5)] * 3

    def test_a_wait_of_zero_is_a_wait_and_not_an_absent_one(self) -> None:
        assert decisions(meant(Kind.RATE, retry_after_s=0.0), 2) == [Wait(0.0)] * 2

    @repeatable(50)
    @given(st.floats(0, 1, exclude_max=True), st.integers(1, MAX_RATE_RETRIES))
    def test_jitter_adds_a_quarter_at_most_and_never_passes_the_cap(self, jitter: float, count: int) -> None:
        wait = decisions(meant(Kind.RATE), count, jitter=jitter)[-1]
        plain = min(RATE_CAP_S, 2.0**count)
        assert isinstance(wait, Wait)
        assert plain <= wait.seconds <= min(RATE_CAP_S, plain * (1 + RATE_JITTER))

    def test_a_transient_failure_has_no_jitter(self) -> None:
        assert decisions(meant(Kind.TIMEOUT), 2, jitter=0.99) == [Wait(1), Wait(2)]


class TestBudgets:
    def test_rate_limits_and_other_failures_are_counted_apart(self) -> None:
        recovery = Recovery()
        for _ in range(10):
            assert isinstance(recovery.decide(meant(Kind.RATE)), Wait)
            assert isinstance(recovery.decide(meant(Kind.SERVER)), Wait)
        assert recovery.decide(meant(Kind.RATE)) == NextModel()
        assert recovery.decide(meant(Kind.SERVER)) == NextModel()

    def test_setup_and_stream_failures_share_one_budget(self) -> None:
        recovery = Recovery()
        kinds = [Kind.NETWORK, Kind.TIMEOUT, Kind.STREAM, Kind.SERVER, Kind.UNKNOWN] * 2
        assert all(isinstance(recovery.decide(meant(kind, retriable=True)), Wait) for kind in kinds)
        assert recovery.decide(meant(Kind.STREAM)) == NextModel()

    def test_a_sum_and_an_output_refusal_share_the_reductions(self) -> None:
        recovery = Recovery()
        fits = meant(Kind.SUM, input_tokens=1_000, limit_tokens=9_000)
        assert isinstance(recovery.decide(fits), LowerOutput)
        assert isinstance(recovery.decide(meant(Kind.OUTPUT, limit_tokens=500)), LowerOutput)
        assert recovery.decide(fits) == CompactNow(9_000)

    def test_one_compaction_whatever_asked_for_it(self) -> None:
        recovery = Recovery()
        assert recovery.decide(meant(Kind.SUM)) == CompactNow()
        assert recovery.decide(meant(Kind.INPUT)) == NextModel()
        near = meant(Kind.UNKNOWN, retriable=False, near_limit=True)
        assert recovery.decide(near) == NextModel()

    def test_a_response_that_came_through_resets_everything(self) -> None:
        recovery = Recovery()
        everything = [meaning for _, meaning, _, _ in TABLE] * 2
        for meaning in everything:
            recovery.decide(meaning)
        recovery.reset()
        assert recovery == Recovery(guesses=recovery.guesses)

    def test_the_guess_that_a_bare_413_is_an_overflow_is_made_three_times(self) -> None:
        recovery, bare = Recovery(), meant(Kind.UNKNOWN, retriable=False, code=ErrorCode.CONTEXT_TOO_LARGE)
        for _ in range(MAX_GUESSES):
            assert recovery.decide(bare) == CompactNow()
            recovery.reset()
        assert recovery.decide(bare) == NextModel()


class TestOutput:
    def test_the_room_beside_the_input_keeps_a_margin(self) -> None:
        room = MIN_USEFUL_OUTPUT_TOKENS + SAFETY_TOKENS
        fits = meant(Kind.SUM, input_tokens=10_000 - room, limit_tokens=10_000)
        assert decisions(fits, 1) == [LowerOutput(MIN_USEFUL_OUTPUT_TOKENS)]

    def test_a_sum_that_less_output_did_not_cure_is_compacted(self) -> None:
        """The provider states the same numbers although the output was lowered to what they leave."""
        recovery, fits = Recovery(), meant(Kind.SUM, input_tokens=9_000, limit_tokens=10_000)
        assert recovery.decide(fits, output_limit=4_000) == LowerOutput(936)
        assert recovery.decide(fits, output_limit=936) == CompactNow(10_000)

    @pytest.mark.parametrize("stated", [8_000, 9_000, 64_000])
    def test_a_stated_cap_that_was_kept_already_halves_what_was_sent(self, stated: int) -> None:
        """The same request again would be refused again."""
        refused = meant(Kind.OUTPUT, limit_tokens=stated)
        assert decisions(refused, 1, output_limit=8_000) == [LowerOutput(4_000)]

    def test_an_output_limit_of_one_cannot_be_halved(self) -> None:
        assert decisions(meant(Kind.OUTPUT), 1, output_limit=1) == [DropOutputLimit()]


MEANINGS = st.builds(
    meant,
    st.sampled_from(list(Kind)),
    retriable=st.booleans(),
    input_tokens=st.none() | st.integers(0, 300_000),
    limit_tokens=st.none() | st.integers(0, 300_000),
    retry_after_s=st.none() | st.floats(0, 1_000),
    incurable=st.booleans(),
    irreducible=st.booleans(),
    near_limit=st.booleans(),
    opaque=st.booleans(),
)
LIMITS = st.none() | st.integers(1, 200_000)


class TestAlways:
    @repeatable(100)
    @given(st.lists(st.tuples(MEANINGS, LIMITS), max_size=40))
    def test_rate_and_output_never_compact_and_input_is_never_just_sent_again(
        self, failures: list[tuple[Meaning, int | None]]
    ) -> None:
        recovery = Recovery()
        for meaning, limit in failures:
            action = recovery.decide(meaning, output_limit=limit)
            if meaning.kind in {Kind.RATE, Kind.OUTPUT}:
                assert not isinstance(action, CompactNow)
            if meaning.kind is Kind.INPUT:
                assert isinstance(action, CompactNow | NextModel)
            if meaning.kind is Kind.SUM:
                assert isinstance(action, LowerOutput | CompactNow | NextModel)
            if isinstance(action, LowerOutput):
                assert action.max_tokens >= 1
            if isinstance(action, LowerOutput) and limit is not None:
                assert action.max_tokens < limit

    @repeatable(40)
    @given(st.lists(MEANINGS, min_size=40, max_size=40))
    def test_a_request_that_keeps_failing_ends(self, failures: list[Meaning]) -> None:
        """At most two budgets of ten waits, and each remedy once or twice, whatever the order."""
        recovery = Recovery()
        actions = [recovery.decide(meaning) for meaning in failures]
        remedies = [a for a in actions if not isinstance(a, Wait | NextModel | GiveUp)]
        assert sum(isinstance(a, Wait) for a in actions) <= MAX_RATE_RETRIES + MAX_TRANSIENT_RETRIES
        assert len(remedies) <= 6
