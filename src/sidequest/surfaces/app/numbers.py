"""Numbers as people write them in a field: digits, and a point before decimals.

A comma is refused and never guessed at: it parts thousands in one country and decimals in the next.
"""

from __future__ import annotations

import re

WHOLE_FIELDS = frozenset(
    {"max_tokens", "max_turns", "max_running", "max_total", "context_window"},
)
"""Fields that hold a whole number."""
HOW_WHOLE = "Write a whole number with digits alone, for example 4000."
"""What is said when the text in one of them is none."""
HOW = "Write digits, and a point before decimals, for example 0.50; no commas."
"""What is said when the text in any other number field is none."""
_WHOLE = re.compile(r"[+-]?\d{1,15}", re.ASCII)
_DECIMAL = re.compile(r"[+-]?\d{1,15}(\.\d+)?", re.ASCII)


def number_of(text: str, field: str) -> int | float | None:
    """Return the number that `text` gives for `field`, whole when it is; None when it is not written so.

    Worked texts: `0.50` is 0.5; `0,50`, `1e3` and `1_000` are none; `4.000` is none where `field` is whole.
    """
    text = text.strip()
    if not (_WHOLE if field in WHOLE_FIELDS else _DECIMAL).fullmatch(text):
        return None
    number = float(text)
    return int(number) if number == int(number) else number


def how_to_write(field: str) -> str:
    """Return the sentence that says how to write a number in `field`."""
    return HOW_WHOLE if field in WHOLE_FIELDS else HOW
