"""How a delegation ended, decided once from facts, and the report a parent reads (specification 3.1, L7)."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidequest.core.errors import ErrorCode, Failure
from sidequest.core.outcome import (
    DEGRADED_NOTE,
    LIMITS,
    REPORT_CUT_MARKER,
    REPORT_LIMIT_CHARS,
    ModelFailure,
    Outcome,
    RunFacts,
    Status,
    StopReason,
    Usage,
    bound_text,
    report_text,
    settle,
)
from tests.core.builders import repeatable

PROVIDER_DOWN = Failure(ErrorCode.PROVIDER_ERROR, "The provider answered 503.", retriable=True)

# What happened, then status, stop reason and code; the order of the rows is the precedence.
CASES = {
    "stopped": (RunFacts("text", stop_requested=True), "stopped stopped -"),
    "stopped outranks a failure": (RunFacts(stop_requested=True, failure=PROVIDER_DOWN), "stopped stopped -"),
    "failed": (RunFacts(failure=PROVIDER_DOWN), "failed error PROVIDER_ERROR"),
    "failed with text is no success": (
        RunFacts("text", failure=PROVIDER_DOWN),
        "failed error PROVIDER_ERROR",
    ),
    "failed outranks limits": (
        RunFacts("text", failure=PROVIDER_DOWN, limit=StopReason.TURN_LIMIT, output_cut=True),
        "failed error PROVIDER_ERROR",
    ),
    "no text": (RunFacts(), "failed no_report SUBAGENT_NO_REPORT"),
    "blank text": (RunFacts(" \n"), "failed no_report SUBAGENT_NO_REPORT"),
    "no text at the turn limit": (
        RunFacts(limit=StopReason.TURN_LIMIT),
        "failed turn_limit SUBAGENT_TURN_LIMIT",
    ),
    "no text before the cap": (RunFacts(output_cut=True), "failed length SUBAGENT_OUTPUT_TRUNCATED"),
    "text ended by a content filter": (
        RunFacts("text", filtered=True),
        "partial content_filter PROVIDER_ERROR",
    ),
    "text cut by the cap": (RunFacts("text", output_cut=True), "partial length SUBAGENT_OUTPUT_TRUNCATED"),
    "text cut outranks the turn limit": (
        RunFacts("text", output_cut=True, limit=StopReason.TURN_LIMIT),
        "partial length SUBAGENT_OUTPUT_TRUNCATED",
    ),
    "text at the turn limit": (
        RunFacts("text", limit=StopReason.TURN_LIMIT),
        "partial turn_limit SUBAGENT_TURN_LIMIT",
    ),
    "no text at the time limit": (
        RunFacts(limit=StopReason.TIME_LIMIT),
        "failed time_limit SUBAGENT_DURATION_TIMEOUT",
    ),
    "text at the time limit": (
        RunFacts("text", limit=StopReason.TIME_LIMIT),
        "partial time_limit SUBAGENT_DURATION_TIMEOUT",
    ),
    "text at the cost limit": (
        RunFacts("text", limit=StopReason.COST_LIMIT),
        "partial cost_limit SUBAGENT_COST_LIMIT",
    ),
    "text from before the last tool result": (
        RunFacts("text", report_is_final=False),
        "partial no_report SUBAGENT_NO_REPORT",
    ),
    "completed": (RunFacts("text"), "completed stop -"),
}


def outcome(status=Status.COMPLETED, report="The limit is 7.", **facts) -> Outcome:
    fields = {
        "stop_reason": StopReason.STOP,
        "model": "openai:gpt",
        "context_mode": "independent",
        "elapsed_s": 1.5,
    }
    return Outcome("d1", "explorer", status, report=report, **{**fields, **facts})


class TestSettle:
    @pytest.mark.parametrize(("facts", "expected"), CASES.values(), ids=CASES)
    def test_case(self, facts, expected):
        ending = settle(facts)
        code = ending.failure.code if ending.failure else "-"
        assert f"{ending.status} {ending.stop_reason} {code}" == expected

    def test_a_failure_is_handed_on_as_it_is(self):
        assert settle(RunFacts(failure=PROVIDER_DOWN)).failure is PROVIDER_DOWN

    def test_any_facts_end_in_one_final_status_with_a_reason(self):
        texts, flags = ["", "text"], [False, True]
        for said, final, stop, failure, limit, cut in itertools.product(
            texts, flags, flags, [None, PROVIDER_DOWN], [None, *LIMITS], flags
        ):
            ending = settle(RunFacts(said, final, stop, failure, limit, output_cut=cut))
            assert ending.status is not Status.RUNNING
            assert (ending.status is Status.COMPLETED) == (ending.stop_reason is StopReason.STOP)
            assert (ending.failure is None) == (ending.status in {Status.COMPLETED, Status.STOPPED})
            assert said or ending.status in {Status.FAILED, Status.STOPPED}

    def test_a_failure_that_settle_makes_does_not_ask_for_a_retry(self):
        for facts in (
            RunFacts(),
            RunFacts("text", limit=StopReason.TURN_LIMIT),
            RunFacts("text", output_cut=True),
        ):
            assert settle(facts).failure.retriable is False


class TestBound:
    def test_L7_a_report_over_the_limit_is_head_marker_and_tail_and_exactly_the_limit(self):
        said = "".join(map(str, range(10_000)))
        text = report_text(outcome(report=said))
        head, tail = text.split(REPORT_CUT_MARKER.format(limit=12_000))
        assert len(text) == REPORT_LIMIT_CHARS == 12_000
        assert said.startswith(head)
        assert said.endswith(tail)
        assert len(head) - len(tail) in {0, 1}

    @pytest.mark.parametrize("length", [1, 11_999, 12_000])
    def test_a_report_up_to_the_limit_is_whole(self, length):
        assert report_text(outcome(report="x" * length)) == "x" * length

    def test_it_is_trimmed_first(self):
        assert report_text(outcome(report=" \n" * 9_000 + "x" * 12_000 + "\n" * 50)) == "x" * 12_000

    def test_the_bound_covers_the_notes_too(self):
        text = report_text(outcome(report="x" * 11_999, degradations=1))
        assert len(text) == 12_000
        assert text.startswith(DEGRADED_NOTE)

    @pytest.mark.parametrize("limit", [0, 1, 20])
    def test_a_limit_below_the_marker_leaves_a_piece_of_the_marker(self, limit):
        assert bound_text("x" * 1_000, limit) == REPORT_CUT_MARKER.format(limit=limit).strip()[:limit]

    @repeatable(100)
    @given(st.text(max_size=400), st.integers(100, 300))
    def test_a_bounded_text_is_whole_or_exactly_the_limit(self, text, limit):
        bounded = bound_text(text, limit)
        assert bounded == text.strip() if len(text.strip()) <= limit else len(bounded) == limit


class TestReport:
    def test_failures_of_models_then_the_note_then_the_body(self):
        failures = (
            ModelFailure("a:one", ErrorCode.PROVIDER_RATE_LIMITED, "Too many requests."),
            ModelFailure("b:two", ErrorCode.SUBAGENT_CONTEXT_OVERFLOW, "9000 tokens, limit 2048."),
        )
        text = report_text(outcome(model_failures=failures, degradations=2))
        assert text.split("\n\n") == [
            "Model a:one failed (PROVIDER_RATE_LIMITED): Too many requests.",
            "Model b:two failed (SUBAGENT_CONTEXT_OVERFLOW): 9000 tokens, limit 2048.",
            DEGRADED_NOTE,
            "The limit is 7.",
        ]

    def test_the_note_says_what_was_lost(self):
        assert "older working history was discarded" in DEGRADED_NOTE

    def test_degraded_and_failed_has_both(self):
        text = report_text(outcome(Status.FAILED, "half", failure=PROVIDER_DOWN, degradations=1, turns=4))
        note, head, last = text.split("\n\n")
        assert note == DEGRADED_NOTE
        assert head == "explorer failed after 4 turns [PROVIDER_ERROR]: The provider answered 503."
        assert last == "Last output:\nhalf"

    def test_failed_without_text_has_no_last_output(self):
        text = report_text(outcome(Status.FAILED, "", failure=PROVIDER_DOWN, turns=1))
        assert text == "explorer failed after 1 turn [PROVIDER_ERROR]: The provider answered 503."

    @pytest.mark.parametrize("status", [Status.STOPPED, Status.INTERRUPTED])
    def test_stopped_and_interrupted_name_the_agent_the_turns_and_the_last_output(self, status):
        text = report_text(outcome(status, "half", turns=3))
        assert text == f"explorer was {status} after 3 turns.\n\nLast output:\nhalf"
        assert "Last output" not in report_text(outcome(status, ""))

    def test_a_partial_report_says_so_first(self):
        ending = settle(RunFacts("half", limit=StopReason.TURN_LIMIT))
        text = report_text(outcome(ending.status, "half", failure=ending.failure))
        assert text.startswith("Partial report: The subagent reached its turn limit")
        assert text.endswith("\n\nhalf")


COSTS = st.one_of(st.none(), st.integers(0, 100).map(float))
USAGES = st.builds(Usage, st.integers(0, 9), st.integers(0, 900), st.integers(0, 900), COSTS)


class TestUsage:
    def test_it_sums_requests_tokens_and_known_costs(self):
        assert Usage(1, 10, 2, 0.5).plus(Usage(2, 20, 3, 0.25)) == Usage(3, 30, 5, 0.75)
        assert Usage(3, 30, 5).total_tokens == 35

    def test_a_price_that_is_not_known_is_never_guessed(self):
        assert Usage(1, 10, 2, 0.5).plus(Usage(1, 10, 2)).cost_usd is None

    def test_nothing_used_costs_nothing(self):
        assert Usage().plus(Usage(1, 10, 2, 0.5)) == Usage(1, 10, 2, 0.5)
        assert Usage().plus(Usage()) == Usage()

    @repeatable(100)
    @given(USAGES, USAGES, USAGES)
    def test_the_order_of_adding_does_not_matter(self, a, b, c):
        assert a.plus(b) == b.plus(a)
        assert a.plus(b).plus(c) == a.plus(b.plus(c))
