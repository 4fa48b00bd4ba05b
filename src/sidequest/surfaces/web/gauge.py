"""How full a context is, as a bar with a mark where it was compacted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sidequest.surfaces.text import count, some
from sidequest.surfaces.web.tags import Tag

if TYPE_CHECKING:
    from sidequest.surfaces.app.work import Mark

_NEAR = 0.8
"""Share of the limit from which the bar warns."""
_MOST_MARKS = 12


class Gauge:
    """A bar for tokens of a limit; each compaction is a mark at the size that it left."""

    def __init__(self, name: str) -> None:
        self._marks: tuple[Mark, ...] = ()
        with Tag("div", classes="gauge-row") as self.element:
            with Tag(
                "div", classes="gauge", role="meter", aria_label=name, aria_valuemin=0, aria_valuenow=0
            ) as self._bar:
                self._fill = Tag("span", classes="gauge-fill")
                self._ticks = Tag("span", classes="gauge-ticks", aria_hidden="true")
            self._words = Tag("span", classes="gauge-words")
            self._shrunk = Tag("span", classes="chip warn", hidden=True)

    def show(
        self, tokens: int, hard_limit: int, marks: Sequence[Mark] = (), *, shrinks: int = 0, lost: int = 0
    ) -> None:
        """Show a size and its limit in tokens; a limit of 0 is unknown.

        `shrinks` and `lost` say how often it was compacted and degraded, where the marks are not known.
        """
        shrinks = max(shrinks, sum(not mark.degraded for mark in marks))
        lost = max(lost, sum(mark.degraded for mark in marks))
        self._bar.attribute("hidden", not hard_limit)
        share = min(1.0, tokens / hard_limit) if hard_limit else 0.0
        self._fill.style(f"width: {share * 100:.1f}%")
        self._bar.classes(**{"add" if share >= _NEAR else "remove": "near"})
        words = f"{count(tokens)} of {count(hard_limit)} tokens" if hard_limit else f"{count(tokens)} tokens"
        self._words.text = words
        times = [f"compacted {shrinks}×"] if shrinks else []
        times += [f"degraded {lost}×"] if lost else []
        self._shrunk.text = ", ".join(times)
        self._shrunk.attribute("hidden", not times)
        self._bar.attribute("aria_valuenow", tokens)
        self._bar.attribute("aria_valuemax", hard_limit)
        self._bar.attribute("aria_valuetext", ", ".join([words, *times]))
        if tuple(marks) != self._marks:
            self._marks = tuple(marks)
            self._draw(hard_limit)

    def _draw(self, hard_limit: int) -> None:
        self._ticks.clear()
        with self._ticks:
            for mark in self._marks[-_MOST_MARKS:]:
                limit = mark.hard_limit or hard_limit or 1
                what = "degraded" if mark.degraded else "compacted"
                sizes = f"{count(mark.tokens_before)}, down to {some(mark.tokens_after, 'token')}"
                tick = Tag("span", classes=f"gauge-tick {what}", title=f"{what} at {sizes}")
                tick.style(f"left: {min(1.0, mark.tokens_after / limit) * 100:.1f}%")
