"""Every text a model reads from us, compared exactly with a reviewed file in `snapshots/`.

A changed prompt is a changed product: look at the difference, then run once with
SIDEQUEST_UPDATE_SNAPSHOTS=1.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from sidequest.core.outcome import ModelFailure, Outcome, Status, StopReason
from sidequest.runtime import prompts
from sidequest.runtime.prompts import (
    FORK_WRAPPER,
    LAST_TURN_NOTICE,
    delegate_instructions,
    load_project_instructions,
    parent_instructions,
)
from sidequest.runtime.tool_texts import (
    TASK_LIST_DESCRIPTION,
    TASK_STOP_DESCRIPTION,
    TASK_WAIT_DESCRIPTION,
    report_block,
    task_description,
)
from sidequest.runtime.tools import DELIVERY_NOTE
from sidequest.runtime.workspace import TOOL_NAMES, Workspace
from sidequest.subagents.project_snapshot import MAX_PROJECT_INSTRUCTIONS_BYTES, ProjectSnapshot
from tests.support.scripted_model import ScriptedModel
from tests.support.team import Team, worker

SNAPSHOTS = Path(__file__).parent / "snapshots"


def matches(name: str, text: str) -> None:
    """Compare `text` with the reviewed file, or write that file when the environment asks for it."""
    path = SNAPSHOTS / name
    if os.environ.get("SIDEQUEST_UPDATE_SNAPSHOTS") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text + "\n"


def instructions(*tools: str, **options: Any) -> str:
    return delegate_instructions(worker("fixer"), tools, **options)


def test_instructions_of_a_delegate_that_reads() -> None:
    matches("delegate-reads.txt", instructions("Read", "Glob", "Grep"))


def test_instructions_of_a_delegate_that_may_do_everything() -> None:
    text = instructions(
        *TOOL_NAMES,
        scratch="/scratch",
        project_instructions='<project-instructions file="AGENTS.md">\nUse tabs.\n</project-instructions>',
    )
    matches("delegate-everything.txt", text)


def test_instructions_of_a_parent() -> None:
    matches("parent.txt", parent_instructions("/project", "Use tabs."))


def test_the_wrapper_of_a_forked_task() -> None:
    matches("fork.txt", FORK_WRAPPER.format(name="fixer", role="Fixes things.", task="Fix the parser."))


def test_notices() -> None:
    matches("last-turn.txt", LAST_TURN_NOTICE)
    matches("delivery.txt", DELIVERY_NOTE)


def test_descriptions_of_the_delegation_tools() -> None:
    definitions = [worker(), worker("fixer", tools=("Edit", "Bash"), inherit_tools=True)]
    described = task_description(definitions, lambda definition: "offline/extractive")
    parts = [described, TASK_WAIT_DESCRIPTION, TASK_LIST_DESCRIPTION, TASK_STOP_DESCRIPTION]
    matches("delegation-tools.txt", "\n\n----\n\n".join(parts))


def test_descriptions_of_the_workspace_tools(tmp_path: Path) -> None:
    tools = Workspace(tmp_path).toolset().tools
    described = [
        f"{name}: {tool.tool_def.description}\n{tool.tool_def.parameters_json_schema}"
        for name, tool in tools.items()
    ]
    matches("workspace-tools.txt", "\n\n".join(described))


def test_blocks_of_reports() -> None:
    async def record() -> Any:
        team = Team(ScriptedModel("ok"))
        started = team.start()
        await team.delegations.wait([started])
        return started

    started = asyncio.run(record())
    common: dict[str, Any] = {"turns": 3, "tool_calls": 2, "degradations": 1}
    failures = (ModelFailure("a/b", "PROVIDER_ERROR", "It was down."),)  # type: ignore[arg-type]
    blocks = []
    for status, reason, report in (
        (Status.COMPLETED, StopReason.STOP, "Found it: a.py:3."),
        (Status.PARTIAL, StopReason.TURN_LIMIT, "Found half of it."),
        (Status.FAILED, StopReason.ERROR, ""),
    ):
        started.outcome = Outcome(
            "d1",
            "worker",
            status,
            reason,
            report,
            "a/c",
            "independent",
            1.5,
            model_failures=failures,
            **common,
        )
        blocks.append(report_block(started).replace(started.id, "ID"))
    matches("reports.txt", "\n\n".join(blocks))


class TestGuidance:
    """Specification 3.8: guidance only for the tools that were really granted."""

    @pytest.mark.parametrize(
        ("tools", "expected"),
        [
            (("Read",), {"Searching"}),
            (("Edit",), {"Editing"}),
            (("Bash",), {"Shell", "Files that are not"}),
            (("Write", "Grep"), {"Editing", "Searching", "Files that are not"}),
            (("lookup",), set()),
        ],
    )
    def test_it_matches_the_tools(self, tools: tuple[str, ...], expected: set[str]) -> None:
        text = instructions(*tools, scratch="/scratch")
        found = {
            head for head in ("Searching", "Editing", "Shell", "Files that are not") if f"\n\n{head}" in text
        }
        assert found == expected

    def test_who_only_reads_is_told_so(self) -> None:
        assert "You only read" in instructions("Read", "lookup")
        assert "You may change files" in instructions("Read", "Bash")

    def test_the_order_is_framing_body_guidance_project_instructions(self) -> None:
        text = instructions("Read", project_instructions="PROJECT")
        places = [
            text.index(part)
            for part in ("You are the subagent", "You are the fixer.", "Searching", "PROJECT")
        ]
        assert places == sorted(places)

    def test_there_are_no_blank_blocks(self) -> None:
        assert "\n\n\n" not in instructions("lookup", project_instructions=" \n ")


class TestProjectInstructions:
    def test_agents_md_comes_before_claude_md(self, tmp_path: Path) -> None:
        (tmp_path / "CLAUDE.md").write_text("Claude.")
        assert "Claude." in load_project_instructions(tmp_path)
        (tmp_path / "AGENTS.md").write_text("Agents.")
        assert load_project_instructions(tmp_path) == (
            '<project-instructions file="AGENTS.md">\nAgents.\n</project-instructions>'
        )

    def test_a_long_file_is_cut_and_says_so(self, tmp_path: Path) -> None:
        (tmp_path / "AGENTS.md").write_text("ü" * MAX_PROJECT_INSTRUCTIONS_BYTES)
        text = load_project_instructions(tmp_path)
        assert len(text.encode()) < MAX_PROJECT_INSTRUCTIONS_BYTES + 300
        assert f"cut at {MAX_PROJECT_INSTRUCTIONS_BYTES} bytes; the file goes on" in text

    def test_a_giant_file_is_read_as_far_as_it_is_used(self, tmp_path: Path) -> None:
        (tmp_path / "AGENTS.md").write_text("Agents.")
        os.truncate(tmp_path / "AGENTS.md", 1 << 40)
        assert len(load_project_instructions(tmp_path)) < MAX_PROJECT_INSTRUCTIONS_BYTES + 300

    @pytest.mark.timeout(20)
    def test_what_is_no_file_of_the_folder_counts_as_missing(self, tmp_path: Path) -> None:
        root, file = tmp_path / "repo", tmp_path / "repo/AGENTS.md"
        root.mkdir()
        (tmp_path / "secret").write_text("Secret.")
        os.mkfifo(root / "fifo")
        (root / "CLAUDE.md").write_text("Claude.")
        for target in ("../secret", "fifo", "/dev/zero", "AGENTS.md", "nothing"):
            file.symlink_to(target)
            assert "Claude." in load_project_instructions(root)
            assert list(ProjectSnapshot.take(root).instructions) == ["CLAUDE.md"]
            file.unlink()
        os.mkfifo(file)
        assert "Claude." in load_project_instructions(root)

    def test_a_link_inside_the_folder_is_followed(self, tmp_path: Path) -> None:
        (tmp_path / "real.md").write_text("Real.")
        (tmp_path / "AGENTS.md").symlink_to("real.md")
        assert "Real." in load_project_instructions(tmp_path)

    @pytest.mark.parametrize("content", [b"", b"  \n", b"\xff\xfe"])
    def test_nothing_readable_is_nothing(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "AGENTS.md").write_bytes(content)
        assert load_project_instructions(tmp_path) == ""

    def test_a_folder_of_that_name_counts_as_missing(self, tmp_path: Path) -> None:
        (tmp_path / "AGENTS.md").mkdir()
        assert load_project_instructions(tmp_path) == ""


def test_no_word_that_people_never_use_is_in_a_prompt() -> None:
    """DESIGN, "Words": never "child agent"."""
    texts = [value for value in vars(prompts).values() if isinstance(value, str)]
    texts += [path.read_text() for path in SNAPSHOTS.glob("*.txt")]
    assert not [text for text in texts if "child agent" in text.lower()]
