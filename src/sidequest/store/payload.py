"""Messages as text and back: pydantic-ai's own JSON, and what is derived from it.

The only module of the store, beside `transcript`, that loads pydantic-ai: listing sessions must not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ConfigDict, TypeAdapter
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_core import PydanticSerializationError

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.tokens import estimate_message
from sidequest.core.transcript import marked, tool_calls, user_text
from sidequest.store.masking import Masker, readable_json, storable

# The settings of pydantic-ai's own adapter: anything else would not read what it writes. Building one takes
# longer than opening a store: each is built when it is first used, and a message alone is a list of one.
_CONFIG = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", defer_build=True)
_MESSAGES: TypeAdapter[list[ModelMessage]] = TypeAdapter(list[ModelMessage], config=_CONFIG)
_PARTS: TypeAdapter[list[ModelRequestPart]] = TypeAdapter(list[ModelRequestPart], config=_CONFIG)

INTERRUPTED = (
    "The tool call was interrupted before its result was stored. It may have had effects: check before "
    "doing it again."
)
"""What a model reads instead of a result that was never stored."""
DAMAGED = "[This message is damaged in the store and cannot be read.]"
"""What a person reads in place of such a message."""


def dump(message: ModelMessage) -> str:
    """Return a message as JSON."""
    return dump_all([message])[1:-1]


def dump_all(messages: Sequence[ModelMessage]) -> str:
    """Return a list of messages as one JSON array."""
    return _dump(_MESSAGES, list(messages))


def dump_result(part: ToolReturnPart) -> str:
    """Return a tool result as JSON."""
    return _dump(_PARTS, [part])[1:-1]


def load(payload: str) -> ModelMessage:
    """Return the message in `payload`; raises ValueError when it is none."""
    (message,) = load_list(f"[{payload}]")
    return message


def load_row(document: str, message_id: str) -> ModelMessage:
    """Return the message of a row.

    Raises:
        SidequestError: `STORE_DAMAGED` when it cannot be read.
    """
    try:
        return load(document)
    except ValueError as error:
        raise damaged(f"Message {message_id}") from error


def damaged(what: str) -> SidequestError:
    """Return the error for a row that cannot be read."""
    return SidequestError(
        ErrorCode.STORE_DAMAGED,
        f"{what} cannot be read from the store.",
        "`sidequest sessions verify` names the row.",
    )


def stand_in(kind: str) -> ModelMessage:
    """Return what stands for a message that cannot be read."""
    if kind == "response":
        return ModelResponse(parts=[TextPart(DAMAGED)], finish_reason="error")
    return ModelRequest(parts=[marked(DAMAGED, "notice")])


def load_all(payloads: Iterable[str]) -> list[ModelMessage]:
    """Return the messages in `payloads`, each a JSON object, in one go."""
    return load_list(f"[{','.join(payloads)}]")


def load_list(payload: str) -> list[ModelMessage]:
    """Return the messages in a JSON array."""
    return _MESSAGES.validate_json(payload)


def load_results(payloads: Iterable[str]) -> list[ToolReturnPart]:
    """Return the tool results in `payloads`, each a JSON object, in one go."""
    parts = _PARTS.validate_json(f"[{','.join(payloads)}]")
    if not all(isinstance(part, ToolReturnPart) for part in parts):
        raise ValueError("a stored tool result is something else")
    return parts  # type: ignore[return-value]


def as_stored(message: ModelMessage, masker: Masker) -> tuple[str, ModelMessage]:
    """Return a message as JSON and as it will be read again: masked, and known to be readable."""
    document = masker.messages(dump(message))
    return document, load(document)


def result_as_stored(part: ToolReturnPart, masker: Masker) -> tuple[str, ToolReturnPart]:
    """Return a tool result as JSON and as it will be read again: masked, and known to be readable."""
    document = masker.messages(dump_result(part))
    (stored,) = load_results([document])
    return document, stored


def spoken_text(message: ModelMessage) -> str:
    """Return what a person or the model said: user and assistant text; no tool results, no reasoning."""
    if isinstance(message, ModelRequest):
        pieces = [user_text(part) for part in message.parts if isinstance(part, UserPromptPart)]
    else:
        pieces = [part.content for part in message.parts if isinstance(part, TextPart)]
    return "\n\n".join(piece for piece in pieces if piece)


def size(message: ModelMessage) -> int:
    """Return the estimated tokens of a message."""
    return estimate_message(message)


def result_size(part: ToolReturnPart) -> int:
    """Return the estimated tokens of a tool result."""
    return estimate_message(ModelRequest(parts=[part]))


def result_text(part: ToolReturnPart) -> str:
    """Return a tool result as the model read it."""
    return part.model_response_str()


def distinct_calls(message: ModelMessage) -> dict[str, ToolCallPart]:
    """Return the calls of a response that we have to answer, by id, in order; the first of a repeated id."""
    calls: dict[str, ToolCallPart] = {}
    if isinstance(message, ModelResponse):
        for call in tool_calls(message):
            calls.setdefault(call.tool_call_id, call)
    return calls


def without_repeated_calls(response: ModelResponse) -> ModelResponse:
    """Return the response with only the first call of each id: providers refuse the others."""
    kept, seen = [], set[str]()
    for part in response.parts:
        if isinstance(part, ToolCallPart):
            if part.tool_call_id in seen:
                continue
            seen.add(part.tool_call_id)
        kept.append(part)
    return response if len(kept) == len(response.parts) else replace(response, parts=kept)


def interrupted(response: ModelResponse, call: ToolCallPart) -> ToolReturnPart:
    """Return the placeholder for a call whose result was never stored: the same one at every reading."""
    return ToolReturnPart(
        call.tool_name,
        INTERRUPTED,
        tool_call_id=call.tool_call_id,
        timestamp=response.timestamp,
        outcome="interrupted",
    )


def _dump(adapter: TypeAdapter[Any], value: Any) -> str:
    try:
        return readable_json(adapter.dump_json(value).decode())
    except PydanticSerializationError:
        # A lone surrogate, for example from a file name: JSON in UTF-8 has no way to say it.
        cleaned = adapter.validate_python(_without_surrogates(adapter.dump_python(value)))
        return readable_json(adapter.dump_json(cleaned).decode())


_SURROGATES = re.compile("[\ud800-\udfff]")


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return storable(value) if _SURROGATES.search(value) else value
    if isinstance(value, list | tuple):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return value
