"""A fork on its parent's model begins byte for byte as its parent does (specification 5.3, needs.md)."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelHTTPError

from sidequest.runtime.tools import Delegation
from sidequest.runtime.workspace import Workspace
from sidequest.subagents.catalog import Catalog
from sidequest.subagents.definition import ModelPin
from tests.support.neutral import Reply, Seen
from tests.support.provider import LoopbackProvider
from tests.support.scripted_model import Asked, ScriptedModel, Step, calling
from tests.support.sessions import helper, session
from tests.support.team import worker

APIS = ("chat_model", "responses_model", "anthropic_model")
HEAD = ("system", "instructions", "tools", "model")
"""What stands before the messages in one or the other format."""


@dataclass
class Run:
    """A parent that reads, then forks a helper which may only read and grep."""

    root: Path
    api: str = "chat_model"
    child: tuple[Reply, ...] = (Reply("REPORT"),)
    tools: tuple[str, ...] = ("Read", "Grep")
    parents: list[Seen] = field(default_factory=list)
    forks: list[Seen] = field(default_factory=list)

    def __call__(self, seen: Seen) -> Reply:
        if any("You are now helper" in text for text in seen.user_texts):
            self.forks.append(seen)
            return self.child[len(self.forks) - 1]
        self.parents.append(seen)
        return (
            Reply(tool_calls=[("Read", {"path": "a.txt"})]),
            Reply(tool_calls=[("Task", {"agent": "helper", "task": "Look at b.", "context": "fork"})]),
            Reply(tool_calls=[("TaskWait", {})]),
            Reply("Thanks."),
        )[len(self.parents) - 1]

    def run(self) -> Run:
        (self.root / "a.txt").write_text("CONTENT-OF-A")

        async def case() -> None:
            async with LoopbackProvider(self) as provider:
                workspace = Workspace(self.root)
                catalog = Catalog.from_definitions([worker("helper", tools=self.tools)])
                agent = Agent(
                    getattr(provider, self.api)(),
                    instructions="You are the parent.",
                    toolsets=[workspace.toolset()],
                    capabilities=[Delegation(catalog, workspace=workspace)],
                )
                await agent.run("The users question.")

        asyncio.run(case())
        return self


def shared(parent: Seen, fork: Seen) -> str:
    """The text that both requests have in common, from the first byte of each on."""
    one, other = parent.raw.decode(), fork.raw.decode()
    length = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))
    return one[:length]


@pytest.mark.parametrize("api", APIS)
def test_up_to_the_branch_point_the_requests_are_equal(tmp_path: Path, api: str) -> None:
    run = Run(tmp_path, api).run()
    parent, (fork,) = run.parents[1], run.forks
    for key in HEAD:
        assert json.dumps(parent.json.get(key)) == json.dumps(fork.json.get(key)), key
    assert [message.text for message in fork.messages[: len(parent.messages) - 1]] == [
        message.text for message in parent.messages[:-1]
    ]
    assert "CONTENT-OF-A" in shared(parent, fork)


def test_its_role_and_its_own_instructions_come_with_the_task(tmp_path: Path) -> None:
    (fork,) = Run(tmp_path).run().forks
    assert "You are the parent." in fork.system
    last = fork.user_texts[-1]
    assert "You are the helper." in last
    assert "only these are yours: Read, Grep" in last
    assert last.endswith("Task:\nLook at b.")


@pytest.mark.parametrize("tool", ["Bash", "Write", "Task"])
def test_a_tool_of_the_parent_that_is_not_granted_is_refused_when_it_is_called(
    tmp_path: Path, tool: str
) -> None:
    arguments: dict[str, Any] = {
        "Bash": {"command": "touch made"},
        "Write": {"path": "made", "content": ""},
        "Task": {"agent": "helper", "task": "Go deeper."},
    }[tool]
    run = Run(tmp_path, child=(Reply(tool_calls=[(tool, arguments)]), Reply("REPORT"))).run()
    assert (
        f"TOOL_DENIED: {tool} is a tool of the agent that delegated to you"
        in run.forks[1].tool_results[-1].text
    )
    assert not (tmp_path / "made").exists()


def test_a_granted_tool_runs(tmp_path: Path) -> None:
    child = (Reply(tool_calls=[("Read", {"path": "a.txt"})]), Reply("REPORT"))
    run = Run(tmp_path, child=child).run()
    assert "CONTENT-OF-A" in run.forks[1].tool_results[-1].text


def test_the_parent_gets_its_report(tmp_path: Path) -> None:
    assert "REPORT" in Run(tmp_path).run().parents[-1].tool_results[-1].text


def test_a_fork_that_falls_back_to_another_model_has_instructions_and_tools_of_its_own(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.txt").write_text("CONTENT-OF-A")
    forks: list[Asked] = []

    def answer(asked: Asked) -> Step:
        if not any("You are now helper" in text for text in asked.user_texts):
            task = {"agent": "helper", "task": "Look at a.", "context": "fork"}
            steps = [calling(("Task", task)), calling(("TaskWait", {})), "Thanks."]
            return steps[min(len(asked.results), 2)]
        forks.append(asked)
        if len(forks) == 1:
            return calling(("Read", {"path": "a.txt"}))
        return ModelHTTPError(404, "m", {"error": {"message": "The model does not exist."}})

    fallback = ScriptedModel(calling(("Bash", {"command": "touch made"})), "REPORT")
    own = helper(model=None, fallback_models=(ModelPin("test/child"),))

    async def case() -> None:
        parent = ScriptedModel(answer, repeat=True)
        async with session(tmp_path, parent, fallback, definitions=[own]) as opened:
            result = await opened.prompt("Go.")
            assert [outcome.report for outcome in result.delegations] == ["REPORT"]

    asyncio.run(case())
    on_parents, on_its_own = forks[-1], fallback.asked[0]
    assert "Bash" in on_parents.tool_names and "You help." not in (on_parents.info.instructions or "")
    assert on_its_own.tool_names == ["Read", "Grep"]
    assert "You help." in (on_its_own.info.instructions or "")
    assert on_its_own.messages[-1].instructions == on_its_own.info.instructions
    assert on_its_own.user_texts == on_parents.user_texts, "the brief stays verbatim"
    assert "CONTENT-OF-A" in on_its_own.results[-1], "what it did before the fallback stays"
    assert not (tmp_path / "made").exists()
