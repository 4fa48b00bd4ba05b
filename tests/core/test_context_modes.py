"""Which context mode a delegation runs in (specification 5.1; cases X1 and X2)."""

from __future__ import annotations

import itertools

import pytest

from sidequest.core.context_modes import ContextMode, parse_context_mode, resolve_context_mode
from sidequest.core.errors import ErrorCode, SidequestError

FORK, INDEPENDENT = ContextMode.FORK, ContextMode.INDEPENDENT


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("fork", FORK),
        (" Fork ", FORK),
        ("independent", INDEPENDENT),
        ("fresh", INDEPENDENT),
        ("FRESH", INDEPENDENT),
        ("summary", None),
        ("", None),
    ],
)
def test_a_mode_is_named_in_either_spelling(text, mode):
    assert parse_context_mode(text) == mode


@pytest.mark.parametrize(
    ("spawn", "definition", "session", "expected"),
    [
        (None, None, None, INDEPENDENT),
        (None, None, FORK, FORK),
        (None, INDEPENDENT, FORK, INDEPENDENT),
        (None, FORK, INDEPENDENT, FORK),
        (INDEPENDENT, FORK, FORK, INDEPENDENT),
        (FORK, INDEPENDENT, INDEPENDENT, FORK),
    ],
)
def test_X1_the_nearest_of_three_layers_wins(spawn, definition, session, expected):
    assert resolve_context_mode(spawn=spawn, definition=definition, session=session) == expected


def test_X2_an_override_outside_the_allowed_set_is_an_error_that_names_it():
    with pytest.raises(SidequestError, match="reviewer does not run with context fork") as caught:
        resolve_context_mode(spawn=FORK, allowed=(INDEPENDENT,), agent="reviewer")
    assert caught.value.code == ErrorCode.SUBAGENT_INVALID
    assert caught.value.remedy == "Use one of: independent, or leave context out."


def test_X2_a_default_outside_the_allowed_set_falls_to_the_next_layer():
    assert resolve_context_mode(definition=FORK, session=INDEPENDENT, allowed=(INDEPENDENT,)) == INDEPENDENT
    assert resolve_context_mode(definition=INDEPENDENT, session=FORK, allowed=(FORK,)) == FORK


def test_X2_at_last_it_is_the_first_allowed_mode():
    assert resolve_context_mode(definition=INDEPENDENT, session=INDEPENDENT, allowed=(FORK,)) == FORK
    assert resolve_context_mode(allowed=[FORK]) == FORK


def test_an_override_inside_the_allowed_set_wins():
    assert resolve_context_mode(spawn=FORK, definition=INDEPENDENT, allowed=(FORK, INDEPENDENT)) == FORK


def test_whatever_the_layers_say_the_mode_is_an_allowed_one():
    layers = [None, FORK, INDEPENDENT]
    for definition, session, allowed in itertools.product(layers, layers, [(FORK,), (INDEPENDENT,)]):
        assert resolve_context_mode(definition=definition, session=session, allowed=allowed) in allowed
