"""Texts of others inside tags of ours: a tag in such a text cannot open or close a frame."""

from __future__ import annotations

import html
import re


def neutralised(text: str, *tags: str) -> str:
    """Return `text` with every opening and closing tag among `tags` made harmless, in any case and spacing.

    Worked case: `< / Report >` with the tag `report` becomes `&lt; / Report >`; `<reporter>` stays.
    """
    names = "|".join(map(re.escape, tags))
    return re.sub(rf"<(?=[\s/]*(?:{names})(?![\w-]))", "&lt;", text, flags=re.IGNORECASE)


def framed(tag: str, name: str, text: str, *, key: str = "name") -> str:
    """Return `text` between tags on lines of their own; the attribute `key` is `name`.

    The text is not neutralised: whoever nests frames knows which tags it must not hold.
    """
    return f'<{tag} {key}="{html.escape(" ".join(name.split()))}">\n{text}\n</{tag}>'
