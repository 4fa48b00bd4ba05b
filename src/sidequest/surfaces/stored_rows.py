"""Stored sessions and delegations as plain values and short words; nothing here loads pydantic-ai."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from sidequest.core.outcome import Status
from sidequest.surfaces.storing import is_held
from sidequest.surfaces.text import duration, one_line, some

if TYPE_CHECKING:
    from sidequest.store import DelegationRow, SessionRow, Store


async def in_use(store: Store, rows: Iterable[DelegationRow]) -> frozenset[str]:
    """Return the ids of those sessions with a running delegation that a process holds at this moment."""
    running = {row.session_id for row in rows if row.status is Status.RUNNING}
    leases = [await store.leases.get(session_id) for session_id in sorted(running)]
    return frozenset(lease.session_id for lease in leases if lease is not None and is_held(lease))


def status_of(row: DelegationRow, held: frozenset[str]) -> Status:
    """Return where a delegation stands; one that runs in a session which nobody holds was interrupted."""
    if row.status is Status.RUNNING and row.session_id not in held:
        return Status.INTERRUPTED
    return row.status


def title_of(row: SessionRow) -> str:
    """Return the title of a session in one line, or words that stand for it."""
    return one_line(row.title) or "(no title)"


def size_of(row: SessionRow) -> str:
    """Return how much a session holds: `6 messages, 1 delegation`."""
    parts = [some(row.messages, "message")] if row.messages or not row.delegations else []
    if row.delegations:
        parts.append(some(row.delegations, "delegation"))
    return ", ".join(parts)


def work_of(row: DelegationRow) -> str:
    """Return what a delegation did: `3 turns, 2 tools, 0.4s`; without a time while it has not ended."""
    parts = [some(row.turns, "turn"), some(row.tool_calls, "tool")]
    if row.completed_at_ms is not None and row.status is not Status.INTERRUPTED:
        parts.append(duration((row.completed_at_ms - row.started_at_ms) / 1000))
    return ", ".join(parts)


def session_dict(row: SessionRow) -> dict[str, Any]:
    """Return a session as plain values."""
    return {
        "id": row.id,
        "title": row.title,
        "root": row.root,
        "model": row.model,
        "createdAtMs": row.created_at_ms,
        "updatedAtMs": row.updated_at_ms,
        "messages": row.messages,
        "delegations": row.delegations,
        "forkedFrom": row.forked_from,
        "forkedThrough": row.forked_through,
    }


def delegation_dict(row: DelegationRow, held: frozenset[str], *, whole: bool = False) -> dict[str, Any]:
    """Return a delegation as plain values; `whole` adds brief, definition, outcome and report."""
    data: dict[str, Any] = {
        "id": row.id,
        "sessionId": row.session_id,
        "number": row.number,
        "chainId": row.chain_id,
        "resumedFrom": row.resumed_from,
        "agent": row.agent,
        "label": row.label,
        "task": row.task,
        "model": row.model,
        "contextMode": row.context_mode,
        "status": status_of(row, held).value,
        "turns": row.turns,
        "toolCalls": row.tool_calls,
        "tokens": row.tokens,
        "lastTool": row.last_tool,
        "delivered": row.delivered,
        "startedAtMs": row.started_at_ms,
        "completedAtMs": row.completed_at_ms,
    }
    if whole:
        data |= {
            "brief": row.brief,
            "definition": dict(row.definition),
            "outcome": None if row.outcome is None else dict(row.outcome),
            "report": row.report,
        }
    return data
