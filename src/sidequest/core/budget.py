"""How many tokens a model leaves for a request (specification 1.1 to 1.3, decision record 0299 clause 1).

Pure arithmetic on two numbers, the context window and the maximum output. Shared by parent and delegate,
so the two cannot drift.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

DEFAULT_CONTEXT_WINDOW = 128_000
"""Window in tokens when a model reports none."""
DEFAULT_MAX_TOKENS = 8_192
"""Output tokens per response when a model reports none."""
RESERVE_FLOOR_TOKENS = 16_384
"""Least headroom in tokens, unless half of the window is less."""
MIN_KEEP_RECENT_TOKENS = 8_000
MAX_KEEP_RECENT_TOKENS = 64_000
RETAINED_USER_MAX_TOKENS = 20_000
SUMMARY_PROMPT_SAFETY_TOKENS = 2_048
SMALL_WINDOW_TOKENS = 8_000
"""Below this window the reserves of the specification leave no room for a summary."""
MIN_REMINDER_TOKENS = 8_000
MAX_REMINDER_TOKENS = 32_000
MAX_OUTPUT_CAP_TOKENS = 200_000
"""Largest output cap a definition may ask for (decision record 0210 clause 2)."""


class WindowedModel(Protocol):
    """Anything that knows its context window in tokens; every pydantic-ai `Model` does."""

    @property
    def context_window(self) -> int | None: ...


def _positive(value: float | None, default: int) -> int:
    """Round half up; absent, zero and not-a-number mean `default`, negative is clamped to 1."""
    if not value or not math.isfinite(value):
        return default
    return max(1, math.floor(value + 0.5))


def stricter_cap(cap: int | None, max_tokens: int | None) -> int | None:
    """Return the smaller of a definition's output cap and the model's own limit, in tokens.

    None and 0 mean "no value". A cap may be stricter than the model, never looser (specification 8.17).
    Worked number: a cap of 64,000 on a model that writes 8,192 gives 8,192.
    """
    values = [value for value in (cap, max_tokens) if value]
    return min(values) if values else None


@dataclass(frozen=True, slots=True)
class ContextBudget:
    """What a model leaves for a request, all in tokens.

    A request is allowed if and only if its size is below `hard_limit`: a size that equals it is too large.
    Worked number (specification 1.3): window 200,000 and maximum output 32,000 give `output` 32,000,
    `headroom` 32,000, `hard_limit` 168,000 and `keep_recent` 33,600.
    """

    window: int
    """The context window, at least 1."""
    output: int
    """The output budget: the maximum output, but at most a quarter of the window."""
    headroom: int
    """Kept free for the answer and for estimation error; 0 only when the window is 1."""
    hard_limit: int
    """The first request size that is too large: `window - headroom`, at least 1."""
    keep_recent: int
    """How much of the newest history a compaction may treat as recent."""
    max_tokens: int
    """The maximum output before the quarter rule."""

    @classmethod
    def of(cls, window: float | None = None, max_tokens: float | None = None) -> ContextBudget:
        """Derive the budget from a window and a maximum output, both in tokens (specification 1.2).

        None and 0 mean unknown and take the defaults (128,000 and 8,192); a negative value counts as 1.
        """
        w = _positive(window, DEFAULT_CONTEXT_WINDOW)
        asked = _positive(max_tokens, DEFAULT_MAX_TOKENS)
        output = min(asked, max(1, w // 4))
        floor = min(RESERVE_FLOOR_TOKENS, max(1, w // 2))
        headroom = min(w - 1, max(floor, output, -(-w * 5 // 100)))
        hard_limit = max(1, w - headroom)
        keep_recent = min(
            max(MIN_KEEP_RECENT_TOKENS, min(MAX_KEEP_RECENT_TOKENS, hard_limit // 5)),
            max(1, hard_limit // 2),
        )
        return cls(w, output, headroom, hard_limit, keep_recent, asked)

    @classmethod
    def for_model(
        cls,
        model: WindowedModel | None = None,
        *,
        window: int | None = None,
        max_tokens: int | None = None,
        cap: int | None = None,
    ) -> ContextBudget:
        """Return the budget of the model that was really resolved.

        `window` overrides what `model` reports; `max_tokens` is the model's own output limit; `cap` is a
        definition's `maxTokens`, which can only make the output smaller (decision record 0210).
        Worked number: a window of 200,000 with `cap=4000` has `hard_limit` 183,616.
        """
        reported = model.context_window if model is not None else None
        return cls.of(window or reported, stricter_cap(cap, max_tokens))

    def fits(self, tokens: int) -> bool:
        """Say whether a request of `tokens` may leave the process; equality is over the limit."""
        return tokens < self.hard_limit

    @property
    def retained_user(self) -> int:
        """Most tokens a kept user message may take: 20,000 or half of `hard_limit`, the smaller."""
        return max(1, min(RETAINED_USER_MAX_TOKENS, self.hard_limit // 2))

    @property
    def summary_output(self) -> int:
        """Most output tokens a summary may take: 80 % of the headroom or the maximum output, the smaller.

        Worked number: window 16,000 and maximum output 4,096 give 4,096.
        """
        return min(self.headroom * 8 // 10, self.max_tokens)

    @property
    def summary_input(self) -> int:
        """Largest summary request, inclusive: `window - summary_output - 2048`, at least 1.

        Worked number: window 16,000 and maximum output 4,096 give 9,856.
        """
        return max(1, self.window - self.summary_output - SUMMARY_PROMPT_SAFETY_TOKENS)

    @property
    def summary_room(self) -> tuple[int, int]:
        """Return the largest summary request, inclusive, and the most output it may ask for, in tokens.

        From a window of 8,000 on these are `summary_input` and `summary_output`. Below it the fixed safety of
        2,048 tokens would leave no room for a summary at all, and 4,096 is what local servers serve unless
        told otherwise: there an eighth of the window is kept free and a quarter is for the answer.
        Worked number: a window of 4,096 gives 2,560 and 1,024.
        """
        if self.window >= SMALL_WINDOW_TOKENS:
            return self.summary_input, self.summary_output
        output = max(1, min(self.summary_output, self.window // 4))
        return max(self.summary_input, self.window - output - self.window // 8), output

    @property
    def fallback_tail(self) -> int:
        """Most tokens the tail of a fallback checkpoint may take: a quarter of `hard_limit` at most."""
        return max(1, min(self.retained_user, self.hard_limit // 4))

    @property
    def reminder(self) -> int:
        """Remaining tokens at which a session is reminded to close out, inclusive: 8,000 to 32,000."""
        return min(MAX_REMINDER_TOKENS, max(MIN_REMINDER_TOKENS, self.hard_limit * 15 // 100))
