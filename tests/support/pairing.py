"""Tool calls and results must pair up; real providers refuse a history in which they do not."""

from __future__ import annotations

from collections.abc import Iterable

from tests.support.error_bodies import error
from tests.support.neutral import Reject, Seen, SeenMessage, WireFormat

_NOTHING = SeenMessage("user")

_ORPHAN: dict[WireFormat, str] = {
    "openai-chat": (
        "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
        "'tool_calls'. ({ids})"
    ),
    "openai-responses": "No tool call found for function call output with call_id {ids}.",
    "anthropic": (
        "unexpected `tool_use_id` found in `tool_result` blocks: {ids}. Each `tool_result` block must have a "
        "corresponding `tool_use` block in the previous message."
    ),
}
_UNANSWERED: dict[WireFormat, str] = {
    "openai-chat": (
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
        "'tool_call_id'. The following tool_call_ids did not have response messages: {ids}"
    ),
    "openai-responses": "No tool output found for function call {ids}.",
    "anthropic": (
        "`tool_use` ids were found without `tool_result` blocks immediately after: {ids}. Each `tool_use` "
        "block must have a corresponding `tool_result` block in the next message."
    ),
}
_REPEATED = "each tool_use must have a single result. Found multiple `tool_result` blocks with id: {ids}"


def unpaired(seen: Seen) -> Reject | None:
    """Return the refusal of a history with a call without result or a result without call, else None.

    Chat completions and Messages want the results right after the calls; Responses only wants them present.
    An id that is used twice is refused everywhere: it means that a history was doubled.
    """
    if seen.format == "openai-responses":
        pairs = [(seen.tool_calls, seen.tool_results)]
    else:
        ends = zip((_NOTHING, *seen.messages), (*seen.messages, _NOTHING), strict=True)
        pairs = [(before.tool_calls, after.tool_results) for before, after in ends]
    for calls, results in pairs:
        called = {call.id for call in calls}
        answered = {result.call_id for result in results}
        if answered - called:
            return _refusal(seen, _ORPHAN[seen.format], answered - called)
        if called - answered:
            return _refusal(seen, _UNANSWERED[seen.format], called - answered)
    ids = [result.call_id for result in seen.tool_results]
    repeated = {call_id for call_id in ids if ids.count(call_id) > 1}
    return _refusal(seen, _REPEATED, repeated) if repeated else None


def _refusal(seen: Seen, sentence: str, ids: Iterable[str]) -> Reject:
    return error(seen.format, 400, sentence.format(ids=", ".join(sorted(ids))))
