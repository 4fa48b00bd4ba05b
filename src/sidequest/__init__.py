"""Subagents that cannot outgrow their context window.

What a library user imports, loaded at first use: `import sidequest` alone imports neither pydantic-ai nor
YAML, so that it costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sidequest.core.budget import ContextBudget as ContextBudget
    from sidequest.core.compaction import compact as compact
    from sidequest.core.context_modes import ContextMode as ContextMode
    from sidequest.core.errors import SidequestError as SidequestError
    from sidequest.core.events import EventLog as EventLog
    from sidequest.core.outcome import Outcome as Outcome
    from sidequest.core.outcome import Status as Status
    from sidequest.models.bindings import ModelBinding as ModelBinding
    from sidequest.models.registry import ModelRegistry as ModelRegistry
    from sidequest.runtime.guard import ContextGuard as ContextGuard
    from sidequest.runtime.session import Session as Session
    from sidequest.runtime.session import SessionOptions as SessionOptions
    from sidequest.runtime.session import TurnResult as TurnResult
    from sidequest.runtime.tools import Delegation as Delegation
    from sidequest.subagents.catalog import Catalog as Catalog
    from sidequest.subagents.definition import SubagentDefinition as SubagentDefinition

    __version__: str
else:
    _HOME = {
        "Catalog": "subagents.catalog",
        "ContextBudget": "core.budget",
        "ContextGuard": "runtime.guard",
        "ContextMode": "core.context_modes",
        "Delegation": "runtime.tools",
        "EventLog": "core.events",
        "ModelBinding": "models.bindings",
        "ModelRegistry": "models.registry",
        "Outcome": "core.outcome",
        "Session": "runtime.session",
        "SessionOptions": "runtime.session",
        "SidequestError": "core.errors",
        "Status": "core.outcome",
        "SubagentDefinition": "subagents.definition",
        "TurnResult": "runtime.session",
        "compact": "core.compaction",
    }

    def __getattr__(name: str) -> object:
        if name == "__version__":
            from importlib.metadata import version

            value = version("sidequest")
        elif name in _HOME:
            from importlib import import_module

            value = getattr(import_module(f"sidequest.{_HOME[name]}"), name)
        else:
            raise AttributeError(f"module 'sidequest' has no attribute {name!r}")
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


__all__ = [
    "Catalog",
    "ContextBudget",
    "ContextGuard",
    "ContextMode",
    "Delegation",
    "EventLog",
    "ModelBinding",
    "ModelRegistry",
    "Outcome",
    "Session",
    "SessionOptions",
    "SidequestError",
    "Status",
    "SubagentDefinition",
    "TurnResult",
    "__version__",
    "compact",
]
