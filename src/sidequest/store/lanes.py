"""Reading a lane of the transcript: rows with their results joined, and the valid history they make."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, NamedTuple

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelRequestPart, ModelResponse, ToolReturnPart
from sqlalchemy import ColumnElement, Connection, Select, and_, func, select

from sidequest.core.transcript import split_rounds
from sidequest.store import payload
from sidequest.store.database import AnyRow
from sidequest.store.rows import StoredMessage, StoredResult
from sidequest.store.tables import messages, tool_results


class _MessageRow(NamedTuple):
    """What a history needs of a row of messages; the words to search for are left where they are."""

    id: str
    delegation_id: str | None
    agent: str | None
    position: int
    kind: str
    payload: str
    tokens: int
    created_at_ms: int


class _ResultRow(NamedTuple):
    """What a history needs of a row of tool results."""

    message_id: str
    tool_call_id: str
    payload: str
    tokens: int
    created_at_ms: int
    carrier_id: str | None
    place: int


_OF_MESSAGE = tuple(messages.c[name] for name in _MessageRow._fields)
_OF_RESULT = tuple(tool_results.c[name] for name in _ResultRow._fields)
_FIRST_CHUNK, _LARGEST_CHUNK = 256, 4_096


def in_lane(session_id: str, delegation_id: str | None) -> ColumnElement[bool]:
    """Return the condition that a message is in that lane; written so that the lane's index is used."""
    lane = messages.c.delegation_id
    mine = lane.is_(None) if delegation_id is None else lane == delegation_id
    return and_(messages.c.session_id == session_id, mine)


def last_position(tx: Connection, session_id: str, delegation_id: str | None) -> int:
    """Return the position of the newest row of a lane, 0 when it is empty."""
    newest = select(func.max(messages.c.position)).where(in_lane(session_id, delegation_id))
    return tx.execute(newest).scalar_one() or 0


def newest_response(tx: Connection, session_id: str, delegation_id: str | None) -> AnyRow | None:
    """Return id, position and payload of the newest response of a lane, or None."""
    return tx.execute(
        select(messages.c.id, messages.c.position, messages.c.payload)
        .where(in_lane(session_id, delegation_id), messages.c.kind == "response")
        .order_by(messages.c.position.desc())
        .limit(1)
    ).one_or_none()


def read_lane(
    tx: Connection,
    session_id: str,
    delegation_id: str | None,
    *,
    after: int = 0,
    limit: int | None = None,
    damaged_too: bool = False,
) -> list[StoredMessage]:
    """Return the rows of a lane whose position is greater than `after`, oldest first, `limit` at most.

    With `damaged_too` words stand for a message that cannot be read.

    Raises:
        SidequestError: `STORE_DAMAGED` when a row cannot be read.
    """
    wanted = and_(in_lane(session_id, delegation_id), messages.c.position > after)
    newest = select(*_OF_MESSAGE).where(wanted).order_by(messages.c.position).limit(limit)
    rows = [_MessageRow(*row) for row in tx.execute(newest)]
    if not rows:
        return []
    upto = messages.c.position <= rows[-1].position
    results = list(tx.execute(_results_of(tool_results.c.message_id).where(wanted, upto)))
    # Requests in front of the first response carry what a call in front of `after` gave.
    head = list(takewhile(lambda row: row.kind == "request", rows))
    if after and head:
        early = messages.c.position <= head[-1].position
        results += tx.execute(_results_of(tool_results.c.carrier_id).where(wanted, early)).all()
    try:
        return _joined(rows, [_ResultRow(*row) for row in results], damaged_too)
    except ValueError as error:
        raise payload.damaged(f"A message of session {session_id}") from error


def _results_of(message_id: ColumnElement[Any]) -> Select[*tuple[Any, ...]]:
    """Select tool results with the message, caller or carrier, that the column names."""
    same = and_(messages.c.session_id == tool_results.c.session_id, messages.c.id == message_id)
    return select(*_OF_RESULT).join(messages, same)


def _joined(
    rows: Sequence[_MessageRow], results: Sequence[_ResultRow], damaged_too: bool
) -> list[StoredMessage]:
    damaged: set[str] = set()
    try:
        loaded = payload.load_all(row.payload for row in rows)
        parts = payload.load_results(row.payload for row in results)
    except ValueError:
        if not damaged_too:
            raise
        loaded, results, parts, damaged = _sound(rows, results)
    of_call: dict[tuple[str, str], StoredResult] = {}
    carried: dict[str, list[tuple[int, ToolReturnPart, int]]] = {}
    for result, part in zip(results, parts, strict=True):
        of_call[result.message_id, result.tool_call_id] = StoredResult(
            result.tool_call_id, part, result.created_at_ms, result.carrier_id
        )
        if result.carrier_id is not None:
            carried.setdefault(result.carrier_id, []).append((result.place, part, result.tokens))
    stored: list[StoredMessage] = []
    for row, message in zip(rows, loaded, strict=True):
        inside = sorted(carried.get(row.id, ()), key=lambda item: item[0])
        known = [of_call.get((row.id, call_id)) for call_id in payload.distinct_calls(message)]
        stored.append(
            StoredMessage(
                row.id,
                row.position,
                _with_parts(message, inside),
                row.created_at_ms,
                row.tokens + sum(tokens for _, _, tokens in inside),
                row.delegation_id,
                row.agent,
                tuple(each for each in known if each is not None),
                row.id in damaged,
            )
        )
    return stored


def _sound(
    rows: Sequence[_MessageRow], results: Sequence[_ResultRow]
) -> tuple[list[ModelMessage], list[_ResultRow], list[ToolReturnPart], set[str]]:
    """Return what can be read, one by one: messages, results, and the ids of messages that lack something."""
    damaged: set[str] = set()
    loaded: list[ModelMessage] = []
    for row in rows:
        try:
            loaded.append(payload.load(row.payload))
        except ValueError:
            loaded.append(payload.stand_in(row.kind))
            damaged.add(row.id)
    kept: list[_ResultRow] = []
    parts: list[ToolReturnPart] = []
    for result in results:
        try:
            parts += payload.load_results([result.payload])
            kept.append(result)
        except ValueError:
            damaged.add(result.message_id)
    return loaded, kept, parts, damaged


def _with_parts(message: ModelMessage, inside: Sequence[tuple[int, ToolReturnPart, int]]) -> ModelMessage:
    if inside and isinstance(message, ModelRequest):
        parts = list(message.parts)
        for place, part, _ in inside:
            parts.insert(place, part)
        # It was loaded for this alone, and its parts are checked: a copy would only cost time.
        message.parts = parts
    return message


@dataclass
class _Round:
    """A response, its requests, and what was recorded for its calls."""

    response: ModelResponse
    requests: Sequence[ModelRequest]
    recorded: dict[str, ToolReturnPart]

    def closed(self) -> list[ModelMessage]:
        """Return the round with exactly one result for each call, the missing ones right behind it."""
        response = payload.without_repeated_calls(self.response)
        calls = payload.distinct_calls(response)
        open_calls = set(calls)
        requests: list[ModelMessage] = []
        for request in self.requests:
            kept = [part for part in request.parts if _belongs(part, open_calls)]
            if len(kept) == len(request.parts):
                requests.append(request)
            elif kept:
                requests.append(replace(request, parts=kept))
        missing = [
            self.recorded.get(call_id) or payload.interrupted(response, call)
            for call_id, call in calls.items()
            if call_id in open_calls
        ]
        return [response, *([ModelRequest(parts=missing)] if missing else []), *requests]


def _belongs(part: ModelRequestPart, open_calls: set[str]) -> bool:
    """Say whether a part may stay, and take the call that it answers off the open ones."""
    if not isinstance(part, ToolReturnPart):
        return True
    if part.tool_call_id not in open_calls:
        return False
    open_calls.discard(part.tool_call_id)
    return True


def valid_history(rows: Iterable[StoredMessage]) -> list[ModelMessage]:
    """Return the messages of a lane as a provider accepts them, whatever instant the process died at.

    Each call is followed by exactly one result: the one it had, else the one that was recorded and never
    sent, else a placeholder with the outcome `interrupted`. A result whose call is not among `rows` (it was
    cut off, or compacted) is left out.
    """
    kept = list(rows)
    recorded = {
        id(row.message): {result.tool_call_id: result.part for result in row.results}
        for row in kept
        if row.results
    }
    head, rounds = split_rounds(row.message for row in kept)
    history: list[ModelMessage] = []
    for request in head:
        parts = [part for part in request.parts if not isinstance(part, ToolReturnPart)]
        if parts or not request.parts:
            history.append(request if len(parts) == len(request.parts) else replace(request, parts=parts))
    for each in rounds:
        history += _Round(each.response, each.requests, recorded.get(id(each.response), {})).closed()
    return history


def newest_rows(
    tx: Connection, session_id: str, delegation_ids: Sequence[str | None], tokens: int
) -> tuple[list[StoredMessage], bool]:
    """Return the newest rows of several lanes, taken as one after the other, until they add up to `tokens`.

    The row that reaches the number is included, and the rest of its round. The second value says whether
    these are all the rows there are.
    """
    taken: list[StoredMessage] = []
    unread = list(delegation_ids)
    start = 1
    while unread and tokens > 0:
        delegation_id = unread.pop()
        start, tokens = _start_of(tx, session_id, delegation_id, tokens)
        taken = read_lane(tx, session_id, delegation_id, after=start - 1) + taken
    whole = start <= 1 and not any(last_position(tx, session_id, lane) for lane in unread)
    return taken, whole


def _start_of(tx: Connection, session_id: str, delegation_id: str | None, tokens: int) -> tuple[int, int]:
    """Return the position to read a lane from, and how many tokens are still wanted then."""
    before, chunk = last_position(tx, session_id, delegation_id) + 1, _FIRST_CHUNK
    carried = (
        select(func.sum(tool_results.c.tokens))
        .where(tool_results.c.session_id == session_id, tool_results.c.carrier_id == messages.c.id)
        .scalar_subquery()
    )
    size = messages.c.tokens + func.coalesce(carried, 0)
    while before > 1:
        rows = tx.execute(
            select(messages.c.position, messages.c.kind, size)
            .where(in_lane(session_id, delegation_id), messages.c.position < before)
            .order_by(messages.c.position.desc())
            .limit(chunk)
        ).all()
        for position, kind, row_tokens in rows:
            tokens -= int(row_tokens)
            if tokens <= 0 and kind == "response":
                return position, tokens
        if not rows:  # positions are missing: `verify` tells, and what is there can be read
            break
        before, chunk = rows[-1].position, min(4 * chunk, _LARGEST_CHUNK)
    return 1, tokens
