"""Windows and prices as a public catalog states them; what the user or a server says always beats it.

The catalog is the data of genai-prices, which pydantic-ai installs. It is sometimes wrong in both directions
(DESIGN, "Known traps"), names no window for some models and no output limit for any. Loading it takes about
0.15 s, pydantic-ai itself three times that, so it is read here directly and only at the first question.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from difflib import get_close_matches
from typing import TYPE_CHECKING, Protocol

from sidequest.models.names import alias_of
from sidequest.models.providers import provider_facts

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, TieredPrices


@dataclass(frozen=True, slots=True)
class CatalogFacts:
    """What a catalog knows of one model; None where it knows nothing."""

    window: int | None = None
    """Context window in tokens."""
    max_tokens: int | None = None
    """Most output tokens of one response. genai-prices does not record it."""
    input_price: float | None = None
    """US dollars for a million input tokens; of several tiers the first."""
    output_price: float | None = None
    """US dollars for a million output tokens; of several tiers the first."""
    label: str | None = None
    """Name shown to people, such as `Claude Sonnet 4.5`."""


UNKNOWN = CatalogFacts()


class Catalog(Protocol):
    """A source of facts about models; tests bring their own."""

    def facts(self, provider: str, name: str, base_url: str | None = None) -> CatalogFacts:
        """Return the facts of a model, `UNKNOWN` when there are none; never raises."""
        ...

    def model_id(self, provider: str, text: str) -> str | None:
        """Return the id of the provider's model whose id or shown name is `text` by letters and digits."""
        ...


class GenaiPrices:
    """The catalog of the installed genai-prices."""

    def facts(self, provider: str, name: str, base_url: str | None = None) -> CatalogFacts:
        """Look `name` up under the provider, or under the owner of `base_url` if the provider is unknown."""
        from genai_prices.data_snapshot import get_snapshot

        known = provider_facts(provider)
        catalog_id = _catalog_id(provider)
        url = base_url if known is None else None
        if known is None and url is None:
            return UNKNOWN
        try:
            _, model = get_snapshot().find_provider_model(name, None, None if url else catalog_id, url)
        except LookupError:
            return UNKNOWN
        return _facts(model)

    def model_id(self, provider: str, text: str) -> str | None:
        """Search the provider's models; a date at the end of `text` is kept when the model accepts it."""
        from genai_prices.data_snapshot import find_provider_by_id, get_snapshot

        found = find_provider_by_id(get_snapshot().providers, _catalog_id(provider))
        wanted = alias_of(text)
        for model in found.models if found else ():
            if wanted in (alias_of(model.id), alias_of(model.name or "")):
                return model.id
            dated = wanted.removeprefix(alias_of(model.id))
            if dated != wanted and len(dated) == 8 and dated.isdigit():
                return text.strip()
        return None


def near_names(provider: str, name: str) -> list[str]:
    """Return up to three ids of the provider's models in the catalog spelt like `name`, best first."""
    from genai_prices.data_snapshot import find_provider_by_id, get_snapshot

    found = find_provider_by_id(get_snapshot().providers, _catalog_id(provider))
    return get_close_matches(name, [model.id for model in found.models] if found else [], n=3, cutoff=0.6)


def _catalog_id(provider: str) -> str:
    known = provider_facts(provider)
    return (known.catalog_id or known.vendor or known.id) if known else provider


def _facts(model: ModelInfo) -> CatalogFacts:
    prices = model.get_prices(datetime.now(UTC)) if model.prices else None
    return CatalogFacts(
        window=model.context_window,
        input_price=_dollars(prices.input_mtok) if prices else None,
        output_price=_dollars(prices.output_mtok) if prices else None,
        label=model.name,
    )


def _dollars(price: Decimal | TieredPrices | None) -> float | None:
    if price is None:
        return None
    return float(price if isinstance(price, Decimal) else price.base)
