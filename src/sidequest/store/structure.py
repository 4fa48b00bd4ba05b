"""What of a stored JSON document is content, and masked, and what is structure, and left as it is.

Content is what people, models and tools wrote. Structure is what programs read again: ids, kinds, statuses,
folders, models, names of fields, numbers. A text is content unless it stands in a field that is named here,
so that a field nobody thought of is masked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Mask = Callable[[Any], Any]
"""Masks every text in plain values, names of fields too."""

_RECORD_FIELDS = (
    "type number atMs id sessionId session_id delegationId delegation_id callId call_id asker tool "
    "unfinishedTool agent model after contextMode context_mode context allowed_contexts code status "
    "stopReason strategy origin name tools disallowed_tools fallback_models thinking permission scope path "
    "reader foreign"
)
_OF_RECORDS = frozenset(_RECORD_FIELDS.split())
"""Fields of events, outcomes, definitions and questions: our own documents."""
_MESSAGE_FIELDS = (
    "kind part_kind timestamp state id identifier tool_name tool_call_id tool_kind outcome cause model_name "
    "provider_name provider_response_id finish_reason run_id conversation_id history_digest workspace_ref "
    "duration data media_type file_id force_download ttl format speaker signature scope dynamic_ref "
    "content_hash base_hash on_change tools_added"
)
_OF_MESSAGES = frozenset(_MESSAGE_FIELDS.split())
"""Fields of pydantic-ai's messages, parts and items. `data` is base64 of bytes, `signature` a provider's."""
_FREE = frozenset(("arguments", "args", "metadata", "vendor_metadata", "provider_details", "value"))
"""Fields below which nothing has a meaning to us."""
_ITEMS = (
    "image-url audio-url video-url document-url binary uploaded-file text-content structured-content "
    "cache-point"
)
_ITEM_KINDS = frozenset(_ITEMS.split())
_SIGNED = ("signature", "id", "provider_name", "provider_details")


def masked_record(value: Any, mask: Mask) -> Any:
    """Return a document of ours with its content masked; names of its fields are structure."""
    if isinstance(value, dict):
        return {key: _masked_entry(key, item, mask) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(masked_record(item, mask) for item in value)
    return mask(value)


def _masked_entry(name: str, value: Any, mask: Mask) -> Any:
    if name in _OF_RECORDS and _is_plain(value):
        return value
    return mask(value) if name in _FREE else masked_record(value, mask)


def masked_messages(value: Any, mask: Mask) -> Any:
    """Return a message, a part, or a list of messages, as pydantic-ai's JSON, with its content masked.

    Reasoning whose text was changed loses its signature, and its message the provider's ids: a provider
    refuses a signature that does not fit, and items that name reasoning which does not come along.
    """
    if isinstance(value, list):
        return [masked_messages(item, mask) for item in value]
    if not isinstance(value, dict):
        return mask(value)
    masked = {key: _masked_field(key, item, mask) for key, item in value.items()}
    before, after = value.get("parts"), masked.get("parts")
    if isinstance(before, list) and isinstance(after, list):
        changed = [_is_reasoning(old) and old != new for old, new in zip(before, after, strict=True)]
        if any(changed):
            masked["parts"] = [
                {**part, **dict.fromkeys(_SIGNED if unsigned else ("id",) if "id" in part else ())}
                for part, unsigned in zip(after, changed, strict=True)
            ]
    return masked


def _masked_field(name: str, value: Any, mask: Mask) -> Any:
    if name in _OF_MESSAGES:
        return value
    if name in _FREE:
        return mask(value)
    if name == "content":
        return _masked_content(value, mask)
    return masked_messages(value, mask)


def _masked_content(value: Any, mask: Mask) -> Any:
    """Mask what a part holds: a text, items such as pictures among others, or whatever a tool gave."""
    if isinstance(value, list):
        return [_masked_content(item, mask) for item in value]
    if isinstance(value, dict):
        if value.get("kind") in _ITEM_KINDS:
            return masked_messages(value, mask)
        names = mask(dict.fromkeys(value))
        if len(names) == len(value):
            return {
                name: _masked_content(item, mask) for name, item in zip(names, value.values(), strict=True)
            }
    return mask(value)


def _is_plain(value: Any) -> bool:
    """Say whether a field holds a word of ours, or a list of them: what is nested is looked at itself."""
    return not isinstance(value, dict) and not (
        isinstance(value, list | tuple) and any(isinstance(item, dict | list | tuple) for item in value)
    )


def _is_reasoning(part: Any) -> bool:
    return isinstance(part, dict) and part.get("part_kind") == "thinking"
