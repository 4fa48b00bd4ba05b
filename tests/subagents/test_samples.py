"""Files as people write them: each row of the fixtures' README, and the shapes of sections 1 to 6."""

from __future__ import annotations

import pytest

from sidequest.core.context_modes import ContextMode
from sidequest.subagents.definition import (
    ASSIGNABLE_TOOLS,
    READ_ONLY_TOOLS,
    ModelPin,
    Permission,
    Reader,
    SubagentDefinition,
    Thinking,
)
from sidequest.subagents.parse import Severity
from tests.subagents.builders import SAMPLES, messages, sample


def loaded(name: str) -> SubagentDefinition:
    result = sample(name)
    assert result.definition is not None, result.diagnostics
    return result.definition


def test_the_samples_still_have_the_bytes_they_are_about():
    assert (SAMPLES / "05-crlf-mixed.md").read_bytes().count(b"\r\n") == 8
    assert (SAMPLES / "06-bom.md").read_bytes().startswith(b"\xef\xbb\xbf---")
    assert not (SAMPLES / "14-symlink-as-text.md").read_bytes().endswith(b"\n")
    assert b"\n" not in (SAMPLES / "32-cr-only.md").read_bytes()


def test_01_an_unquoted_colon_keeps_the_whole_description_and_says_strict_yaml_failed():
    found = loaded("01")
    assert found.description == (
        "Use when harbour tables change. This covers: spring tides, neap tides, and storm notes #3 of the log"
    )
    assert found.reader is Reader.LENIENT
    assert found.tools == ("Read", "Grep")
    [note] = messages(sample("01"), Severity.NOTE)
    assert "Not valid YAML" in note
    assert "line by line" in note


def test_03_escapes_are_decoded_once():
    found = loaded("03")
    assert found.description.startswith("Counts hive visits in field notes.\n\nExamples:\n\n- After")
    assert found.description.endswith(r"For a path like C:\hives\north")
    assert found.foreign == ("color",)
    assert found.reader is Reader.STRICT


def test_05_mixed_line_ends_load_and_the_odd_line_is_warned_about():
    found = loaded("05")
    assert (found.name, found.tools, found.max_turns) == ("lamp-keeper", ("Read",), 6)
    assert found.description.startswith("Checks the lamp log for gaps")
    assert found.body == "Find nights without an entry.\nAnswer with dates only."
    [odd] = [d for d in sample("05").diagnostics if d.severity is Severity.WARNING]
    assert (odd.line, "description" in odd.message) == (4, True)


def test_06_a_bom_is_not_part_of_the_name():
    found = loaded("06")
    assert (found.name, found.max_tokens, found.reader) == ("orchard-mapper", 4000, Reader.STRICT)


def test_07_the_first_model_is_the_pin_and_the_pattern_is_kept():
    found = loaded("07")
    assert found.tools == ("Read", "Grep", "mcp__berths__list_slots", "mcp__berths__*")
    assert found.disallowed_tools == ("Bash",)
    assert found.model == ModelPin("small-fast")
    assert found.fallback_models == (ModelPin("medium"), ModelPin("large"))
    assert found.foreign == ("skills",)
    assert any("the first is the model" in note for note in messages(sample("07"), Severity.NOTE))


def test_10_a_bare_star_is_every_assignable_tool_and_never_the_spawn_tool():
    found = loaded("10")
    assert found.tools == ASSIGNABLE_TOOLS
    assert found.granted_tools([*ASSIGNABLE_TOOLS, "Task", "task_wait"]) == ASSIGNABLE_TOOLS
    assert found.model == ModelPin("opus")


def test_12_foreign_keys_are_listed_once_and_never_run():
    found = loaded("12")
    assert (found.name, found.shown_name) == ("salt-pan-auditor", "Salt Pan Auditor 🧂")
    assert (found.max_turns, found.thinking, found.context) == (12, Thinking.HIGH, ContextMode.FORK)
    assert found.max_seconds == 5 * 60
    assert found.tools == ASSIGNABLE_TOOLS
    assert len(found.foreign) == len(set(found.foreign)) == 16
    [note] = messages(sample("12"), Severity.NOTE)
    assert note.endswith("Kept and never run: hooks, mcp-servers.")
    assert note.count("hooks") == 1


def test_12_without_a_description_the_first_line_of_the_prompt_stands_in():
    assert loaded("12").description.startswith("Audit one pan.")
    assert any("no description" in warning for warning in messages(sample("12")))


def test_14_a_path_is_not_a_prompt():
    result = sample("14")
    assert result.definition is None
    [error] = result.diagnostics
    assert "symlink checked out as text" in error.message
    assert result.name == "14-symlink-as-text"


@pytest.mark.parametrize(
    ("name", "cause", "claimed"),
    [
        ("20", "never closed", "dike-walker"),
        ("21", "no description", "21-empty-frontmatter"),
        ("22", "no frontmatter", "22-no-frontmatter"),
    ],
)
def test_what_does_not_load_gives_one_error_and_still_claims_its_name(name, cause, claimed):
    result = sample(name)
    assert result.definition is None
    [error] = result.diagnostics
    assert error.severity is Severity.ERROR
    assert cause in error.message
    assert result.name == claimed


def test_23_tabs_are_read_and_a_denial_behind_one_counts():
    found = loaded("23")
    assert (found.name, found.tools, found.disallowed_tools) == ("kiln-watcher", ("Read", "Grep"), ("Bash",))


def test_24_dialogue_without_indentation_belongs_to_the_description():
    found = loaded("24")
    assert "Context: The user changed the wheel." in found.description
    assert found.description.endswith("here.\n</commentary>\n</example>")
    assert len(messages(sample("24"))) == 1
    assert found.tools == ("Read", "Grep")
    assert (found.model, found.context, found.foreign) == (ModelPin("opus"), None, ("color",))
    assert found.summary() == "Use this agent after each change to the mill."


def test_25_a_hash_in_plain_text_is_kept_and_comments_stay_out_of_values():
    found = loaded("25")
    assert found.description == "Checks rope #7 and the bollards"
    assert (found.name, found.tools) == ("rope-checker", ("Read", "Grep"))
    assert found.reader is Reader.STRICT


def test_26_maps_of_opencode_only_take_away_what_they_switch_off():
    found = loaded("26")
    assert found.description == "Reviews sluice plans before the meeting"
    assert found.granted_tools([*ASSIGNABLE_TOOLS, "task", "webfetch"]) == (*READ_ONLY_TOOLS, "Bash")
    assert found.permission is Permission.ASK
    assert found.model == ModelPin("opencode/grok-code")


def test_27_deny_everything_denies_what_was_allowed_before_it():
    assert loaded("27").granted_tools(ASSIGNABLE_TOOLS) == ("Read",)


def test_28_a_copilot_file_loads_under_its_stem_with_a_sentence_of_models():
    found = loaded("28")
    assert found.name == "28-copilot"
    assert found.tools == ("Read", "Grep", "Edit", "Bash", "web/fetch", "tides/*", "microsoft.docs.mcp")
    assert found.model == ModelPin("GPT-4.1")
    assert found.fallback_models == (ModelPin("gpt-5"), ModelPin("Claude Sonnet 4.5 (copilot)"))
    assert found.granted_tools(["mcp__tides__flags", "mcp__other__flags"]) == ("mcp__tides__flags",)


def test_29_a_gemini_file_speaks_of_our_tools_in_other_words():
    found = loaded("29")
    assert found.description == "Audits ballast logs for missing days."
    assert found.tools == ("Read", "Grep", "Bash", "Edit", "google_web_search")
    assert found.max_turns == 15


def test_30_words_of_yaml_stay_words_and_read_only_is_kept_to():
    found = loaded("30")
    assert (found.thinking, found.context) == (Thinking.OFF, ContextMode.INDEPENDENT)
    assert found.granted_tools(ASSIGNABLE_TOOLS) == ("Read", "Glob")
    assert not found.can_mutate


def test_31_lists_over_several_lines_are_lists():
    assert loaded("31").tools == ("Read", "Grep", "mcp__locks__list")
    assert loaded("31").foreign == ("handoffs",)


def test_32_carriage_returns_alone_are_line_ends():
    assert (loaded("32").name, loaded("32").body) == ("shoal-mapper", "Map them.")


def test_33_broken_tools_leave_the_read_only_ones():
    found = loaded("33")
    assert found.tools == READ_ONLY_TOOLS
    assert found.model == ModelPin("haiku")
    assert any("`tools` could not be read" in warning for warning in messages(sample("33")))


def test_34_of_duplicates_the_narrowest_rights_and_the_first_text_count():
    found = loaded("34")
    assert found.description == "Keeps the weir"
    assert found.granted_tools(ASSIGNABLE_TOOLS) == ("Read",)
    assert found.max_turns == 3


def test_35_words_of_claude_code_are_understood_or_left_out_aloud():
    found = loaded("35")
    assert (found.name, found.shown_name) == ("35-claude-words", "代码审查")
    assert found.granted_tools([*ASSIGNABLE_TOOLS, "WebFetch"]) == ("Read", "Edit", "WebFetch")
    assert (found.thinking, found.max_turns) == (Thinking.MAX, 15)
    said = " ".join(messages(sample("35")))
    for word in ("Bash(git log:*) was left out", "Task was left out", "BrowserPreview", "Did you mean Read?"):
        assert word in said
