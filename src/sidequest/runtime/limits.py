"""Limits that a definition or a setting gives a run, and the account of a session with its delegations."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.outcome import StopReason

TIME_FOR_REPORT = 0.2
"""Share of the wall time that is kept for the report: the last turn is asked for when 80 % are over."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds one run; None means no limit."""

    turns: int | None = None
    """Most model requests, at least 1, inclusive."""
    seconds: float | None = None
    """Most wall time, without what the agent waits for a person; at its end the run is cut."""
    cost_usd: float | None = None
    """Most US dollars. Not enforced while no price is known, and then it is said."""


@dataclass
class Account:
    """Money that a session and all of its delegations draw from."""

    limit_usd: float | None = None
    """None means no limit; spending is counted all the same."""
    spent_usd: float = 0.0
    """Known costs only."""
    unpriced: set[str] = field(default_factory=set)
    """Models that answered and have no known price."""
    told: Callable[[float], None] = field(default=lambda cost_usd: None)
    """Called with each cost that is counted: a stored session keeps account beyond its process."""

    @property
    def exhausted(self) -> bool:
        """Whether everything is spent that may be."""
        return self.limit_usd is not None and self.spent_usd >= self.limit_usd

    def require(self) -> None:
        """Refuse to begin something new when everything is spent.

        Raises:
            SidequestError: `SUBAGENT_COST_LIMIT`.
        """
        if self.exhausted:
            raise SidequestError(
                ErrorCode.SUBAGENT_COST_LIMIT,
                f"This session has spent {self.spent_usd:.2f} of the {self.limit_usd:.2f} US dollars that it "
                "and its delegations may spend.",
                "Raise max_cost_usd in the settings, or begin another session.",
                spentUsd=self.spent_usd,
                limitUsd=self.limit_usd,
            )

    def spend(self, model: str, cost_usd: float | None) -> None:
        """Count the cost of one answer of `model`; None means that its price is not known."""
        if cost_usd is None:
            self.unpriced.add(model)
        else:
            self.spent_usd += cost_usd
            self.told(cost_usd)


@dataclass
class LimitWatch:
    """Says when the coming turn must be the last one of a run."""

    limits: Limits = field(default_factory=Limits)
    account: Account = field(default_factory=Account)
    clock: Callable[[], float] = time.monotonic
    """Seconds; only differences count."""
    spent_usd: float = 0.0
    largest_turn_usd: float = 0.0
    started: float | None = None
    """When the wall time began, by the clock; None before `start`."""
    waited_s: float = 0.0
    """How much of the time since then was waiting for a person, which is not counted."""
    _paused: float | None = field(default=None, init=False)

    def start(self) -> None:
        """Begin to measure the wall time."""
        self.started = self.clock()

    def pause(self) -> None:
        """Stand still: a question of the run waits for a person."""
        self._paused = self.clock()

    def resume(self) -> None:
        """Go on from where it stood still."""
        if self._paused is not None:
            self.waited_s += self.clock() - self._paused
            self._paused = None

    def spend(self, model: str, cost_usd: float | None) -> None:
        """Count the cost of one answer of this run, for itself and for the session."""
        self.account.spend(model, cost_usd)
        if cost_usd is not None:
            self.spent_usd += cost_usd
            self.largest_turn_usd = max(self.largest_turn_usd, cost_usd)

    def spend_on_summary(self, cost_usd: float | None) -> None:
        """Count the answer to a summary request, which is no turn; one without a known price is left out."""
        if cost_usd is not None:
            self.account.spend("", cost_usd)
            self.spent_usd += cost_usd

    def coming(self, turn: int) -> StopReason | None:
        """Return which limit makes `turn`, counted from 1, the last one; None when it may go on.

        Money strikes before it is spent: when one more turn like the dearest so far would reach the limit.
        Worked number: with a limit of 10 turns the tenth is the last; with 100 s it is the first turn that
        begins 80 s after the start or later.
        """
        if self.limits.turns is not None and turn >= self.limits.turns:
            return StopReason.TURN_LIMIT
        if self.limits.seconds is not None and self.started is not None:
            now = self.clock() if self._paused is None else self._paused
            elapsed = now - self.started - self.waited_s
            if elapsed >= self.limits.seconds * (1 - TIME_FOR_REPORT):
                return StopReason.TIME_LIMIT
        if self._money_is_short(self.limits.cost_usd, self.spent_usd):
            return StopReason.COST_LIMIT
        if self._money_is_short(self.account.limit_usd, self.account.spent_usd):
            return StopReason.COST_LIMIT
        return None

    def _money_is_short(self, limit: float | None, spent: float) -> bool:
        return limit is not None and spent > 0 and spent + self.largest_turn_usd >= limit
