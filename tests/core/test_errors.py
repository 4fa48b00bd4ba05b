"""Codes, bounded messages without secrets, and guidance for a parent model (specification 6.1, 3.9)."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidequest.core.errors import (
    MAX_MESSAGE_CHARS,
    RETRIABLE,
    ErrorCode,
    Failure,
    SidequestError,
    bounded_message,
    subagent_overflow,
)
from tests.core.builders import repeatable

# Table 6.1: whether sending the same request again may cure it.
TABLE = {
    "PROVIDER_RATE_LIMITED": True,
    "PROVIDER_ERROR": True,
    "PROVIDER_UNAUTHORIZED": False,
    "NETWORK_ERROR": True,
    "TIMEOUT": True,
    "STREAM_FAILED": True,
    "MODEL_NOT_CONFIGURED": False,
    "CONTEXT_TOO_LARGE": False,
    "CONTEXT_COMPACTION_FAILED": False,
    "TURN_ABORTED": False,
    "EMPTY_MODEL_RESPONSE": True,
    "SUBAGENT_CONTEXT_OVERFLOW": False,
    "SUBAGENT_NO_REPORT": False,
    "SUBAGENT_OUTPUT_TRUNCATED": False,
    "SUBAGENT_INVALID": False,
    "UNEXPECTED_DELEGATION_REJECTION": False,
    "INTERNAL": False,
    "TOOL_DENIED": False,
}


@pytest.mark.parametrize(("code", "retriable"), TABLE.items())
def test_codes_and_what_a_retry_may_cure(code, retriable):
    assert (ErrorCode(code) in RETRIABLE) is retriable
    assert str(ErrorCode(code)) == code


class TestMessages:
    def test_a_message_is_at_most_600_characters(self):
        assert len(bounded_message("x" * 600)) == 600
        assert bounded_message("x" * 700) == "x" * 599 + "…"

    def test_control_characters_are_removed_and_lines_stay(self):
        assert bounded_message("a\x00b\x1b[31mc\x7f\nd\te\r") == "a b [31mc \nd\te"
        assert bounded_message("a\x9b31mb\x85c") == "a 31mb c"

    @pytest.mark.parametrize(
        "secret",
        [
            "sk-proj-abcdef1234567890",
            "sk-ant-api03-abcdefABCDEF123",
            "AIza" + "b" * 35,
            "ghp_" + "c" * 36,
            "hf_" + "d" * 30,
            "xai-" + "e" * 30,
        ],
    )
    def test_a_key_is_taken_out(self, secret):
        assert bounded_message(f"Incorrect API key: {secret}.") == "Incorrect API key: [redacted]."

    def test_a_bearer_token_is_taken_out(self):
        assert (
            bounded_message("Authorization: Bearer abc.def-123456789") == "Authorization: Bearer [redacted]"
        )

    @pytest.mark.parametrize(
        "text", ["The task-force reads disk-usage-report-2024.", "risk_assessment_model_v2"]
    )
    def test_ordinary_words_stay(self, text):
        assert bounded_message(text) == text

    @repeatable(100)
    @given(st.text(max_size=700), st.integers(1, 600))
    def test_any_text_is_bounded_and_bounding_twice_changes_nothing(self, text, limit):
        once = bounded_message(text, limit)
        assert len(once) <= limit
        assert bounded_message(once, limit) == once.strip()
        assert re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", once) is None


class TestFailure:
    def test_its_message_is_bounded_and_its_facts_cannot_be_changed(self):
        facts = {"providerStatus": 429}
        failure = Failure(ErrorCode.TIMEOUT, "x" * 900, details=facts)
        facts["providerStatus"] = 0
        assert len(failure.message) == MAX_MESSAGE_CHARS == 600
        assert failure.details == {"providerStatus": 429}
        with pytest.raises(TypeError):
            failure.details["more"] = 1

    def test_an_error_carries_cause_remedy_and_facts(self):
        error = SidequestError(ErrorCode.TIMEOUT, "No answer came.", "Try again.", seconds=30)
        assert str(error) == error.failure.message == "No answer came. Try again."
        assert (error.failure.cause, error.failure.remedy) == ("No answer came.", "Try again.")
        assert (error.failure.retriable, error.failure.details) == (True, {"seconds": 30})

    def test_a_single_failure_may_say_otherwise_about_a_retry(self):
        error = SidequestError(ErrorCode.PROVIDER_ERROR, "Bad request.", "", retriable=False)
        assert (error.failure.retriable, str(error)) == (False, "Bad request.")


class TestOverflow:
    @pytest.mark.parametrize("fragment", ["Narrow the task", "larger context window", "read less at once"])
    def test_it_tells_a_parent_what_to_do(self, fragment):
        assert fragment in subagent_overflow("openai:gpt", 9_000, 2_048).failure.message

    def test_it_names_the_model_and_both_numbers_and_is_final(self):
        error = subagent_overflow("openai:gpt", 9_000, 2_048, fixed=100)
        assert error.code == ErrorCode.SUBAGENT_CONTEXT_OVERFLOW
        assert all(
            word in error.cause for word in ("openai:gpt", "9,000", "2,048", "compaction and reduction")
        )
        assert error.failure.retriable is False
        assert error.failure.details == {
            "model": "openai:gpt",
            "tokens": 9_000,
            "hardLimit": 2_048,
            "fixed": 100,
        }

    def test_a_refusal_of_what_fits_by_our_count_says_whose_word_it_is(self):
        cause = subagent_overflow("openai:gpt", 900, 2_048, fixed=100).cause
        assert "provider" in cause
        assert "openai:gpt" in cause
        assert "does not fit" not in cause
        assert "after compaction" not in cause

    def test_a_window_that_was_learned_is_named_beside_the_one_of_the_settings(self):
        cause = subagent_overflow("work/qwen", 9_000, 1_300, learned=2_600, told=32_000).cause
        assert cause.endswith(
            "leaves 1,300 for a request "
            "(its provider accepts 2,600 in all, not the 32,000 of settings or catalog)."
        )

    def test_fixed_parts_over_the_limit_are_named_with_their_size(self):
        cause = subagent_overflow("openai:gpt", 5_000, 2_048, fixed=2_048).cause
        assert cause.startswith("The instructions and tool schemas alone are 2,048 tokens")
