"""A save changes what was changed, and nothing else of a file that a person wrote (specification 8.18)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sidequest.core.context_modes import ContextMode
from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.subagents.definition import ModelPin, Permission, Thinking
from sidequest.subagents.parse import parse_definition
from sidequest.subagents.rewrite import rewrite
from tests.subagents.builders import SAMPLES

BY_HAND = """\
---
# Kept by the harbour master.
description: Reads the tide table   # shown in the roster
name: tides
color: "#4ECDC4"

# Cheap is good enough.
model: haiku # not opus
tools:
  - Read
  # Grep finds the port.
  - Grep
  - Bash # for sed
maxTurns: 15  # a table has 12 months
hooks:
  PreToolUse:
    - command: "echo hi"   # never run here
# End.
---

Read the   table.

Answer in metres.
"""


def saved(text: str, path: str = "tides.md", **changes: Any) -> str:
    """The file after a save of the given changes."""
    before = parse_definition(text, path=path).definition
    assert before is not None
    return rewrite(text.encode(), replace(before, **changes), path=path).decode()


def changed_lines(before: str, after: str) -> tuple[list[str], list[str]]:
    """Lines that are gone, and lines that are new."""
    old, new = before.splitlines(), after.splitlines()
    return [line for line in old if line not in new], [line for line in new if line not in old]


def test_a_save_without_a_change_gives_the_same_bytes():
    assert saved(BY_HAND) == BY_HAND


def test_one_changed_key_changes_one_line_and_its_comment_stays():
    after = saved(BY_HAND, max_turns=20)
    assert changed_lines(BY_HAND, after) == (
        ["maxTurns: 15  # a table has 12 months"],
        ["maxTurns: 20  # a table has 12 months"],
    )


def test_items_that_stay_keep_their_lines_and_comments():
    after = saved(BY_HAND, tools=("Read", "Glob", "Bash"))
    assert changed_lines(BY_HAND, after) == (["  - Grep"], ["  - Glob"])


def test_a_comment_above_an_item_stays_with_it_and_outlives_it():
    kept = saved(BY_HAND, tools=("Grep", "Bash"))
    assert "tools:\n  # Grep finds the port.\n  - Grep\n  - Bash # for sed\n" in kept
    assert "  # Grep finds the port.\n" in saved(BY_HAND, tools=("Read",))


def test_a_new_key_stands_behind_the_ones_it_usually_follows():
    after = saved(BY_HAND, permission=Permission.ASK)
    lines = after.splitlines()
    assert lines[lines.index("permission: ask") - 1] == "  - Bash # for sed"


def test_a_key_that_is_cleared_goes_and_the_comment_above_it_stays():
    after = saved(BY_HAND, model=None)
    assert changed_lines(BY_HAND, after) == (["model: haiku # not opus"], [])
    assert "# Cheap is good enough." in after


def test_the_body_changes_alone():
    head, _, _ = BY_HAND.partition("Read the   table.")
    assert saved(BY_HAND, body="Read it.\n\nTwice.") == f"{head}Read it.\n\nTwice.\n"


def test_windows_line_ends_and_a_byte_order_mark_stay():
    text = "\ufeff" + BY_HAND.replace("\n", "\r\n")
    after = saved(text, description="Tides", body="New\nbody")
    assert after.startswith("\ufeff---\r\n")
    assert after.count("\n") == after.count("\r\n")
    assert parse_definition(after, path="tides.md").definition.body == "New\nbody"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("Read, Grep", "tools: Read, Glob"),
        ("[Read, 'Grep']", "tools: [Read, Glob]"),
        ("Read,Grep", "tools: Read,Glob"),
    ],
)
def test_a_list_keeps_its_style(written: str, kept: str):
    text = f"---\nname: x\ndescription: d\ntools: {written}\n---\n\nDo it.\n"
    assert kept in saved(text, "x.md", tools=("Read", "Glob")).splitlines()


def test_a_block_of_text_stays_one():
    text = "---\nname: x\ndescription: |\n    One.\n    Two.\n# about money\nmaxCost: 2\n---\n\nDo it.\n"
    after = saved(text, "x.md", description="One.\nThree.")
    assert after == text.replace("Two.", "Three.").replace("|", "|-")


def test_keys_that_are_read_together_are_written_together():
    text = "---\nname: x\ndescription: d\nmodel: a/b, c/d\n---\n\nDo it.\n"
    after = saved(text, "x.md", fallback_models=(ModelPin("e/f", Thinking.LOW),))
    assert "model: a/b\n" in after
    assert "fallbackModels:\n- e/f|low\n" in after


def test_what_a_map_of_rights_takes_away_survives_a_change_of_the_tools():
    text = (
        "---\nname: x\ndescription: d\ntools: Read, Bash, Edit\npermissions:\n  edit: deny\n---\n\nDo it.\n"
    )
    after = saved(text, "x.md", tools=("Read", "Bash", "Edit", "Glob"))
    again = parse_definition(after, path="x.md").definition
    assert again is not None
    assert set(again.disallowed_tools) >= {"Edit"}
    assert "  edit: deny\n" in after


def test_a_file_that_is_not_utf_8_is_refused():
    data = "---\nname: x\ndescription: Größe\n---\n\nDo it.\n".encode("latin-1")
    before = parse_definition(data, path="x.md").definition
    assert before is not None
    with pytest.raises(SidequestError, match="not UTF-8") as refused:
        rewrite(data, replace(before, max_turns=3), path="x.md")
    assert refused.value.code is ErrorCode.SUBAGENT_INVALID


def test_keys_on_one_line_are_refused():
    text = "---\n{name: x, description: d}\n---\n\nDo it.\n"
    with pytest.raises(SidequestError, match="stand on one line"):
        saved(text, "x.md", max_turns=3)


CHANGES: tuple[dict[str, Any], ...] = (
    {},
    {"description": "New: words #3\nand 'more'"},
    {"tools": ("Read", "Bash"), "inherit_tools": False},
    {"model": None, "fallback_models": ()},
    {"fallback_models": (ModelPin("x/y", Thinking.HIGH),)},
    {"permission": Permission.ASK, "max_tokens": 4000, "max_turns": None},
    {"context": ContextMode.FORK, "allowed_contexts": (ContextMode.FORK,)},
    {"body": "Other\n\nbody", "thinking": Thinking.OFF},
)


@pytest.mark.parametrize("changes", CHANGES, ids=lambda changes: "-".join(changes) or "nothing")
def test_every_sample_that_loads_takes_every_change(changes: dict[str, Any]):
    for path in sorted(SAMPLES.glob("*.md")):
        data = path.read_bytes()
        before = parse_definition(data, path=path.name).definition
        if before is None:
            continue
        after = rewrite(data, replace(before, **changes), path=path.name)
        again = parse_definition(after, path=path.name).definition
        assert again is not None, path
        assert replace(again, reader=before.reader) == replace(before, **changes, foreign=again.foreign), path
        assert set(before.foreign) <= {*again.foreign, "capabilities"}, path
        assert changes or after == data, path
