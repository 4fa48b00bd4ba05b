"""What a tool call is found by: its tool's name, its arguments and its result, as one text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sidequest.store import payload
from sidequest.store.search import index_words

if TYPE_CHECKING:
    from pydantic_ai.messages import ToolCallPart, ToolReturnPart

MAX_INDEXED_CALL_CHARS = 20_000
"""Different words of one call and its result that are indexed, in characters: the first ones."""


def call_text(call: ToolCallPart, result: ToolReturnPart) -> str:
    """Return the text that is searched: name, arguments without the signs of JSON, and the result."""
    try:
        given = " ".join(_texts(call.args_as_dict()))
    except ValueError:
        given = str(call.args)
    return f"{call.tool_name} {given}\n{payload.result_text(result)}"


def call_words(call: ToolCallPart, result: ToolReturnPart) -> str:
    """Return the words of a call and its result as the index holds them."""
    return index_words(call_text(call, result), MAX_INDEXED_CALL_CHARS)


def words_of_row(message: str, result: str, tool_call_id: str) -> str | None:
    """Return the words for a stored result, given both payloads; None when one of them cannot be read."""
    found = read_call(message, result, tool_call_id)
    return call_words(found[1], found[2]) if found is not None else None


def read_call(
    message: str, result: str, tool_call_id: str
) -> tuple[int, ToolCallPart, ToolReturnPart] | None:
    """Return the place of a call among those of its message, from 1, with the call and its result.

    None when one of the payloads cannot be read, or the message makes no such call.
    """
    try:
        calls = payload.distinct_calls(payload.load(message))
        (part,) = payload.load_results([result])
    except ValueError:
        return None
    if tool_call_id not in calls:
        return None
    return list(calls).index(tool_call_id) + 1, calls[tool_call_id], part


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif value is not None:
        yield str(value)
