"""Drawings as SVG text: pure functions from numbers to markup. Colours come from the stylesheet's classes."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from sidequest.surfaces.text import count, some

if TYPE_CHECKING:
    from sidequest.surfaces.app.context_window import ContextWindow

WIDTH, HEIGHT = 480, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 4, 4, 14, 18
_MOST_POINTS = 400


def size_plot(seen: ContextWindow) -> str:
    """Return the size of the context over its requests, with its limit and each compaction marked."""
    points = seen.requests[-_MOST_POINTS:]
    if not points:
        return ""
    first, last = points[0].number, points[-1].number
    peaks = [shrunk.tokens_before for shrunk in seen.shrinks if shrunk.behind >= first - 1]
    top = max(*(p.hard_limit for p in points), *(p.tokens for p in points), *peaks, 1) * 1.05
    inner_w, inner_h = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM

    def x(number: float) -> float:
        return _LEFT + inner_w * ((number - first) / (last - first) if last > first else 0.5)

    def y(tokens: float) -> float:
        return _TOP + inner_h * (1 - tokens / top)

    limit = points[-1].hard_limit
    line: list[tuple[float, float]] = []
    marks: list[str] = []
    for point in points:
        for shrunk in seen.shrinks:
            if shrunk.behind == point.number - 1:
                between = x(point.number - 0.5) if point.number > first else x(point.number)
                line += [(between, y(shrunk.tokens_before)), (between, y(shrunk.tokens_after))]
                marks.append(_mark(between, y(shrunk.tokens_before), degraded=shrunk.degraded))
        line.append((x(point.number), y(point.tokens)))
    for shrunk in seen.shrinks:
        if shrunk.behind == last:
            line += [(x(last), y(shrunk.tokens_before)), (x(last), y(shrunk.tokens_after))]
            marks.append(_mark(x(last), y(shrunk.tokens_before), degraded=shrunk.degraded))
    path = " ".join(f"{a:.1f},{b:.1f}" for a, b in line)
    area = f"{line[0][0]:.1f},{y(0):.1f} {path} {line[-1][0]:.1f},{y(0):.1f}"
    dots = "".join(f'<circle class="dot" cx="{a:.1f}" cy="{b:.1f}" r="2.5"/>' for a, b in line[-1:])
    words = (
        f"Size of the context over {some(len(seen.requests), 'request')}: now {count(points[-1].tokens)} of "
    )
    words += f"{count(limit)} tokens, {some(len(seen.shrinks), 'compaction')}"
    return (
        f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(words)}">'
        f'<line class="axis" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y(0):.1f}" y2="{y(0):.1f}"/>'
        f'<line class="limit" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y(limit):.1f}" y2="{y(limit):.1f}"/>'
        f'<text class="label" x="{WIDTH - _RIGHT}" y="{y(limit) - 4:.1f}" text-anchor="end">'
        f"limit {count(limit)}</text>"
        f'<polygon class="area" points="{area}"/><polyline class="line" points="{path}"/>'
        f"{''.join(marks)}{dots}"
        f'<text class="label" x="{_LEFT}" y="{HEIGHT - 4}">request {first}</text>'
        f'<text class="label" x="{WIDTH - _RIGHT}" y="{HEIGHT - 4}" text-anchor="end">{last}</text></svg>'
    )


def _mark(x: float, y: float, *, degraded: bool) -> str:
    kind = "degraded" if degraded else "compacted"
    shape = f"M{x - 4:.1f},{y - 9:.1f} h8 l-4,7 z"
    return f'<path class="mark {kind}" d="{shape}"><title>{kind}</title></path>'
