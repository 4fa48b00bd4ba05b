"""Puts one binding together: whose key, which address, whose numbers.

Which model a name means is decided in `registry`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from pydantic import SecretStr

from sidequest.core.errors import ErrorCode
from sidequest.models.bindings import (
    OFFLINE_KEY,
    OFFLINE_MAX_TOKENS,
    OFFLINE_PROVIDER,
    OFFLINE_WINDOW,
    ModelBinding,
    ModelEntry,
    Problem,
    Source,
)
from sidequest.models.building import extra_of
from sidequest.models.catalog_facts import UNKNOWN, Catalog
from sidequest.models.local_answers import LocalModel
from sidequest.models.local_servers import LocalServer
from sidequest.models.names import split_key
from sidequest.models.providers import (
    SMALL_DEFAULT_WINDOW,
    Api,
    ProviderFacts,
    install_line,
    provider_facts,
)

_NO_ENTRY = ModelEntry.model_validate({})


class Binder:
    """Makes bindings from the tables of the settings, the environment, local servers and the catalog."""

    def __init__(
        self,
        entries: Mapping[str, ModelEntry],
        env: Mapping[str, str],
        catalog: Catalog,
        servers: tuple[LocalServer, ...],
        installed: Callable[[str], bool],
    ) -> None:
        self._entries = entries
        self._env = env
        self._catalog = catalog
        self._servers = servers
        self._installed = installed

    def enabled(self, facts: ProviderFacts) -> bool:
        """Say whether the environment holds what the provider needs, as far as that can be seen."""
        return not facts.key_variables or self.has_key(facts) or self._moved(facts) is not None

    def has_key(self, facts: ProviderFacts) -> bool:
        """Say whether one of the provider's key variables is set."""
        return self._first_set(facts) is not None

    def entry(self, key: str) -> ModelBinding:
        """Return the binding of the table `key` of the settings."""
        provider, name = split_key(key)
        entry = self._entries[key]
        if (entry.provider or provider) == OFFLINE_PROVIDER:
            return self.offline(key)
        facts = provider_facts(entry.provider or provider)
        return self._bind(key, entry.name or name, facts, entry, self._served(key, entry))

    def on_demand(self, facts: ProviderFacts, name: str) -> ModelBinding:
        """Return the binding of a model that has no table, at a known provider."""
        name = name.removesuffix(":latest") if facts.id == "ollama" else name
        key = f"{facts.id}/{name}"
        return self._bind(key, name, facts, _NO_ENTRY, self._served(key, _NO_ENTRY))

    def discovered(self) -> Iterator[ModelBinding]:
        """Return the models that local servers offer and the settings have no table for."""
        for server in self._servers:
            for model in server.models:
                key = f"{server.kind}/{model.name}"
                if key not in self._entries:
                    yield self._bind(key, model.name, provider_facts(server.kind), _NO_ENTRY, (server, model))

    def offline(self, key: str = OFFLINE_KEY) -> ModelBinding:
        """Return the engine that needs no account, with the window and limit that its table may give it.

        Every table below `offline/` is that engine: a second one with a smaller window is how compaction is
        shown and tried without an account.
        """
        entry = self._entries.get(key, _NO_ENTRY)
        provider, name = split_key(key)
        return ModelBinding(
            key,
            provider,
            name,
            vendor=OFFLINE_PROVIDER,
            label="Offline extractive engine (not a language model)",
            window=entry.context_window or OFFLINE_WINDOW,
            window_source="user" if entry.context_window else "server",
            max_tokens=entry.max_tokens or OFFLINE_MAX_TOKENS,
            max_tokens_source="user" if entry.max_tokens else "server",
            input_price=0.0,
            output_price=0.0,
            price_source="user",
            available_for_subagents=entry.available_for_subagents,
            aliases=entry.aliases,
        )

    def _bind(
        self,
        key: str,
        name: str,
        facts: ProviderFacts | None,
        entry: ModelEntry,
        served: tuple[LocalServer, LocalModel] | None,
    ) -> ModelBinding:
        provider, _ = split_key(key)
        vendor = (facts.vendor or facts.id) if facts else provider
        base_url = entry.base_url or (served[0].base_url if served else None) or self._moved(facts)
        on_this_machine = served is not None or (facts is not None and facts.local_url is not None)
        catalog = UNKNOWN if on_this_machine else self._catalog.facts(vendor, name, base_url)
        window, window_source = _window(entry, served[1] if served else None, catalog.window, facts)
        max_tokens = entry.max_tokens or catalog.max_tokens
        max_source: Source = "user" if entry.max_tokens else "catalog" if catalog.max_tokens else "unknown"
        binding = ModelBinding(
            key,
            provider,
            name,
            vendor=vendor,
            label=catalog.label,
            window=window,
            window_source=window_source,
            max_tokens=max_tokens,
            max_tokens_source=max_source,
            input_price=catalog.input_price if entry.input_price is None else entry.input_price,
            output_price=catalog.output_price if entry.output_price is None else entry.output_price,
            price_source=_price_source(entry, catalog.input_price),
            thinking=entry.thinking,
            available_for_subagents=entry.available_for_subagents,
            aliases=entry.aliases,
            api=_api(entry, facts, base_url),
            base_url=base_url,
            api_key=self._api_key(entry, facts),
            headers=entry.headers,
        )
        return replace(binding, problem=self._problem(binding, entry, facts))

    def _served(self, key: str, entry: ModelEntry) -> tuple[LocalServer, LocalModel] | None:
        """Find the local server that has the model: by key, or by the address that the settings give."""
        provider, name = split_key(key)
        name = (entry.name or name).removesuffix(":latest")
        for server in self._servers:
            here = entry.base_url is not None and entry.base_url.rstrip("/") == server.base_url
            for model in server.models if here or provider == server.kind else ():
                if model.name == name:
                    return server, model
        return None

    def _first_set(self, facts: ProviderFacts) -> str | None:
        return next((self._env[name] for name in facts.key_variables if self._env.get(name)), None)

    def _moved(self, facts: ProviderFacts | None) -> str | None:
        """Return the address that the environment or the provider table gives; None: the usual one."""
        if facts is None:
            return None
        moved = self._env.get(facts.url_variable) if facts.url_variable else None
        return moved or facts.local_url

    def _api_key(self, entry: ModelEntry, facts: ProviderFacts | None) -> SecretStr | None:
        if entry.api_key is not None:
            return entry.api_key
        if entry.api_key_env is not None:
            value = self._env.get(entry.api_key_env)
        elif entry.base_url is None and facts is not None:
            value = self._first_set(facts)
        else:  # an address of the user's own never gets the key that belongs to the provider
            value = None
        return SecretStr(value) if value else None

    def _problem(
        self, binding: ModelBinding, entry: ModelEntry, facts: ProviderFacts | None
    ) -> Problem | None:
        if facts is None and binding.base_url is None:
            return Problem(
                ErrorCode.MODEL_NOT_CONFIGURED,
                f"{binding.provider!r} is no known provider and {binding.key} has no base_url.",
                f'Add base_url or provider to [models."{binding.key}"] in the settings.',
            )
        if binding.api_key is None and entry.api_key_env:
            return _missing(entry.api_key_env)
        if binding.api_key is None and binding.base_url is None and facts is not None and facts.key_variables:
            return _missing(*facts.key_variables)
        extra = extra_of(binding)
        if not self._installed(extra):
            cause = f"The package for {facts.label if facts else binding.provider} is not installed."
            return Problem(ErrorCode.MISSING_EXTRA, cause, install_line(extra))
        return None


def _missing(*variables: str) -> Problem:
    which = f"{variables[0]} is not set" if len(variables) == 1 else f"None of {', '.join(variables)} is set"
    return Problem(
        ErrorCode.MODEL_NOT_CONFIGURED,
        f"{which}.",
        f"Set {variables[0]}, or give the model a key in the settings.",
    )


def _window(
    entry: ModelEntry, model: LocalModel | None, catalog: int | None, facts: ProviderFacts | None
) -> tuple[int | None, Source]:
    """The user's window, else the server's, else the catalog's, else the small default of a local server."""
    if entry.context_window:
        return entry.context_window, "user"
    if model is not None and model.window:
        return model.window, "assumed" if model.assumed else "server"
    if catalog:
        return catalog, "catalog"
    if facts is not None and facts.small_default_window:
        return SMALL_DEFAULT_WINDOW, "assumed"
    return None, "unknown"


def _api(entry: ModelEntry, facts: ProviderFacts | None, base_url: str | None) -> Api:
    if entry.api != "auto":
        return entry.api
    if facts is not None and facts.api != "auto":
        return facts.api
    if base_url is not None:
        return "openai-chat"  # what every server that imitates OpenAI understands
    return "openai-responses" if facts is not None and facts.id == "openai" else "auto"


def _price_source(entry: ModelEntry, catalog_price: float | None) -> Source:
    if entry.input_price is not None and entry.output_price is not None:
        return "user"
    return "catalog" if catalog_price is not None else "unknown"
