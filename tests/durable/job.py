"""A job with three parallel delegations that any process can begin or go on with, and its model's script.

The script remembers nothing: it reads from each request what has been done, as a model would. Every piece of
work is a call of Note, which appends its key to a file: a key that stands there twice was done twice.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic_ai.toolsets import FunctionToolset

from sidequest.core.permissions import Mode
from sidequest.models.registry import ModelRegistry
from sidequest.runtime.leftovers import Leftovers
from sidequest.runtime.model_choice import RegistryModels
from sidequest.runtime.session import Session, SessionOptions
from sidequest.runtime.spilled import Spilled
from sidequest.runtime.toolbox import Toolbox
from sidequest.subagents.catalog import Catalog
from sidequest.subagents.definition import ModelPin
from tests.support.clients import BoundModels
from tests.support.neutral import Reply, Seen
from tests.support.sessions import bound, helper

AGENTS = ("a", "b", "c")
BEGIN, GO_ON, END = "Do the job.", "Go on with the job.", "All done."
KEYS = ("p", *(f"{agent}{number}" for agent in AGENTS for number in (1, 2)))
"""Every piece of work: one of the parent, two of each subagent."""


@dataclass
class Desk:
    """Stands where a workspace would; its only tool is Note."""

    root: Path
    scratch: Path | None
    notes: Path
    leftovers: Leftovers = field(default_factory=Leftovers)

    def __post_init__(self) -> None:
        self.spilled = Spilled(self.scratch, self.root)

    def spill(self, name: str, text: str) -> str | None:
        """No result is that large."""

    def toolset(self, names: Any = ()) -> FunctionToolset[Any]:
        """Return the tool."""
        toolset: FunctionToolset[Any] = FunctionToolset()
        toolset.add_function(self.note, name="Note", sequential=True)
        return toolset

    async def note(self, key: str) -> str:
        """Write a key down."""
        await asyncio.sleep(0.001)
        file = os.open(self.notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(file, f"{key}\n".encode())
        os.close(file)
        await asyncio.sleep(0.001)
        return f"noted {key}"


def a_session(root: Path, notes: Path, port: int) -> Session:
    """Return a session on the provider at `port`, with three subagents that may call Note."""
    clients = BoundModels()
    clients._bind(port, pooled=True)
    bindings = [bound(f"test/{name}", clients.chat_model(name, timeout=20)) for name in ("parent", *AGENTS)]
    found = [helper(name, tools=("Note",), model=ModelPin(f"test/{name}")) for name in AGENTS]
    options = SessionOptions(root=root, permission_mode=Mode.AUTO, project_instructions=False)
    opened = Session(
        options,
        Catalog.from_definitions(found),
        RegistryModels(ModelRegistry(env={}, bindings=bindings), bindings[0]),
    )
    opened.workspace = Desk(root, opened.workspace.scratch, notes)  # type: ignore[assignment]
    opened.delegations.toolbox = Toolbox(None, opened.workspace.toolset())
    return opened


def answer(seen: Seen) -> Reply:
    """Answer as the parent's model, or as that of the subagent whose name the model has."""
    return _parent(seen) if seen.model == "parent" else _delegate(seen)


def done(seen: Seen) -> set[str]:
    """The keys whose result is in the history."""
    return {result.text.removeprefix("noted ") for result in seen.tool_results if result.text in _NOTED}


_NOTED = {f"noted {key}" for key in KEYS}


def _delegate(seen: Seen) -> Reply:
    left = [key for key in (f"{seen.model}1", f"{seen.model}2") if key not in done(seen)]
    if left:
        return Reply(tool_calls=[("Note", {"key": key}) for key in left])
    return Reply(f"REPORT-{seen.model}")


def _parent(seen: Seen) -> Reply:
    turn = list(_calls_of_this_turn(seen))
    missing = [agent for agent in AGENTS if f"REPORT-{agent}" not in _reported(seen)]
    if missing and not turn and seen.user_texts[-1] == GO_ON:
        return Reply(tool_calls=[("TaskWait", {})])  # what an earlier process left
    if missing and "Task" not in turn:
        return Reply(tool_calls=[_task(seen, agent) for agent in missing])
    if missing and "TaskWait" not in turn[turn.index("Task") :]:
        return Reply(tool_calls=[("TaskWait", {})])
    if missing:
        return Reply(f"No report of {', '.join(missing)}.")
    if "p" not in done(seen):
        return Reply(tool_calls=[("Note", {"key": "p"})])
    return Reply(END)


def _calls_of_this_turn(seen: Seen) -> Iterator[str]:
    prompts = [i for i, m in enumerate(seen.messages) if m.role == "user" and m.text in (BEGIN, GO_ON)]
    for message in seen.messages[prompts[-1] :]:
        yield from (call.name for call in message.tool_calls if call.name != "Note")


def _reported(seen: Seen) -> str:
    return "\n".join([*(result.text for result in seen.tool_results), *seen.user_texts])


def _task(seen: Seen, agent: str) -> tuple[str, dict[str, Any]]:
    listed = re.search(rf"^- {agent} / ([0-9a-f-]+): ", seen.system, re.MULTILINE)
    again = {"resume": listed[1]} if listed else {}
    return "Task", {"agent": agent, "task": f"Do your part, {agent}.", **again}
