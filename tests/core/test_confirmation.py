"""What a person confirms before a subagent starts: the table of tools, models, modes and rules."""

from __future__ import annotations

import pytest

from sidequest.core.confirmation import Beside, ModelCost, risky
from sidequest.core.permissions import DenyRules, Mode

READS, EDITS, RUNS = ("Read", "Grep"), ("Read", "Edit", "Write"), ("Read", "Bash")
ALL = ("Read", "Edit", "Write", "Bash")
SAME = ModelCost("a/same", Beside.NOT_MORE)
DEAR = ModelCost("a/dear", Beside.MORE, "$9 and $9, the session's $1 and $1")
DARK = ModelCost("a/dark", Beside.UNKNOWN, "its price is not known")

TABLE = [
    # tools, model, what is confirmed with ask, with accept-edits
    (READS, SAME, [], []),
    (EDITS, SAME, ["edits"], []),
    (RUNS, SAME, ["commands"], ["commands"]),
    (ALL, SAME, ["edits", "commands"], ["edits", "commands"]),
    (READS, DEAR, ["model:a/dear"], ["model:a/dear"]),
    (READS, DARK, ["model:a/dark"], ["model:a/dark"]),
    (EDITS, DEAR, ["edits", "model:a/dear"], ["edits", "model:a/dear"]),
]


@pytest.mark.parametrize(("tools", "model", "ask", "accept"), TABLE)
def test_what_is_confirmed(tools: tuple[str, ...], model: ModelCost, ask: list[str], accept: list[str]):
    found = [
        [item.key for item in risky(tools, [model, model], mode=mode, rules=DenyRules())]
        for mode in (Mode.ASK, Mode.ACCEPT_EDITS, Mode.AUTO)
    ]
    assert found == [ask, accept, []]


def test_what_a_deny_rule_takes_away_is_no_capability():
    rules = DenyRules(tools=("bash", "Edit", "Write"))
    assert risky(ALL, [SAME], mode=Mode.ASK, rules=rules) == ()


def test_one_editing_tool_that_is_left_is_enough():
    (found,) = risky(EDITS, [SAME], mode=Mode.ASK, rules=DenyRules(tools=("Edit",)))
    assert found.key == "edits"


def test_commands_that_somebody_answers_for_are_not_asked_about_and_edits_are():
    assert risky(RUNS, [SAME], mode=Mode.ASK, rules=DenyRules(), vouched=True) == ()
    (found,) = risky(ALL, [SAME], mode=Mode.ASK, rules=DenyRules(), vouched=True)
    assert found.key == "edits"


@pytest.mark.parametrize(
    ("contained", "said"),
    [(True, "run commands in a sandbox"), (False, "run commands that reach outside this folder too")],
)
def test_it_says_where_commands_reach(contained: bool, said: str):
    (found,) = risky(RUNS, [SAME], mode=Mode.ASK, rules=DenyRules(), contained=contained)
    assert found.text == said


def test_both_prices_are_said_and_an_unknown_one_is_not_guessed():
    dear, dark = risky(READS, [DEAR, DARK, SAME], mode=Mode.ASK, rules=DenyRules())
    assert dear.text == "run on a/dear, which costs more ($9 and $9, the session's $1 and $1)"
    assert dark.text == "run on a/dark, which may cost more (its price is not known)"
