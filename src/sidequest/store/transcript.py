"""The transcript: messages and tool results, appended as they happen, read back as a valid history."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart
from sqlalchemy import Connection, delete, insert, select, update

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.store import payload
from sidequest.store.call_words import call_words
from sidequest.store.database import AnyRow, Database, touch
from sidequest.store.delivery import mark_delivered, unknown_delegation
from sidequest.store.lanes import (
    in_lane,
    last_position,
    newest_response,
    newest_rows,
    read_lane,
    valid_history,
)
from sidequest.store.masking import Masker
from sidequest.store.rows import NewestPart, NewMessage, StoredMessage
from sidequest.store.search import index_words
from sidequest.store.tables import delegations, messages, search_words, tool_results, tool_words


class Transcript:
    """Appends to and reads the lanes of sessions. Rows are never rewritten, not even by a compaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def append(self, session_id: str, new: Sequence[NewMessage]) -> tuple[int, ...]:
        """Append messages to their lanes in one transaction and return their positions.

        The tool results of a request are joined to the calls they answer; one that was recorded before is
        not stored again, and where the two differ the version that is sent counts. Messages that are stored
        already, because an answer of the database was lost, are recognised.

        Raises:
            SidequestError: `SESSION_UNKNOWN`, `DELEGATION_UNKNOWN`, `STORE_CONFLICT` for an id that is
                taken, `AGENT_BUSY` when the lease was lost. Nothing is stored then.
        """
        masker = self._db.masker
        return await self._db.write_session(session_id, lambda tx: append_rows(tx, masker, session_id, new))

    async def record_result(
        self,
        session_id: str,
        message_id: str,
        part: ToolReturnPart,
        created_at_ms: int,
        *,
        delivers: Collection[str] = (),
    ) -> None:
        """Store what a call of the response `message_id` gave, the moment the tool is done.

        `delivers` are the delegations whose reports the result carries to the parent (TaskWait); they are
        marked in the same transaction. The same result again changes nothing.

        Raises:
            SidequestError: `MESSAGE_UNKNOWN`; `STORE_CONFLICT` when the response has no such call, when
                another result is stored for it, or when a later response has already been built on its
                absence.
        """

        def record(tx: Connection) -> None:
            document, stored = payload.result_as_stored(part, self._db.masker)
            if _record(tx, session_id, message_id, document, stored, created_at_ms):
                touch(tx, session_id, created_at_ms)
                mark_delivered(tx, session_id, delivers, message_id=message_id)

        await self._db.write_session(session_id, record)

    async def load(
        self,
        session_id: str,
        delegation_id: str | None = None,
        *,
        after: int = 0,
        limit: int | None = None,
        damaged_too: bool = False,
    ) -> list[StoredMessage]:
        """Return the rows of a lane behind position `after`, oldest first, `limit` at most, as stored.

        `delegation_id` None is the parent's lane. A session or delegation without rows gives an empty list.
        With `damaged_too` a message that cannot be read has words in its place; that is for people to look
        at, not to go on with.

        Raises:
            SidequestError: `STORE_DAMAGED` when a row cannot be read.
        """
        return await self._db.read(
            lambda tx: read_lane(
                tx, session_id, delegation_id, after=after, limit=limit, damaged_too=damaged_too
            )
        )

    async def history(
        self, session_id: str, delegation_id: str | None = None, *, after: int = 0
    ) -> list[ModelMessage]:
        """Return a lane behind position `after` as a history that a provider accepts.

        Pass a checkpoint's `through_position` as `after` and put its summary and tail in front. Calls
        without a stored result are closed by a placeholder with the outcome `interrupted`. The last message
        may be a response: the next prompt follows it.

        Raises:
            SidequestError: `STORE_DAMAGED` when a row cannot be read.
        """
        return valid_history(await self.load(session_id, delegation_id, after=after))

    async def newest(self, session_id: str, delegation_ids: Sequence[str | None], tokens: int) -> NewestPart:
        """Return the newest part of a chain as a history, `tokens` long or all there is.

        `delegation_ids` are lanes in their order, for example `Chain.ids`. Only what is returned is read,
        whole rounds, so that it is a little longer than `tokens`: a seed for a resume is cut from it.

        Raises:
            SidequestError: `STORE_DAMAGED` when a row cannot be read.
        """
        rows, whole = await self._db.read(lambda tx: newest_rows(tx, session_id, delegation_ids, tokens))
        return NewestPart(valid_history(rows), whole)

    async def close_open(self, session_id: str, delegation_id: str | None = None, *, at_ms: int) -> int:
        """Store the placeholders for calls of the newest response that have no result; return how many.

        For reopening after a kill, when nothing of the lane runs any more.

        Raises:
            SidequestError: `SESSION_UNKNOWN`, or the store failed.
        """
        return await self._db.write_session(
            session_id, lambda tx: close_open(tx, session_id, delegation_id, at_ms)
        )


@dataclass
class _Lane:
    """What appending needs to know about a lane."""

    position: int
    calls: _Calls | None = None
    """The calls of the newest response; None until a result asks for them."""


@dataclass
class _Calls:
    """The calls of a response that no request carries a result of, with the recorded row if there is one."""

    response_id: str | None = None
    parts: dict[str, ToolCallPart] = field(default_factory=dict)
    """Every call of the response, by id."""
    open: dict[str, AnyRow | None] = field(default_factory=dict)


@dataclass
class _Batch:
    """Rows that are about to be inserted."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)
    carried: list[dict[str, Any]] = field(default_factory=list)
    words: list[dict[str, Any]] = field(default_factory=list)
    """What the results among them are found by."""


def append_rows(
    tx: Connection, masker: Masker, session_id: str, new: Sequence[NewMessage]
) -> tuple[int, ...]:
    """Append messages inside a transaction that is alone on the session; see `Transcript.append`."""
    known = _stored_before(tx, masker, session_id, new)
    if known is not None:
        return known
    lanes: dict[str | None, _Lane] = {}
    batch = _Batch()
    for item in new:
        lane = lanes.get(item.delegation_id)
        if lane is None:
            lane = lanes[item.delegation_id] = _open_lane(tx, session_id, item.delegation_id)
        lane.position += 1
        _add(tx, batch, lane, session_id, item, masker)
    if batch.messages:
        _insert(tx, batch)
        touch(tx, session_id, max(item.created_at_ms for item in new))
    return tuple(row["position"] for row in batch.messages)


def _stored_before(
    tx: Connection, masker: Masker, session_id: str, new: Sequence[NewMessage]
) -> tuple[int, ...] | None:
    """Return the positions of the very same messages, or None when they are not all stored."""
    rows = tx.execute(
        select(
            messages.c.id,
            messages.c.position,
            messages.c.delegation_id,
            messages.c.kind,
            messages.c.created_at_ms,
            messages.c.text,
        ).where(messages.c.session_id == session_id, messages.c.id.in_([item.id for item in new]))
    ).all()
    if not new or len(rows) != len(new):
        return None
    stored = {row.id: row for row in rows}
    for item in new:
        row = stored[item.id]
        if (row.delegation_id, row.kind, row.created_at_ms) != (
            item.delegation_id,
            item.message.kind,
            item.created_at_ms,
        ):
            return None
        _, message = payload.as_stored(item.message, masker)
        if row.text != masker.text(payload.spoken_text(message)):
            return None
    return tuple(stored[item.id].position for item in new)


def _open_lane(tx: Connection, session_id: str, delegation_id: str | None) -> _Lane:
    if delegation_id is not None:
        known = select(delegations.c.id).where(
            delegations.c.session_id == session_id, delegations.c.id == delegation_id
        )
        if tx.execute(known).one_or_none() is None:
            raise unknown_delegation(delegation_id)
    return _Lane(last_position(tx, session_id, delegation_id))


def _open_calls(tx: Connection, session_id: str, delegation_id: str | None) -> _Calls:
    response = newest_response(tx, session_id, delegation_id)
    if response is None:
        return _Calls()
    results = select(tool_results).where(
        tool_results.c.session_id == session_id, tool_results.c.message_id == response.id
    )
    recorded = {row.tool_call_id: row for row in tx.execute(results)}
    calls = _Calls(response.id, payload.distinct_calls(payload.load_row(response.payload, response.id)))
    for call_id in calls.parts:
        row = recorded.get(call_id)
        if row is None or row.carrier_id is None:
            calls.open[call_id] = row
    return calls


def _add(
    tx: Connection, batch: _Batch, lane: _Lane, session_id: str, item: NewMessage, masker: Masker
) -> None:
    document, message = payload.as_stored(item.message, masker)
    if isinstance(message, ModelResponse):
        parts = payload.distinct_calls(message)
        lane.calls = _Calls(item.id, parts, dict.fromkeys(parts))
    elif any(isinstance(part, ToolReturnPart) for part in message.parts):
        if lane.calls is None:
            lane.calls = _open_calls(tx, session_id, item.delegation_id)
        message = _take_results(batch, lane.calls, session_id, item, message)
        document = payload.dump(message)
    batch.messages.append(
        {
            "session_id": session_id,
            "id": item.id,
            "delegation_id": item.delegation_id,
            "agent": item.agent,
            "position": lane.position,
            "kind": message.kind,
            "payload": document,
            "text": masker.text(payload.spoken_text(message)),
            "tokens": payload.size(message),
            "created_at_ms": item.created_at_ms,
        }
    )


def _take_results(
    batch: _Batch, calls: _Calls, session_id: str, item: NewMessage, request: ModelRequest
) -> ModelRequest:
    """Move the results that answer open calls into their own rows and return what is left of the request."""
    rest = []
    for place, part in enumerate(request.parts):
        if not isinstance(part, ToolReturnPart) or part.tool_call_id not in calls.open:
            rest.append(part)
            continue
        recorded = calls.open.pop(part.tool_call_id)
        row = {
            "session_id": session_id,
            "message_id": calls.response_id,
            "tool_call_id": part.tool_call_id,
            **_result_values(payload.dump_result(part), part, item.created_at_ms),
            "carrier_id": item.id,
            "place": place,
        }
        if recorded is None:
            batch.results.append(row)
        else:
            batch.carried.append(row | {"created_at_ms": recorded.created_at_ms})
        if recorded is None or recorded.payload != row["payload"]:
            batch.words.append(_words(row, calls.parts[part.tool_call_id], part))
    return replace(request, parts=rest)


def _result_values(document: str, part: ToolReturnPart, created_at_ms: int) -> dict[str, Any]:
    return {
        "tool_name": part.tool_name,
        "outcome": part.outcome,
        "payload": document,
        "tokens": payload.result_size(part),
        "created_at_ms": created_at_ms,
    }


def _insert(tx: Connection, batch: _Batch) -> None:
    statement = insert(messages).returning(messages.c.row_id, sort_by_parameter_order=True)
    row_ids = tx.execute(statement, batch.messages).scalars().all()
    words = [
        {"message_row_id": row_id, "words": found}
        for row_id, row in zip(row_ids, batch.messages, strict=True)
        if (found := index_words(row["text"]))
    ]
    if words:
        tx.execute(insert(search_words), words)
    if batch.results:
        tx.execute(insert(tool_results), batch.results)
    for row in batch.carried:
        tx.execute(update(tool_results).where(_is_result(row)).values(row))
    for indexed in batch.words:
        _index(tx, indexed)


def _words(key: dict[str, Any], call: ToolCallPart, part: ToolReturnPart) -> dict[str, Any]:
    names = ("session_id", "message_id", "tool_call_id")
    return {**{name: key[name] for name in names}, "words": call_words(call, part)}


def _index(tx: Connection, words: dict[str, Any]) -> None:
    """Index a result, in place of an earlier version of it."""
    tx.execute(
        delete(tool_words).where(
            tool_words.c.session_id == words["session_id"],
            tool_words.c.message_id == words["message_id"],
            tool_words.c.tool_call_id == words["tool_call_id"],
        )
    )
    tx.execute(insert(tool_words).values(words))


def _is_result(row: dict[str, Any]) -> Any:
    return (
        (tool_results.c.session_id == row["session_id"])
        & (tool_results.c.message_id == row["message_id"])
        & (tool_results.c.tool_call_id == row["tool_call_id"])
    )


def _record(
    tx: Connection, session_id: str, message_id: str, document: str, part: ToolReturnPart, created_at_ms: int
) -> bool:
    """Insert a result, or return False when the very same is stored."""
    row = tx.execute(
        select(messages.c.payload, messages.c.delegation_id, messages.c.position).where(
            messages.c.session_id == session_id, messages.c.id == message_id
        )
    ).one_or_none()
    if row is None:
        raise SidequestError(
            ErrorCode.MESSAGE_UNKNOWN,
            f"Session {session_id} has no message {message_id}.",
            "Append the response before the results of its calls.",
        )
    calls = payload.distinct_calls(payload.load_row(row.payload, message_id))
    if part.tool_call_id not in calls:
        raise _conflict(f"Message {message_id} makes no call {part.tool_call_id}.")
    key = {"session_id": session_id, "message_id": message_id, "tool_call_id": part.tool_call_id}
    known = tx.execute(select(tool_results.c.payload).where(_is_result(key))).scalar_one_or_none()
    if known is not None:
        (before,) = payload.load_results([known])
        if (before.content, before.outcome) == (part.content, part.outcome):
            return False
        raise _conflict(f"The call {part.tool_call_id} of message {message_id} has another result already.")
    later = select(messages.c.id).where(
        in_lane(session_id, row.delegation_id),
        messages.c.kind == "response",
        messages.c.position > row.position,
    )
    if tx.execute(later.limit(1)).one_or_none() is not None:
        raise _conflict(
            f"The call {part.tool_call_id} of message {message_id} was closed without a result before."
        )
    tx.execute(insert(tool_results).values(**key, **_result_values(document, part, created_at_ms)))
    _index(tx, _words(key, calls[part.tool_call_id], part))
    return True


def open_calls(tx: Connection, session_id: str, delegation_id: str | None) -> list[str]:
    """Return the tools of the newest response's calls that have no result, in the order of the calls."""
    try:
        known = _open_calls(tx, session_id, delegation_id)
    except SidequestError:
        return []  # what cannot be read made no call that anybody knows of
    return [known.parts[key].tool_name for key, recorded in known.open.items() if recorded is None]


def close_open(tx: Connection, session_id: str, delegation_id: str | None, at_ms: int) -> int:
    """Store placeholders inside a transaction; see `Transcript.close_open`."""
    response = newest_response(tx, session_id, delegation_id)
    try:
        message = payload.load_row(response.payload, response.id) if response is not None else None
    except SidequestError:
        return 0  # what cannot be read made no call that anybody knows of
    if not isinstance(message, ModelResponse):
        return 0
    known = _open_calls(tx, session_id, delegation_id)
    calls = payload.distinct_calls(message)
    missing = [calls[call_id] for call_id, recorded in known.open.items() if recorded is None]
    for call in missing:
        part = payload.interrupted(message, call)
        values = _result_values(payload.dump_result(part), part, at_ms)
        key = {"session_id": session_id, "message_id": known.response_id, "tool_call_id": call.tool_call_id}
        tx.execute(insert(tool_results).values(**key, **values))
        _index(tx, _words(key, call, part))
    return len(missing)


def _conflict(cause: str) -> SidequestError:
    return SidequestError(
        ErrorCode.STORE_CONFLICT, cause, "This is a defect of the program that recorded it; report it."
    )
