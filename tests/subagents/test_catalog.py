"""Who wins a name, who does not and why (specification 4.1; cases P3 to P6 and P10; rules 5 and 8)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.subagents.catalog import (
    MAX_SUBAGENT_DEFINITIONS,
    Catalog,
    Entry,
    EntryState,
    Scope,
    Source,
    standard_sources,
)
from sidequest.subagents.definition import SubagentDefinition
from tests.subagents.builders import SAMPLES

BUILTINS = ("code-reviewer", "explorer", "fixer", "test-runner")


def put(folder: Path, file: str, name: str = "", text: str | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / file
    declared = f"name: {name}\n" if name else ""
    path.write_text(
        text if text is not None else f"---\n{declared}description: From {folder.name}\n---\nGo.\n"
    )
    return path


def source(folder: Path, scope: Scope, trusted: bool = True) -> Source:
    return Source(folder, scope, trusted)


def entry_of(catalog: Catalog, path: Path) -> Entry:
    [found] = [entry for entry in catalog.entries if entry.path == str(path)]
    return found


def test_the_builtins_are_there_without_any_folder():
    assert tuple(found.name for found in Catalog.load().active) == BUILTINS
    assert Catalog.load(builtins=False).active == ()
    assert Catalog.load().diagnostics == ()


def test_P5_a_user_copy_outranks_the_builtin(tmp_path):
    mine = put(tmp_path, "fixer.md")
    catalog = Catalog.load([source(tmp_path, Scope.USER)])
    assert catalog.require("fixer").path == str(mine)
    [builtin] = [entry for entry in catalog.entries if entry.key == "builtin:fixer"]
    assert (builtin.state, builtin.by) == (EntryState.SHADOWED, str(mine))


def test_named_outranks_user_outranks_project_outranks_foreign_outranks_builtin(tmp_path):
    scopes = [Scope.FOREIGN, Scope.PROJECT, Scope.USER, Scope.NAMED]
    sources = []
    for scope in scopes:
        path = put(tmp_path / scope.value, "fixer.md")
        sources.append(source(tmp_path / scope.value, scope))
        assert Catalog.load(sources).require("fixer").path == str(path)


def test_within_a_scope_the_first_source_and_then_the_first_file_wins(tmp_path):
    first = put(tmp_path / "b", "z.md", name="twin")
    put(tmp_path / "b", "zz.md", name="Twin")
    put(tmp_path / "a", "a.md", name="twin")
    catalog = Catalog.load([source(tmp_path / name, Scope.PROJECT) for name in ("b", "a")])
    assert catalog.require("twin").path == str(first)
    assert [entry.state for entry in catalog.entries[:3]] == [EntryState.ACTIVE] + [EntryState.SHADOWED] * 2


def test_P6_a_malformed_file_is_one_diagnostic_and_hides_no_neighbour(tmp_path):
    bad = put(tmp_path, "bad.md", text="---\nname: bad\n")
    put(tmp_path, "good.md")
    catalog = Catalog.load([source(tmp_path, Scope.USER)])
    assert {found.name for found in catalog.active} == {"good", *BUILTINS}
    [diagnostic] = catalog.diagnostics
    assert diagnostic.path == str(bad)


def test_a_bad_file_of_higher_precedence_blocks_its_name(tmp_path):
    bad = put(tmp_path / "user", "mine.md", text="---\nname: fixer\ndescription: d\n")
    below = put(tmp_path / "project", "fixer.md")
    catalog = Catalog.load(
        [source(tmp_path / "user", Scope.USER), source(tmp_path / "project", Scope.PROJECT)]
    )
    assert catalog.get("fixer") is None
    assert (entry_of(catalog, below).state, entry_of(catalog, below).by) == (EntryState.BLOCKED, str(bad))
    with pytest.raises(SidequestError, match="fixer does not load: The frontmatter"):
        catalog.require("fixer")


def test_an_untrusted_folder_is_listed_and_neither_shadows_nor_blocks(tmp_path):
    good = put(tmp_path, "fixer.md")
    bad = put(tmp_path, "explorer.md", text="no frontmatter")
    catalog = Catalog.load([source(tmp_path, Scope.PROJECT, trusted=False)])
    assert tuple(found.name for found in catalog.active) == BUILTINS
    assert catalog.require("fixer").scope is Scope.BUILTIN
    for path in (good, bad):
        assert entry_of(catalog, path).state is EntryState.UNTRUSTED
    assert entry_of(catalog, good).definition is not None
    assert any("off until you trust" in found.message for found in catalog.remarks)


def test_P3_a_disabled_user_copy_does_not_shadow_the_builtin(tmp_path):
    path = put(tmp_path, "fixer.md")
    catalog = Catalog.load([source(tmp_path, Scope.USER)], disabled={"user:fixer"})
    assert catalog.require("fixer").scope is Scope.BUILTIN
    assert entry_of(catalog, path).state is EntryState.DISABLED


def test_P10_a_builtin_is_switched_off_without_a_file():
    catalog = Catalog.load(disabled=["builtin:explorer"])
    assert "explorer" not in {found.name for found in catalog.active}
    assert "explorer" in {entry.name for entry in catalog.entries}
    with pytest.raises(SidequestError, match=r"explorer .* is disabled"):
        catalog.require("explorer")


def test_at_most_16_are_active_and_one_diagnostic_names_the_rest(tmp_path):
    for number in range(15):
        put(tmp_path, f"w{number:02}.md")
    catalog = Catalog.load([source(tmp_path, Scope.USER)])
    assert len(catalog.active) == MAX_SUBAGENT_DEFINITIONS == 16
    [diagnostic] = catalog.diagnostics
    assert diagnostic.message.endswith("left out: explorer, fixer, test-runner.")
    assert [entry.state for entry in catalog.entries[-3:]] == [EntryState.OVER_CAP] * 3


def test_P4_64_files_of_a_folder_are_read(tmp_path):
    for number in range(66):
        put(tmp_path, f"w{number:02}.md")
    catalog = Catalog.load([source(tmp_path, Scope.USER)], builtins=False)
    unread = [entry for entry in catalog.entries if entry.definition is None]
    assert [entry.name for entry in unread] == ["w64", "w65"]
    assert {entry.state for entry in unread} == {EntryState.OVER_CAP}
    assert sum("66 files" in found.message for found in catalog.diagnostics) == 1


def test_only_markdown_files_that_are_not_hidden_are_read(tmp_path):
    for file in ("a.MD", "b.txt", ".c.md", "d.toml"):
        put(tmp_path, file)
    put(tmp_path / "below", "e.md")
    catalog = Catalog.load([source(tmp_path, Scope.USER)], builtins=False)
    assert [found.name for found in catalog.active] == ["a"]
    assert [found.message for found in catalog.diagnostics] == ["Folders below it are not read: below."]


def test_a_missing_folder_is_fine_unless_the_user_named_it(tmp_path):
    assert Catalog.load([source(tmp_path / "none", Scope.USER)]).diagnostics == ()
    [said] = Catalog.load([source(tmp_path / "none", Scope.NAMED)]).diagnostics
    assert "no such folder" in said.message


def test_what_cannot_be_read_is_a_diagnostic(tmp_path):
    file = put(tmp_path, "file.md")
    (tmp_path / "folder.md").mkdir()
    (tmp_path / "dangling.md").symlink_to(tmp_path / "nowhere.md")
    os.mkfifo(tmp_path / "pipe.md")
    catalog = Catalog.load([source(tmp_path, Scope.USER), source(file, Scope.USER)], builtins=False)
    assert [found.name for found in catalog.active] == ["file"]
    assert [entry.name for entry in catalog.entries if entry.state is EntryState.INVALID] == [
        "dangling", "folder", "pipe",
    ]  # fmt: skip
    assert any("cannot be read" in found.message for found in catalog.remarks)


def test_a_link_is_followed_inside_its_root_only(tmp_path):
    outside = put(tmp_path / "elsewhere", "secret.md")
    inside = put(tmp_path / "project/shared", "shared.md", name="shared")
    agents = tmp_path / "project/.claude/agents"
    agents.mkdir(parents=True)
    (agents / "in.md").symlink_to(inside)
    (agents / "out.md").symlink_to(outside)
    catalog = Catalog.load([Source(agents, Scope.PROJECT, root=tmp_path / "project")], builtins=False)
    assert [found.name for found in catalog.active] == ["shared"]
    assert "leads out" in entry_of(catalog, agents / "out.md").diagnostics[0].message


def test_a_project_folder_that_is_a_link_out_of_the_project_is_not_read(tmp_path):
    put(tmp_path / "elsewhere", "secret.md")
    (tmp_path / "project/.claude").mkdir(parents=True)
    (tmp_path / "project/.claude/agents").symlink_to(tmp_path / "elsewhere")
    catalog = Catalog.load(standard_sources(tmp_path / "home", tmp_path / "project"), builtins=False)
    assert catalog.entries == ()
    assert "out of the project" in catalog.diagnostics[0].message


def test_a_link_checked_out_as_text_is_followed_under_the_same_rule(tmp_path):
    agents = tmp_path / "project/agents"
    agents.mkdir(parents=True)
    text = (SAMPLES / "14-symlink-as-text.md").read_bytes()
    (agents / "warden.md").write_bytes(text)
    put(tmp_path / "project/shared/agents", "canal-warden.md")
    followed = Catalog.load([Source(agents, Scope.PROJECT, root=tmp_path / "project")], builtins=False)
    assert [found.name for found in followed.active] == ["warden"]
    kept_in = Catalog.load([Source(agents, Scope.PROJECT, root=agents)], builtins=False)
    assert "symlink checked out as text" in kept_in.diagnostics[0].message


def test_the_standard_sources_trust_the_user_and_not_the_project(tmp_path):
    found = standard_sources(tmp_path / "home", tmp_path / "repo", named=[tmp_path / "mine"])
    assert [(s.scope, s.trusted) for s in found[:2]] == [(Scope.NAMED, True), (Scope.USER, True)]
    assert found[1].folder == tmp_path / "home/.agents/subagents"
    assert [str(s.folder.relative_to(tmp_path / "repo")) for s in found[2:]] == [
        ".agents/subagents", ".agents/agents", ".claude/agents", ".opencode/agent", ".opencode/agents",
        ".pi/agents", ".github/agents", ".gemini/agents",
    ]  # fmt: skip
    assert not any(s.trusted for s in found[2:])
    assert [s.scope for s in standard_sources(tmp_path)] == [Scope.USER]


def test_trust_is_given_to_a_project_or_to_one_folder(tmp_path):
    whole = standard_sources(tmp_path / "home", tmp_path / "repo", trusted=[tmp_path / "repo"])
    assert all(s.trusted for s in whole)
    one = standard_sources(tmp_path / "home", tmp_path / "repo", trusted=[tmp_path / "repo/.claude/agents"])
    assert [s.folder.parent.name for s in one if s.scope is Scope.PROJECT and s.trusted] == [".claude"]


def test_the_home_folder_as_a_project_does_not_list_the_user_folder_twice(tmp_path):
    folders = [s.folder for s in standard_sources(tmp_path, tmp_path)]
    assert len(folders) == len(set(folders)) == 8


@pytest.mark.parametrize(
    "spelling", ["Code Reviewer", "code_reviewer", "CODE-REVIEWER.md", " code-reviewer "]
)
def test_lookups_are_normalised(spelling):
    assert Catalog.load().require(spelling).name == "code-reviewer"


def test_a_shown_name_without_ascii_letters_finds_its_subagent(tmp_path):
    put(tmp_path, "reviewer.md", name="代码审查")
    assert Catalog.load([source(tmp_path, Scope.USER)]).require("代码审查").name == "reviewer"


def test_an_unknown_name_lists_the_known_ones_and_the_nearest():
    with pytest.raises(SidequestError) as caught:
        Catalog.load().require("fixr")
    assert caught.value.code is ErrorCode.SUBAGENT_UNKNOWN
    assert "Did you mean fixer?" in caught.value.remedy
    assert "code-reviewer, explorer, fixer, test-runner" in caught.value.remedy
    with pytest.raises(SidequestError, match="No subagent is active"):
        Catalog().require("x")


def test_definitions_made_in_code_form_a_catalog():
    made = [SubagentDefinition(name=name, description="d", body="b") for name in ("fixer", "other")]
    catalog = Catalog.from_definitions(made, builtins=True)
    assert catalog.require("fixer") is made[0]
    assert len(catalog.active) == 5
    with pytest.raises(SidequestError) as caught:
        Catalog.from_definitions([made[0], made[0]])
    assert caught.value.code is ErrorCode.SUBAGENT_INVALID


def test_an_edit_is_seen_by_the_next_load(tmp_path):
    path = put(tmp_path, "a.md")
    before = Catalog.load([source(tmp_path, Scope.USER)])
    path.write_text(path.read_text().replace("From", "Now from"))
    after = Catalog.load([source(tmp_path, Scope.USER)])
    assert before.require("a").description != after.require("a").description
