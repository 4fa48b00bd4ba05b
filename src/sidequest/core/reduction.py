"""Mechanical ways to make a history sendable: fewer bytes, repaired pairs, no half-finished tail."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    RetryPromptPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
    repair_messages,
)

from sidequest.core.summary import cut_middle
from sidequest.core.tokens import is_media
from sidequest.core.transcript import TranscriptError, is_tool_result, validate


def _media_note(item: object) -> str:
    kind = getattr(item, "media_type", None) or getattr(item, "kind", "media")
    return f"[{kind} left out: the request had too many bytes]"


def _with_content(part: ToolReturnPart, content: object) -> ToolReturnPart:
    # The kinds of tool results differ in what their content may be; text and notes fit all of them.
    changed: ToolReturnPart = replace(cast(Any, part), content=content)
    return changed


def _without_media(part: ModelRequestPart) -> ModelRequestPart:
    if isinstance(part, UserPromptPart) and not isinstance(part.content, str) and part.content is not None:
        content = [_media_note(item) if is_media(item) else item for item in part.content]
        return replace(part, content=content)
    if isinstance(part, ToolReturnPart):
        if is_media(part.content):
            return _with_content(part, _media_note(part.content))
        if isinstance(part.content, list) and any(map(is_media, part.content)):
            items = [_media_note(item) if is_media(item) else item for item in part.content]
            # Without media a list is sent as JSON, whose escapes may take more than the image did.
            texts = [item for item in items if isinstance(item, str)]
            return _with_content(part, "\n".join(texts) if len(texts) == len(items) else items)
    return part


def shrink_bytes(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Replace every image, file and recording by a note, and halve the largest text result.

    For a request that a provider refused for its bytes: dropping text by summary may not help there.
    """
    reduced: list[ModelMessage] = []
    largest: tuple[int, int, int] = (0, -1, -1)
    for index, message in enumerate(messages):
        if not isinstance(message, ModelRequest):
            reduced.append(message)
            continue
        parts = [_without_media(part) for part in message.parts]
        for position, part in enumerate(message.parts):
            if isinstance(part, ToolReturnPart) and isinstance(part.content, str):
                largest = max(largest, (len(part.content), index, position))
        reduced.append(replace(message, parts=parts))
    size, index, position = largest
    if size > 1:
        request = reduced[index]
        if isinstance(request, ModelRequest):
            clipped = list(request.parts)
            part = clipped[position]
            if isinstance(part, ToolReturnPart) and isinstance(part.content, str):
                text = cut_middle(part.content, size // 2)
                if len(text) < size:  # the note that says what was cut outweighs a short text
                    clipped[position] = _with_content(part, text)
                    reduced[index] = replace(request, parts=clipped)
    return reduced


def repair(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Pair every call with one result and drop reasoning that a provider signed and now refuses.

    Ids that come back are made unique: local servers number their calls afresh at each turn, and the
    provider that a run falls back to may want each id once.
    """
    cleaned: list[ModelMessage] = []
    for message in messages:
        if isinstance(message, ModelResponse):
            parts = [p for p in message.parts if not (isinstance(p, ThinkingPart) and p.signature)]
            if not parts:
                continue
            cleaned.append(replace(message, parts=parts) if len(parts) != len(message.parts) else message)
        else:
            cleaned.append(message)
    return _with_unique_ids(repair_messages(cleaned))


def _with_unique_ids(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Rename call ids that were used before, and drop second results; a result follows its call's name."""
    used: set[str] = set()
    waiting: dict[str, list[str]] = {}  # by the id that a call had, the ids its calls have now
    renamed: list[ModelMessage] = []
    for message in messages:
        parts: list[Any] = []
        if isinstance(message, ModelResponse):
            waiting = {}
        for part in message.parts:
            if isinstance(part, ToolCallPart):
                call_id = _unused(part.tool_call_id, used)
                waiting.setdefault(part.tool_call_id, []).append(call_id)
            elif isinstance(part, ToolReturnPart | RetryPromptPart) and is_tool_result(part):
                known = waiting.get(part.tool_call_id)
                if not known:
                    continue
                call_id = known.pop(0)
            else:
                parts.append(part)
                continue
            parts.append(part if part.tool_call_id == call_id else replace(part, tool_call_id=call_id))
        if len(parts) == len(message.parts) and all(map(operator.is_, parts, message.parts)):
            renamed.append(message)
        elif parts:
            renamed.append(replace(cast(Any, message), parts=parts))
    return renamed


def _unused(call_id: str, used: set[str]) -> str:
    free, number = call_id, 2
    while free in used:
        free, number = f"{call_id}-{number}", number + 1
    used.add(free)
    return free


def without_unfinished_tail(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Drop responses at the end that were never completed, so that the list ends with what was asked.

    Completed tool results stay: they are not run again. Returns an empty list when nothing valid is left.
    """
    kept = list(messages)
    while kept:
        if isinstance(kept[-1], ModelRequest):
            try:
                validate(kept)
            except TranscriptError:
                pass
            else:
                return kept
        kept.pop()
    return kept
