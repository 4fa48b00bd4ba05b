"""Models, limits, thinking, contexts, names, summaries (specification 4.3, 4.5, 8.16, 8.19; rules 5 to 7)."""

from __future__ import annotations

import pytest

from sidequest.core.context_modes import ContextMode, resolve_context_mode
from sidequest.core.errors import SidequestError
from sidequest.subagents.definition import ModelPin, SubagentDefinition, Thinking, normalise_name
from sidequest.subagents.parse import parse_definition
from tests.subagents.builders import defined, messages, parsed


@pytest.mark.parametrize(
    ("written", "expected", "warns"),
    [
        (None, None, False),
        ("none", None, False),
        ("None", None, False),
        ("0", None, False),
        ("", None, False),
        ("1", 1, False),
        ('"4000"', 4000, False),
        ("4000.0", 4000, False),
        ("200000", 200_000, False),
        ("200001", 200_000, True),
        ("9" * 60, 200_000, True),
        ("-5", None, True),
        ("1.5", None, True),
        ("1e3", None, True),
        ("abc", None, True),
        ("[1, 2]", None, True),
    ],
)
def test_P11_max_tokens(written, expected, warns):
    result = parsed(*([] if written is None else [f"maxTokens: {written}"]))
    assert result.definition is not None
    assert result.definition.max_tokens == expected
    assert bool(messages(result)) is warns


@pytest.mark.parametrize(
    "key", ["maxTokens", "max_tokens", "max-tokens", "Max Tokens", "MAXTOKENS", "maxOutputTokens"]
)
def test_P11_every_spelling_of_max_tokens(key):
    assert defined(f"{key}: 4000").max_tokens == 4000


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("maxSeconds: 90", 90),
        ("max_duration_seconds: 90", 90),
        ("timeout_mins: 1.5", 90),
        ("maxSeconds: 0", None),
        ("maxSeconds: none", None),
        ("maxSeconds: soon", None),
    ],
)
def test_wall_time_is_in_seconds_and_other_programs_minutes_are_understood(written, expected):
    assert defined(written).max_seconds == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [("maxCostUsd: 0.50", 0.5), ("max_budget_usd: 2", 2), ("maxCost: -1", None), ("maxCost: 0", None)],
)
def test_money_is_in_us_dollars(written, expected):
    assert defined(written).max_cost_usd == expected


@pytest.mark.parametrize("key", ["maxTurns", "max_turns", "max-turns", "maxSteps", "steps"])
def test_max_turns_is_honoured_in_every_spelling(key):
    assert defined(f"{key}: 12").max_turns == 12


@pytest.mark.parametrize(("written", "warns"), [("0", False), ("none", False), ("many", True), ("-1", True)])
def test_max_turns_without_a_usable_number_is_no_limit(written, warns):
    result = parsed(f"maxTurns: {written}")
    assert result.definition is not None
    assert result.definition.max_turns is None
    assert bool(messages(result)) is warns


def pins(*keys: str) -> tuple[ModelPin, ...]:
    return tuple(ModelPin(key) for key in keys)


@pytest.mark.parametrize(
    ("lines", "model", "fallbacks"),
    [
        (["model: inherit"], None, ()),
        (["model: Inherit"], None, ()),
        (["model:"], None, ()),
        (["model: SONNET"], ModelPin("sonnet"), ()),
        (["model: claude-sonnet-4-5-20250929"], ModelPin("claude-sonnet-4-5-20250929"), ()),
        (["model: openrouter/anthropic/claude"], ModelPin("openrouter/anthropic/claude"), ()),
        (["provider: anthropic", "model: claude-x"], ModelPin("anthropic/claude-x"), ()),
        (["provider: anthropic", "model: anthropic/claude-x"], ModelPin("anthropic/claude-x"), ()),
        (["model: a/b|high"], ModelPin("a/b", Thinking.HIGH), ()),
        (["model: opus|omit"], ModelPin("opus", Thinking.OMIT), ()),
        (["model: [a/b, c/d]"], ModelPin("a/b"), pins("c/d")),
        (["model: GPT-5, GPT-4.1"], ModelPin("GPT-5"), pins("GPT-4.1")),
        (["model: [inherit, c/d]"], None, pins("c/d")),
        (["fallback_models: a/b, c/d, A/B"], None, pins("a/b", "c/d")),
        (["model: a/b", "fallback: [a/b, c/d|low]"], ModelPin("a/b"), (ModelPin("c/d", Thinking.LOW),)),
    ],
)
def test_models(lines, model, fallbacks):
    found = defined(*lines)
    assert (found.model, found.fallback_models) == (model, fallbacks)


@pytest.mark.parametrize(
    "line",
    ["model: openai/", "model: /gpt", "provider: openai", "fallbackModels: a/b|hgih", "model: {main: a/b}"],
)
def test_P2_a_malformed_pin_is_an_error_and_never_another_model(line):
    result = parsed(line)
    assert result.definition is None
    assert len(result.diagnostics) == 1


def test_a_pin_knows_its_provider():
    assert ModelPin("openrouter/anthropic/claude").provider == "openrouter"
    assert ModelPin("opus").provider is None
    assert str(ModelPin("a/b", Thinking.XHIGH)) == "a/b|xhigh"


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("thinkingLevel: off", Thinking.OFF),
        ("thinking: HIGH", Thinking.HIGH),
        ("effort: x-high", Thinking.XHIGH),
        ("model_reasoning_effort: none", Thinking.OFF),
        ("reasoning: omit", Thinking.OMIT),
        ("thinking: inherit", None),
        ("thinking: enormous", None),
        ("thinking: {type: enabled}", None),
    ],
)
def test_thinking(line, level):
    assert defined(line).thinking == level


@pytest.mark.parametrize(
    ("line", "mode"),
    [
        ("context: fork", ContextMode.FORK),
        ("context: fresh", ContextMode.INDEPENDENT),
        ("defaultContext: independent", ContextMode.INDEPENDENT),
        ("fork: true", ContextMode.FORK),
        ("inherit_context: no", ContextMode.INDEPENDENT),
        ("context: summary", None),
    ],
)
def test_contexts(line, mode):
    assert defined(line).context is mode


def test_a_restriction_nobody_understands_allows_the_narrowest_mode():
    assert defined("allowedContexts: [fork, fresh]").allowed_contexts == (
        ContextMode.FORK,
        ContextMode.INDEPENDENT,
    )
    assert defined("allowedContexts: frok").allowed_contexts == (ContextMode.INDEPENDENT,)
    assert defined("allowedContexts:").allowed_contexts == ()


def test_of_several_keys_that_restrict_the_modes_all_count():
    narrow = defined("allowedContexts: [independent, fork]", "allowed_context: independent")
    assert narrow.allowed_contexts == (ContextMode.INDEPENDENT,)
    nothing = defined("allowedContexts: fork", "allowed_context: independent")
    assert nothing.allowed_contexts == (ContextMode.INDEPENDENT,)


def test_X1_X2_a_definition_supplies_the_middle_layer_and_the_set():
    found = defined("context: fork", "allowedContexts: fork")
    layers = {"definition": found.context, "allowed": found.allowed_contexts, "agent": found.name}
    assert resolve_context_mode(**layers) is ContextMode.FORK
    with pytest.raises(SidequestError, match="worker does not run with context independent"):
        resolve_context_mode(spawn=ContextMode.INDEPENDENT, **layers)


@pytest.mark.parametrize(
    ("shown", "name"),
    [
        ("Code Reviewer", "code-reviewer"),
        ("code_reviewer.md", "code-reviewer"),
        ("agents/Code-Reviewer.md", "code-reviewer"),
        (".NET Expert!", "net-expert"),
        ("Prüfer  für Öl", "prufer-fur-ol"),
        ("审查", ""),
        ("--x--", "x"),
        ("a" * 39 + " b", "a" * 39),
    ],
)
def test_names_are_normalised(shown, name):
    assert normalise_name(shown) == name


@pytest.mark.parametrize(
    "path", ["Code Reviewer.agent.md", "a/b/code_reviewer.MD", "c:\\x\\code-reviewer.md"]
)
def test_a_file_without_a_name_is_named_after_itself(path):
    parsed_file = parse_definition("---\ndescription: d\n---\nbody", path=path)
    assert parsed_file.name == "code-reviewer"


def test_a_long_name_is_cut_and_a_useless_one_is_an_error():
    long = parse_definition(f"---\nname: {'ab ' * 30}\ndescription: d\n---\nbody", path="x.md")
    assert long.name == "-".join(["ab"] * 13) + "-a"
    assert "longer than 40" in long.diagnostics[0].message
    [error] = parse_definition("---\nname: 审查\ndescription: d\n---\nbody", path="审查.md").diagnostics
    assert "no usable name" in error.message


def test_a_number_of_turns_nobody_means_is_lowered():
    result = parsed("maxTurns: 99999999999")
    assert result.definition is not None
    assert result.definition.max_turns == 1_000_000
    assert messages(result)


def described(text: str) -> SubagentDefinition:
    return SubagentDefinition(name="x", description=text, body="b")


def test_a_summary_is_one_line_of_at_most_600_characters():
    summary = described("word " * 2_000).summary()
    assert len(summary) <= 600
    assert summary.endswith("word…")
    assert described("x" * 601).summary() == "x" * 599 + "…"
    assert described("y" * 600).summary() == "y" * 600


def test_a_summary_leaves_dialogues_and_line_breaks_out():
    assert described("Counts.\n\nExamples:\n<example>user: 'x'</example>").summary() == "Counts."
    assert described(r"One.\n\nTwo.").summary() == "One. Two."
    assert described("<example>only this</example>").summary() == "<example>only this</example>"
    assert "\n" not in described("a\u2028b\x1b[2Jc\nd").summary()
