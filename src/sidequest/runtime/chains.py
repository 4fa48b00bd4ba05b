"""Chains of delegations that can be resumed, and what the parent is told about them (specification 3.11)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pydantic_ai.messages import ModelMessage, ToolCallPart

MAX_CHAINS_PER_AGENT = 2
"""Chains of one subagent that are kept for resuming, inclusive; the one used longest ago is let go first."""
MAX_READ_LINES = 50_000
"""Most lines a chain may have read, inclusive, to be resumed."""
MAX_LISTED_FILES = 8
READERS = frozenset({"read", "glob", "grep"})
"""Tools whose results count as read, in lower case."""
_OBJECTIVE_CHARS = 120


@dataclass(frozen=True, slots=True)
class Reads:
    """What a delegation looked at."""

    files: tuple[str, ...] = ()
    """Paths and patterns, in the order of first use."""
    lines: int = 0
    """Lines of all results together."""

    def plus(self, other: Reads) -> Reads:
        """Return both together."""
        return Reads(tuple(dict.fromkeys((*self.files, *other.files))), self.lines + other.lines)


def read_by(call: ToolCallPart, result: object) -> Reads:
    """Return what a call that came through has looked at; nothing when it is no reading tool."""
    if call.tool_name.lower() not in READERS:
        return Reads()
    return Reads(tuple(_target(call)), str(result).count("\n") + 1)


def files_of(messages: Sequence[ModelMessage]) -> tuple[str, ...]:
    """Return what Read, Glob and Grep were asked for in `messages`, in the order of first use."""
    calls = [
        part
        for message in messages
        for part in message.parts
        if isinstance(part, ToolCallPart) and part.tool_name.lower() in READERS
    ]
    return tuple(dict.fromkeys(target for call in calls for target in _target(call)))


def _target(call: ToolCallPart) -> Iterable[str]:
    try:
        args = call.args_as_dict()
    except ValueError:
        return
    for name in ("path", "file_path", "pattern"):
        value = args.get(name)
        if isinstance(value, str) and value:
            yield value
            return


@dataclass(frozen=True, slots=True)
class ChainLine:
    """A chain as the parent's prompt lists it."""

    agent: str
    delegation_id: str
    objective: str
    files: tuple[str, ...] = ()


def chains_block(chains: Sequence[ChainLine]) -> str:
    """Return the block of the parent's prompt about resumable delegations; empty when there are none."""
    if not chains:
        return ""
    lines = ["Delegations you can go on with: Task with resume set to the id, and without model or context."]
    for chain in chains:
        objective = " ".join(chain.objective.split())
        if len(objective) > _OBJECTIVE_CHARS:
            objective = objective[: _OBJECTIVE_CHARS - 1] + "…"
        line = f"- {chain.agent} / {chain.delegation_id}: {objective}"
        if chain.files:
            more = len(chain.files) - MAX_LISTED_FILES
            listed = ", ".join(chain.files[:MAX_LISTED_FILES])
            line += f" (read {listed}{f', +{more} more' if more > 0 else ''})"
        lines.append(line)
    return "\n".join(lines)
