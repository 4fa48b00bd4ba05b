"""For every text: nothing raises, nothing is granted that is not named, and what is written reads back."""

from __future__ import annotations

import re
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from sidequest.core.context_modes import ContextMode
from sidequest.subagents.definition import (
    ASSIGNABLE_TOOLS,
    MUTATING_TOOLS,
    ModelPin,
    Permission,
    Scope,
    SubagentDefinition,
    Thinking,
    normalise_name,
)
from sidequest.subagents.parse import Parsed, Severity, parse_definition
from sidequest.subagents.tool_names import canonical_tool
from sidequest.subagents.write import render

# fmt: off
KEYS = ["name", "description", "tools", "Tools", "allowed-tools", "disallowedTools", "model", "permission",
        "permissionMode", "fallbackModels", "maxTokens", "max_turns", "context", "hooks", "user", "tool"]
WORDS = ["Read", "Bash", "Edit", "Task", "mcp__a__*", "inherit", "auto", "plan", "ask", "fork", "a/b",
         "a/b|high", "0", "-1", "1.5", "é", "\u2028"]
# fmt: on
SYNTAX = ["*", "'*'", '"', "'", "[", "]", "{", "}", ",", ": ", " #", "|", "- ", "\n", "\n  ", "\n\t", "\n- "]
TRAPS = ["bash: deny", "write: true", "---", "&a", "*a", "!!x", "%", "@", "\\n", '"\\ud800"']
SCRAPS = [*WORDS, *SYNTAX, *TRAPS]

values = st.lists(st.sampled_from(SCRAPS) | st.text(max_size=6), max_size=6).map("".join)
lines = st.tuples(st.sampled_from(KEYS) | st.text(max_size=8), values).map(
    lambda pair: f"{pair[0]}: {pair[1]}"
)
frontmatters = st.lists(lines, max_size=8).map("\n".join)
documents = st.tuples(frontmatters, st.text(max_size=20)).map(lambda pair: f"---\n{pair[0]}\n---\n{pair[1]}")
scopes = st.sampled_from(list(Scope))


def check(result: Parsed) -> None:
    errors = [found for found in result.diagnostics if found.severity is Severity.ERROR]
    assert (result.definition is None) == (len(errors) == 1)
    if errors:
        assert len(result.diagnostics) == 1


@given(st.binary(max_size=400))
def test_bytes_never_raise(data):
    check(parse_definition(data, path="x.md"))


@settings(max_examples=300, deadline=None)
@given(documents | st.text(max_size=200), scopes)
def test_documents_never_raise(text, scope):
    check(parse_definition(text, path="x.md", scope=scope))


@settings(max_examples=300, deadline=None)
@given(frontmatters, scopes)
def test_a_tool_that_changes_something_is_granted_only_where_the_text_names_it(front, scope):
    text = f"---\nname: x\ndescription: y\n{front}\n---\nbody"
    found = parse_definition(text, path="x.md", scope=scope).definition
    if found is None or "*" in front or "inherit" in front.lower():
        return
    assert not found.inherit_tools
    named = {canonical_tool(word) for word in re.findall(r"[\w/]+", front.replace("\\n", " "))}
    assert set(found.granted_tools(ASSIGNABLE_TOOLS)) & set(MUTATING_TOOLS) <= named
    if scope not in (Scope.USER, Scope.BUILTIN):
        assert found.permission in (Permission.INHERIT, Permission.ASK)


@settings(max_examples=200, deadline=None)
@given(frontmatters)
def test_adding_a_denial_never_adds_a_tool(front):
    head = f"---\nname: x\ndescription: y\n{front}\n"
    free = parse_definition(head + "---\nbody", path="x.md").definition
    bound = parse_definition(head + "disallowedTools: Bash\n---\nbody", path="x.md").definition
    if bound is not None:
        assert "Bash" not in bound.granted_tools(ASSIGNABLE_TOOLS)
        assert free is None or set(bound.granted_tools(ASSIGNABLE_TOOLS)) <= set(
            free.granted_tools(ASSIGNABLE_TOOLS)
        )


printable = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1, max_size=60
)
prose = printable.map(str.strip).filter(
    lambda text: text and text.lower() not in ("~", "null") and "\ufeff" not in text
)
names = st.from_regex(r"[a-z0-9][a-z0-9-]{0,39}", fullmatch=True).filter(
    lambda name: normalise_name(name) == name and name != "null"
)
tools = st.lists(st.sampled_from([*ASSIGNABLE_TOOLS, "mcp__a__b", "mcp__a__*", "docs/*"]), unique=True).map(
    tuple
)
levels = st.none() | st.sampled_from(list(Thinking))
pins = st.builds(ModelPin, st.from_regex(r"[a-z]{1,5}/[a-z0-9.:-]{1,8}[a-z]", fullmatch=True), levels)


@st.composite
def definitions(draw: st.DrawFn) -> SubagentDefinition:
    name = draw(names)
    model = draw(st.none() | pins)
    keys = {model.key} if model else set()
    fallbacks = draw(st.lists(pins, max_size=3, unique_by=lambda pin: pin.key))
    return SubagentDefinition(
        name=name,
        description="\n".join(draw(st.lists(prose, min_size=1, max_size=3))),
        body="\n\n".join(draw(st.lists(prose, min_size=1, max_size=3))),
        tools=draw(tools),
        inherit_tools=draw(st.booleans()),
        disallowed_tools=draw(st.sampled_from([(), ("Bash",), ("mcp__a__*", "Write")])),
        model=model,
        fallback_models=tuple(pin for pin in fallbacks if pin.key not in keys),
        thinking=draw(levels),
        permission=draw(st.sampled_from(list(Permission))),
        max_tokens=draw(st.none() | st.integers(1, 200_000)),
        max_turns=draw(st.none() | st.integers(1, 1_000_000)),
        context=draw(st.none() | st.sampled_from(list(ContextMode))),
        allowed_contexts=draw(st.sampled_from([(), (ContextMode.FORK,), tuple(ContextMode)])),
        scope=Scope.USER,
        path="x.md",
    )


@settings(max_examples=200, deadline=None)
@given(definitions())
def test_what_is_written_reads_back_as_the_same_definition(definition):
    result = parse_definition(render(definition), path="x.md", scope=Scope.USER)
    assert result.definition is not None, result.diagnostics
    assert replace(result.definition, foreign=()) == definition


@given(st.text())
def test_a_normalised_name_is_an_id_or_empty_and_stays_the_same(text):
    name = normalise_name(text)
    assert re.fullmatch(r"([a-z0-9][a-z0-9-]{0,39})?", name)
    assert normalise_name(name) == name


@given(st.text(), st.integers(1, 700))
def test_a_summary_is_one_line_within_its_limit(text, limit):
    summary = SubagentDefinition(name="x", description="." + text, body="b").summary(limit)
    assert len(summary) <= limit
    assert len(summary.splitlines()) <= 1
