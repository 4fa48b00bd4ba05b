"""How much of a parent's context the reports of one batch may take, measured when they are handed over."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sidequest.core.budget import ContextBudget
from sidequest.core.tokens import TokenMeter
from sidequest.runtime.guard import ContextGuard
from sidequest.runtime.overhead import OverheadMeter
from sidequest.runtime.results import result_limit, result_tokens

if TYPE_CHECKING:
    from pydantic_ai.models import ModelRequestContext
    from pydantic_ai.tools import RunContext

KEPT_BACK = 3
"""One part in so many of what is left stays for what the parent says and does after it has read."""


@dataclass
class ReportRoom:
    """What one parent has left."""

    _overhead: int = field(default=0, init=False)
    """Tokens of instructions and tool schemas of its newest request."""
    _given: int = field(default=0, init=False)
    """Tokens of the results that its tools gave since then: they are not in its history yet."""
    _overheads: OverheadMeter = field(default_factory=OverheadMeter, init=False, repr=False)
    _meter: TokenMeter = field(default_factory=TokenMeter, init=False, repr=False)

    def asking(self, request: ModelRequestContext) -> None:
        """Take note of a request before it leaves."""
        self._overhead = self._overheads.measure(request.model_request_parameters, request.model).total
        self._given = 0

    def gave(self, ctx: RunContext[Any], name: str, value: Any) -> None:
        """Take note of what a tool gave; more than a result may take is cut where it is appended."""
        limit = result_limit(_budget(ctx).hard_limit, self._overhead)
        self._given += min(limit, result_tokens(value, name))

    def tokens(self, ctx: RunContext[Any]) -> int:
        """Return the most tokens of all reports of a batch together, by our estimate; at least 0.

        Two thirds of what a request has left, and never more than one tool result may take, so that nothing
        is cut or summarised away on arrival. Worked number: a `hard_limit` of 9,000 of which 6,000 are used
        gives 2,000.
        """
        guard = _guard_of(ctx)
        factor = guard.factor() if guard is not None else 1.0
        budget = _budget(ctx)
        used = self._meter.measure(ctx.messages, self._overhead, factor) + math.ceil(self._given * factor)
        left = math.floor((budget.hard_limit - used) / factor)
        return max(0, min(left - left // KEPT_BACK, result_limit(budget.hard_limit, self._overhead)))


def _budget(ctx: RunContext[Any]) -> ContextBudget:
    guard, model = _guard_of(ctx), ctx.model
    if guard is not None:
        return guard.budget_for(model)
    return ContextBudget.for_model(model)


def _guard_of(ctx: RunContext[Any]) -> ContextGuard[Any] | None:
    """Return the guard of the run, which knows what was set and learned about the model; None without one."""
    found: list[ContextGuard[Any]] = []
    if ctx.root_capability is not None:
        ctx.root_capability.apply(lambda item: found.append(item) if isinstance(item, ContextGuard) else None)
    return found[-1] if found else None
