"""An agent without a session that uses `Delegation`: its delegates have rights all the same."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse

from sidequest.core.permissions import DenyRules, Mode
from sidequest.runtime.permissions import Answer, Questions, Rights
from sidequest.runtime.tools import Delegation
from sidequest.runtime.workspace import Workspace
from sidequest.subagents.catalog import Catalog
from sidequest.subagents.definition import Permission, SubagentDefinition
from tests.support.scripted_model import ScriptedModel, calling
from tests.support.team import FixedModels, lookup, worker

AUTO = Rights(Mode.AUTO)
TOUCH = calling(("Bash", {"command": "touch made"}))
WRITE = calling(("Write", {"path": "made", "content": "x"}))


def delegated(
    folder: Path | Workspace, definition: SubagentDefinition, does: ModelResponse, rights: Rights | None
) -> tuple[str, list[str]]:
    """Return what Task said, and what the tools of the delegate gave."""
    child = ScriptedModel(does, "Report.")
    parent = ScriptedModel(calling(("Task", {"agent": "worker", "task": "Do it."})), "Idle.", "Done.")
    delegation: Delegation[Any] = Delegation(
        Catalog.from_definitions([definition]), folder, [lookup], FixedModels(child), rights=rights
    )
    asyncio.run(Agent(parent, capabilities=[delegation]).run("Go."))
    return parent.asked[1].results[0], child.asked[-1].results if child.asked else []


@pytest.fixture
def soon() -> Questions:
    return Questions(no_surface_wait_s=0.01)


def test_without_rights_it_reads_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("CONTENT")
    said, results = delegated(tmp_path, worker(tools=("Read",)), calling(("Read", {"path": "a.txt"})), None)
    assert "started" in said
    assert "CONTENT" in results[0]


@pytest.mark.parametrize("tools", [("Bash",), ("Write",)])
def test_without_rights_a_subagent_that_changes_things_is_not_started(
    tmp_path: Path, tools: tuple[str, ...]
) -> None:
    said, results = delegated(tmp_path, worker(tools=tools), TOUCH, None)
    assert "worker was not started" in said
    assert results == []


def test_with_rights_it_does_what_they_allow(tmp_path: Path) -> None:
    delegated(tmp_path, worker(tools=("Bash",)), TOUCH, AUTO)
    assert (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("does", "rules"),
    [
        (TOUCH, DenyRules(commands=("touch",))),
        (WRITE, DenyRules(paths=("made",))),
        (calling(("lookup", {"key": "k"})), DenyRules(tools=("lookup",))),
    ],
)
def test_a_deny_rule_holds_in_every_mode(tmp_path: Path, does: ModelResponse, rules: DenyRules) -> None:
    definition = worker(tools=("Bash", "Write", "lookup"))
    _, (result,) = delegated(tmp_path, definition, does, Rights(Mode.AUTO, rules))
    assert "TOOL_DENIED" in result
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("made", [False, True], ids=["a folder", "a workspace"])
@pytest.mark.parametrize(
    "does", [("Grep", {"pattern": "SECRET"}), ("Glob", {"pattern": "*"})], ids=["Grep", "Glob"]
)
def test_a_deny_rule_holds_inside_searches_too(tmp_path: Path, made: bool, does: Any) -> None:
    (tmp_path / "keys.txt").write_text("SECRET=1\n")
    (tmp_path / "own.txt").write_text("SECRET=2\n")
    folder = Workspace(tmp_path, denied=("own.txt",)) if made else tmp_path
    rights = Rights(Mode.AUTO, DenyRules(paths=("keys.txt",)))
    _, (result,) = delegated(folder, worker(tools=("Grep", "Glob")), calling(does), rights)
    assert "keys.txt" not in result
    assert ("own.txt" in result) is not made


def test_what_a_workspace_denies_is_not_attached(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("SECRET=2\n")
    child = ScriptedModel("Report.")
    task = {"agent": "worker", "task": "Do it.", "attachments": ["own.txt"]}
    parent = ScriptedModel(calling(("Task", task)), "Done.")
    delegation: Delegation[Any] = Delegation(
        Catalog.from_definitions([worker()]),
        Workspace(tmp_path, denied=("own.txt",)),
        [lookup],
        FixedModels(child),
        rights=AUTO,
    )
    asyncio.run(Agent(parent, capabilities=[delegation]).run("Go."))
    assert "paths: own.txt" in parent.asked[1].results[0]
    assert child.asked == []


def test_the_permission_of_a_definition_narrows(tmp_path: Path, soon: Questions) -> None:
    definition = worker(tools=("Bash", "lookup"), permission=Permission.ASK)
    rights = Rights(Mode.AUTO, questions=soon)
    for does in (TOUCH, calling(("lookup", {"key": "k"}))):
        said, (result,) = delegated(tmp_path, definition, does, rights)
        assert "started" in said
        assert "nobody is here" in result
    assert not (tmp_path / "made").exists()


def test_the_hosts_own_tools_run_in_every_mode(tmp_path: Path) -> None:
    _, results = delegated(tmp_path, worker(), calling(("lookup", {"key": "k"})), None)
    assert results == ["value of k"]


def test_a_path_outside_is_asked_for_and_a_workspace_of_the_host_is_inside(
    tmp_path: Path, soon: Questions
) -> None:
    root = tmp_path / "w"
    (tmp_path / "scratch").mkdir()
    root.mkdir()
    (tmp_path / "scratch" / "a.txt").write_text("KEPT")
    workspace = Workspace(root, tmp_path / "scratch")
    for path, expected in (("../a.txt", "nobody is here"), (str(tmp_path / "scratch/a.txt"), "KEPT")):
        does = calling(("Read", {"path": path}))
        _, (result,) = delegated(workspace, worker(tools=("Read",)), does, Rights(Mode.ASK, questions=soon))
        assert expected in result


def test_a_surface_of_the_host_answers(tmp_path: Path) -> None:
    questions = Questions()

    def yes() -> None:
        if questions.head is not None:
            asyncio.get_running_loop().call_soon(questions.answer, questions.head.id, Answer(True))

    async def case() -> None:
        questions.surface(yes)

    asyncio.run(case())
    delegated(tmp_path, worker(tools=("Bash",)), TOUCH, Rights(Mode.ASK, questions=questions))
    assert (tmp_path / "made").exists()
