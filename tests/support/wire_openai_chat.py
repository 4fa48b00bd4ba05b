"""OpenAI chat completions, `POST /v1/chat/completions`: read requests, write answers and chunks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.support.neutral import (
    InStreamError,
    ParsedRequest,
    Role,
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
    split_system,
    sse,
)

FORMAT: WireFormat = "openai-chat"
_ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}


def parse(payload: Mapping[str, Any]) -> ParsedRequest:
    """Read a request body; raises `KeyError` when a required field is missing."""
    system, messages = split_system(_message(item) for item in payload["messages"])
    cap, cap_name = first_cap(payload, "max_completion_tokens", "max_tokens")
    stream = bool(payload.get("stream"))
    return ParsedRequest(
        format=FORMAT,
        model=payload["model"],
        system=system,
        messages=merge(messages, "tool"),
        tools=tuple(_tool(item) for item in payload.get("tools") or ()),
        max_tokens=cap,
        max_tokens_field=cap_name,
        stream=stream,
        wants_usage=not stream or bool((payload.get("stream_options") or {}).get("include_usage")),
    )


def _message(item: Mapping[str, Any]) -> SeenMessage:
    role = _ROLES[item["role"]]
    text, images = flatten(item.get("content"))
    if role == "tool":
        result = ToolResult(item["tool_call_id"], text)
        return SeenMessage(role, tool_results=(result,), images=images)
    calls = tuple(
        ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in item.get("tool_calls") or ()
    )
    thinking = item.get("reasoning_content") or item.get("reasoning") or ""
    return SeenMessage(role, text, calls, thinking=thinking, images=images)


def _tool(item: Mapping[str, Any]) -> Tool:
    function = item.get("function") or {}
    return Tool(function.get("name", item["type"]), function.get("parameters") or {}, compact(item))


def _tool_calls(answered: Answered) -> list[dict[str, Any]]:
    return [
        {
            "id": answered.call_id(position),
            "type": "function",
            "function": {"name": name, "arguments": argument_text(arguments)},
        }
        for position, (name, arguments) in enumerate(answered.reply.tool_calls)
    ]


def _usage(answered: Answered) -> dict[str, Any]:
    usage = answered.usage
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
    }


def body(answered: Answered) -> dict[str, Any]:
    """Return the answer of a request that is not streamed."""
    reply = answered.reply
    message: dict[str, Any] = {"role": "assistant", "content": reply.text}
    if reply.thinking:
        message["reasoning_content"] = reply.thinking
    if reply.tool_calls:
        message["tool_calls"] = _tool_calls(answered)
    choice = {"index": 0, "message": message, "finish_reason": reply.finish_reason, "logprobs": None}
    return {
        "id": f"chatcmpl-{answered.id}",
        "object": "chat.completion",
        "created": 1_790_000_000,
        "model": answered.seen.model,
        "choices": [choice],
        "usage": _usage(answered),
    }


def _deltas(answered: Answered) -> Iterator[dict[str, Any]]:
    reply = answered.reply
    yield {"role": "assistant", "content": ""}
    for piece in pieces(reply.thinking or ""):
        yield {"reasoning_content": piece}
    for piece in pieces(reply.text or ""):
        yield {"content": piece}
    for position, call in enumerate(_tool_calls(answered)):
        function = call["function"]
        opened = {**call, "index": position, "function": {"name": function["name"], "arguments": ""}}
        yield {"tool_calls": [opened]}
        for piece in pieces(function["arguments"]):
            yield {"tool_calls": [{"index": position, "function": {"arguments": piece}}]}


def stream(answered: Answered) -> EventStream:
    """Return the same answer as chunks; usage is in the last one, if the request asked for it."""

    def chunk(choices: list[dict[str, Any]], **more: object) -> bytes:
        return sse(
            {
                "id": f"chatcmpl-{answered.id}",
                "object": "chat.completion.chunk",
                "created": 1_790_000_000,
                "model": answered.seen.model,
                "choices": choices,
                **more,
            }
        )

    head = [chunk([{"index": 0, "delta": delta, "finish_reason": None}]) for delta in _deltas(answered)]
    tail = [chunk([{"index": 0, "delta": {}, "finish_reason": answered.reply.finish_reason}])]
    if answered.seen.wants_usage:
        tail.append(chunk([], usage=_usage(answered)))
    return EventStream(head, [*tail, sse("[DONE]")])


def error_body(seen: Seen, error: InStreamError) -> dict[str, Any]:
    """Return the error as the body of a 200."""
    return {"error": {"message": error.message, "type": error.code, "param": None, "code": error.code}}


def error_events(seen: Seen, error: InStreamError, sent: int) -> list[bytes]:
    """Return the error as a chunk; OpenAI and compatible servers send no `[DONE]` after it."""
    return [sse(error_body(seen, error))]
