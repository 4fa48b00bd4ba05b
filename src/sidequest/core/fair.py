"""Sharing a limited room among texts of different sizes."""

from __future__ import annotations

from collections.abc import Sequence


def level(sizes: Sequence[int], room: int) -> int:
    """Return the largest level such that cutting every size to it leaves at most `room` in all.

    What small ones do not need goes to the others. Worked number: sizes 1, 8 and 9 in a room of 11 give 5.
    """
    remaining, reached = room, 0
    ordered = sorted(sizes)
    for position, size in enumerate(ordered):
        share = remaining // (len(ordered) - position)
        if size > share:
            return share
        reached = size
        remaining -= size
    return reached
