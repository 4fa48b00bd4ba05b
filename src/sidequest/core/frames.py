"""Texts of others inside tags of ours, or on a line of ours: they can neither open nor close what is ours."""

from __future__ import annotations

import html
import re
import unicodedata
from functools import lru_cache

OUR_TAGS = (
    "attachment",
    "conversation",
    "delegation-report",
    "enclosed",
    "modified-files",
    "previous-summary",
    "project-instructions",
    "read-files",
    "snippet",
    "summary",
)
"""Every tag that frames something in a text of ours that a model reads."""
HIDDEN = "\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff"
"""Characters that nobody sees, as the inside of a class of a pattern: they may stand within a forged word."""
_JOINERS = "\u200c\u200d"
"""Format characters that letters of some scripts need; the others hide or turn round what is there."""
_SEEN_PER_SHOWN = 8
"""Of a text for one line no more than this times its limit is looked at: what is cut costs nothing."""


def spelt(word: str) -> str:
    """Return a pattern for `word` that also finds it with characters in it that nobody sees."""
    return f"[{HIDDEN}]*".join(map(re.escape, word))


@lru_cache(maxsize=64)
def _opening(tags: tuple[str, ...]) -> re.Pattern[str]:
    names = "|".join(map(spelt, tags))
    return re.compile(rf"<(?=[\s/{HIDDEN}]*(?:{names})(?![\w-]))", re.IGNORECASE)


def neutralised(text: str, *tags: str) -> str:
    """Return `text` with every opening and closing tag among `tags` made harmless, in any case and spacing.

    Without `tags` all of `OUR_TAGS`. What is harmless already stays as it is. Worked case: `< / Report >`
    with the tag `report` becomes `&lt; / Report >`; `<reporter>` stays.
    """
    return _opening(tags or OUR_TAGS).sub("&lt;", text)


def one_line(text: str, limit: int, *, keep_end: bool = False) -> str:
    """Return a text of others for a line of ours: at most `limit` characters, inclusive, at least 1.

    Breaks and controls become blanks, characters that hide or reorder others go, and no tag of ours is left,
    so that it can be no heading, label or frame. What is too long ends in an ellipsis; `keep_end` has it in
    the middle, for paths. Worked case: `a\\n## b` becomes `a ## b`.
    """
    seen = text if len(text) <= limit * _SEEN_PER_SHOWN else text[: limit * _SEEN_PER_SHOWN] + "…"
    if keep_end and seen is not text:
        seen = f"{text[: limit * _SEEN_PER_SHOWN // 2]}…{text[-limit * _SEEN_PER_SHOWN // 2 :]}"
    line = neutralised(" ".join("".join(map(_shown, seen)).split()))
    if len(line) <= limit:
        return line
    tail = (limit - 1) // 2 if keep_end else 0
    cut = f"{line[: limit - 1 - tail]}…{line[-tail:] if tail else ''}"
    # The cut may end a longer word where the name of a tag ends; this sign keeps the length.
    return _opening(OUR_TAGS).sub("‹", cut)


def _shown(character: str) -> str:
    category = unicodedata.category(character)
    if category in ("Cc", "Zl", "Zp"):
        return " "
    return "" if category in ("Cf", "Cs", "Co", "Cn") and character not in _JOINERS else character


def framed(tag: str, name: str, text: str, *, key: str = "name") -> str:
    """Return `text` between tags on lines of their own; the attribute `key` is `name`.

    The text is not neutralised: whoever nests frames knows which tags it must not hold.
    """
    return f'<{tag} {key}="{html.escape(" ".join(name.split()))}">\n{text}\n</{tag}>'
