"""Words and numbers for a person: pure functions from values to short texts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
SHOWN_ID_CHARS = 8
"""How much of an id people see."""


def printable(text: str) -> str:
    """Return `text` without terminal control codes; line breaks and tabs stay.

    Models, tools and files write what we show, and none of them may move the cursor.
    """
    return _CONTROL.sub("", _SEQUENCE.sub("", text.replace("\r\n", "\n")))


def one_line(text: str, width: int | None = None) -> str:
    """Return `text` as one printable line of at most `width` characters, inclusive; None means no limit."""
    line = " ".join(printable(text).split())
    if width is None or len(line) <= width:
        return line
    return line[: max(0, width - 1)].rstrip() + "…"


def excerpt(text: str, lines: int) -> list[str]:
    """Return the first `lines` lines of `text`, and when there are more, one that says how many."""
    every = printable(text).strip().splitlines()
    if len(every) <= lines + 1:
        return every
    return [*every[:lines], f"… {len(every) - lines} more lines"]


def count(number: int) -> str:
    """Return a number with separators: 4512 gives `4,512`."""
    return f"{number:,}"


def some(number: int, word: str) -> str:
    """Return a number with its noun: `1 turn`, `3 turns`."""
    return f"{count(number)} {word}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """Return a span of time: `0.4s`, `12s`, `2m 05s`, `1h 02m`. Negative counts as 0."""
    seconds = max(0.0, seconds)
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = int(seconds + 0.5)
    if whole < 60:
        return f"{whole}s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}m {rest:02d}s"
    return f"{minutes // 60}h {minutes % 60:02d}m"


def ago(at_ms: int, now_ms: int) -> str:
    """Return how long ago a moment was, in milliseconds since the epoch; after a week, its local date.

    Worked numbers: 59 seconds are `just now`, 90 seconds `1 min ago`, 25 hours `1 d ago`.
    """
    minutes = max(0, now_ms - at_ms) // 60_000
    if minutes < 1:
        return "just now"
    if minutes < 60:
        return f"{minutes} min ago"
    if minutes < 24 * 60:
        return f"{minutes // 60} h ago"
    if minutes < 7 * 24 * 60:
        return f"{minutes // (24 * 60)} d ago"
    return moment(at_ms)[:10]


def moment(at_ms: int) -> str:
    """Return a moment, in milliseconds since the epoch, as local time: `2025-11-30 16:49`."""
    return datetime.fromtimestamp(at_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M")


def short_id(text: str) -> str:
    """Return the part of an id that is shown; commands take any beginning of an id that fits only one."""
    return text[:SHOWN_ID_CHARS]


def money(cost_usd: float | None) -> str:
    """Return a price in US dollars, `no cost` for 0, `price unknown` for None; a small one has 4 decimals."""
    if not cost_usd:
        return "price unknown" if cost_usd is None else "no cost"
    return f"${cost_usd:.2f}" if cost_usd >= 1 else f"${cost_usd:.4f}"


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The signs of the live view, in one of two alphabets."""

    full: str
    empty: str
    running: str
    good: str
    warn: str
    bad: str
    stopped: str
    bullet: str
    bar: str
    dot: str


UNICODE = Glyphs("▮", "▯", "▸", "✓", "!", "✗", "■", "•", "│", " · ")
ASCII = Glyphs("#", "-", ">", "+", "!", "x", "#", "*", "|", ", ")


def glyphs_for(encoding: str | None) -> Glyphs:
    """Return the signs that an output with this encoding can show."""
    name = (encoding or "").lower().replace("-", "").replace("_", "")
    return UNICODE if name.startswith("utf") else ASCII


def gauge(tokens: int, limit: int, cells: int, glyphs: Glyphs = UNICODE) -> str:
    """Return a bar of `cells` signs for `tokens` of `limit`; anything above zero shows at least one.

    Worked number: 4,512 of 8,000 tokens in 8 cells fill 5.
    """
    share = tokens / limit if limit > 0 else 0.0
    filled = min(cells, max(1 if tokens > 0 else 0, int(share * cells + 0.5)))
    return glyphs.full * filled + glyphs.empty * (cells - filled)
