"""Reminders and new_context: C10, C11 of the specification."""

from __future__ import annotations

import pytest

from sidequest.core.budget import ContextBudget
from sidequest.runtime.reminders import WindowState

BUDGET = ContextBudget.of(128_000, 8_192)


def test_C10_each_reminder_is_given_once_in_a_window_and_again_in_the_next() -> None:
    state = WindowState(remind=True)
    first = state.reminder(BUDGET.hard_limit - 16_742, BUDGET)
    assert first is not None
    assert "16742 tokens" in first
    assert "new_context" in first
    assert state.reminder(BUDGET.hard_limit - 10_000, BUDGET) is None
    last = state.reminder(BUDGET.hard_limit - 2_000, BUDGET)
    assert last is not None
    assert "must survive" in last
    assert state.reminder(BUDGET.hard_limit - 100, BUDGET) is None
    state.renewed()
    assert state.reminder(BUDGET.hard_limit - 16_000, BUDGET) is not None


def test_C10_the_last_reminder_claims_the_first() -> None:
    state = WindowState(remind=True)
    assert state.reminder(BUDGET.hard_limit - 500, BUDGET) is not None
    assert state.reminder(BUDGET.hard_limit - 9_000, BUDGET) is None


@pytest.mark.parametrize("tokens", [0, 50_000, 111_616 - 16_743])
def test_C10_nothing_is_said_while_there_is_room(tokens: int) -> None:
    assert WindowState(remind=True).reminder(tokens, BUDGET) is None


def test_a_small_window_is_not_reminded_with_its_first_request() -> None:
    small = ContextBudget.of(16_000)
    assert WindowState(remind=True).reminder(3_000, small) is None
    assert WindowState(remind=True).reminder(5_500, small) is not None


def test_a_delegate_is_never_reminded() -> None:
    assert WindowState().reminder(BUDGET.hard_limit - 1, BUDGET) is None


def test_C11_a_request_for_a_new_context_is_tried_once() -> None:
    state = WindowState(compact_requested=True)
    assert [state.take_request(), state.take_request()] == [True, False]
