"""A stored conversation as entries in the order in which they happened; nothing is printed here.

What the model was given back by its tools is not part of it: one line says what was called and how it ended.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    TextContent,
    TextPart,
    ToolReturnPart,
    UserPromptPart,
)

from sidequest.core.errors import ErrorCode
from sidequest.core.transcript import delivered_ids, mark_of, tool_calls, user_text
from sidequest.runtime.recorder import call_summary
from sidequest.surfaces.stored_rows import delegation_dict

if TYPE_CHECKING:
    from sidequest.store import CheckpointRow, DelegationRow, StoredMessage

NO_RESULT = "no result"
"""How a call ended of which nothing was stored."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call and how it ended."""

    tool: str
    summary: str
    """Its arguments, in one line."""
    ended: str
    """`success`, `failed`, `denied`, `interrupted`, or `NO_RESULT`."""
    id: str = ""
    """Id of the call; unique in its message only."""


@dataclass(frozen=True, slots=True)
class Said:
    """A message as a person sees it."""

    id: str
    position: int
    at_ms: int
    role: str
    """`user`, `assistant`, `task` for a delegate's brief, `reports` for a delivery, `notice`."""
    text: str
    calls: tuple[Call, ...] = ()
    delivered: tuple[str, ...] = ()
    """Ids of the delegations whose reports it hands over; their text is not repeated."""
    failed: bool = False
    """Whether it says how a turn failed."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """History that was replaced for the model; every message above it stays in the transcript."""

    generation: int
    at_ms: int
    tokens_before: int
    tokens_after: int | None
    degraded: bool
    """Whether it happened without a summary."""
    summary: str


Entry: TypeAlias = "Said | Compaction | DelegationRow"


def transcript(
    messages: Sequence[StoredMessage],
    delegations: Sequence[DelegationRow] = (),
    checkpoints: Sequence[CheckpointRow] = (),
) -> list[Entry]:
    """Return what there is to see of a lane, in order.

    A delegation stands behind the newest message that was there when it started, a compaction behind the
    newest that it covers.
    """
    times = [message.created_at_ms for message in messages]
    placed: list[tuple[int, int, Entry]] = []
    for number, said in enumerate(_said(messages)):
        if said is not None:
            placed.append((number, -1, said))
    for row in delegations:
        placed.append((bisect_right(times, row.started_at_ms) - 1, row.started_at_ms, row))
    positions = [message.position for message in messages]
    for checkpoint in checkpoints:
        behind = bisect_right(positions, checkpoint.through_position) - 1
        placed.append((behind, checkpoint.created_at_ms, _compaction(checkpoint)))
    return [entry for _, _, entry in sorted(placed, key=lambda item: item[:2])]


def _said(messages: Sequence[StoredMessage]) -> Iterator[Said | None]:
    """Give for each message what is seen of it, None for one that only carries results."""
    for number, stored in enumerate(messages):
        message = stored.message
        if isinstance(message, ModelRequest):
            yield _request(stored, message)
            continue
        asked_again = _asked_again(messages[number + 1 :])
        text = "\n\n".join(part.content.strip() for part in message.parts if isinstance(part, TextPart))
        calls = tuple(_calls(stored, message, asked_again))
        failed = message.finish_reason == "error"
        if text.strip() or calls:
            yield Said(
                stored.id,
                stored.position,
                stored.created_at_ms,
                "assistant",
                text.strip(),
                calls,
                failed=failed,
            )
        else:
            yield None


def _asked_again(later: Sequence[StoredMessage]) -> Mapping[str, str]:
    """Return the calls, by id, that were answered by asking for another one."""
    found: dict[str, str] = {}
    for stored in later:
        if isinstance(stored.message, ModelResponse):
            break
        for part in stored.message.parts:
            if isinstance(part, RetryPromptPart) and part.tool_name is not None:
                found[part.tool_call_id] = "failed"
    return found


def _calls(stored: StoredMessage, response: ModelResponse, asked_again: Mapping[str, str]) -> Iterator[Call]:
    results = {result.tool_call_id: _ended(result.part) for result in stored.results}
    for call in tool_calls(response):
        ended = results.get(call.tool_call_id) or asked_again.get(call.tool_call_id, NO_RESULT)
        yield Call(call.tool_name, call_summary(call), ended, call.tool_call_id)


def _ended(part: ToolReturnPart) -> str:
    denied = part.outcome == "failed" and str(part.content).startswith(f"{ErrorCode.TOOL_DENIED}:")
    return "denied" if denied else part.outcome


_ROLES = {"brief": "task", "original": "task", "report": "reports"}


def _request(stored: StoredMessage, request: ModelRequest) -> Said | None:
    prompts = [part for part in request.parts if isinstance(part, UserPromptPart)]
    if not prompts:
        return None
    delivered = tuple(delivered_ids(request))
    # The reports themselves stand in the blocks of their delegations.
    spoken = [part for part in prompts if mark_of(part) != "report"] if delivered else prompts
    mark = mark_of((spoken or prompts)[0])
    text = "\n\n".join(piece for piece in map(_prompt, spoken) if piece.strip()).strip()
    role = "user" if mark is None else _ROLES.get(mark, "notice")
    return Said(stored.id, stored.position, stored.created_at_ms, role, text, delivered=delivered)


def _prompt(part: UserPromptPart) -> str:
    content = [] if isinstance(part.content, str) else list(part.content or ())
    media = sum(not isinstance(item, str | TextContent) for item in content)
    pieces = [user_text(part), f"[{media} attached]" if media else ""]
    return "\n".join(piece for piece in pieces if piece)


def _compaction(row: CheckpointRow) -> Compaction:
    return Compaction(
        row.generation,
        row.created_at_ms,
        row.tokens_before,
        row.tokens_after,
        "fallback" in row.details,
        row.summary,
    )


def entry_dict(entry: Entry, held: frozenset[str]) -> dict[str, Any]:
    """Return an entry as plain values; its `type` is `message`, `compaction` or `delegation`."""
    if isinstance(entry, Said):
        return {
            "type": "message",
            "id": entry.id,
            "position": entry.position,
            "atMs": entry.at_ms,
            "role": entry.role,
            "text": entry.text,
            "calls": [{"tool": c.tool, "summary": c.summary, "ended": c.ended} for c in entry.calls],
            "delivers": list(entry.delivered),
            "failed": entry.failed,
        }
    if isinstance(entry, Compaction):
        return {
            "type": "compaction",
            "generation": entry.generation,
            "atMs": entry.at_ms,
            "tokensBefore": entry.tokens_before,
            "tokensAfter": entry.tokens_after,
            "degraded": entry.degraded,
            "summary": entry.summary,
        }
    return {"type": "delegation", **delegation_dict(entry, held, whole=True)}
