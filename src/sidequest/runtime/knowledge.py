"""What a session has learned about its models: windows that errors stated, and how far estimates are off."""

from __future__ import annotations

from dataclasses import dataclass, field

from sidequest.core.calibration import Calibration, effective_window, like_a_window

MIN_STATED_WINDOW = 256
"""A window below this, in tokens, is taken for a misread number and not learned."""


@dataclass
class ModelKnowledge:
    """What is known about one model beyond its binding."""

    calibration: Calibration = field(default_factory=Calibration)
    suspicions: int = 0
    """How often a report fell behind without looking like a window."""
    window: int | None = None
    """The smallest window that the provider stated or showed, in tokens; None when it never did."""

    def shown_window(self, reported: int) -> int | None:
        """Return the window that a cut prompt shows, in tokens, given what was reported of it.

        None the first time that a count looks like no window: one odd report must not shrink a model.
        """
        if like_a_window(reported):
            return effective_window(reported)
        self.suspicions += 1
        return effective_window(reported) if self.suspicions > 1 else None

    def learn_window(self, window: int | None) -> bool:
        """Keep a smaller window than the one known; return whether it is news."""
        if (
            window is None
            or window < MIN_STATED_WINDOW
            or (self.window is not None and window >= self.window)
        ):
            return False
        self.window = window
        return True

    def smaller(self, window: int | None) -> int | None:
        """Return the smaller of `window` and what was learned; None when neither is known."""
        known = [value for value in (window, self.window) if value]
        return min(known) if known else None


@dataclass
class Knowledge:
    """Knowledge by model key, shared by a session and all of its delegations."""

    _models: dict[str, ModelKnowledge] = field(default_factory=dict)

    def of(self, key: str) -> ModelKnowledge:
        """Return what is known about the model `key`; at first nothing."""
        return self._models.setdefault(key, ModelKnowledge())
