"""Which model a delegation starts on and which come after it, ready to be asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Protocol

from sidequest.core.confirmation import Beside, ModelCost
from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.outcome import ModelFailure
from sidequest.models.bindings import ModelBinding, ThinkingLevel
from sidequest.models.pins import resolve_fallbacks, resolve_for_delegation
from sidequest.models.price_comparison import beside
from sidequest.models.registry import ModelRegistry
from sidequest.models.run_settings import run_settings
from sidequest.runtime.attempts import Alternative, ResolvedModel
from sidequest.runtime.costs import FixedPrice, Price, catalog_price
from sidequest.subagents.definition import ModelPin, SubagentDefinition, Thinking

if TYPE_CHECKING:
    from pydantic_ai.models import Model
    from pydantic_ai.settings import ModelSettings


@dataclass(frozen=True, slots=True)
class Choice:
    """The model to start on, the alternatives in order, and what was passed over to get there."""

    model: ResolvedModel
    alternatives: tuple[Alternative, ...] = ()
    failures: tuple[ModelFailure, ...] = ()


class ModelChooser(Protocol):
    """Decides about models for one session."""

    def choose(self, definition: SubagentDefinition, override: str | None) -> Choice:
        """Return the models of a delegation; `override` is Task.model, None when nothing was asked.

        Raises:
            SidequestError: `MODEL_NOT_CONFIGURED` or `MISSING_EXTRA`, naming what can be used.
        """
        ...

    def shown(self, definition: SubagentDefinition) -> str:
        """Return the key of the model a definition would run on, for the roster; never raises."""
        ...

    def is_session_model(self, key: str) -> bool:
        """Say whether `key` is the parent's own model: only then may its signed reasoning go along."""
        ...

    def cost_of(self, key: str) -> ModelCost | None:
        """Return what the model `key` costs beside the session's, None when it cannot run at all."""
        ...

    def recorded(self, key: str, definition: SubagentDefinition) -> Choice | None:
        """Return the models for a resume of work that ran on `key`; None when that is not to be had."""
        ...


class InheritedModel:
    """Every delegation runs on the parent's model: all there is when no model is configured.

    `current` returns the parent's model and settings at the moment of the spawn.
    """

    def __init__(self, current: Callable[[], tuple[Model, ModelSettings | None]]) -> None:
        self._current = current

    def choose(self, definition: SubagentDefinition, override: str | None) -> Choice:
        """Return the parent's model; a pin or an override that names another one is refused."""
        model, settings = self._current()
        key = f"{model.system}/{model.model_name}"
        wanted = override or (definition.model.key if definition.model else None)
        if wanted and wanted not in {key, model.model_name}:
            raise SidequestError(
                ErrorCode.MODEL_NOT_CONFIGURED,
                f"The model {wanted!r} is not configured here.",
                f"Leave model out to run on {key}, or give Delegation a ModelRegistry that knows it.",
                model=wanted,
            )
        level = (definition.model.thinking if definition.model else None) or definition.thinking
        return Choice(ResolvedModel(key, model, settings=_thinking_like(settings, level)))

    def is_session_model(self, key: str) -> bool:
        """Always: there is no other."""
        return True

    def cost_of(self, key: str) -> ModelCost | None:
        """Return that it costs no more: there is no other."""
        return ModelCost(key, Beside.NOT_MORE)

    def recorded(self, key: str, definition: SubagentDefinition) -> Choice | None:
        """Return None: the parent's model of the day is all there is."""
        return None

    def shown(self, definition: SubagentDefinition) -> str:
        """Return the pin as written, or a word for the parent's model."""
        return definition.model.key if definition.model else "inherits the session"


def _thinking_like(settings: ModelSettings | None, level: Thinking | None) -> ModelSettings:
    own: ModelSettings = {**(settings or {})}
    if level is Thinking.OMIT:
        own.pop("thinking", None)
    elif level is not None:
        own["thinking"] = False if level is Thinking.OFF else level.value  # type: ignore[typeddict-item]
    return own


def _price_of(binding: ModelBinding) -> Price:
    """Return the user's own prices when there are any: they beat the catalog."""
    if (
        binding.price_source == "user"
        and binding.input_price is not None
        and binding.output_price is not None
    ):
        return FixedPrice(binding.input_price, binding.output_price)
    return catalog_price


class RegistryModels:
    """Models from a `ModelRegistry`; each is built once per session and shared by its delegations."""

    def __init__(self, registry: ModelRegistry, session: ModelBinding) -> None:
        self.registry = registry
        self.session = session
        self._built: dict[str, Model] = {}
        self._replaced: list[Model] = []
        """Built from an earlier registry; closed with the others."""

    def renew(self, registry: ModelRegistry) -> None:
        """Know the models of `registry` from now on; the session's stays, with what is known of it there.

        Raises:
            SidequestError: the session's model cannot be used any more; nothing is changed.
        """
        self.session = registry.resolve(self.session.key).require_ready()
        self.registry = registry
        self._replaced += self._built.values()
        self._built = {}

    def build(self, binding: ModelBinding) -> Model:
        """Return the model of `binding`, the same object for the same key."""
        if binding.key not in self._built:
            self._built[binding.key] = binding.build()
        return self._built[binding.key]

    async def close(self) -> None:
        """Close the clients of every model that was built here."""
        for model in (*self._built.values(), *self._replaced):
            client = getattr(model, "client", None)
            close = getattr(client, "close", None)
            if close is not None:
                closing = close()
                if isawaitable(closing):
                    await closing
        self._built.clear()
        self._replaced.clear()

    def ready(
        self, binding: ModelBinding, *, cap: int | None = None, thinking: Thinking | None = None
    ) -> ResolvedModel:
        """Return `binding` with the settings of one run; nothing of it reaches another run."""
        level: ThinkingLevel | None = thinking.value if thinking is not None else None
        return ResolvedModel(
            binding.key,
            self.build(binding),
            binding.window,
            binding.max_tokens,
            _price_of(binding),
            run_settings(binding, cap=cap, thinking=level),
        )

    def session_model(self) -> ResolvedModel:
        """Return the session's own model, with no cap but its own."""
        return self.ready(self.session)

    def choose(self, definition: SubagentDefinition, override: str | None) -> Choice:
        """Resolve override, pin and fallbacks.

        A pin that cannot be used is recorded and the first usable fallback starts instead; without one the
        error stands, because a pin is never silently replaced by the session's model.
        """
        pin = definition.model.key if definition.model else None
        failures: list[ModelFailure] = []
        ready = partial(self.ready, cap=definition.max_tokens)
        try:
            first = resolve_for_delegation(self.registry, self.session, pin, override)
            start = ready(first, thinking=self._thinking(definition, definition.model if pin else None))
        except SidequestError as error:
            if override or not definition.fallback_models:
                raise
            failures.append(ModelFailure(pin or "", error.code, error.failure.message))
            return self._from_fallbacks(definition, failures, error)
        return Choice(start, self._alternatives(definition, first, definition.fallback_models))

    def is_session_model(self, key: str) -> bool:
        """Say whether `key` is the session's model."""
        return key == self.session.key

    def cost_of(self, key: str) -> ModelCost | None:
        """Return what the model `key` costs beside the session's, None when it is not configured."""
        try:
            return beside(self.registry.resolve(key), self.session)
        except SidequestError:
            return None

    def recorded(self, key: str, definition: SubagentDefinition) -> Choice | None:
        """Return the model `key` with the definition's fallbacks, when it is still configured."""
        try:
            binding = self.registry.resolve(key).require_ready()
        except SidequestError:
            return None
        pin = definition.model if definition.model and definition.model.key == key else None
        start = self.ready(binding, cap=definition.max_tokens, thinking=self._thinking(definition, pin))
        return Choice(start, self._alternatives(definition, binding, definition.fallback_models))

    def _from_fallbacks(
        self, definition: SubagentDefinition, failures: list[ModelFailure], error: SidequestError
    ) -> Choice:
        for position, pin in enumerate(definition.fallback_models):
            try:
                binding = resolve_for_delegation(self.registry, self.session, pin.key, None)
                start = self.ready(
                    binding, cap=definition.max_tokens, thinking=self._thinking(definition, pin)
                )
            except SidequestError as problem:
                failures.append(ModelFailure(pin.key, problem.code, problem.failure.message))
                continue
            rest = definition.fallback_models[position + 1 :]
            return Choice(start, self._alternatives(definition, binding, rest), tuple(failures))
        raise error

    def _alternatives(
        self, definition: SubagentDefinition, first: ModelBinding, pins: tuple[ModelPin, ...]
    ) -> tuple[Alternative, ...]:
        by_key = {pin.key: pin for pin in pins}
        found = resolve_fallbacks(self.registry, self.session, first, by_key)
        return tuple(
            Alternative(
                item.binding.key if item.binding else item.pin,
                partial(self._resolve_late, definition, by_key[item.pin], item.binding, item.error),
            )
            for item in found
        )

    def _resolve_late(
        self,
        definition: SubagentDefinition,
        pin: ModelPin,
        binding: ModelBinding | None,
        error: SidequestError | None,
    ) -> ResolvedModel:
        if binding is None:
            raise error or SidequestError(
                ErrorCode.MODEL_NOT_CONFIGURED, f"The model {pin.key!r} is not configured.", ""
            )
        return self.ready(binding, cap=definition.max_tokens, thinking=self._thinking(definition, pin))

    def _thinking(self, definition: SubagentDefinition, pin: ModelPin | None) -> Thinking | None:
        """A pin's own level, then the definition's, then the session's (specification 3.10)."""
        level = (pin.thinking if pin else None) or definition.thinking
        if level is None and self.session.thinking:
            return Thinking(self.session.thinking)
        return level

    def shown(self, definition: SubagentDefinition) -> str:
        """Return the key of the model that would run, or the pin as written when it cannot be used."""
        if definition.model is None:
            return self.session.key
        try:
            return resolve_for_delegation(self.registry, self.session, definition.model.key, None).key
        except SidequestError:
            return f"{definition.model.key} (not configured)"


class AgentModels(RegistryModels):
    """Pins and overrides from a registry; what names no model runs on the agent's own, with its settings.

    `current` returns the agent's model and settings at the moment of the spawn. What the registry knows of
    that model counts; its default model does not.
    """

    def __init__(
        self, registry: ModelRegistry, current: Callable[[], tuple[Model, ModelSettings | None]]
    ) -> None:
        self._current = current
        self._own = current()[0]
        super().__init__(registry, _binding_of(registry, self._own))

    def build(self, binding: ModelBinding) -> Model:
        """Return the model of `binding`; the agent's own is never built again."""
        return self._own if binding.key == self.session.key else super().build(binding)

    def ready(
        self, binding: ModelBinding, *, cap: int | None = None, thinking: Thinking | None = None
    ) -> ResolvedModel:
        """Return `binding` with the settings of one run, the agent's own model with the agent's."""
        chosen = super().ready(binding, cap=cap, thinking=thinking)
        if binding.key != self.session.key:
            return chosen
        return replace(chosen, settings=_thinking_like(self._current()[1], thinking))


def _binding_of(registry: ModelRegistry, model: Model) -> ModelBinding:
    key = f"{model.system}/{model.model_name}"
    try:
        return registry.resolve(key)
    except SidequestError:
        return ModelBinding(key, model.system, model.model_name, model.system)
