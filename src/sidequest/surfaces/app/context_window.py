"""What fills the context window of an agent, and how its size went; events in, values out; pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from sidequest.core.events import ContextCompacted, ContextDegraded, Numbered, TurnStarted
from sidequest.core.shares import Shares

WINDOW_EVENTS = frozenset(kind.type for kind in (TurnStarted, ContextCompacted, ContextDegraded))
"""Types of the events that are read here."""
_LABELS = {
    "instructions": "Instructions",
    "tools": "Tools",
    "summary": "Summary",
    "user": "Messages",
    "assistant": "Answers",
    "results": "Tool results",
}


@dataclass(frozen=True, slots=True)
class Sent:
    """A request that left; sizes in tokens."""

    number: int
    """Counted from 1 over all turns."""
    at_ms: int
    tokens: int
    hard_limit: int
    shares: Shares


@dataclass(frozen=True, slots=True)
class Shrunk:
    """History that was replaced; sizes in tokens."""

    behind: int
    """How many requests had left before."""
    at_ms: int
    tokens_before: int
    tokens_after: int
    degraded: bool
    """Whether it happened without a summary."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the window, in tokens."""

    kind: str
    """Name of a field of `Shares`, or `free`, or `reserve`."""
    label: str
    tokens: int


@dataclass(frozen=True, slots=True)
class ContextWindow:
    """How the context of one agent was filled."""

    requests: tuple[Sent, ...] = ()
    shrinks: tuple[Shrunk, ...] = ()

    @property
    def newest(self) -> Sent | None:
        """The newest request, None before the first."""
        return self.requests[-1] if self.requests else None

    def parts(self, window: int | None) -> tuple[Part, ...]:
        """Return what fills a window of `window` tokens at the newest request; None leaves the reserve out.

        The reserve is what no request may use: room for the answer and for the error of the estimate. The
        shares are scaled to the size of the request, so that the parts add up to the window. Worked number:
        a request of 3,000 with shares of 1,000 and 3,000, a limit of 16,000 and a window of 32,000 gives
        750, 2,250, 13,000 free and 16,000 in reserve.
        """
        newest = self.newest
        if newest is None:
            return ()
        known = max(1, newest.shares.total)
        found = [
            Part(kind, label, round(getattr(newest.shares, kind) * newest.tokens / known))
            for kind, label in _LABELS.items()
        ]
        found.append(Part("free", "Free", max(0, newest.hard_limit - newest.tokens)))
        if window is not None and window > newest.hard_limit:
            found.append(Part("reserve", "Reserve", window - newest.hard_limit))
        return tuple(part for part in found if part.tokens > 0)


def context_window(events: Iterable[Numbered]) -> ContextWindow:
    """Return how the context of the agent was filled whose events these are, oldest first."""
    requests: list[Sent] = []
    shrinks: list[Shrunk] = []
    for numbered in events:
        event, at_ms = numbered.event, numbered.at_ms
        if isinstance(event, TurnStarted):
            requests.append(Sent(len(requests) + 1, at_ms, event.tokens, event.hard_limit, event.shares))
        elif isinstance(event, ContextCompacted | ContextDegraded):
            degraded = isinstance(event, ContextDegraded)
            shrinks.append(Shrunk(len(requests), at_ms, event.tokens_before, event.tokens_after, degraded))
    return ContextWindow(tuple(requests), tuple(shrinks))


def share_of(sent: Sent) -> str:
    """Return the kind that fills most of a request, as a word; empty when nothing is known of it."""
    kind = max((item.name for item in fields(Shares)), key=lambda name: getattr(sent.shares, name))
    return _LABELS[kind] if getattr(sent.shares, kind) else ""
