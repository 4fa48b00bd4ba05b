"""What is written is read back as the same definition (specification 4.9, 8.18; cases P1, P7, P8)."""

from __future__ import annotations

from dataclasses import replace

from sidequest.core.context_modes import ContextMode
from sidequest.subagents.definition import ModelPin, Permission, SubagentDefinition, Thinking
from sidequest.subagents.parse import parse_definition
from sidequest.subagents.write import render
from tests.subagents.builders import SAMPLES, sample


def test_P1_a_definition_becomes_frontmatter_and_a_body():
    definition = SubagentDefinition(
        name="tide-reader",
        shown_name="Tide Reader",
        description="Reads: tides\nand #3 storms",
        body="Read the table.",
        tools=("Read", "mcp__tides__*"),
        model=ModelPin("a/b", Thinking.HIGH),
        fallback_models=(ModelPin("c/d"),),
        thinking=Thinking.OFF,
        permission=Permission.ASK,
        max_tokens=4000,
        allowed_contexts=(ContextMode.FORK,),
    )
    assert render(definition) == (
        "---\n"
        "name: Tide Reader\n"
        'description: "Reads: tides\\nand #3 storms"\n'
        "tools:\n- Read\n- mcp__tides__*\n"
        "model: a/b|high\n"
        "fallbackModels:\n- c/d\n"
        "thinkingLevel: 'off'\n"
        "permission: ask\n"
        "maxTokens: 4000\n"
        "allowedContexts:\n- fork\n"
        "---\n\n"
        "Read the table.\n"
    )


def test_P7_P8_inherit_and_the_order_of_fallbacks_survive():
    definition = SubagentDefinition(
        name="x",
        description="d",
        body="b",
        tools=("mcp__a__b",),
        inherit_tools=True,
        fallback_models=(ModelPin("c/d"), ModelPin("a/b")),
    )
    again = parse_definition(render(definition), path="x.md").definition
    assert again is not None
    assert (again.inherit_tools, again.tools) == (True, ("mcp__a__b",))
    assert again.fallback_models == definition.fallback_models


def test_keys_of_other_programs_survive_a_save():
    original = (SAMPLES / "12-foreign-keys.md").read_bytes()
    before = sample("12").definition
    assert before is not None
    text = render(replace(before, description="New words", max_turns=None), original=original)
    again = parse_definition(text, path="12-foreign-keys.md").definition
    assert again is not None
    assert (again.description, again.max_turns) == ("New words", None)
    assert set(before.foreign) - set(again.foreign) == {"capabilities"}
    assert '        - type: command\n          command: "exit 1"\n' in text


def test_every_sample_that_loads_survives_a_save_of_its_own_text():
    for path in sorted(SAMPLES.glob("*.md")):
        before = parse_definition(path.read_bytes(), path=path.name).definition
        if before is None:
            continue
        text = render(before, original=path.read_bytes())
        again = parse_definition(text, path=path.name).definition
        assert again is not None, path
        assert replace(again, reader=before.reader, foreign=()) == replace(before, foreign=()), path
