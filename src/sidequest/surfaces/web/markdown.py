"""The one way in which Markdown comes onto a page: nothing that a model or a file says can act there.

HTML in it is shown as the text it is. A link goes to an address of the web and shows it; it leads nowhere
before it is clicked. Images are named, never loaded. What comes out is sanitised once more by the browser.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.renderer import RendererHTML
from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline.emphasis import tokenize as emphasis
from markdown_it.token import Token
from nicegui import ui

from sidequest.surfaces.text import count, one_line, printable
from sidequest.surfaces.web.tags import Tag

FIRST_SHOWN_CHARS = 12_000
"""How much of a longer text is shown before somebody asks for all of it."""
MARKDOWN_CHARS = 40_000
"""Longest text that is laid out, inclusive; a longer one is shown as it was written, which is cheap."""
_SCHEMES = frozenset({"http", "https", "mailto"})
_SHOWN_TARGET_CHARS = 60


def first_part(text: str, limit: int = FIRST_SHOWN_CHARS) -> str:
    """Return the beginning of `text`, at most `limit` characters; whole lines when the last one is short."""
    if len(text) <= limit:
        return text
    end = text.rfind("\n", limit // 2, limit)
    return text[: end if end > 0 else limit]


@lru_cache(maxsize=256)
def to_html(text: str) -> str:
    """Return Markdown as HTML without scripts, handlers and images; only links hold an address."""
    if len(text) > MARKDOWN_CHARS:
        return f'<pre class="markdown-plain">{escapeHtml(printable(text))}</pre>'
    return str(_parser().render(printable(text)))


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False})
    parser.enable(["table", "strikethrough"])
    parser.validateLink = _is_web_address  # type: ignore[method-assign]
    parser.inline.ruler.at("emphasis", _emphasis)
    rules: dict[str, Any] = {"link_open": _link_open, "link_close": _link_close, "image": _image}
    parser.renderer = RendererHTML(parser)
    parser.renderer.rules.update(rules)
    return parser


def _emphasis(state: StateInline, silent: bool) -> bool:
    """Let stars emphasise and underscores be: `src/__init__.py` is a file and not a bold word."""
    return state.src[state.pos] == "*" and emphasis(state, silent)


def _is_web_address(url: str) -> bool:
    try:
        return urlsplit(url.strip()).scheme.lower() in _SCHEMES
    except ValueError:
        return False


def _link_open(tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
    target = escapeHtml(str(tokens[index].attrGet("href") or ""))
    return f'<a class="markdown-link" href="{target}" title="{target}" rel="noopener noreferrer nofollow">'


def _link_close(tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
    start = next(i for i in range(index - 1, -1, -1) if tokens[i].type == "link_open")
    target = str(tokens[start].attrGet("href") or "")
    said = "".join(token.content for token in tokens[start + 1 : index])
    if said == target:
        return "</a>"
    return f'</a> <span class="markdown-target">({escapeHtml(one_line(target, _SHOWN_TARGET_CHARS))})</span>'


def _image(tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
    token = tokens[index]
    named = " ".join(filter(None, (token.content, str(token.attrGet("src") or ""))))
    return f'<span class="markdown-image">[image: {escapeHtml(one_line(named, 200))}]</span>'


class MarkdownBox:
    """A text on a page, laid out; the rest of a long one comes when it is asked for."""

    def __init__(self, text: str = "") -> None:
        self._said = ""
        self._whole = False
        with Tag("div", classes="markdown-box") as self.element:
            # The browser sanitises it again: `sanitize=True` is DOMPurify.
            self._laid_out = ui.html("", sanitize=True).classes("markdown")
            self._more = Tag("button", classes="link-button", type="button", hidden=True)
            self._more.on("click", self._show_all)
        self.set_text(text)

    def set_text(self, text: str) -> None:
        """Show another text; one that was opened in full stays so."""
        if text == self._said:
            return
        self._said = text
        self._laid_out.set_content(to_html(text if self._whole else first_part(text)))
        long = len(text) > FIRST_SHOWN_CHARS and not self._whole
        self._more.text = f"Show all ({count(len(text))} characters)" if long else ""
        self._more.attribute("hidden", not long)

    async def _show_all(self) -> None:
        self._whole = True
        self._more.attribute("hidden", value=True)
        # Laying out takes part of a second, in which other pages must be served.
        self._laid_out.set_content(await asyncio.to_thread(to_html, self._said))
