"""Which model a definition would run on here, without building one."""

from __future__ import annotations

from dataclasses import dataclass

from sidequest.core.errors import SidequestError
from sidequest.models.bindings import ModelBinding
from sidequest.models.pins import resolve_for_delegation
from sidequest.models.registry import ModelRegistry
from sidequest.subagents.definition import SubagentDefinition


@dataclass(frozen=True, slots=True)
class PlannedModel:
    """The model that would run, and what stands in the way of the one that was asked for."""

    binding: ModelBinding | None
    """None when nothing can run."""
    note: str = ""
    """Why it is not the pin, or why nothing can run; empty when all is well."""
    missing: str = ""
    """The pin that cannot be used when nothing else can be either."""

    @property
    def label(self) -> str:
        """The key, or what is missing."""
        return self.binding.key if self.binding else f"{self.missing or 'default'} missing"


@dataclass(frozen=True, slots=True)
class ModelPlanner:
    """Answers for one registry and its default model, which stands for the session's."""

    registry: ModelRegistry
    session: ModelBinding | None
    problem: str = ""
    """Why there is no session model."""

    @classmethod
    def of(cls, registry: ModelRegistry) -> ModelPlanner:
        """Return a planner; a default that cannot be resolved is a note on every definition without a pin."""
        try:
            return cls(registry, registry.default())
        except SidequestError as error:
            return cls(registry, None, f"{error.cause} {error.remedy}")

    def plan(self, definition: SubagentDefinition) -> PlannedModel:
        """Return what a delegation of `definition` would start on: pin, first usable fallback, or session."""
        if definition.model is None:
            return self._inherited()
        causes: list[str] = []
        remedy = ""
        for pin in (definition.model, *definition.fallback_models):
            try:
                return PlannedModel(self._resolve(pin.key), " ".join(causes))
            except SidequestError as error:
                causes.append(error.cause)
                remedy = remedy or error.remedy
        return PlannedModel(None, " ".join([*causes, remedy]), definition.model.key)

    def _resolve(self, pin: str) -> ModelBinding:
        if self.session is None:
            return self.registry.resolve(pin).require_ready()
        try:
            return resolve_for_delegation(self.registry, self.session, pin, None)
        except SidequestError as error:
            # Behind the sentence that names the pin is the shorter one of the registry.
            behind = error.__cause__
            raise (behind if isinstance(behind, SidequestError) else error) from None

    def _inherited(self) -> PlannedModel:
        if self.session is None:
            return PlannedModel(None, self.problem)
        return PlannedModel(self.session, self.session.why_not or "")
