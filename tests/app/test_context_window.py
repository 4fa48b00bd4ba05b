"""What fills a window adds up, and compactions stand where they happened."""

from __future__ import annotations

from sidequest.core.events import ContextCompacted, ContextDegraded, Event, Notice, Numbered, TurnStarted
from sidequest.core.shares import Shares
from sidequest.surfaces.app.context_window import ContextWindow, context_window, share_of


def window(*events: Event) -> ContextWindow:
    return context_window(Numbered(number, number, event) for number, event in enumerate(events, 1))


def test_the_parts_add_up_to_the_window() -> None:
    seen = window(TurnStarted(None, 1, 3_000, 16_000, Shares(instructions=1_000, results=3_000)))
    parts = {part.kind: part.tokens for part in seen.parts(32_000)}
    assert parts == {"instructions": 750, "results": 2_250, "free": 13_000, "reserve": 16_000}
    assert sum(parts.values()) == 32_000


def test_a_window_that_is_not_known_has_no_reserve() -> None:
    seen = window(TurnStarted(None, 1, 3_000, 16_000, Shares(user=3_000)))
    assert [part.kind for part in seen.parts(None)] == ["user", "free"]


def test_a_request_without_shares_is_free_space_alone() -> None:
    assert [part.kind for part in window(TurnStarted(None, 1, 3_000, 16_000)).parts(None)] == ["free"]
    assert window().parts(32_000) == ()


def test_requests_are_counted_over_all_turns_and_compactions_stand_between_them() -> None:
    seen = window(
        TurnStarted(None, 1, 10, 100),
        TurnStarted(None, 2, 90, 100),
        ContextCompacted(None, 105, 20, 100),
        TurnStarted(None, 1, 25, 100),
        ContextDegraded(None, 110, 30, 100, "no summary"),
        Notice(None, "x"),
    )
    assert [sent.number for sent in seen.requests] == [1, 2, 3]
    assert [(shrunk.behind, shrunk.degraded) for shrunk in seen.shrinks] == [(2, False), (3, True)]


def test_the_largest_share_has_a_name() -> None:
    (sent,) = window(TurnStarted(None, 1, 9, 100, Shares(tools=5, results=4))).requests
    assert share_of(sent) == "Tools"
    (unknown,) = window(TurnStarted(None, 1, 9, 100)).requests
    assert share_of(unknown) == ""
