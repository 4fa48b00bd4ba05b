"""The prefix a fork shares with its parent, so that a provider's prompt cache serves it (specification 5.3).

A cache serves what is equal from the first byte on: instructions and tool schemas come before the messages.
A fork on its parent's model therefore sends the parent's own, and what its definition does not grant is
refused when it is called.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolCallPart
from pydantic_ai.tools import RunContext, ToolDefinition
from pydantic_ai.toolsets import ToolsetTool, WrapperToolset
from pydantic_core import SchemaValidator, core_schema

from sidequest.core.errors import ErrorCode

_ANYTHING = SchemaValidator(core_schema.any_schema())


@dataclass(frozen=True, slots=True)
class Prefix:
    """What a parent's requests begin with."""

    instructions: str
    tools: tuple[ToolDefinition, ...]
    """In the order in which they are offered."""

    def covers(self, names: Collection[str]) -> bool:
        """Say whether the parent is offered every tool among `names`."""
        return {tool.name for tool in self.tools} >= set(names)


def prefix_of(ctx: RunContext[Any]) -> Prefix | None:
    """Return what the requests of the run behind `ctx` begin with; None when that cannot be sent again.

    It cannot when a tool is no plain function: one that the caller runs would pause the fork.
    """
    tools = tuple(ctx.tools.values())
    instructions = _instructions(ctx.messages)
    if not tools or instructions is None or any(tool.kind != "function" for tool in tools):
        return None
    return Prefix(instructions, tools)


def _instructions(messages: Sequence[ModelMessage]) -> str | None:
    requests = [message for message in messages if isinstance(message, ModelRequest)]
    return next((request.instructions for request in reversed(requests) if request.instructions), None)


@dataclass
class PrefixToolset(WrapperToolset[Any]):
    """Offers the parent's tools as the parent is offered them, and runs those that are granted."""

    prefix: Prefix

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return every tool of the prefix, in its order."""
        granted = await super().get_tools(ctx)
        return {
            definition.name: replace(granted[definition.name], tool_def=definition)
            if definition.name in granted
            else ToolsetTool(toolset=self, tool_def=definition, max_retries=0, args_validator=_ANYTHING)
            for definition in self.prefix.tools
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Run a granted tool; any other fails."""
        if tool.toolset is self:
            raise _refused(name)
        return await super().call_tool(name, tool_args, ctx, tool)


@dataclass
class GrantedOnly(AbstractCapability[Any]):
    """Refuses tools that are offered for the sake of the prefix, before anybody is asked about them."""

    names: frozenset[str]
    """What the definition grants."""

    async def before_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: dict[str, Any]
    ) -> dict[str, Any]:
        """Let a granted call through."""
        if call.tool_name not in self.names:
            raise _refused(call.tool_name)
        return args


def _refused(name: str) -> ToolFailed:
    return ToolFailed(
        f"{ErrorCode.TOOL_DENIED}: {name} is a tool of the agent that delegated to you and is not granted to "
        "you. Go on without it, or say in your report what is missing."
    )
