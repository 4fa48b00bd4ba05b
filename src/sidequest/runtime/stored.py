"""How a session gets into a store and out of it: begun with what it holds, branched from another, loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart

from sidequest.core.compaction import summary_body, summary_message
from sidequest.core.context_modes import ContextMode, parse_context_mode
from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.tokens import estimate_message
from sidequest.core.transcript import head_summary, mark_of, marked, snapshot, user_text
from sidequest.runtime.chains import READERS
from sidequest.runtime.delegations import ChainHistory
from sidequest.runtime.journal import new_id
from sidequest.store.lanes import valid_history
from sidequest.store.rows import CheckpointRow, DelegationRow, NewCheckpoint, NewMessage

if TYPE_CHECKING:
    from sidequest.store.store import Store

COPIED_SUMMARY = (
    "This conversation was copied from one that had been compacted. What was said before is in the summary; "
    "its messages are not stored here."
)
"""Stands in the transcript where the messages would be that a copied summary replaced."""
_TITLE_CHARS = 80


@dataclass(frozen=True, slots=True)
class Origin:
    """The stored conversation that a session in memory was forked from."""

    session_id: str
    through_id: str
    """Newest stored message that came along."""
    messages: tuple[ModelMessage, ...]
    """What the fork began with."""

    def begins(self, messages: Sequence[ModelMessage]) -> bool:
        """Say whether `messages` still begin with what was forked: a compaction has replaced it."""
        own = self.messages
        return len(messages) >= len(own) and all(a is b for a, b in zip(own, messages, strict=False))


@dataclass(frozen=True, slots=True)
class Loaded:
    """A stored session as it was after the newest thing that was stored."""

    messages: list[ModelMessage]
    """What the next prompt follows."""
    known: list[ModelMessage]
    """Those of them that stand for stored rows."""
    newest_id: str | None
    newest_event: int
    delegations: list[DelegationRow]
    unsettled: list[DelegationRow]
    """Those of them that have ended while readers of the events still see them running."""


async def load(store: Store, session_id: str, now_ms: int) -> Loaded:
    """Read a session that nobody works on; what was running in it is closed as interrupted.

    Raises:
        SidequestError: the store failed.
    """
    await store.delegations.interrupt_running(session_id, now_ms)
    await store.transcript.close_open(session_id, at_ms=now_ms)
    checkpoint = await store.checkpoints.newest(session_id)
    after = checkpoint.through_position if checkpoint else 0
    rows = await store.transcript.load(session_id, after=after)
    history = await store.transcript.history(session_id, after=after)
    newest_id = rows[-1].id if rows else checkpoint.through_message_id if checkpoint else None
    known = [*_in_front(checkpoint), *history]
    delegations = await store.delegations.list(session_id)
    unsettled = await store.events.unsettled(session_id) if delegations else set()
    return Loaded(
        _followable(known),
        known,
        newest_id,
        await store.events.newest_number(session_id),
        delegations,
        [row for row in delegations if row.id in unsettled],
    )


def _in_front(checkpoint: CheckpointRow | None) -> list[ModelMessage]:
    """Return what a checkpoint puts in front of the rows behind it."""
    if checkpoint is None:
        return []
    if "fallback" in checkpoint.details:
        return list(checkpoint.retained_tail)
    # Of a copied summary nothing is stored that recall could read.
    summary = summary_message(checkpoint.summary, recall="copied" not in checkpoint.details)
    return [summary, *checkpoint.retained_tail]


async def branch(store: Store, origin: Origin, session_id: str, model: str, now_ms: int) -> bool:
    """Copy the conversation `origin` as the session `session_id`; False when it is not in `store`.

    `model` is the key of the model that the copy goes on with.

    Raises:
        SidequestError: the store failed.
    """
    try:
        await store.sessions.fork(origin.session_id, session_id, origin.through_id, at_ms=now_ms)
    except SidequestError as error:
        if error.code in {ErrorCode.SESSION_UNKNOWN, ErrorCode.MESSAGE_UNKNOWN}:
            return False
        raise
    await store.sessions.touch(session_id, now_ms, model=model)
    return True


async def begin(store: Store, session_id: str, held: Sequence[ModelMessage], now_ms: int) -> str | None:
    """Store what a session holds that nothing is stored of; return the id of the newest row.

    A summary becomes a checkpoint, so that it is in front of the rows again when they are loaded.

    Raises:
        SidequestError: the store failed.
    """
    summary = head_summary(held)
    newest: str | None = None
    if summary is not None:
        note = ModelRequest(parts=[marked(COPIED_SUMMARY, "notice")])
        newest = (await _append(store, session_id, [note], now_ms))[-1]
        size = sum(map(estimate_message, held))
        copied = NewCheckpoint(
            new_id(),
            summary_body(summary),
            newest,
            tokens_before=size,
            created_at_ms=now_ms,
            tokens_after=size,
            details={"strategy": "summary", "copied": True},
        )
        await store.checkpoints.append(session_id, copied)
    rows = await _append(store, session_id, _without_summaries(held), now_ms)
    return rows[-1] if rows else newest


async def _append(store: Store, session_id: str, messages: Sequence[ModelMessage], now_ms: int) -> list[str]:
    new = [NewMessage(new_id(), message, now_ms) for message in messages]
    if new:
        await store.transcript.append(session_id, new)
    return [row.id for row in new]


def _without_summaries(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    kept: list[ModelMessage] = []
    for message in messages:
        if isinstance(message, ModelResponse):
            kept.append(message)
            continue
        parts = [part for part in message.parts if mark_of(part) != "summary"]
        if parts:
            kept.append(ModelRequest(parts=parts, timestamp=message.timestamp))
    return kept


async def chain_history(store: Store, session_id: str, delegation_id: str, tokens: int) -> ChainHistory:
    """Return what the chain that a delegation belongs to was given, and the newest it has done.

    `tokens` is how much of what it has done is read; a seed for a resume is cut from it.

    Raises:
        SidequestError: `STORE_DAMAGED` when what a fork was given cannot be read; the store failed.
    """
    chain = await store.delegations.chain(session_id, delegation_id)
    own = await store.transcript.newest(session_id, chain.ids, tokens)
    lines = await store.delegations.lines_read(session_id, chain.ids, READERS)
    first = chain.delegations[0]
    forked = parse_context_mode(first.context_mode) is ContextMode.FORK
    given = await _given_to_fork(store, first) if forked else []
    return ChainHistory(given, own.messages, own.whole, lines)


async def _given_to_fork(store: Store, fork: DelegationRow) -> list[ModelMessage]:
    """Return the parent's branch as it was when `fork` began (specification 5.1).

    That is the summary which was the newest then, and the rows up to the call that started it.
    """
    through = fork.started_after - (1 if fork.parent_tool_call_id else 0)
    known = [
        row
        for row in await store.checkpoints.list(fork.session_id)
        if row.through_position <= through and row.created_at_ms <= fork.started_at_ms
    ]
    checkpoint = known[-1] if known else None
    after = checkpoint.through_position if checkpoint else 0
    rows = await store.transcript.load(fork.session_id, after=after, limit=through - after)
    # What a provider signed is for the conversation that it was signed in.
    return snapshot([*_in_front(checkpoint), *valid_history(rows)], same_model=False)


def first_words(messages: Sequence[ModelMessage], mask: Callable[[str], str]) -> str:
    """Return the title of a conversation that begins so, as `title_of` does; empty without a prompt in it."""
    for message in messages:
        for part in message.parts:
            if isinstance(part, UserPromptPart) and mark_of(part) is None:
                return title_of(user_text(part), mask)
    return ""


def title_of(prompt: str, mask: Callable[[str], str]) -> str:
    """Return the title of a session whose first prompt this is. `mask` sees the prompt before it is cut."""
    return " ".join(mask(prompt).split())[:_TITLE_CHARS]


def _followable(messages: list[ModelMessage]) -> list[ModelMessage]:
    """Return a history that the next prompt can follow; a prompt that was never answered says so."""
    newest = messages[-1] if messages else None
    if not isinstance(newest, ModelRequest) or all(mark_of(part) == "summary" for part in newest.parts):
        return messages
    note = TextPart("[The process ended before this was answered.]")
    return [*messages, ModelResponse(parts=[note], finish_reason="error")]
