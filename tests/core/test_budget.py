"""Specification 1.1 to 1.3: what a model leaves for a request (cases B1 to B4, B7 and D19)."""

from __future__ import annotations

import ast
import inspect
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sidequest
from sidequest.core.budget import ContextBudget, stricter_cap
from tests.core.builders import repeatable

TABLE = """
| 1 | unset | 1 | 0 | 1 | 1 | 1 | 8000 | 1 |
| 100 | unset | 25 | 50 | 50 | 25 | 25 | 8000 | 1 |
| 4096 | 1024 | 1024 | 2048 | 2048 | 1024 | 1024 | 8000 | 1024 |
| 8000 | 1024 | 1024 | 4000 | 4000 | 2000 | 2000 | 8000 | 4928 |
| 8192 | 4096 | 2048 | 4096 | 4096 | 2048 | 2048 | 8000 | 2868 |
| 16000 | 4096 | 4000 | 8000 | 8000 | 4000 | 4000 | 8000 | 9856 |
| 32000 | 4096 | 4096 | 16000 | 16000 | 8000 | 8000 | 8000 | 25856 |
| 32000 | 8000 | 8000 | 16000 | 16000 | 8000 | 8000 | 8000 | 21952 |
| 32768 | 8192 | 8192 | 16384 | 16384 | 8000 | 8192 | 8000 | 22528 |
| 64000 | 16000 | 16000 | 16384 | 47616 | 9523 | 20000 | 8000 | 48845 |
| 128000 | 8192 | 8192 | 16384 | 111616 | 22323 | 20000 | 16742 | 117760 |
| 128000 | 32000 | 32000 | 32000 | 96000 | 19200 | 20000 | 14400 | 100352 |
| 200000 | 8192 | 8192 | 16384 | 183616 | 36723 | 20000 | 27542 | 189760 |
| 200000 | 32000 | 32000 | 32000 | 168000 | 33600 | 20000 | 25200 | 172352 |
| 200000 | 64000 | 50000 | 50000 | 150000 | 30000 | 20000 | 22500 | 157952 |
| 256000 | 32000 | 32000 | 32000 | 224000 | 44800 | 20000 | 32000 | 228352 |
| 1000000 | 32000 | 32000 | 50000 | 950000 | 64000 | 20000 | 32000 | 965952 |
| 1000000 | 64000 | 64000 | 64000 | 936000 | 64000 | 20000 | 32000 | 946752 |
| 1048576 | 64000 | 64000 | 64000 | 984576 | 64000 | 20000 | 32000 | 995328 |
| none | none | 8192 | 16384 | 111616 | 22323 | 20000 | 16742 | 117760 |
"""
"""Table 1.3 as it is printed: W, maxTokens, O, H, L, K, U, reminder, S; its last column is not ours."""

ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in TABLE.strip().splitlines()]
WINDOWS = [1, 100, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 200_000, 256_000, 1_048_576, 2_000_000]


def _number(cell: str) -> int | None:
    return None if cell in {"unset", "none"} else int(cell)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}/{row[1]}")
def test_B1_each_row_of_table_1_3(row):
    window, max_tokens, *expected = map(_number, row)
    budget = ContextBudget.of(window, max_tokens)
    assert [
        budget.output,
        budget.headroom,
        budget.hard_limit,
        budget.keep_recent,
        budget.retained_user,
        budget.reminder,
        budget.summary_input,
    ] == expected


@pytest.mark.parametrize("unknown", [None, 0, float("nan")])
def test_B2_an_unknown_number_takes_its_default(unknown):
    assert ContextBudget.of(unknown, unknown) == ContextBudget.of(128_000, 8_192)


def test_B2_a_negative_number_counts_as_one():
    assert ContextBudget.of(-5, -5) == ContextBudget.of(1, 1)


@pytest.mark.parametrize(("given_", "rounded"), [(1000.5, 1001), (1001.5, 1002), (1000.4, 1000), (0.2, 1)])
def test_numbers_are_rounded_half_up_and_not_to_even(given_, rounded):
    assert ContextBudget.of(given_).window == rounded
    assert ContextBudget.of(1_000_000, given_).output == rounded


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("max_tokens", [None, 1, 1_024, 32_000, 200_000])
def test_B3_properties_over_windows(window, max_tokens):
    budget = ContextBudget.of(window, max_tokens)
    half = budget.hard_limit // 2
    assert budget.hard_limit > 0
    assert 0 <= budget.headroom < window
    assert 0 < budget.keep_recent <= min(64_000, max(1, half))
    assert half < 8_000 or budget.keep_recent >= 8_000


def _formula(window: int, max_tokens: int) -> tuple[int, int, int, int]:
    """Specification 1.2 in floating point, as it is written there."""
    output = min(max_tokens, max(1, math.floor(window * 0.25)))
    floor = min(16_384, max(1, math.floor(window * 0.5)))
    headroom = min(window - 1, max(floor, output, math.ceil(window * 0.05)))
    limit = max(1, window - headroom)
    keep = min(max(8_000, min(64_000, math.floor(limit * 0.2))), max(1, math.floor(limit * 0.5)))
    return output, headroom, limit, keep


@repeatable(150)
@given(st.integers(1, 2_000_000), st.integers(1, 300_000))
def test_B3_any_window_agrees_with_the_formula_as_written(window, max_tokens):
    budget = ContextBudget.of(window, max_tokens)
    assert (budget.output, budget.headroom, budget.hard_limit, budget.keep_recent) == _formula(
        window, max_tokens
    )


@repeatable(150)
@given(st.integers(1, 2_000_000), st.integers(1, 300_000))
def test_B3_helpers_stay_within_the_window(window, max_tokens):
    budget = ContextBudget.of(window, max_tokens)
    assert 1 <= budget.fallback_tail <= budget.retained_user <= max(1, budget.hard_limit // 2)
    assert budget.summary_output <= min(budget.headroom, budget.max_tokens)
    assert 1 <= budget.summary_input <= max(1, window - budget.summary_output)
    assert 8_000 <= budget.reminder <= 32_000


def test_B4_thresholds_depend_on_two_numbers_only():
    assert list(inspect.signature(ContextBudget.of).parameters) == ["window", "max_tokens"]


@pytest.mark.parametrize(("limit", "kept"), [(1, 1), (2_000, 1_000), (16_000, 8_000)])
def test_the_cap_of_a_retained_message_is_half_of_the_limit(limit, kept):
    budget = ContextBudget(limit * 2, 1, limit, limit, 1, 1)
    assert budget.retained_user == kept


def test_a_size_equal_to_the_limit_is_too_large():
    budget = ContextBudget.of(4_096, 1_024)
    assert budget.fits(2_047)
    assert not budget.fits(2_048)


def _built_by_hand(path: Path) -> bool:
    calls = (node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call))
    return any(isinstance(call.func, ast.Name) and call.func.id == "ContextBudget" for call in calls)


def test_B7_nobody_works_out_a_budget_of_their_own():
    sources = Path(sidequest.__file__).parent.rglob("*.py")
    assert [path.name for path in sources if _built_by_hand(path)] == []


class _Model:
    context_window = 200_000


def test_D19_the_cap_of_a_definition_changes_the_limit():
    assert ContextBudget.for_model(_Model(), max_tokens=32_000).hard_limit == 168_000
    assert ContextBudget.for_model(_Model(), max_tokens=32_000, cap=4_000).hard_limit == 183_616


def test_a_cap_above_the_models_own_limit_changes_nothing():
    plain = ContextBudget.for_model(_Model(), max_tokens=32_000)
    assert ContextBudget.for_model(_Model(), max_tokens=32_000, cap=64_000) == plain


def test_the_window_a_user_set_beats_what_the_model_reports():
    assert ContextBudget.for_model(_Model(), window=32_000).window == 32_000
    assert ContextBudget.for_model(_Model()).window == 200_000
    assert ContextBudget.for_model() == ContextBudget.of()


@pytest.mark.parametrize(
    ("cap", "max_tokens", "expected"),
    [(64_000, 8_192, 8_192), (4_000, 8_192, 4_000), (None, 8_192, 8_192), (4_000, None, 4_000), (0, 0, None)],
)
def test_a_cap_may_be_stricter_and_never_looser(cap, max_tokens, expected):
    assert stricter_cap(cap, max_tokens) == expected


@pytest.mark.parametrize(("window", "room"), [(4_096, (2_560, 1_024)), (8_000, (2_752, 3_200))])
def test_below_8000_tokens_a_summary_still_has_room(window, room):
    assert ContextBudget.of(window).summary_room == room


@pytest.mark.parametrize("window", [1, 100, 2_048, 4_096, 7_999, 8_000, 128_000])
def test_a_summary_and_its_answer_are_within_the_window(window):
    request, answer = ContextBudget.of(window).summary_room
    assert request + answer <= max(2, window)
