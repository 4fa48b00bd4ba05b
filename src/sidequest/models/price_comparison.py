"""What a model costs beside the session's: dearer, not dearer, or not known."""

from __future__ import annotations

from sidequest.core.confirmation import Beside, ModelCost
from sidequest.models.bindings import OFFLINE_PROVIDER, ModelBinding
from sidequest.models.providers import provider_facts

Prices = tuple[float, float]
"""US dollars for a million tokens of input and of output."""


def beside(binding: ModelBinding, session: ModelBinding) -> ModelCost:
    """Return what `binding` costs beside `session`: more when its input or its output does.

    The embedded engine and servers of this machine cost nothing, unless the settings give a price.
    """
    if binding.key == session.key:
        return ModelCost(binding.key, Beside.NOT_MORE)
    own, other = prices_of(binding), prices_of(session)
    if own == (0.0, 0.0):
        return ModelCost(binding.key, Beside.NOT_MORE)
    if own is None:
        return ModelCost(binding.key, Beside.UNKNOWN, "its price is not known")
    if other is None:
        said = f"{_said(own)}, the session's price is not known"
        return ModelCost(binding.key, Beside.UNKNOWN, said)
    dearer = own[0] > other[0] or own[1] > other[1]
    said = f"{_said(own)}, the session's {_dollars(other)}"
    return ModelCost(binding.key, Beside.MORE if dearer else Beside.NOT_MORE, said)


def prices_of(binding: ModelBinding) -> Prices | None:
    """Return the prices of a binding, None when one of them is not known."""
    if binding.input_price is not None and binding.output_price is not None:
        return binding.input_price, binding.output_price
    facts = provider_facts(binding.vendor)
    here = binding.vendor == OFFLINE_PROVIDER or (facts is not None and facts.local_url is not None)
    return (0.0, 0.0) if here else None


def _dollars(prices: Prices) -> str:
    return f"${prices[0]:g} and ${prices[1]:g}"


def _said(prices: Prices) -> str:
    return f"{_dollars(prices)} for a million tokens in and out"
