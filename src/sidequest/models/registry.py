"""Which model a name means (specification 3.3 and 4.7): settings, environment, local servers, catalog."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import NoReturn

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.models.binder import Binder
from sidequest.models.bindings import OFFLINE_KEY, OFFLINE_PROVIDER, ModelBinding, ModelEntry
from sidequest.models.catalog_facts import Catalog, GenaiPrices
from sidequest.models.local_servers import LocalServer
from sidequest.models.names import alias_of, is_family_word, split_name, without_remark
from sidequest.models.providers import (
    PROVIDERS,
    ProviderFacts,
    provider_by_alias,
    provider_facts,
    sdk_installed,
)

_LISTED_KEYS = 8
"""Most keys that an error names."""


class ModelRegistry:
    """Turns names into bindings. Immutable: changed settings mean a new registry.

    A model is configured when it has a table in the settings, when a local server offers it, or when its
    provider's key is in the environment. `entries` are the tables by key, `env` the environment (None: that
    of the process), `default` the key of the default model, `servers` what `discover` found, `bindings`
    ready-made ones, such as a library user's own models, which beat a table of the same key; `installed`
    says whether an extra of pydantic-ai can be imported.
    """

    def __init__(
        self,
        entries: Mapping[str, ModelEntry] | None = None,
        env: Mapping[str, str] | None = None,
        default: str | None = None,
        catalog: Catalog | None = None,
        *,
        servers: Iterable[LocalServer] = (),
        bindings: Iterable[ModelBinding] = (),
        installed: Callable[[str], bool] = sdk_installed,
    ) -> None:
        self._entries = dict(entries or {})
        self._env = dict(os.environ if env is None else env)
        self._default = default
        self._catalog = catalog or GenaiPrices()
        self._given = tuple(bindings)
        self._installed = installed
        self._binder = Binder(self._entries, self._env, self._catalog, tuple(servers), installed)
        self._configured: tuple[ModelBinding, ...] | None = None

    def with_servers(self, servers: Iterable[LocalServer]) -> ModelRegistry:
        """Return a registry that also knows the models of `servers`; settings still beat what they report."""
        return ModelRegistry(
            self._entries,
            self._env,
            self._default,
            self._catalog,
            servers=servers,
            bindings=self._given,
            installed=self._installed,
        )

    def resolve(self, name: str) -> ModelBinding:
        """Return the one model that `name` means; it need not be `ready`.

        Accepted are `provider/model` (the first slash splits), `provider:model`, and an alias: a model id, a
        shown name or a family word such as `sonnet`, if exactly one configured model fits.

        Raises:
            SidequestError: `MODEL_NOT_CONFIGURED`; the remedy lists near or available keys.
        """
        text = name.strip()
        if text == OFFLINE_KEY:
            return self._binder.offline()
        for binding in self._own():
            if binding.key == text:
                return binding
        parts = split_name(text, lambda word: self._knows_provider(word))
        found = self._in_provider(*parts) if parts else self._by_alias(text)
        return found if found is not None else self._refuse(text)

    def default(self) -> ModelBinding:
        """Return the model of a session that names none.

        The settings' default; else the first usable model of the settings in file order; else the first
        starter of the first provider with a key: Anthropic, OpenAI, Google, DeepSeek, xAI; else
        `offline/extractive`. A default that the settings name is never replaced, even when not `ready`.

        Raises:
            SidequestError: `MODEL_NOT_CONFIGURED` when the settings' default cannot be resolved.
        """
        if self._default:
            try:
                return self.resolve(self._default)
            except SidequestError as error:
                cause = f"The default_model of the settings cannot be used: {error.cause}"
                raise SidequestError(error.code, cause, error.remedy, model=self._default) from error
        bindings = (self._binder.entry(key) for key in self._entries)
        tables = (binding for binding in bindings if binding.vendor != OFFLINE_PROVIDER)
        for binding in (*self._given, *tables, *self._starters()):
            if binding.ready:
                return binding
        return self._binder.offline()

    def secrets(self) -> list[str]:
        """Return keys and header values of every configured model: the store masks them wherever they are."""
        return [
            secret.get_secret_value()
            for binding in self.listed()
            for secret in (binding.api_key, *binding.headers.values())
            if secret is not None
        ]

    def listed(self) -> tuple[ModelBinding, ...]:
        """Return what `sidequest models list` shows: settings, local servers, starters, the offline engine.

        A provider of `default` without a key is there once, with `why_not`. Imports neither pydantic-ai nor
        the package of a provider.
        """
        shown = {binding.key: binding for binding in self._own()}
        for facts in PROVIDERS:
            for name in facts.starters if self._binder.has_key(facts) else facts.starters[:1]:
                binding = self._binder.on_demand(facts, name)
                shown.setdefault(binding.key, binding)
        offline = self._binder.offline()
        shown.setdefault(offline.key, offline)
        return tuple(shown.values())

    def available_for_subagents(self) -> tuple[str, ...]:
        """Return the keys that a parent model may choose: opted in by the settings, and ready (case M3)."""
        return tuple(b.key for b in self._own() if b.available_for_subagents and b.ready)

    def _own(self) -> tuple[ModelBinding, ...]:
        if self._configured is None:
            given = {binding.key for binding in self._given}
            tables = (self._binder.entry(key) for key in self._entries)
            others = (b for b in (*tables, *self._binder.discovered()) if b.key not in given)
            self._configured = (*self._given, *others)
        return self._configured

    def _starters(self) -> Iterator[ModelBinding]:
        for facts in PROVIDERS:
            if self._binder.has_key(facts):
                for name in facts.starters:
                    yield self._binder.on_demand(facts, name)

    def _knows_provider(self, word: str) -> bool:
        alias = alias_of(word)
        return provider_by_alias(word) is not None or any(alias == alias_of(b.provider) for b in self._own())

    def _in_provider(self, provider: str, name: str) -> ModelBinding | None:
        """Match the provider by id, then by its vendor, then by the vendor's label (specification 4.7)."""
        facts = provider_facts(provider)
        if found := self._pick([b for b in self._own() if b.provider == provider], name):
            return found
        if facts is not None and self._binder.enabled(facts):
            return self._binder.on_demand(facts, name)
        alias = alias_of(provider)
        for names_of in (_id_alias, _vendor_alias, _label_alias):
            if found := self._pick([b for b in self._own() if names_of(b) == alias], name):
                return found
        facts = facts or provider_by_alias(provider)
        return self._binder.on_demand(facts, name) if facts is not None else None

    def _pick(self, bindings: list[ModelBinding], name: str) -> ModelBinding | None:
        exact = [b for b in bindings if b.name == name]
        wanted = alias_of(name)
        return self._only(name, exact or [b for b in bindings if wanted in _exact_aliases(b)])

    def _by_alias(self, text: str) -> ModelBinding | None:
        text = without_remark(text).removesuffix(":latest")
        wanted = alias_of(text)
        if not wanted:
            return None
        for pool in (self._own(), tuple(self._starters())):
            exact = [b for b in pool if wanted in _exact_aliases(b)]
            family = [b for b in pool if is_family_word(text, b.name)]
            if found := self._only(text, exact or family):
                return found
        listed = list(self._in_catalog(text))
        # A reseller's id starts with the maker's name, so it fits by its shown name only: the maker is first.
        return self._only(text, [b for b in listed if alias_of(b.name) == wanted] or listed)

    def _in_catalog(self, text: str) -> Iterator[ModelBinding]:
        for facts in PROVIDERS:
            if not facts.vendor and self._binder.has_key(facts):
                name = self._catalog.model_id(facts.id, text)
                if name is not None:
                    yield self._binder.on_demand(facts, name)

    def _only(self, text: str, found: list[ModelBinding]) -> ModelBinding | None:
        usable = [binding for binding in found if binding.ready] or found
        if len(usable) < 2:
            return usable[0] if usable else None
        raise SidequestError(
            ErrorCode.MODEL_NOT_CONFIGURED,
            f"{text!r} fits several models: {_some(b.key for b in usable)}.",
            "Use the exact id of one of them.",
            model=text,
        )

    def _refuse(self, text: str) -> NoReturn:
        keys = [binding.key for binding in self.listed() if binding.ready]
        near = get_close_matches(text, keys, n=3, cutoff=0.6)
        remedy = f"Did you mean {_some(near)}?" if near else f"Available: {_some(keys)}."
        if hint := self._family_hint(text):
            remedy = f"{hint} {remedy}"
        elif "/" in text and not near:
            remedy = f'Add a table [models."{text}"] with its base_url to the settings. {remedy}'
        cause = (
            f"No model is configured under the name {text!r}." if text else "The name of the model is empty."
        )
        raise SidequestError(ErrorCode.MODEL_NOT_CONFIGURED, cause, remedy, model=text)

    def _family_hint(self, text: str) -> str:
        """Say which key would make a well-known word such as `sonnet` a model."""
        for facts in PROVIDERS:
            if any(is_family_word(text, name) for name in facts.starters) and not self._binder.has_key(facts):
                return f"{facts.label} has such a model; set {_either(facts)} to use it."
        return ""


def _exact_aliases(binding: ModelBinding) -> frozenset[str]:
    return frozenset(map(alias_of, (binding.name, binding.label or binding.name, *binding.aliases)))


def _id_alias(binding: ModelBinding) -> str:
    return alias_of(binding.provider)


def _vendor_alias(binding: ModelBinding) -> str:
    return alias_of(binding.vendor)


def _label_alias(binding: ModelBinding) -> str:
    facts = provider_facts(binding.vendor)
    return alias_of(facts.label) if facts else ""


def _either(facts: ProviderFacts) -> str:
    return " or ".join(facts.key_variables)


def _some(keys: Iterable[str]) -> str:
    shown = list(keys)
    more = f" and {len(shown) - _LISTED_KEYS} more" if len(shown) > _LISTED_KEYS else ""
    return ", ".join(shown[:_LISTED_KEYS]) + more
