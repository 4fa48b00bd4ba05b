"""Text that a model wrote, shown so that nothing of it is hidden from the person who decides about it.

What cannot be seen, and what looks like something else, is written out as its number. Blanks are counted
where there are many: they would push what follows out of sight.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import groupby

MAX_BLANKS = 32
"""Longest run of blanks and tabs that is shown as it is, inclusive."""
MAX_EMPTY_LINES = 2
"""Most empty lines in a row that are shown as they are, inclusive."""
_INVISIBLE = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"
    + "".join(map(chr, (*range(0x180B, 0x1810), *range(0xFE00, 0xFE10))))
)
"""Signs that count as printable and show nothing: fillers, an empty Braille cell, variation selectors."""
_LIKE_LATIN = frozenset(
    # Cyrillic: a c e h i j o p s x y d q w v l, and A B C E H I J K M O P S T X Y Q W I
    "\u0430\u0441\u0435\u04bb\u0456\u0458\u043e\u0440\u0455\u0445\u0443\u0501\u051b\u051d\u0475\u04cf"
    "\u0410\u0412\u0421\u0415\u041d\u0406\u0408\u041a\u041c\u041e\u0420\u0405\u0422\u0425\u0423\u051a\u051c\u04c0"
    # Greek: o v p, and A B E Z H I K M N O P T Y X
    "\u03bf\u03bd\u03c1\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7"
    # Armenian: n u o h g; Latin letters that look like plain ones: a g i
    "\u0578\u057d\u0585\u0570\u0581\u0251\u0261\u0131"
)
_LIKE_SIGNS = frozenset(
    "\u01c3\u02bc\u02ee\u2010\u2011\u2012\u2013\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u2032\u2033\u2044"
    "\u204e\u2212\u2215\u2216\u2217\u2223\u2236\u29f8\ua789"
)
"""Signs that look like those a shell acts on and are none."""
_WORD = re.compile(r"[^\W\d_]{2,}")
_BLANKS = re.compile(rf"[ \t]{{{MAX_BLANKS + 1},}}")
_STACK = re.compile(r"(?<=[^\x00-\u02ff][^\x00-\u02ff])[^\x00-\u02ff]")


def visible(text: str) -> str:
    """Return `text` with everything that could hide a part of it written out; line breaks and tabs stay.

    Letters that look like Latin ones are written out in words that have Latin ones too; a word of another
    script stays as it is.
    """
    text = _WORD.sub(lambda word: _unmixed(word[0]), text.replace("\r\n", "\n"))
    text = _STACK.sub(lambda found: _no_stack(text, found.start()), text)
    return "".join(sign if _is_seen(sign) else escaped(sign) for sign in text)


def visible_command(text: str) -> str:
    """Return `text` as `visible` does, with signs that look like those of a shell written out too."""
    return "".join(escaped(sign) if _is_like_sign(sign) else sign for sign in visible(text))


def shown_lines(lines: Sequence[str], empty: tuple[str, ...] = ("",)) -> Iterator[str]:
    """Give `lines` with their tabs marked, long runs of blanks and runs of empty lines counted.

    `empty` are the lines that say nothing, without the blanks at their end.
    """
    for nothing, run in groupby(lines, lambda line: line.rstrip() in empty):
        some = list(run)
        if nothing and len(some) > MAX_EMPTY_LINES:
            yield f"⟨{len(some)} empty lines⟩"
        else:
            yield from map(_with_blanks, some)


def escaped(sign: str) -> str:
    r"""Return a sign as its number: `\x1b`, `\u2028`."""
    return sign.encode("unicode_escape").decode("ascii")


def _with_blanks(line: str) -> str:
    line = _BLANKS.sub(lambda run: f"⟨{len(run[0])} blanks⟩", line)
    return line.replace("\t", "→\t")


def _is_seen(sign: str) -> bool:
    return (sign.isprintable() and sign not in _INVISIBLE) or sign in "\n\t"


def _unmixed(word: str) -> str:
    if not any(sign.isascii() for sign in word):
        return word
    return "".join(escaped(sign) if _is_like_latin(sign) else sign for sign in word)


def _is_like_latin(sign: str) -> bool:
    return not sign.isascii() and (sign in _LIKE_LATIN or unicodedata.normalize("NFKC", sign).isascii())


def _is_like_sign(sign: str) -> bool:
    if sign.isascii() or sign.isalnum():
        return False
    plain = unicodedata.normalize("NFKC", sign)
    return sign in _LIKE_SIGNS or (len(plain) == 1 and plain.isascii())


def _no_stack(text: str, at: int) -> str:
    """Write out a mark that stands on two others: a high stack covers the lines above and below."""
    stacked = all(unicodedata.combining(sign) for sign in text[at - 2 : at + 1])
    return escaped(text[at]) if stacked else text[at]
