"""Helpers that run one delegation against a model, without a session."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset

from sidequest.core.context_modes import ContextMode
from sidequest.core.events import Event
from sidequest.core.outcome import Outcome
from sidequest.runtime.attempts import Alternative, ResolvedModel
from sidequest.runtime.delegation import DelegationRun, Plan
from sidequest.runtime.limits import Limits
from sidequest.runtime.workspace import Workspace


async def no_sleep(seconds: float) -> None:
    """Give way once instead of waiting."""
    await asyncio.sleep(0)


@dataclass
class Waits:
    """A sleep that only remembers how long it was asked to wait."""

    seconds: list[float] = field(default_factory=list)

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await asyncio.sleep(0)


@dataclass
class Bench:
    """Makes and runs delegations; `events` holds what they told."""

    root: Path | None = None
    events: list[Event] = field(default_factory=list)
    sleep: Any = no_sleep

    def run_of(
        self,
        model: Model,
        task: str = "Do the task.",
        *,
        window: int | None = None,
        max_tokens: int | None = None,
        cap: int | None = None,
        max_turns: int | None = None,
        max_seconds: float | None = None,
        max_cost_usd: float | None = None,
        instructions: str = "You are the subagent worker.",
        history: Sequence[ModelMessage] = (),
        tools: Sequence[Any] = (),
        alternatives: Sequence[Alternative] = (),
        key: str = "test/primary",
    ) -> DelegationRun:
        """Return a run that has not started."""
        toolset: AbstractToolset[Any] = FunctionToolset(list(tools))
        spill = None
        names = tuple(getattr(tool, "name", getattr(tool, "__name__", "tool")) for tool in tools)
        if self.root is not None:
            workspace = Workspace(self.root)
            toolset, names, spill = workspace.toolset(), ("Read", "Glob", "Grep"), workspace.spill
            toolset = workspace.toolset(names)
        plan = Plan(
            "d1",
            "worker",
            task,
            instructions,
            ResolvedModel(key, model, window, max_tokens),
            toolset,
            names,
            ContextMode.INDEPENDENT,
            history,
            tuple(alternatives),
            cap=cap,
            limits=Limits(max_turns, max_seconds, max_cost_usd),
            spill=spill,
        )
        return DelegationRun(plan, self.events.append, sleep=self.sleep, jitter=lambda: 0.0)

    async def outcome(self, model: Model, task: str = "Do the task.", **options: Any) -> Outcome:
        """Run a delegation and return how it ended."""
        return await self.run_of(model, task, **options).run()

    def of(self, kind: type[Event]) -> list[Any]:
        """Return the events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]
