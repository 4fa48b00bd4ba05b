"""A registry of delegations over models of this process, and the definitions that tests delegate to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.toolsets import FunctionToolset

from sidequest.core.confirmation import Beside, ModelCost
from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.events import Event, EventLog
from sidequest.core.outcome import Outcome
from sidequest.runtime.attempts import ResolvedModel
from sidequest.runtime.delegations import Delegations
from sidequest.runtime.model_choice import Choice
from sidequest.runtime.planning import StartRequest
from sidequest.runtime.records import DelegationRecord
from sidequest.runtime.toolbox import Toolbox
from sidequest.runtime.workspace import Workspace
from sidequest.subagents.catalog import Catalog
from sidequest.subagents.definition import SubagentDefinition
from tests.support.delegating import no_sleep


def lookup(key: str) -> str:
    """Look a key up."""
    return f"value of {key}"


def worker(name: str = "worker", **fields: Any) -> SubagentDefinition:
    """Return a definition that may use `lookup`."""
    fields.setdefault("tools", ("lookup",))
    return SubagentDefinition(name, f"Does what a {name} does.", f"You are the {name}.", **fields)


@dataclass
class FixedModels:
    """Runs each subagent on the model under its name, the others on `default`; `extra` is an override."""

    default: Model
    by_agent: dict[str, Model] = field(default_factory=dict)
    window: int | None = None
    extra: Model | None = None

    def recorded(self, key: str, definition: SubagentDefinition) -> Choice | None:
        """Nothing is recorded."""
        return None

    def is_session_model(self, key: str) -> bool:
        """Every model is the session's."""
        return True

    def cost_of(self, key: str) -> ModelCost | None:
        """None costs more than another."""
        return ModelCost(key, Beside.NOT_MORE)

    def choose(self, definition: SubagentDefinition, override: str | None) -> Choice:
        """Return the model of `definition`; an override other than `test/extra` is refused."""
        if override == "test/extra" and self.extra is not None:
            return Choice(ResolvedModel("test/extra", self.extra, self.window))
        if override:
            raise SidequestError(ErrorCode.MODEL_NOT_CONFIGURED, f"No model {override}.", "Leave model out.")
        if definition.model is not None:
            raise SidequestError(
                ErrorCode.MODEL_NOT_CONFIGURED, f"The pin {definition.model} is not configured.", ""
            )
        model = self.by_agent.get(definition.name, self.default)
        return Choice(ResolvedModel(f"test/{model.model_name}", model, self.window))

    def shown(self, definition: SubagentDefinition) -> str:
        """Return the key for the roster."""
        return "test/model"


@dataclass
class Team:
    """Makes a `Delegations`; `events` holds what was told, oldest first."""

    model: Model
    definitions: Sequence[SubagentDefinition] = (worker(),)
    by_agent: dict[str, Model] = field(default_factory=dict)
    window: int | None = None
    extra: Model | None = None
    workspace: Workspace | None = None
    tools: Sequence[Callable[..., Any]] = (lookup,)
    options: dict[str, Any] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list, init=False)
    delegations: Delegations = field(init=False)

    def __post_init__(self) -> None:
        log = EventLog(lambda: 0)
        log.subscribe(lambda numbered: self.events.append(numbered.event))
        ticks = iter(range(1, 1_000_000))
        self.delegations = Delegations(
            Catalog.from_definitions(self.definitions),
            FixedModels(self.model, self.by_agent, self.window, self.extra),
            Toolbox(self.workspace, FunctionToolset(list(self.tools)) if self.tools else None),
            log,
            **{"sleep": no_sleep, "jitter": lambda: 0.0, "now_ms": lambda: next(ticks), **self.options},
        )

    def start(
        self,
        task: str = "Do the task.",
        agent: str = "worker",
        parent: Sequence[ModelMessage] = (),
        **fields: Any,
    ) -> DelegationRecord:
        """Start a delegation."""
        return self.delegations.start(StartRequest(agent, task, **fields), parent)

    async def outcome(self, task: str = "Do the task.", **fields: Any) -> Outcome:
        """Start a delegation and wait until it has settled."""
        record = self.start(task, **fields)
        await self.delegations.wait([record])
        assert record.outcome is not None
        return record.outcome

    def of(self, kind: type[Event]) -> list[Any]:
        """Return the events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]


@dataclass
class Doors:
    """A step that waits at a door of its own per request; `open` lets one through."""

    answer: str = "Done."
    waiting: list[asyncio.Event] = field(default_factory=list)
    _arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def __call__(self, asked: Any) -> str:
        """Wait at a closed door, then give the answer."""
        door = asyncio.Event()
        async with self._arrived:
            self.waiting.append(door)
            self._arrived.notify_all()
        await door.wait()
        return self.answer

    async def arrived(self, count: int) -> None:
        """Wait until `count` requests stand at their doors, opened ones included."""
        async with asyncio.timeout(60), self._arrived:
            await self._arrived.wait_for(lambda: len(self.waiting) >= count)

    def open(self, index: int) -> None:
        """Let the request with that index through."""
        self.waiting[index].set()
