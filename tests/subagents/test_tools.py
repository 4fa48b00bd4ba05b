"""What a file grants: a problem takes rights away and never adds any (rule 2, specification 4.4)."""

from __future__ import annotations

import pytest

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.subagents.catalog import Catalog
from sidequest.subagents.definition import (
    ASSIGNABLE_TOOLS,
    DENIED_TO_DELEGATES,
    READ_ONLY_TOOLS,
    Permission,
    Scope,
    SubagentDefinition,
)
from tests.subagents.builders import defined, messages, parsed

OFFERED = (*ASSIGNABLE_TOOLS, "Task", "task_wait", "WebFetch", "mcp__docs__search", "mcp__docs__write")


@pytest.mark.parametrize(
    ("line", "tools"),
    [
        ("tools: Read, Write, Bash", ("Read", "Write", "Bash")),
        ("tools: read,grep,find,ls", ("Read", "Grep", "Glob")),
        ("tools: Read Bash", ("Read", "Bash")),
        ('tools: ["Read", "Grep"]', ("Read", "Grep")),
        ("tools: Grep", ("Grep",)),
        ("allowed-tools: Bash", ("Bash",)),
        ("allowedTools: [bash]", ("Bash",)),
        ('tools: "*"', ASSIGNABLE_TOOLS),
        ("tools: ['*']", ASSIGNABLE_TOOLS),
        ("tools: *", ASSIGNABLE_TOOLS),
        ("tools: [*]", ASSIGNABLE_TOOLS),
        ("tools: MultiEdit, LS, run_shell_command, replace", ("Edit", "Glob", "Bash")),
        ("tools: edit/editFiles, runCommands, codebase", ("Edit", "Bash", "Grep")),
        ("tools: mcp__docs__search", ("mcp__docs__search",)),
        ("tools: Read, Read, read_file", ("Read",)),
        ("tools: []", ()),
        ("tools: none", ()),
        ("tools:", READ_ONLY_TOOLS),
        ("capabilities: read", ("Read",)),
        ("capabilities: [salinity, bash]", READ_ONLY_TOOLS),
        ("capabilities: [search, create, terminal]", READ_ONLY_TOOLS),
        ("tools: Read(src/**), Grep", ("Read", "Grep")),
        ("tools: [Bash, [Write]]", ("Bash",)),
    ],
)
def test_every_way_to_write_tools(line, tools):
    assert defined(line).tools == tools


def test_no_tools_key_means_the_read_only_tools():
    assert defined().tools == READ_ONLY_TOOLS
    assert parsed().diagnostics == ()


@pytest.mark.parametrize(
    "line",
    [
        "tools: all-of-them",
        "tools: WebFetch, TodoWrite",
        "tools: [Read, Bash",
        "tools: {Bash",
        "tools: Task, Agent",
        "tools: Bash(git log:*)",
        "tools: BrowserPreview",
        "tools: {bash: perhaps}",
        'tools: "Bash',
        "tools: [[Bash]]",
    ],
)
def test_broken_or_unknown_tools_give_the_read_only_ones_and_a_warning(line):
    result = parsed(line)
    assert result.definition is not None
    assert result.definition.granted_tools(ASSIGNABLE_TOOLS) == READ_ONLY_TOOLS
    assert messages(result)


@pytest.mark.parametrize(
    ("line", "granted"),
    [
        ("tools: {write: false}", READ_ONLY_TOOLS),
        ("tools: {bash: true, read: false}", ("Glob", "Grep", "Bash")),
        ('tools: {"*": false, read: true}', ("Read",)),
        ('tools: {"*": true, bash: false}', ("Read", "Glob", "Grep", "Edit", "Write")),
        ("tools: {bash: true, task: true}", (*READ_ONLY_TOOLS, "Bash")),
        ("tools: {bash: ask, glob: deny}", ("Read", "Grep", "Bash")),
    ],
)
def test_a_map_of_switches(line, granted):
    assert defined(line).granted_tools(ASSIGNABLE_TOOLS) == granted


def test_a_switch_that_says_ask_makes_the_subagent_ask():
    assert defined("tools: {bash: ask}").permission is Permission.ASK


def test_inherit_grants_what_the_session_offers_minus_the_denied():
    found = defined("tools: inherit", "disallowedTools: mcp__docs__w*, write")
    assert found.granted_tools(OFFERED) == (
        "Read", "Glob", "Grep", "Bash", "Edit", "WebFetch", "mcp__docs__search",
    )  # fmt: skip
    assert found.can_mutate
    assert found.tools_label == "inherit"


def test_inherit_keeps_what_is_declared_beside_it():
    found = defined("tools: [inherit, mcp__docs__search]")
    assert (found.inherit_tools, found.tools) == (True, ("mcp__docs__search",))
    assert found.tools_label == "inherit + mcp__docs__search"


@pytest.mark.parametrize("name", sorted(DENIED_TO_DELEGATES))
def test_no_spelling_of_a_denied_tool_reaches_a_delegate(name):
    for line in ("tools: inherit", f"tools: Read, {name}", "tools: Read, *"):
        assert name not in defined(line).granted_tools(["Read", name])


def test_a_pattern_grants_server_tools_and_never_one_of_the_six():
    found = defined("tools: [Read, mcp__docs__*, B*]")
    assert found.granted_tools(OFFERED) == ("Read", "mcp__docs__search", "mcp__docs__write")


def test_names_of_servers_are_compared_exactly():
    found = defined("tools: mcp__ab__c")
    assert found.granted_tools(["mcp__a__bc", "mcp__AB__c", "mcp__ab__c"]) == ("mcp__ab__c",)


def test_both_spellings_of_an_offered_tool_are_found():
    assert defined("tools: Read, web_fetch").granted_tools(["read", "WebFetch"]) == ("read", "WebFetch")


def test_a_tool_of_the_session_that_shares_an_alias_is_not_granted():
    assert defined("tools: Grep").granted_tools(["search"]) == ()


@pytest.mark.parametrize("denial", ["Bash", "bash", "run_shell_command", "Bash(rm:*)", "'*'", "B*", "*"])
def test_a_denial_wins_in_any_spelling(denial):
    found = defined("tools: Read, Bash", f"disallowedTools: [{denial}]")
    assert "Bash" not in found.granted_tools(ASSIGNABLE_TOOLS)
    assert not found.can_mutate


@pytest.mark.parametrize(
    "key", ["disallowedTools", "disallowed_tools", "disallowed-tools", "excludeTools", "Disallowed Tools"]
)
def test_every_spelling_of_the_denial_key(key):
    assert defined(f"{key}: Glob").disallowed_tools == ("Glob",)


def test_a_denial_of_a_server_tool_reads_both_spellings():
    found = defined("tools: inherit", "disallowedTools: docs/*")
    assert found.granted_tools(["mcp__docs__search", "mcp__other__x"]) == ("mcp__other__x",)
    assert (
        defined("tools: inherit", "disallowedTools: {docs/search: true}").granted_tools(["mcp__docs__search"])
        == ()
    )


@pytest.mark.parametrize("line", ["disallowedTools: [Read", "disallowedTools: [[Glob]]"])
def test_a_broken_denial_takes_everything_that_changes_something(line):
    assert not defined("tools: *", line).can_mutate


def test_an_exclamation_mark_takes_a_tool_out_of_a_list():
    assert defined("tools: ['*', '!Bash']").granted_tools(["Read", "Bash"]) == ("Read",)


@pytest.mark.parametrize(
    ("line", "mode"),
    [
        ("permission: inherit", Permission.INHERIT),
        ("permission: ask", Permission.ASK),
        ("permission: accept-edits", Permission.ACCEPT_EDITS),
        ("permission: auto", Permission.AUTO),
        ("permissionMode: default", Permission.INHERIT),
        ("permissionMode: acceptEdits", Permission.ACCEPT_EDITS),
        ("permission_mode: bypassPermissions", Permission.AUTO),
        ("approvalMode: yolo", Permission.AUTO),
        ("permission: aks", Permission.ASK),
        ("permission: sideways", Permission.INHERIT),
        ("permission: [a, b]", Permission.INHERIT),
        ("sandbox_mode: workspace-write", Permission.INHERIT),
        ("permission: {bash: ask}", Permission.ASK),
        ("permission: {read: ask}", Permission.INHERIT),
        ("permission: {bash: allow}", Permission.INHERIT),
        ("permissions: {ask: [Bash]}", Permission.ASK),
    ],
)
def test_every_way_to_write_a_permission(line, mode):
    assert defined(line).permission is mode


@pytest.mark.parametrize("line", ["permission: {read: ask}", "permissions: {ask: [Read, Grep]}"])
def test_what_cannot_be_asked_for_is_said(line):
    assert any("cannot be asked for" in warning for warning in messages(parsed(line)))


@pytest.mark.parametrize("scope", [Scope.PROJECT, Scope.FOREIGN, Scope.NAMED])
def test_a_permission_that_widens_counts_for_builtins_and_the_user_only(scope):
    for word in ("auto", "accept-edits", "bypassPermissions"):
        assert defined(f"permission: {word}", scope=scope).permission is Permission.INHERIT
    assert defined("permission: ask", scope=scope).permission is Permission.ASK


@pytest.mark.parametrize(
    "line",
    [
        "permissionMode: plan",
        "sandbox_mode: read-only",
        "readonly: true",
        "permission: deny",
        "permission: [Bash, {",
        "permission: {bash: deny, edit: deny}",
        "permission: {bash: {'*': ask, 'rm *': deny}, edit: dney}",
        "permissions: {deny: [Bash, Edit, Write]}",
        "permission: {'*': deny, read: allow}",
        "permission: [{bash: deny}, 'edit: deny']",
        "permission: [ask, deny]",
    ],
)
def test_permissions_that_take_tools_away(line):
    found = defined("tools: *", line)
    assert not found.can_mutate
    assert not {"Bash", "Edit", "Write"} & set(found.granted_tools(ASSIGNABLE_TOOLS))


@pytest.mark.parametrize(
    "line",
    [
        "permission: {shell_exec: deny}",
        "permission: {deny: [shell_exec]}",
        "permission: {'shell*': deny}",
        "permission: {functions.exec: deny}",
        "permission: {external_directory: deny}",
        "permission: [{shell_exec: deny}]",
        "permission: {shell_exec: {'rm *': deny}}",
        "permission: {additionalDirectories: [/etc]}",
        "permission: {deny: [Bsah(rm)]}",
        "disallowedTools: [shell_exec]",
    ],
)
def test_a_denial_of_no_known_tool_takes_what_can_change_something_and_says_so(line):
    result = parsed("tools: *", line)
    assert result.definition is not None
    assert result.definition.granted_tools(ASSIGNABLE_TOOLS) == READ_ONLY_TOOLS
    assert any("is no tool known here" in message for message in messages(result))


@pytest.mark.parametrize(
    ("line", "taken"),
    [
        ("permission: {deny: [exec]}", {"Bash"}),
        ("permission: {'Bash(rm *)': deny}", {"Bash"}),
        ("permission: {'B*': deny}", {"Bash"}),
        ("permission: {webfetch: deny, todowrite: deny, doom_loop: deny}", set()),
        ("permission: {task: deny}", set()),
        ("permission: {mcp__shell__run: deny}", set()),
        ("permission: {docs/search: deny}", set()),
    ],
)
def test_a_denial_of_a_known_name_takes_that_and_no_more(line, taken):
    result = parsed("tools: *", line)
    assert result.definition is not None
    assert set(ASSIGNABLE_TOOLS) - set(result.definition.granted_tools(ASSIGNABLE_TOOLS)) == taken
    assert messages(result) == []


def test_the_default_mode_in_a_map_is_a_permission_word():
    assert defined("permissions: {defaultMode: acceptEdits}").permission is Permission.ACCEPT_EDITS
    assert not defined("tools: *", "permissions: {defaultMode: plan}").can_mutate


def test_a_permission_map_never_grants_a_tool():
    assert defined("permission: {bash: allow, write: allow}").tools == READ_ONLY_TOOLS


def test_reading_only_ends_inheritance():
    found = defined("tools: inherit", "permissionMode: plan")
    assert found.granted_tools(OFFERED) == READ_ONLY_TOOLS


def test_can_mutate_and_the_label_follow_what_is_left():
    found = defined("tools: Read, Bash", "disallowedTools: Bash")
    assert (found.can_mutate, found.tools_label) == (False, "Read")
    assert defined("tools: []").tools_label == "none"


def test_a_definition_made_in_code_is_checked():
    with pytest.raises(SidequestError) as caught:
        SubagentDefinition(name="Not An Id", description="x", body="y")
    assert caught.value.code is ErrorCode.SUBAGENT_INVALID
    for wrong in ({"description": " "}, {"body": ""}, {"max_tokens": 0}, {"max_turns": 0}):
        with pytest.raises(SidequestError):
            SubagentDefinition(**{"name": "x", "description": "d", "body": "b", **wrong})


@pytest.mark.parametrize("line", ["tools: {Bash: true, shell_exec: false}", "tools: ['*', '!shell_exec']"])
def test_a_denial_of_no_known_tool_beside_what_is_granted_does_so_too(line):
    result = parsed(line)
    assert result.definition is not None
    assert not {"Bash", "Edit", "Write"} & set(result.definition.granted_tools(ASSIGNABLE_TOOLS))


def test_M7_one_that_inherits_gets_the_tools_of_plugins_and_none_that_is_denied_to_delegates():
    denied = (
        *("Task", "TaskWait", "TaskList", "TaskStop", "EnterPlanMode", "EnterGoalMode"),
        *("asktool", "new_context", "ToolSearch"),
    )
    offered = (*ASSIGNABLE_TOOLS, "Skill", "mcp__docs__search", *denied)
    worker = SubagentDefinition("worker", "Works.", "You work.", tools=("Task",), inherit_tools=True)
    assert worker.granted_tools(offered) == (*ASSIGNABLE_TOOLS, "Skill", "mcp__docs__search")
    explorer = Catalog.load().require("explorer")
    assert explorer.granted_tools(offered) == ("Read", "Glob", "Grep", "Bash")
