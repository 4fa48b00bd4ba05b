"""The four builtins: tools as specification 4.6 without BrowserPreview, prompts as reviewed text.

`SIDEQUEST_UPDATE_SNAPSHOTS=1` writes the snapshot anew.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sidequest.subagents.catalog import Catalog, EntryState, builtin_entries
from sidequest.subagents.definition import Permission, Scope, SubagentDefinition

SNAPSHOT = Path(__file__).parent / "snapshots" / "builtins.txt"
TOOLS = {
    "code-reviewer": ("Read", "Glob", "Grep"),
    "explorer": ("Read", "Glob", "Grep", "Bash"),
    "fixer": ("Read", "Glob", "Grep", "Edit", "Write", "Bash"),
    "test-runner": ("Read", "Glob", "Grep", "Bash"),
}
SHAPES = {
    "code-reviewer": ("<findings>", "<checked>"),
    "explorer": ("<files>", "<answer>"),
    "fixer": ("<summary>", "<changes>", "<verification>"),
    "test-runner": ("<result>", "<failures>"),
}


def builtin(name: str) -> SubagentDefinition:
    return Catalog.load().require(name)


def as_text(definition: SubagentDefinition) -> str:
    return f"=== {definition.name} ({definition.tools_label})\n{definition.summary()}\n\n{definition.body}\n"


def test_the_prompts_are_the_reviewed_ones():
    text = "\n".join(as_text(definition) for definition in Catalog.load().active)
    if os.environ.get("SIDEQUEST_UPDATE_SNAPSHOTS") == "1":
        SNAPSHOT.write_text(text, encoding="utf-8")
    assert text == SNAPSHOT.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", TOOLS)
def test_a_builtin_has_its_tools_and_its_report_shape(name):
    found = builtin(name)
    assert found.tools == TOOLS[name]
    assert found.scope is Scope.BUILTIN
    for block in SHAPES[name]:
        assert block in found.body
        assert block.replace("<", "</") in found.body


def test_builtins_inherit_model_and_permission_and_declare_no_cap():
    for name in TOOLS:
        found = builtin(name)
        assert (found.model, found.permission, found.max_tokens) == (None, Permission.INHERIT, None)
        assert (found.max_turns, found.thinking, found.context) == (None, None, None)


def test_every_builtin_loads_strictly_and_without_a_remark():
    for entry in builtin_entries():
        assert (entry.state, entry.diagnostics) == (EntryState.ACTIVE, ())


def test_prompts_are_short():
    for name in TOOLS:
        assert 150 <= len(builtin(name).body.split()) <= 350


def test_importing_the_package_loads_neither_yaml_nor_the_agent_framework():
    code = (
        "import sys, sidequest.subagents.catalog, sidequest.subagents.write\n"
        "sys.exit(len({'yaml', 'pydantic_ai'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
