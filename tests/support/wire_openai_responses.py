"""OpenAI Responses, `POST /v1/responses`: read requests, write answers and numbered events."""

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

FORMAT: WireFormat = "openai-responses"
_ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
_INCOMPLETE = {"length": "max_output_tokens"}
_Event = tuple[str, dict[str, Any]]


def parse(payload: Mapping[str, Any]) -> ParsedRequest:
    """Read a request body; raises `KeyError` when a required field is missing."""
    items = payload["input"]
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    system, messages = split_system(_item(item) for item in items)
    cap, cap_name = first_cap(payload, "max_output_tokens")
    return ParsedRequest(
        format=FORMAT,
        model=payload["model"],
        system="\n\n".join(text for text in (payload.get("instructions"), system) if text),
        messages=merge(messages, "assistant", "tool"),
        tools=tuple(
            Tool(tool.get("name", tool["type"]), tool.get("parameters") or {}, compact(tool))
            for tool in payload.get("tools") or ()
        ),
        max_tokens=cap,
        max_tokens_field=cap_name,
        stream=bool(payload.get("stream")),
    )


def _item(item: Mapping[str, Any]) -> SeenMessage:
    match item.get("type", "message"):
        case "message":
            text, images = flatten(item["content"])
            return SeenMessage(_ROLES[item["role"]], text, images=images)
        case "function_call":
            call = ToolCall(item["call_id"], item["name"], item["arguments"])
            return SeenMessage("assistant", tool_calls=(call,))
        case "function_call_output":
            text, images = flatten(item["output"])
            return SeenMessage("tool", tool_results=(ToolResult(item["call_id"], text),), images=images)
        case "reasoning":
            return SeenMessage("assistant", thinking=flatten(item.get("summary"))[0])
        case _:
            return SeenMessage("assistant", text=compact(item))


def _output(answered: Answered) -> list[dict[str, Any]]:
    reply, index = answered.reply, answered.id
    status = "completed" if _incomplete(answered) is None else "incomplete"
    items: list[dict[str, Any]] = []
    if reply.thinking:
        summary = [{"type": "summary_text", "text": reply.thinking}]
        items.append({"type": "reasoning", "id": f"rs_{index}", "summary": summary})
    if reply.text is not None:
        content = [{"type": "output_text", "text": reply.text, "annotations": []}]
        message = {"type": "message", "id": f"msg_{index}", "role": "assistant", "content": content}
        items.append({**message, "status": status})
    for position, (name, arguments) in enumerate(reply.tool_calls):
        call = {
            "type": "function_call",
            "id": f"fc_{index}_{position}",
            "call_id": answered.call_id(position),
        }
        items.append({**call, "name": name, "arguments": argument_text(arguments), "status": status})
    return items


def _incomplete(answered: Answered) -> str | None:
    """The reason of an incomplete response; None when it is complete."""
    finish = answered.reply.finish_reason
    return None if finish in ("stop", "tool_calls") else _INCOMPLETE.get(finish, finish)


def _response(seen: Seen, status: str, output: list[dict[str, Any]], **more: object) -> dict[str, Any]:
    return {
        "id": f"resp_{seen.index}",
        "object": "response",
        "created_at": 1_790_000_000,
        "status": status,
        "model": seen.model,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        "incomplete_details": None,
        "usage": None,
        **more,
    }


def body(answered: Answered) -> dict[str, Any]:
    """Return the answer of a request that is not streamed."""
    usage, reason = answered.usage, _incomplete(answered)
    reported = {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.input + usage.output,
    }
    return _response(
        answered.seen,
        "completed" if reason is None else "incomplete",
        _output(answered),
        usage=reported,
        incomplete_details=None if reason is None else {"reason": reason},
    )


def _item_events(item: dict[str, Any], place: int) -> Iterator[_Event]:
    at = {"item_id": item["id"], "output_index": place}
    match item["type"]:
        case "reasoning":
            yield "response.output_item.added", {"output_index": place, "item": {**item, "summary": []}}
            part, at = (
                {"type": "summary_text", "text": item["summary"][0]["text"]},
                {**at, "summary_index": 0},
            )
            yield "response.reasoning_summary_part.added", {**at, "part": {**part, "text": ""}}
            for piece in pieces(part["text"]):
                yield "response.reasoning_summary_text.delta", {**at, "delta": piece}
            yield "response.reasoning_summary_text.done", {**at, "text": part["text"]}
            yield "response.reasoning_summary_part.done", {**at, "part": part}
        case "message":
            opened = {**item, "content": [], "status": "in_progress"}
            yield "response.output_item.added", {"output_index": place, "item": opened}
            part, at = item["content"][0], {**at, "content_index": 0}
            yield "response.content_part.added", {**at, "part": {**part, "text": ""}}
            for piece in pieces(part["text"]):
                yield "response.output_text.delta", {**at, "delta": piece, "logprobs": []}
            yield "response.output_text.done", {**at, "text": part["text"], "logprobs": []}
            yield "response.content_part.done", {**at, "part": part}
        case "function_call":
            opened = {**item, "arguments": "", "status": "in_progress"}
            yield "response.output_item.added", {"output_index": place, "item": opened}
            for piece in pieces(item["arguments"]):
                yield "response.function_call_arguments.delta", {**at, "delta": piece}
            done = {"name": item["name"], "arguments": item["arguments"]}
            yield "response.function_call_arguments.done", {**at, **done}
    yield "response.output_item.done", {"output_index": place, "item": item}


def _numbered(events: list[_Event], start: int) -> list[bytes]:
    return [
        sse({"type": name, "sequence_number": start + offset, **data}, event=name)
        for offset, (name, data) in enumerate(events)
    ]


def stream(answered: Answered) -> EventStream:
    """Return the same answer as events; usage is in the last one."""
    opened = {"response": _response(answered.seen, "in_progress", [])}
    head: list[_Event] = [("response.created", opened), ("response.in_progress", opened)]
    for place, item in enumerate(_output(answered)):
        head += _item_events(item, place)
    final = body(answered)
    return EventStream(
        _numbered(head, 0), _numbered([(f"response.{final['status']}", {"response": final})], len(head))
    )


def error_body(seen: Seen, error: InStreamError) -> dict[str, Any]:
    """Return a failed response, which is how this API reports an error in a 200."""
    return _response(seen, "failed", [], error={"code": error.code, "message": error.message})


def error_events(seen: Seen, error: InStreamError, sent: int) -> list[bytes]:
    """Return `response.failed`, or the bare `error` event."""
    if error.event == "error":
        return _numbered([("error", {"code": error.code, "message": error.message, "param": None})], sent)
    return _numbered([("response.failed", {"response": error_body(seen, error)})], sent)
