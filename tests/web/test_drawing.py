"""The plot of a context's size: points, limit and marks, and words for who cannot see it."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from sidequest.core.events import ContextCompacted, ContextDegraded, Numbered, TurnStarted
from sidequest.surfaces.app.context_window import ContextWindow, context_window
from sidequest.surfaces.web.drawing import HEIGHT, WIDTH, size_plot


def plot(seen: ContextWindow) -> ElementTree.Element:
    return ElementTree.fromstring(size_plot(seen))


def test_every_point_lies_inside_and_each_compaction_has_its_mark() -> None:
    seen = context_window(
        Numbered(number, number, event)
        for number, event in enumerate(
            [
                TurnStarted(None, 1, 900, 1_000),
                ContextCompacted(None, 1_040, 100, 1_000),
                TurnStarted(None, 2, 150, 1_000),
                ContextDegraded(None, 1_040, 50, 1_000, "x"),
            ],
            1,
        )
    )
    svg = plot(seen)
    (line,) = svg.findall("polyline")
    points = [tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split()]
    assert len(points) == 6
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points)
    assert [mark.attrib["class"] for mark in svg.findall("path")] == ["mark compacted", "mark degraded"]
    assert re.search("over 2 requests: now 150 of 1,000 tokens, 2 compactions", svg.attrib["aria-label"])


def test_the_peak_of_a_compaction_lies_inside_however_high_it_is() -> None:
    seen = context_window(
        Numbered(number, number, event)
        for number, event in enumerate(
            [
                TurnStarted(None, 1, 900, 1_000),
                ContextCompacted(None, 3_000, 100, 1_000),
                TurnStarted(None, 2, 150, 1_000),
            ],
            1,
        )
    )
    (line,) = plot(seen).findall("polyline")
    heights = [float(pair.split(",")[1]) for pair in line.attrib["points"].split()]
    assert min(heights) >= 0


def test_a_single_request_is_a_point_and_none_is_no_plot() -> None:
    seen = context_window([Numbered(1, 1, TurnStarted(None, 1, 10, 100))])
    assert plot(seen).findall("circle")
    assert size_plot(ContextWindow()) == ""
