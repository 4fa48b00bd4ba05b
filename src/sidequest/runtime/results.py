"""One size rule for every tool result: head and tail stay, the whole goes to a file (DESIGN, needs.md 3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pydantic_ai.messages import CachePoint, TextContent, ToolReturn, ToolReturnPart

from sidequest.core.tokens import estimate_text, file_text, is_media

Spill = Callable[[str, str], str | None]
"""Stores a whole result under a name and returns the path to read it from, or None when there is no place."""

MIN_RESULT_TOKENS = 200
"""A result is never bounded below this many tokens."""


def result_limit(hard_limit: int, overhead: int) -> int:
    """Return the most tokens one result may take: half of what a request has room for.

    Worked number: a `hard_limit` of 8,000 with 1,000 tokens of overhead gives 3,500.
    """
    return max(MIN_RESULT_TOKENS, (hard_limit - overhead) // 2)


def bound_result(text: str, limit: int, name: str, spill: Spill | None = None) -> str:
    """Return `text` in at most `limit` tokens: whole, or head and tail around a notice.

    The notice says how much was left out, where the whole is, and how to read a slice of it. A text that is
    one giant line is cut by characters, like any other.
    """
    tokens = estimate_text(text)
    if tokens <= limit:
        return text
    path = spill(name, text) if spill is not None else None
    where = (
        f"The whole result is in {path}: read a slice with Read(path, offset, limit) or search it with Grep."
        if path
        else "Ask for less: a smaller slice, a narrower pattern or a shorter command output."
    )
    lines = text.count("\n") + 1
    notice = f"\n[… cut: the result has {len(text)} characters in {lines} lines. {where} …]\n"
    room = max(0, len(text) * limit // tokens - len(notice))
    while True:
        head, tail = -(-room * 2 // 3), room - -(-room * 2 // 3)
        bounded = text[:head] + notice + (text[-tail:] if tail else "")
        if room == 0 or estimate_text(bounded) <= limit:
            return bounded
        room = room * 9 // 10


def bound_value(value: Any, limit: int, name: str, spill: Spill | None = None) -> Any:
    """Apply `bound_result` to what a tool returned: text, values as the JSON that is sent, or a `ToolReturn`.

    A value that is small enough keeps its type. Files of text (JSON, CSV and the like) are text, because they
    are sent as text; images and other files are left alone, and follow the text when that has to be cut. Both
    halves of a `ToolReturn` take at most `limit` together, or `MIN_RESULT_TOKENS` more.
    """
    if isinstance(value, ToolReturn):
        return _bound_return(value, limit, name, spill)
    items = value if isinstance(value, list) else [value]
    if any(map(is_media, items)):
        return _bound_items(items, limit, name, spill) or value
    text = ToolReturnPart(name, value, tool_call_id=name).model_response_str()
    bounded = bound_result(text, limit, name, spill)
    return value if bounded == text else bounded


def _bound_return(value: ToolReturn[Any], limit: int, name: str, spill: Spill | None) -> ToolReturn[Any]:
    returned = bound_value(value.return_value, limit, name, spill)
    content = value.content
    if content:
        room = max(MIN_RESULT_TOKENS, limit - _tokens(returned, name))
        items = [content] if isinstance(content, str) else content
        content = _bound_items(items, room, f"{name}-content", spill) or content
    return replace(value, return_value=returned, content=content)


def result_tokens(value: Any, name: str) -> int:
    """Return the tokens of the text of what a tool returned, both halves of a `ToolReturn`."""
    if isinstance(value, ToolReturn):
        return _tokens(value.return_value, name) + (_tokens(value.content, name) if value.content else 0)
    return _tokens(value, name)


def _tokens(value: Any, name: str) -> int:
    items = value if isinstance(value, list) else [value]
    return sum(estimate_text(_text_of(item, name) or "") for item in items)


def _bound_items(items: Sequence[Any], limit: int, name: str, spill: Spill | None) -> Any:
    """Return all text of `items` bounded as one, and other media behind it; None when it fits as it is."""
    text = "\n".join(text for item in items if (text := _text_of(item, name)))
    bounded = bound_result(text, limit, name, spill)
    if bounded == text:
        return None
    media = [item for item in items if is_media(item) and file_text(item) is None]
    return [bounded, *media] if media else bounded


def _text_of(item: Any, name: str) -> str | None:
    if is_media(item):
        return file_text(item)
    if isinstance(item, TextContent):
        return item.content
    if isinstance(item, CachePoint):
        return None
    return ToolReturnPart(name, item, tool_call_id=name).model_response_str()
