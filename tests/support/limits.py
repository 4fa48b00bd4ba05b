"""What a provider refuses, or cuts, before any model sees the request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.support import error_bodies
from tests.support.counting import newest_that_fit
from tests.support.neutral import Answer, Seen
from tests.support.pairing import unpaired


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The rules of one provider, checked in this order: rate, pairing, window, window with output."""

    window: int | None
    """Context window in tokens; an input of that size or more is too large. None: no limit."""
    enforce_sum: bool
    """Also refuse when input plus requested output is more than the window; equality is allowed."""
    truncate_silently: bool
    rate: Callable[[Seen], float | None] | None
    overflow: Callable[[Seen, int], Answer]
    pairing: bool

    def refusal(self, seen: Seen) -> Answer | None:
        """Return how `seen` is refused, or None when the model may have it."""
        wait = self.rate(seen) if self.rate is not None else None
        if wait is not None:
            return error_bodies.rate_limited(seen, wait)
        if self.pairing and (refusal := unpaired(seen)):
            return refusal
        if self.window is None or self.truncate_silently:
            return None
        if seen.tokens >= self.window:
            return self.overflow(seen, self.window)
        output = seen.max_tokens or 0
        if self.enforce_sum and seen.tokens + output > self.window:
            return error_bodies.sum_overflow(seen, self.window, output)
        return None

    def shown(self, seen: Seen) -> Seen:
        """Return what the model gets: `seen`, or its newest messages if it is cut silently.

        Worked number: of a request that fills a window of 16,000, the newest 8,002 tokens stay, system text
        and first messages go, and 8,002 is what is reported as input.
        """
        if not self.truncate_silently or self.window is None or seen.tokens < self.window:
            return seen
        kept = self.window // 2 + 2
        messages = newest_that_fit(seen.messages, kept)
        return replace(seen, system="", messages=messages, tokens=kept, truncated=True)
