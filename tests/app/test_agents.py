"""The catalog behind pages and API: what is listed, what a save does, what it refuses (specification 4.9)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.subagents.sources import MAX_DOCUMENTS_PER_FOLDER
from sidequest.surfaces.app.agent_drafts import Draft
from sidequest.surfaces.app.agent_shapes import Agent
from sidequest.surfaces.app.agents import Agents, DraftRefused
from sidequest.surfaces.app.application import Application
from tests.surfaces.conftest import write_definition, write_settings

BY_HAND = """\
---
# The harbour master's.
name: tides
description: Reads the tide table.
color: cyan   # for another program
tools: Read, Grep
permission: ask
model: nowhere/none
fallbackModels: [offline/extractive]
---

Read the table.
"""


@pytest.fixture
def agents(tree: Path) -> Agents:
    """The catalog of the small project; no session is needed for it."""
    nothing: Any = None
    return Agents(Application(tree, dict(os.environ), nothing, nothing))


@pytest.fixture
def mine(home: Path) -> Path:
    return home / ".agents/subagents"


def draft(**fields: Any) -> Draft:
    """A draft that can be saved, with some fields of its own."""
    return Draft(**{"name": "Tide Reader", "description": "Reads tides.", "body": "Read them.", **fields})


def refused(agents: Agents, **fields: Any) -> dict[str, str]:
    """Why a new subagent is not saved: messages by field, in the order of the form."""
    with pytest.raises(DraftRefused) as error:
        agents.create(draft(**fields))
    assert error.value.code is ErrorCode.SUBAGENT_INVALID
    return {problem.field: problem.message for problem in error.value.problems}


def listed(agents: Agents, kind: str) -> list[Agent]:
    return [agent for group in agents.every().groups if group.kind == kind for agent in group.agents]


def test_definitions_are_listed_in_groups_with_state_place_and_model(agents: Agents, mine: Path, tree: Path):
    write_definition(mine, "explorer", BY_HAND.replace("tides", "explorer"))
    write_definition(tree / ".agents/subagents", "pilot", BY_HAND.replace("tides", "pilot"))
    write_definition(tree / ".claude/agents", "diver", BY_HAND.replace("tides", "diver"))
    found = agents.every()
    assert [(group.kind, group.folder, group.trusted) for group in found.groups] == [
        ("builtin", None, True),
        ("mine", "~/.agents/subagents", True),
        ("project", ".agents/subagents", False),
        ("foreign", ".claude/agents", False),
    ]
    [own] = found.groups[1].agents
    assert (own.state, own.place, own.shadows) == (
        "active",
        "~/.agents/subagents/explorer.md",
        ("builtin/explorer.md",),
    )
    assert (own.runs_on, "nowhere" in own.model_note) == ("offline/extractive", True)
    [shadowed] = [agent for agent in found.groups[0].agents if agent.name == "explorer"]
    assert (shadowed.state, shadowed.reason) == ("shadowed", "shadowed by ~/.agents/subagents/explorer.md")


def test_my_own_group_is_there_before_i_have_any(agents: Agents):
    assert [(group.kind, len(group.agents)) for group in agents.every().groups] == [
        ("builtin", 4),
        ("mine", 0),
    ]


def test_a_file_that_does_not_load_is_listed_with_the_line(agents: Agents, mine: Path):
    write_definition(mine, "broken", "---\nname: broken\ntools: Read\nmodel: /x\n---\n\nDo it.\n")
    [agent] = listed(agents, "mine")
    assert agent.state == "invalid"
    assert [(found.severity, found.line) for found in agent.diagnostics] == [("error", 4)]


def test_a_new_subagent_becomes_a_file_named_by_its_id(agents: Agents, mine: Path):
    made = agents.create(draft(tools=("Bash", "Read"), max_tokens="4000"))
    assert (mine / "tide-reader.md").read_text() == (
        "---\nname: Tide Reader\ndescription: Reads tides.\ntools:\n- Read\n- Bash\nmaxTokens: 4000\n---\n\n"
        "Read them.\n"
    )
    assert (made.name, made.max_tokens, made.state) == ("tide-reader", 4000, "active")
    assert [path.name for path in mine.iterdir()] == ["tide-reader.md"]


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        ({"name": " "}, "name", "Give it a name."),
        ({"name": "潮"}, "name", "needs a letter"),
        ({"description": ""}, "description", "Say when to use it"),
        ({"tools": ()}, "tools", "at least one tool"),
        ({"tools": ("Reed",)}, "tools", "at least one tool"),
        ({"tools": ("Read", "Task")}, "tools", "does not delegate"),
        ({"tools": ("Read", "BrowserPreview")}, "tools", "not available"),
        ({"model": "openai/"}, "model", "provider/model"),
        ({"model": "a/b, c/d"}, "model", "provider/model"),
        ({"fallback_models": ("a/b", "/c")}, "fallbackModels", "'/c'"),
        ({"fallback_models": ("a/b|loud",)}, "fallbackModels", "'a/b|loud'"),
        ({"thinking_level": "loud"}, "thinkingLevel", "minimal"),
        ({"context": "spoon"}, "context", "independent or fork"),
        ({"context": "fork", "allowed_contexts": ("independent",)}, "context", "Allow the mode fork"),
        ({"permission": "all"}, "permission", "accept-edits"),
        ({"max_tokens": 200_001}, "maxTokens", "1 to 200,000"),
        ({"max_tokens": -1}, "maxTokens", "1 to 200,000"),
        ({"max_tokens": "12.5"}, "maxTokens", "1 to 200,000"),
        ({"max_tokens": "many"}, "maxTokens", "1 to 200,000"),
        ({"max_tokens": "4.000"}, "maxTokens", "digits alone, for example 4000"),
        ({"max_tokens": "4,000"}, "maxTokens", "digits alone, for example 4000"),
        ({"max_cost_usd": "0,50"}, "maxCostUsd", "a point before decimals, for example 0.50"),
        ({"max_turns": "0.5"}, "maxTurns", "whole number"),
        ({"max_seconds": -3}, "maxSeconds", "above 0"),
        ({"body": "  "}, "body", "Write the prompt"),
        ({"body": "x" * 33_000}, "body", "at most 32,768"),
    ],
)
def test_each_field_is_refused_with_a_message_of_its_own(
    agents: Agents, mine: Path, fields: dict[str, Any], field: str, said: str
):
    problems = refused(agents, **fields)
    assert list(problems) == [field]
    assert said in problems[field]
    assert not mine.exists()


def test_several_problems_come_in_the_order_of_the_form(agents: Agents):
    problems = refused(agents, body="", max_tokens=0.5, model="/", tools=(), description="", name="")
    assert list(problems) == ["name", "description", "tools", "model", "maxTokens", "body"]


@pytest.mark.parametrize("number", [None, "", 0, "0"])
def test_no_output_cap_follows_the_model(agents: Agents, number: Any):
    assert agents.create(draft(max_tokens=number)).max_tokens is None


def test_a_name_in_use_is_refused_and_one_of_a_builtin_is_not(agents: Agents):
    agents.create(draft())
    assert "already" in refused(agents, name="tide_reader")["name"]
    assert agents.create(draft(name="Explorer")).shadows == ("builtin/explorer.md",)


def test_the_65th_file_is_refused(agents: Agents, mine: Path):
    for number in range(MAX_DOCUMENTS_PER_FOLDER):
        write_definition(mine, f"a{number}", BY_HAND.replace("tides", f"a{number}"))
    assert "at most 64" in refused(agents)["name"]


def test_inheriting_needs_no_tools(agents: Agents):
    made = agents.create(draft(tools=(), inherit_tools=True))
    assert (made.inherit_tools, made.tools) == (True, ())


def test_a_save_keeps_comments_keys_of_others_and_what_was_left_out(agents: Agents, mine: Path):
    file = write_definition(mine, "tides", BY_HAND)
    read = agents.read("tides")
    agents.update("tides", Draft(description="Reads tides."), mark=read.mark)
    assert file.read_text() == BY_HAND.replace("Reads the tide table.", "Reads tides.")


def test_of_fallbacks_that_name_one_model_the_first_counts(agents: Agents, mine: Path):
    write_definition(mine, "tides", BY_HAND)
    said = agents.update("tides", Draft(fallback_models=("a/b|high", "c/d", "a/b")))
    assert said.fallback_models == ("a/b|high", "c/d")


def test_fallbacks_left_out_stay_and_an_empty_list_clears_them(agents: Agents, mine: Path):
    file = write_definition(mine, "tides", BY_HAND)
    assert agents.update("tides", Draft(fallback_models=None)).fallback_models == ("offline/extractive",)
    assert file.read_text() == BY_HAND
    assert agents.update("tides", Draft(fallback_models=())).fallback_models == ()
    assert agents.read("tides").permission == "ask"


def test_a_file_that_changed_since_it_was_read_is_not_written_over(agents: Agents, mine: Path):
    file = write_definition(mine, "tides", BY_HAND)
    mark = agents.read("tides").mark
    file.write_text(BY_HAND + "\nMore.\n")
    for change in (
        lambda: agents.update("tides", Draft(description="x"), mark=mark),
        lambda: agents.remove("tides", mark=mark),
    ):
        with pytest.raises(SidequestError, match="changed since") as error:
            change()
        assert error.value.code is ErrorCode.STORE_CONFLICT
    assert file.read_text() == BY_HAND + "\nMore.\n"


def test_a_new_name_renames_the_file_and_keeps_its_switch(agents: Agents, mine: Path):
    write_definition(mine, "tides", BY_HAND)
    agents.switch("tides", on=False)
    renamed = agents.update("tides", Draft(name="Ebb"))
    assert [path.name for path in mine.iterdir()] == ["ebb.md"]
    assert (renamed.name, renamed.enabled) == ("ebb", False)


def test_a_link_to_the_file_stays_a_link(agents: Agents, mine: Path, home: Path):
    real = write_definition(home / "dotfiles", "tides", BY_HAND)
    mine.mkdir(parents=True)
    (mine / "tides.md").symlink_to(real)
    agents.update("tides", Draft(max_turns=3))
    assert (mine / "tides.md").is_symlink()
    assert "maxTurns: 3" in real.read_text()


def test_a_builtin_is_switched_and_not_changed(agents: Agents):
    assert agents.switch("fixer", on=False).state == "disabled"
    assert agents.switch("fixer", on=True).state == "active"
    with pytest.raises(SidequestError, match="only your own"):
        agents.update("fixer", Draft(description="x"))


def test_a_removed_file_is_gone_and_its_switch_with_it(agents: Agents, mine: Path):
    write_definition(mine, "tides", BY_HAND)
    agents.switch("tides", on=False)
    agents.remove("tides")
    assert list(mine.iterdir()) == []
    assert agents.create(draft(name="tides")).enabled


def test_trust_is_given_to_what_was_shown(agents: Agents, tree: Path):
    write_definition(tree / ".agents/subagents", "pilot", BY_HAND.replace("tides", "pilot"))
    seen = agents.trust()
    assert (seen.trusted, seen.files) == (False, (".agents/subagents/pilot.md",))
    write_definition(tree / ".agents/subagents", "late", BY_HAND.replace("tides", "late"))
    with pytest.raises(SidequestError, match="changed since"):
        agents.set_trust(trusted=True, mark=seen.mark)
    assert agents.set_trust(trusted=True, mark=agents.trust().mark).trusted
    assert [agent.state for agent in listed(agents, "project")] == ["active", "active"]
    assert not agents.set_trust(trusted=False).trusted


def test_a_preview_shows_the_file_and_the_budget_of_the_model_that_would_run(agents: Agents, home: Path):
    write_settings(home, '[models."harbour/big"]\nbase_url = "http://x/v1"\ncontext_window = 200000\n')
    shown = agents.preview(draft(model="harbour/big", max_tokens=64_000))
    assert shown.text.startswith("---\nname: Tide Reader\n")
    assert (shown.place, shown.problems) == ("~/.agents/subagents/tide-reader.md", ())
    assert shown.budget is not None
    assert (shown.budget.hard_limit, shown.budget.headroom) == (150_000, 50_000)


def test_a_preview_of_an_incomplete_draft_says_what_is_missing(agents: Agents):
    shown = agents.preview(Draft(max_tokens="x"))
    assert [problem.field for problem in shown.problems] == ["name", "description", "maxTokens", "body"]
    assert shown.text == "---\nname: …\ndescription: …\ntools:\n- Read\n- Glob\n- Grep\n---\n\n…\n"


def test_a_preview_of_a_change_is_the_file_that_would_be_saved(agents: Agents, mine: Path):
    file = write_definition(mine, "tides", BY_HAND)
    shown = agents.preview(Draft(max_turns=9), name="tides")
    agents.update("tides", Draft(max_turns=9))
    assert shown.text == file.read_text()
