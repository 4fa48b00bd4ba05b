"""Between pydantic-ai's messages and the engine's plain entries, and what a request counts.

The only module of the engine that knows pydantic-ai.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pydantic_ai.messages import (
    CompactionPart,
    ModelMessage,
    ModelRequest,
    RetryPromptPart,
    SystemPromptPart,
    TextContent,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition

from sidequest.core.tokens import CHARS_PER_TOKEN, IMAGE_TOKENS, compact_json
from sidequest.models.offline.entries import AssistantText, Entry, Tool, ToolUse, UserText

MEDIA_CHARS = IMAGE_TOKENS * CHARS_PER_TOKEN
"""What an image or another file counts, as the specification counts images (1.4). It is not looked at."""


def tool_of(tool: ToolDefinition) -> Tool:
    """Return what the engine needs to know of a tool that is offered."""
    properties = tool.parameters_json_schema.get("properties", {})
    agents = properties.get("agent", {}).get("enum", ()) if isinstance(properties, dict) else ()
    return Tool(tool.name, tool.description or "", frozenset(properties), tuple(map(str, agents)))


def entries_of(messages: Sequence[ModelMessage]) -> tuple[Entry, ...]:
    """Turn a history into plain entries, oldest first; reasoning, system texts and media are left out."""
    entries: list[Entry] = []
    open_uses: dict[str, int] = {}
    for message in messages:
        for part in message.parts:
            match part:
                case UserPromptPart():
                    entries.append(UserText(_user_text(part)))
                case CompactionPart(content=str(content)):
                    entries.append(UserText(f"<summary>\n{content}\n</summary>"))
                case TextPart():
                    entries.append(AssistantText(part.content))
                case ToolCallPart():
                    open_uses[part.tool_call_id] = len(entries)
                    entries.append(ToolUse(part.tool_name, part.args_as_dict()))
                case ToolReturnPart() | RetryPromptPart(tool_name=str()):
                    _answer_use(entries, open_uses.pop(part.tool_call_id, None), part)
                case _:
                    pass
    return tuple(entries)


def _answer_use(entries: list[Entry], at: int | None, part: ToolReturnPart | RetryPromptPart) -> None:
    if isinstance(part, ToolReturnPart):
        text, failed = part.model_response_str(wrap_if_error=False), part.outcome != "success"
    else:
        text, failed = part.model_response(), True
    use = entries[at] if at is not None else None
    if at is not None and isinstance(use, ToolUse):
        entries[at] = ToolUse(use.name, use.args, text, failed)
    else:
        entries.append(ToolUse(part.tool_name or "unknown", {}, text, failed))


def _user_text(part: UserPromptPart) -> str:
    if isinstance(part.content, str):
        return part.content
    pieces = [item if isinstance(item, str) else getattr(item, "content", "") for item in part.content]
    return "\n".join(piece for piece in pieces if isinstance(piece, str) and piece)


def count_request(messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> int:
    """Return the tokens of a request: all text, tool schemas and instructions, `ceil(characters / 4)`."""
    characters = sum(_part_chars(part) for message in messages for part in message.parts)
    characters += _instruction_chars(messages, parameters)
    for tool in (*parameters.function_tools, *parameters.output_tools):
        characters += len(tool.name) + len(tool.description or "")
        characters += len(compact_json(tool.parameters_json_schema))
    return math.ceil(characters / CHARS_PER_TOKEN)


def _instruction_chars(messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> int:
    if parameters.instruction_parts is not None:
        return sum(len(part.content) for part in parameters.instruction_parts)
    for message in reversed(messages):
        if isinstance(message, ModelRequest) and message.instructions:
            return len(message.instructions)
    return 0


def _part_chars(part: object) -> int:
    match part:
        case ToolCallPart():
            return len(part.tool_name) + len(part.args_as_json_str())
        case ToolReturnPart():
            return len(part.model_response_str()) + MEDIA_CHARS * len(part.files)
        case RetryPromptPart():
            return len(part.model_response())
        case UserPromptPart(content=str(text)) | SystemPromptPart(content=text) | TextPart(content=text):
            return len(text)
        case UserPromptPart(content=items):
            return sum(_item_chars(item) for item in items)
        case _:
            content = getattr(part, "content", None)
            return len(content) if isinstance(content, str) else 0


def _item_chars(item: object) -> int:
    if isinstance(item, str):
        return len(item)
    return len(item.content) if isinstance(item, TextContent) else MEDIA_CHARS
