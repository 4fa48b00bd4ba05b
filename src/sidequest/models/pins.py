"""Which model a delegation runs on: Task.model, then the definition's pin, then the session's model.

Specification 3.3 and 4.7, cases M1 to M8. A pin authorises only its own definition, and one that cannot be
resolved is never replaced by the session's model here: the caller decides about fallbacks, and says so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.models.bindings import ModelBinding
from sidequest.models.names import alias_of, spellings, split_name
from sidequest.models.providers import provider_by_alias, provider_facts
from sidequest.models.registry import ModelRegistry

MAX_PINNED_PROVIDERS = 8
"""Most distinct providers that all definitions together may pin, fallbacks included (specification 4.7)."""


def resolve_for_delegation(
    registry: ModelRegistry,
    session: ModelBinding,
    pin: str | None,
    override: str | None,
    *,
    granted: Collection[str] = (),
) -> ModelBinding:
    """Return the model a delegation starts on.

    `pin` is the definition's own model and `override` what the parent asked for (Task.model); None or blank
    means that nothing was said. An override that repeats the pin is the pin (M2), one that means the
    session's model is that model (M5); any other must be opted in with `available_for_subagents` (M1, M3, M6)
    or be among `granted`, the keys that the host allowed on demand (M4).

    Raises:
        SidequestError: `MODEL_NOT_CONFIGURED` or `MISSING_EXTRA`. For an override the remedy lists the
            available keys, for a pin the cause names the pin.
    """
    pin, override = (pin or "").strip(), (override or "").strip()
    if not override or (pin and alias_of(override) == alias_of(pin)):
        return resolve_pin(registry, session, pin) if pin else session
    if names_binding(override, session):
        return session
    try:
        chosen = registry.resolve(override)
    except SidequestError as error:
        raise _not_available(registry, override) from error
    if chosen.key == session.key:
        return session
    if pin and _key_of(registry, pin) == chosen.key:
        return resolve_pin(registry, session, pin)
    if not chosen.available_for_subagents and chosen.key not in granted:
        raise _not_available(registry, override)
    return chosen.require_ready()


def resolve_pin(registry: ModelRegistry, session: ModelBinding, pin: str) -> ModelBinding:
    """Return the model that a definition pins, ready to use.

    Raises:
        SidequestError: the code of the reason, a cause that names the pin, and the remedy.
    """
    if alias_of(pin) == alias_of(session.key):
        return session
    try:
        found = registry.resolve(pin).require_ready()
    except SidequestError as error:
        raise SidequestError(
            error.code,
            f"The pinned model {pin!r} cannot be used: {error.cause}",
            error.remedy,
            model=pin,
        ) from error
    return session if found.key == session.key else found


@dataclass(frozen=True, slots=True)
class Alternative:
    """One fallback pin: the model it resolved to, or why it did not."""

    pin: str
    binding: ModelBinding | None = None
    error: SidequestError | None = None


def resolve_fallbacks(
    registry: ModelRegistry, session: ModelBinding, first: ModelBinding, pins: Iterable[str]
) -> tuple[Alternative, ...]:
    """Resolve the fallback pins of a definition in order (specification 3.10).

    An unresolved pin stays, with its error, so that the caller records it; a model that is `first`, which
    runs already, or that an earlier pin named, is left out silently.
    """
    seen = {first.key}
    found: list[Alternative] = []
    for pin in pins:
        try:
            binding = resolve_pin(registry, session, pin)
        except SidequestError as error:
            found.append(Alternative(pin, error=error))
            continue
        if binding.key not in seen:
            seen.add(binding.key)
            found.append(Alternative(pin, binding))
    return tuple(found)


def names_binding(text: str, binding: ModelBinding) -> bool:
    """Say whether `text` means `binding`: its provider's id, vendor or label, and its model id.

    Only letters and digits count, in any case (M5): `Anthropic: Claude-Sonnet-4.5` means
    `anthropic/claude-sonnet-4-5`. The model id alone is enough.
    """
    facts = provider_facts(binding.vendor)
    providers = (binding.provider, binding.vendor, facts.label if facts else binding.vendor)
    return alias_of(text) in spellings(providers, binding.name)


def too_many_providers(pins: Iterable[str]) -> tuple[str, ...]:
    """Return the providers beyond the eighth that `pins` name, in order; empty when all is well.

    `pins` are the pins and fallback pins of all definitions; a bare alias names no provider.
    """
    seen: dict[str, str] = {}
    for pin in pins:
        parts = split_name(pin, lambda word: provider_by_alias(word) is not None)
        if parts is not None:
            seen.setdefault(alias_of(parts[0]), parts[0])
    return tuple(seen.values())[MAX_PINNED_PROVIDERS:]


def _key_of(registry: ModelRegistry, pin: str) -> str | None:
    try:
        return registry.resolve(pin).key
    except SidequestError:
        return None


def _not_available(registry: ModelRegistry, override: str) -> SidequestError:
    keys = registry.available_for_subagents()
    choice = f"Use one of: {', '.join(keys)}; or leave" if keys else "Leave"
    return SidequestError(
        ErrorCode.MODEL_NOT_CONFIGURED,
        f"The model {override!r} is not available to subagents.",
        f"{choice} model out to run on the definition's or the session's model.",
        model=override,
    )
