"""A file outside of the workspace is read when a person allows just that, and never changed by a tool."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.exceptions import ToolFailed

from sidequest.core.permissions import DenyRules, Mode
from sidequest.runtime.outside import let_through
from sidequest.runtime.permissions import Answer, Question
from sidequest.runtime.session import Session
from sidequest.runtime.workspace import Workspace
from tests.support.scripted_model import ScriptedModel, calling
from tests.support.sessions import session


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace with neighbours."""
    (tmp_path / "work").mkdir()
    (tmp_path / "next").mkdir()
    (tmp_path / "next/a.txt").write_text("NEIGHBOUR\n")
    (tmp_path / "next/.env").write_text("NEIGHBOUR_KEY=1\n")
    (tmp_path / "far.txt").write_text("FAR\n")
    return tmp_path / "work"


def asked_by(model: ScriptedModel) -> str:
    """Return the results that the newest request carried."""
    return "\n".join(model.asked[-1].results)


async def answered(held: Session, answers: list[bool]) -> list[Question]:
    """Give a prompt and answer its questions in order; return them."""
    queue, seen = held.rights.questions, []

    def changed() -> None:
        question = queue.head
        if question is not None and question not in seen:
            seen.append(question)
            asyncio.get_running_loop().call_soon(queue.answer, question.id, Answer(answers[len(seen) - 1]))

    leave = queue.surface(changed)
    assert (await held.prompt("Go.")).ok
    leave()
    return seen


def parent(*calls: tuple[str, dict[str, Any]]) -> ScriptedModel:
    return ScriptedModel(*(calling(call) for call in calls), "Done.")


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (("Read", {"path": "../next/a.txt"}), "NEIGHBOUR"),
        (("Grep", {"pattern": "NEIGH", "path": "../next"}), "NEIGHBOUR"),
        (("Grep", {"pattern": "NEIGH", "path": "../next/a.txt"}), "NEIGHBOUR"),
        (("Glob", {"pattern": "*.txt", "path": "../next"}), "a.txt"),
    ],
    ids=["Read", "Grep", "Grep of a file", "Glob"],
)
def test_what_was_allowed_is_read_and_what_was_not_is_not(
    root: Path, call: tuple[str, dict[str, Any]], expected: str
) -> None:
    async def case(allowed: bool) -> tuple[int, str]:
        model = parent(call)
        async with session(root, model, permission_mode=Mode.ASK) as held:
            questions = await answered(held, [allowed])
        return len(questions), asked_by(model)

    number, result = asyncio.run(case(True))
    assert number == 1 and expected in result
    number, result = asyncio.run(case(False))
    assert number == 1 and expected not in result and "TOOL_DENIED" in result


def test_an_answer_is_for_one_call(root: Path) -> None:
    async def case() -> tuple[int, str]:
        model = parent(("Read", {"path": "../next/a.txt"}), ("Read", {"path": "../far.txt"}))
        async with session(root, model, permission_mode=Mode.ASK) as held:
            questions = await answered(held, [True, False])
        return len(questions), asked_by(model)

    number, result = asyncio.run(case())
    assert number == 2 and "FAR" not in result


def test_auto_reads_outside_and_a_deny_rule_still_comes_first(root: Path) -> None:
    async def case(*call: Any) -> str:
        model = parent(*call)
        rules = DenyRules(paths=("**/.env",))
        async with session(root, model, permission_mode=Mode.AUTO, deny=rules) as held:
            assert (await held.prompt("Go.")).ok
        return asked_by(model)

    assert "NEIGHBOUR" in asyncio.run(case(("Read", {"path": "../next/a.txt"})))
    assert "NEIGHBOUR" not in asyncio.run(case(("Read", {"path": "../next/.env"})))
    grepped = asyncio.run(case(("Grep", {"pattern": "NEIGH", "path": "../next"})))
    assert "a.txt" in grepped and "_KEY" not in grepped
    assert ".env" not in asyncio.run(case(("Glob", {"pattern": "**", "path": "../next"})))


@pytest.mark.parametrize("mode", list(Mode))
def test_no_tool_changes_a_file_outside_and_nobody_is_asked(root: Path, mode: Mode) -> None:
    async def case() -> tuple[int, str]:
        model = parent(("Write", {"path": "../next/a.txt", "content": "GONE"}))
        async with session(root, model, permission_mode=mode) as held:
            questions = await answered(held, [])
        return len(questions), asked_by(model)

    number, result = asyncio.run(case())
    assert number == 0 and "outside of it" in result
    assert (root.parent / "next/a.txt").read_text() == "NEIGHBOUR\n"


@pytest.mark.parametrize("mode", list(Mode))
def test_no_tool_changes_what_git_keeps_and_nobody_is_asked(root: Path, mode: Mode) -> None:
    async def case() -> tuple[int, str]:
        model = parent(("Write", {"path": ".git/hooks/pre-commit", "content": "x"}))
        async with session(root, model, permission_mode=mode) as held:
            questions = await answered(held, [])
        return len(questions), asked_by(model)

    number, result = asyncio.run(case())
    assert number == 0 and "tools change nothing in .git, git does" in result
    assert not (root / ".git").exists()


async def _read(workspace: Workspace, path: str) -> object:
    return await workspace.read(path)


def test_a_call_that_came_past_no_gate_reads_nothing_outside(root: Path) -> None:
    with pytest.raises(ToolFailed):
        asyncio.run(_read(Workspace(root), "../next/a.txt"))


def test_a_link_that_leads_elsewhere_after_the_answer_is_not_followed(root: Path) -> None:
    link = root / "link"
    link.symlink_to("../next/a.txt")

    async def case() -> object:
        let_through(str((root.parent / "next/a.txt").resolve()))
        link.unlink()
        link.symlink_to("../far.txt")
        return await Workspace(root).read("link")

    with pytest.raises(ToolFailed):
        asyncio.run(case())
