"""Anthropic Messages, `POST /v1/messages`: read requests, write answers and events."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tests.support.neutral import (
    InStreamError,
    ParsedRequest,
    Seen,
    SeenMessage,
    Tool,
    ToolCall,
    ToolResult,
    WireFormat,
)
from tests.support.wire_common import (
    Answered,
    EventStream,
    argument_text,
    compact,
    first_cap,
    flatten,
    merge,
    pieces,
    sse,
)

FORMAT: WireFormat = "anthropic"
_STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}


def parse(payload: Mapping[str, Any]) -> ParsedRequest:
    """Read a request body; raises `KeyError` when a required field is missing."""
    messages = [message for item in payload["messages"] for message in _messages(item)]
    cap, cap_name = first_cap(payload, "max_tokens")
    return ParsedRequest(
        format=FORMAT,
        model=payload["model"],
        system=flatten(payload.get("system"), "\n\n")[0],
        messages=merge(messages, "tool"),
        tools=tuple(
            Tool(tool["name"], tool.get("input_schema") or {}, compact(tool))
            for tool in payload.get("tools") or ()
        ),
        max_tokens=cap,
        max_tokens_field=cap_name,
        stream=bool(payload.get("stream")),
    )


def _messages(item: Mapping[str, Any]) -> Iterator[SeenMessage]:
    """Split a user message into its tool results and the rest, as the other formats send them."""
    content = item["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
    by_type = {kind: [block for block in blocks if block["type"] == kind] for kind in _STRUCTURED}
    rest = [block for block in blocks if block["type"] not in _STRUCTURED]
    if by_type["tool_result"]:
        read = [(block["tool_use_id"], *flatten(block.get("content"))) for block in by_type["tool_result"]]
        results = tuple(ToolResult(call_id, text) for call_id, text, _ in read)
        yield SeenMessage("tool", tool_results=results, images=sum(images for *_, images in read))
    if rest or not by_type["tool_result"]:
        text, images = flatten(rest)
        calls = tuple(
            ToolCall(block["id"], block["name"], compact(block["input"])) for block in by_type["tool_use"]
        )
        thinking = "\n".join(block["thinking"] for block in by_type["thinking"])
        yield SeenMessage(item["role"], text, calls, thinking=thinking, images=images)


_STRUCTURED = ("tool_result", "tool_use", "thinking")


def _content(answered: Answered) -> list[dict[str, Any]]:
    reply = answered.reply
    blocks: list[dict[str, Any]] = []
    if reply.thinking:
        blocks.append({"type": "thinking", "thinking": reply.thinking, "signature": "signed"})
    if reply.text:
        blocks.append({"type": "text", "text": reply.text})
    for position, (name, arguments) in enumerate(reply.tool_calls):
        block = {"type": "tool_use", "id": answered.call_id(position), "name": name}
        blocks.append({**block, "input": _object(argument_text(arguments))})
    return blocks


def _object(arguments: str) -> Any:
    """Parse arguments; broken JSON becomes an empty object, as the API sends for a call that was cut."""
    try:
        return json.loads(arguments)
    except json.JSONDecodeError:
        return {}


def _input_usage(answered: Answered) -> dict[str, int]:
    usage = answered.usage
    return {
        "input_tokens": usage.input - usage.cached,
        "cache_read_input_tokens": usage.cached,
        "cache_creation_input_tokens": 0,
    }


def _message(answered: Answered, content: list[dict[str, Any]], **more: object) -> dict[str, Any]:
    return {
        "id": f"msg_{answered.id}",
        "type": "message",
        "role": "assistant",
        "model": answered.seen.model,
        "content": content,
        "stop_reason": None,
        "stop_sequence": None,
        **more,
    }


def _stop_reason(answered: Answered) -> str:
    finish = answered.reply.finish_reason
    return _STOP_REASONS.get(finish, finish)


def body(answered: Answered) -> dict[str, Any]:
    """Return the answer of a request that is not streamed."""
    usage = {**_input_usage(answered), "output_tokens": answered.usage.output}
    return _message(answered, _content(answered), stop_reason=_stop_reason(answered), usage=usage)


def _block_deltas(block: dict[str, Any], arguments: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a block as it starts, empty, and the deltas that fill it."""
    match block["type"]:
        case "thinking":
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"])]
            signature = {"type": "signature_delta", "signature": block["signature"]}
            return {**block, "thinking": "", "signature": ""}, [*deltas, signature]
        case "text":
            deltas = [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
            return {**block, "text": ""}, deltas
        case _:
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces(arguments)]
            return {**block, "input": {}}, deltas


def stream(answered: Answered) -> EventStream:
    """Return the same answer as events; input usage is in the first one, all usage in `message_delta`."""
    usage = {**_input_usage(answered), "output_tokens": 1}
    head = [_event("message_start", message=_message(answered, [], usage=usage))]
    arguments = iter(argument_text(arguments) for _, arguments in answered.reply.tool_calls)
    for index, block in enumerate(_content(answered)):
        sent_as = next(arguments) if block["type"] == "tool_use" else ""
        opened, deltas = _block_deltas(block, sent_as)
        head.append(_event("content_block_start", index=index, content_block=opened))
        head += [_event("content_block_delta", index=index, delta=delta) for delta in deltas]
        head.append(_event("content_block_stop", index=index))
    ending = {"stop_reason": _stop_reason(answered), "stop_sequence": None}
    total = {**_input_usage(answered), "output_tokens": answered.usage.output}
    return EventStream(head, [_event("message_delta", delta=ending, usage=total), _event("message_stop")])


def _event(name: str, **data: object) -> bytes:
    return sse({"type": name, **data}, event=name)


def error_body(seen: Seen, error: InStreamError) -> dict[str, Any]:
    """Return the error as the body of a 200."""
    return {"type": "error", "error": {"type": error.code, "message": error.message}}


def error_events(seen: Seen, error: InStreamError, sent: int) -> list[bytes]:
    """Return the `error` event."""
    return [sse(error_body(seen, error), event="error")]
