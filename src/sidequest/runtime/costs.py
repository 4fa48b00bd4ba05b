"""What an answer cost in US dollars; an unknown price is said, not guessed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sidequest.core.outcome import Usage

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse

Price = Callable[["ModelResponse"], "float | None"]
"""Returns the US dollars of one answer, None when no price is known."""


def catalog_price(response: ModelResponse) -> float | None:
    """Return what genai-prices says, with cache reads and writes at their own rates, or None."""
    if response.usage.cost is not None:
        return float(response.usage.cost)
    if not response.model_name:
        return None
    try:
        return float(response.cost().total_price)
    except (LookupError, ValueError):
        return None


def telling(price: Price, told: Callable[[float | None], None]) -> Price:
    """Return `price`, which also tells what each answer cost."""

    def priced(response: ModelResponse) -> float | None:
        cost = price(response)
        told(cost)
        return cost

    return priced


@dataclass(frozen=True, slots=True)
class FixedPrice:
    """Prices that the user set, in US dollars for a million tokens; they beat the catalog."""

    input_price: float
    output_price: float

    def __call__(self, response: ModelResponse) -> float:
        """Return the price of one answer. Worked number: 1,000 input tokens at 3 dollars cost 0.003."""
        usage = response.usage
        return (usage.input_tokens * self.input_price + usage.output_tokens * self.output_price) / 1e6


def usage_of(response: ModelResponse, price: Price = catalog_price) -> Usage:
    """Return what one answer used. Zero usage is no usage: what it cost is then not known."""
    usage = response.usage
    cost = price(response) if usage.input_tokens or usage.output_tokens else None
    return Usage(1, usage.input_tokens, usage.output_tokens, cost)
