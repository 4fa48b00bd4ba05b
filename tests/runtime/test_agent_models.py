"""An agent with `Delegation` and a registry: what names no model runs on the agent's own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart

from sidequest.core.permissions import Mode
from sidequest.models.registry import ModelRegistry
from sidequest.runtime.permissions import Rights
from sidequest.runtime.tools import Delegation
from sidequest.subagents.catalog import Catalog
from sidequest.subagents.definition import ModelPin, SubagentDefinition
from tests.support.scripted_model import Asked, ScriptedModel, calling
from tests.support.sessions import bound
from tests.support.team import lookup, worker

TASK = calling(("Task", {"agent": "worker", "task": "Do it."}))
SIGNED = ModelResponse(
    parts=[ThinkingPart("plan", signature="SIG", provider_name="a"), TextPart("hm"), ToolCallPart("noop", {})]
)


def noop() -> str:
    """Do nothing."""
    return "nothing"


def run(parent: ScriptedModel, other: ScriptedModel, definition: SubagentDefinition) -> None:
    registry = ModelRegistry(env={}, bindings=[bound("test/other", other)])
    delegation: Delegation[Any] = Delegation(
        Catalog.from_definitions([definition]), tools=[lookup], models=registry, rights=Rights(Mode.AUTO)
    )
    asyncio.run(Agent(parent, capabilities=[delegation], tools=[noop]).run("Go."))


def test_a_definition_without_a_pin_runs_on_the_agents_model() -> None:
    parent, other = ScriptedModel(TASK, "Idle.", "Report.", "Done.", repeat=True), ScriptedModel()
    run(parent, other, worker())
    assert other.asked == []
    assert any("Do it." in text for asked in parent.asked for text in asked.user_texts)


def test_a_pin_is_resolved_by_the_registry() -> None:
    parent, other = ScriptedModel(TASK, "Idle.", "Done."), ScriptedModel("Report.")
    run(parent, other, worker(model=ModelPin("test/other")))
    assert len(other.asked) == 1


def test_a_fallback_of_the_registry_takes_over_from_the_agents_model() -> None:
    def answer(asked: Asked) -> ModelResponse | str | Exception:
        if "Task" not in asked.tool_names:
            return ModelHTTPError(401, "m", {"error": {"message": "invalid api key"}})
        return "Idle." if asked.results else TASK

    parent, other = ScriptedModel(answer, repeat=True), ScriptedModel("Report.")
    run(parent, other, worker(fallback_models=(ModelPin("test/other"),)))
    assert len(other.asked) == 1


@pytest.mark.parametrize(("pin", "signatures"), [(ModelPin("test/other"), []), (None, ["SIG"])])
def test_signed_reasoning_goes_along_to_the_agents_model_only(
    pin: ModelPin | None, signatures: list[str]
) -> None:
    fork = calling(("Task", {"agent": "worker", "task": "Do it.", "context": "fork"}))
    parent = ScriptedModel(SIGNED, fork, "Idle.", "Report.", "Done.", repeat=True)
    other = ScriptedModel("Report.")
    run(parent, other, worker(model=pin))
    asked = next(a for a in (*other.asked, *parent.asked) if any("Do it." in text for text in a.user_texts))
    sent = [part for message in asked.messages for part in message.parts if isinstance(part, ThinkingPart)]
    assert [part.signature for part in sent if part.signature] == signatures
