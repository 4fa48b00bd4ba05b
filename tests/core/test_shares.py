"""What fills a window, by kind."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from sidequest.core.share_meter import ShareMeter, shares_of
from sidequest.core.shares import Shares
from sidequest.core.tokens import Overhead, estimate_message
from sidequest.core.transcript import marked
from tests.core.builders import repeatable

PROMPT = ModelRequest(parts=[UserPromptPart("x" * 400)])
RESULT = ModelRequest(parts=[ToolReturnPart("Read", "y" * 50 + " ", "c1")] * 2 + [UserPromptPart("z" * 40)])
ANSWER = ModelResponse(parts=[TextPart("w" * 40), ToolCallPart("Read", {"path": "a.py"})])
SUMMARY = ModelRequest(parts=[marked("s " * 100, "summary"), marked("b" * 40, "brief")])
KINDS = [PROMPT, RESULT, ANSWER, SUMMARY]


def test_each_kind_is_counted_by_itself():
    assert shares_of(PROMPT).user >= 100
    assert (shares_of(RESULT).results, shares_of(RESULT).user) == (26, 10)
    assert shares_of(ANSWER).assistant == estimate_message(ANSWER)
    assert (shares_of(SUMMARY).summary, shares_of(SUMMARY).user) == (50, 10)


@repeatable(60)
@given(st.lists(st.sampled_from(KINDS), max_size=12))
def test_the_sum_is_the_size_of_the_request_up_to_rounding(history):
    overhead = Overhead(7, 5)
    shares = ShareMeter().measure(history, overhead)
    size = overhead.total + sum(map(estimate_message, history))
    assert size <= shares.total <= size + 3 * len(history)
    assert (shares.instructions, shares.tools) == (7, 5)


@repeatable(60)
@given(st.lists(st.lists(st.sampled_from(KINDS), max_size=6), max_size=4))
def test_a_meter_that_saw_other_lists_before_says_the_same_as_a_new_one(histories):
    meter = ShareMeter()
    for history in histories:
        again = [replace(message) for message in history]
        for some in (history, again):
            assert meter.measure(some, Overhead()) == ShareMeter().measure(some, Overhead())


def test_nothing_is_all_zero():
    assert ShareMeter().measure([], Overhead()) == Shares() and Shares().total == 0
