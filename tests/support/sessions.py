"""Sessions over models of this process or of a loopback provider."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic_ai.models import Model

from sidequest.core.events import Event
from sidequest.core.permissions import Mode
from sidequest.models.bindings import ModelBinding
from sidequest.models.registry import ModelRegistry
from sidequest.runtime.model_choice import RegistryModels
from sidequest.runtime.session import Session, SessionOptions
from sidequest.subagents.catalog import Catalog
from sidequest.subagents.definition import ModelPin, SubagentDefinition
from tests.support.delegating import no_sleep


def helper(name: str = "helper", **fields: Any) -> SubagentDefinition:
    """A subagent that reads, on the model `test/child`."""
    fields = {"tools": ("Read", "Grep"), "model": ModelPin("test/child"), **fields}
    return SubagentDefinition(name, "Helps.", "You help.", **fields)


def bound(
    key: str,
    model: Model,
    window: int | None = None,
    max_tokens: int | None = None,
    price: float | None = 1.0,
) -> ModelBinding:
    """Return a binding of `model` under `key`, as a library user makes one; one costs as much as another."""
    provider, _, name = key.partition("/")
    return ModelBinding(
        key,
        provider,
        name,
        provider,
        window=window,
        max_tokens=max_tokens,
        input_price=price,
        output_price=price,
        factory=lambda: model,
    )


def session(
    root: Path,
    parent: Model,
    child: Model | None = None,
    *,
    window: int | None = None,
    max_tokens: int | None = None,
    child_window: int | None = None,
    child_price: float | None = 1.0,
    definitions: Sequence[SubagentDefinition] | None = None,
    sleep: Any = no_sleep,
    **options: Any,
) -> Session:
    """Return a session on `parent`, with one helper on `child` unless other definitions are given."""
    own = bound("test/parent", parent, window, max_tokens)
    bindings = [own]
    if child is not None:
        bindings.append(bound("test/child", child, child_window or window, max_tokens, child_price))
    found = definitions if definitions is not None else [helper()] if child is not None else []
    options.setdefault("permission_mode", Mode.AUTO)
    return Session(
        SessionOptions(root=root, **options),
        Catalog.from_definitions(found),
        RegistryModels(ModelRegistry(env={}, bindings=bindings), own),
        sleep=sleep,
        jitter=lambda: 0.0,
    )


def told(session: Session, kind: type[Event]) -> list[Any]:
    """Return the events of one kind, in order."""
    return [numbered.event for numbered in session.log.after() if isinstance(numbered.event, kind)]
