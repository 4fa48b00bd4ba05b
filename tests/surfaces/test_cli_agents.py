"""`sidequest agents`: what became of each definition file, said so that its author can act on it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sidequest.subagents.switches import SwitchFile
from tests.surfaces.conftest import Cli, write_definition, write_settings

GOOD = "---\nname: {name}\ndescription: Counts boats.\ntools: Read, Grep\n---\n\nCount the boats.\n"
BROKEN = "no frontmatter at all\n"
USER = ".agents/subagents"


def user_file(home: Path, name: str, text: str = "") -> Path:
    return write_definition(home / USER, name, text or GOOD.format(name=name))


def test_the_builtins_are_listed_with_state_model_tools_and_description(cli: Cli):
    result = cli("agents", "list")
    lines = result.out.splitlines()
    assert (result.code, result.err) == (0, "")
    assert lines[0] == "builtin"
    assert lines[3] == "  explorer       active  offline/extractive  Read, Glob, Grep, Bash"
    assert lines[4].strip().startswith("Searches a codebase and answers")


def test_each_state_is_named_with_its_reason(cli: Cli, home: Path, tree: Path):
    user_file(home, "explorer")
    user_file(home, "fixer", BROKEN)
    write_definition(tree / ".claude/agents", "boats", GOOD.format(name="boats"))
    entries = json.loads(cli("agents", "list", "--json").out)["agents"]
    states = {(entry["scope"], entry["name"]): entry["state"] for entry in entries}
    assert states["user", "explorer"] == "active"
    assert states["builtin", "explorer"] == "shadowed"
    assert states["user", "fixer"] == "invalid"
    assert states["builtin", "fixer"] == "blocked"
    assert states["project", "boats"] == "untrusted"
    out = cli("agents", "list").out
    assert "shadowed by ~/.agents/subagents/explorer.md" in out
    assert "blocked by ~/.agents/subagents/fixer.md, which does not load" in out
    assert "not trusted: look at it, then run `sidequest trust`" in out
    assert "user  ~/.agents/subagents\n" in out
    assert "project  .claude/agents\n" in out


def test_a_folder_named_on_the_command_line_outranks_the_builtins(cli: Cli, tmp_path: Path):
    write_definition(tmp_path / "mine", "explorer", GOOD.format(name="explorer"))
    data = json.loads(cli("agents", "list", "--json", "--agents-dir", str(tmp_path / "mine")).out)
    first = data["agents"][0]
    assert (first["name"], first["scope"], first["state"]) == ("explorer", "named", "active")
    assert first["shadows"] == ["builtin/explorer.md"]


def test_a_pin_that_cannot_be_used_is_shown_instead_of_a_model(cli: Cli, home: Path):
    user_file(home, "poet", GOOD.format(name="poet\nmodel: sonnet"))
    assert "sonnet missing" in cli("agents", "list").out
    shown = cli("agents", "show", "poet").out
    assert "set ANTHROPIC_API_KEY to use it" in shown


def test_the_first_usable_fallback_is_the_model_that_runs(cli: Cli, home: Path):
    user_file(home, "poet", GOOD.format(name="poet\nmodel: sonnet\nfallbackModels: [offline/extractive]"))
    entry = json.loads(cli("agents", "show", "poet", "--json").out)
    assert entry["runsOn"] == "offline/extractive"
    assert "sonnet" in entry["modelNote"]


def test_a_default_model_that_is_unknown_does_not_hide_the_agents(cli: Cli, home: Path):
    write_settings(home, 'default_model = "nope"\n')
    result = cli("agents", "list")
    assert result.code == 0
    assert "default missing: The default_model of the settings cannot be used: No model" in result.out


def test_show_gives_everything_that_was_understood_and_the_prompt(cli: Cli, home: Path):
    stated = "maxTokens: 4000\nmaxTurns: 5\nmaxSeconds: 90\nmaxCostUsd: 0.5\ncontext: fork\ncolor: red"
    text = GOOD.format(name=f"Boat Counter\n{stated}")
    user_file(home, "boats", text)
    result = cli("agents", "show", "boat counter")
    assert result.code == 0
    assert result.out.splitlines() == [
        "boat-counter  ~/.agents/subagents/boats.md",
        "  Counts boats.",
        "",
        "  state       active",
        "  tools       Read, Grep",
        "  max tokens  4,000",
        "  max turns   5",
        "  max time    1m 30s",
        "  max cost    $0.5000",
        "  context     fork",
        "  runs on     offline/extractive",
        "  budget      16,000 of 32,000 tokens for a request",
        "  file        note: Kept and not used: color.",
        "",
        "Count the boats.",
    ]


def test_show_of_an_unknown_name_is_code_2_and_names_the_known(cli: Cli):
    result = cli("agents", "show", "explorr")
    assert (result.code, result.out) == (2, "")
    assert "try: Did you mean explorer?" in result.err


def test_show_of_a_file_that_does_not_load_says_why_and_is_code_1(cli: Cli, home: Path):
    user_file(home, "boats", BROKEN)
    result = cli("agents", "show", "boats")
    assert result.code == 1
    assert "  line 1      error: There is no frontmatter" in result.out


def test_check_passes_over_the_builtins_unless_named(cli: Cli):
    assert cli("agents", "check").out == "no definition files found; a builtin is checked by its name\n"
    assert "1 file checked, no errors" in cli("agents", "check", "explorer").out


def test_check_gives_line_numbers_and_code_1_when_a_file_has_an_error(cli: Cli, home: Path):
    user_file(home, "boats", GOOD.format(name="boats\nmaxTurns: many"))
    assert cli("agents", "check").code == 0
    user_file(home, "tides", BROKEN)
    result = cli("agents", "check")
    assert result.code == 1
    assert "  line 3      warning:" in result.out
    assert "2 files checked, 1 with errors" in result.out


def test_check_of_a_file_reads_it_wherever_it_is(cli: Cli, tmp_path: Path):
    file = write_definition(tmp_path / "drafts", "draft", GOOD.format(name="draft"))
    result = cli("agents", "check", str(file))
    assert result.code == 0
    assert f"{file}  draft" in result.out


def test_check_of_a_folder_reads_only_that_folder(cli: Cli, home: Path, tmp_path: Path):
    user_file(home, "boats")
    write_definition(tmp_path / "drafts", "draft", BROKEN)
    data = json.loads(cli("agents", "check", str(tmp_path / "drafts"), "--json").out)
    assert [file["name"] for file in data["files"]] == ["draft"]
    assert data["ok"] is False


def test_check_of_a_project_folder_keeps_it_untrusted(cli: Cli, tree: Path):
    write_definition(tree / ".claude/agents", "boats", GOOD.format(name="boats"))
    data = json.loads(cli("agents", "check", ".claude/agents", "--json").out)
    assert [(file["name"], file["state"]) for file in data["files"]] == [("boats", "untrusted")]


@pytest.mark.parametrize("subject", ["missing.md", "no/such", "nobody"])
def test_check_of_something_that_is_not_there_is_code_2(cli: Cli, subject: str):
    result = cli("agents", "check", subject)
    assert (result.code, result.out) == (2, "")
    assert result.err.count("\n") == 2


@pytest.mark.parametrize("option", ["--cwd", "--agents-dir"])
def test_a_folder_that_is_not_there_is_code_2(cli: Cli, option: str):
    result = cli("agents", "list", option, "/no/such/folder")
    assert (result.code, result.out) == (2, "")
    assert (
        result.err
        == f"error: The folder /no/such/folder is not there.\n  try: Give {option} an existing folder.\n"
    )


def test_a_folder_of_the_settings_that_is_not_there_is_a_remark(cli: Cli, home: Path):
    write_settings(home, 'agents_dirs = ["gone"]\n')
    result = cli("agents", "list")
    assert result.code == 0
    assert "gone: There is no such folder." in result.out


def test_a_loop_of_links_is_a_diagnostic(cli: Cli, tree: Path):
    folder = tree / ".claude/agents"
    folder.mkdir(parents=True)
    (folder / "boats.md").symlink_to("ships.md")
    (folder / "ships.md").symlink_to("boats.md")
    for arguments in ((), (".claude/agents/boats.md",), (".claude/agents",)):
        result = cli("agents", "check", *arguments)
        assert result.code in (1, 2)
        assert "Traceback" not in result.err
        assert "RuntimeError" not in result.err
    assert "link" in cli("agents", "check").out


def test_what_is_switched_off_is_off_in_the_terminal_too(cli: Cli, home: Path):
    SwitchFile.of({"XDG_DATA_HOME": str(home / ".local/share")}).switch("builtin:fixer", on=False)
    found = json.loads(cli("agents", "list", "--json").out)
    assert {row["name"]: row["state"] for row in found["agents"]}["fixer"] == "disabled"
