"""The store proves itself: what can be derived again is derived and compared, the rest is checked.

Order numbers, payloads, results and their calls, checkpoints, chains, deliveries, event numbers, and the
search index. A store that was killed at any instant has no problems; one that has was damaged from outside.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from pydantic_ai.messages import ModelMessage
from sqlalchemy import Connection, FromClause, and_, func, select, text

from sidequest.core.outcome import Status
from sidequest.store import payload
from sidequest.store.call_words import words_of_row
from sidequest.store.checkpoints import as_checkpoint
from sidequest.store.database import AnyRow
from sidequest.store.rows import Problem
from sidequest.store.search import index_words
from sidequest.store.tables import (
    checkpoints,
    delegations,
    events,
    messages,
    search_words,
    sessions,
    tool_results,
    tool_words,
)
from sidequest.store.unfinished import is_whole

_BATCH = 500
_RESULT_KEY = ("session_id", "message_id", "tool_call_id")

Check: TypeAlias = Callable[[Connection, str], Iterator[Problem]]


def problems_of(tx: Connection, session_id: str | None) -> Iterator[Problem]:
    """Yield what does not hold, of one session, or of all and of the database itself."""
    if session_id is None:
        yield from _database(tx)
        whole = select(sessions.c.id).where(is_whole(sessions.c.id))
        ids = tx.execute(whole.order_by(sessions.c.id)).scalars().all()
    else:
        ids = [session_id]
    for each in ids:
        for check in (_lanes, _rows, _results, _checkpoints, _delegations, _events):
            yield from check(tx, each)


def _database(tx: Connection) -> Iterator[Problem]:
    if tx.dialect.name == "sqlite":
        for (said,) in tx.execute(text("PRAGMA quick_check")):
            if said != "ok":
                yield Problem(None, "file", "database", said)
        for row in tx.execute(text("PRAGMA foreign_key_check")):
            yield Problem(
                None, "reference", f"{row[0]} {row[1]}", f"points to a row of {row[2]} that is gone"
            )
        for index, indexed in (("search_index", search_words), ("tool_index", tool_words)):
            in_index = tx.execute(text(f"SELECT count(*) FROM {index}_docsize")).scalar_one()
            words = tx.execute(select(func.count()).select_from(indexed)).scalar_one()
            if in_index != words:
                yield Problem(None, "search", index, f"holds {in_index} rows and should hold {words}")


def _lanes(tx: Connection, session_id: str) -> Iterator[Problem]:
    position = messages.c.position
    lanes = (
        select(messages.c.delegation_id, func.count(), func.min(position), func.max(position))
        .where(messages.c.session_id == session_id)
        .group_by(messages.c.delegation_id)
    )
    for delegation_id, count, first, last in tx.execute(lanes):
        if (first, last) != (1, count):
            yield Problem(
                session_id,
                "positions",
                delegation_id or "parent",
                f"has {count} rows numbered from {first} to {last}",
            )


def _rows(tx: Connection, session_id: str) -> Iterator[Problem]:
    """Read every message again, and compare what was derived from it."""
    query = (
        select(messages, search_words.c.words)
        .outerjoin(search_words, search_words.c.message_row_id == messages.c.row_id)
        .where(messages.c.session_id == session_id)
    )
    for row in _in_batches(tx, query, messages.c.row_id):
        message = _loaded(row)
        if message is None:
            yield Problem(session_id, "payload", row.id, "cannot be read as a message")
            continue
        if message.kind != row.kind:
            yield Problem(session_id, "payload", row.id, f"is a {message.kind}, stored as a {row.kind}")
        if payload.spoken_text(message) != row.text:
            yield Problem(session_id, "text", row.id, "is not the text of the message")
        if index_words(row.text) != (row.words or ""):
            yield Problem(session_id, "search", row.id, "is not indexed by the words of its text")


def _results(tx: Connection, session_id: str) -> Iterator[Problem]:
    caller, carrier = messages.alias("caller"), messages.alias("carrier")
    query = (
        select(
            tool_results,
            tool_words.c.words,
            caller.c.row_id,
            caller.c.payload.label("call_payload"),
            caller.c.delegation_id.label("call_lane"),
            caller.c.position.label("call_position"),
            carrier.c.id.label("known_carrier"),
            carrier.c.kind.label("carrier_kind"),
            carrier.c.delegation_id.label("carrier_lane"),
            carrier.c.position.label("carrier_position"),
        )
        .join(caller, _same_row(caller, "message_id"))
        .outerjoin(carrier, _same_row(carrier, "carrier_id"))
        .outerjoin(tool_words, and_(*(tool_words.c[name] == tool_results.c[name] for name in _RESULT_KEY)))
        .where(tool_results.c.session_id == session_id)
    )
    for row in _in_batches(tx, query, caller.c.row_id, tool_results.c.tool_call_id):
        where = f"{row.message_id} {row.tool_call_id}"
        for message in _result_problems(row):
            yield Problem(session_id, "results", where, message)
        words = words_of_row(row.call_payload, row.payload, row.tool_call_id)
        if words is not None and words != row.words:
            yield Problem(session_id, "search", where, "is not indexed by the words of the call")


def _result_problems(row: AnyRow) -> Iterator[str]:
    try:
        (part,) = payload.load_results([row.payload])
        calls = payload.distinct_calls(payload.load(row.call_payload))
    except ValueError:
        yield "cannot be read as the result of a call"
        return
    if part.tool_call_id != row.tool_call_id or row.tool_call_id not in calls:
        yield "belongs to no call of the message"
    if part.outcome != row.outcome or part.tool_name != row.tool_name:
        yield f"says {part.tool_name} {part.outcome}, stored as {row.tool_name} {row.outcome}"
    if row.carrier_id is None:
        return
    if row.known_carrier is None or row.carrier_kind != "request":
        yield f"is carried by {row.carrier_id}, which is no request"
    elif row.carrier_lane != row.call_lane or row.carrier_position <= row.call_position:
        yield f"is carried by {row.carrier_id}, which does not follow the call"


def _checkpoints(tx: Connection, session_id: str) -> Iterator[Problem]:
    query = (
        select(
            checkpoints,
            messages.c.position.label("through_position"),
            messages.c.delegation_id.label("anchor_lane"),
        )
        .outerjoin(
            messages,
            and_(
                messages.c.session_id == checkpoints.c.session_id,
                messages.c.id == checkpoints.c.through_message_id,
            ),
        )
        .where(checkpoints.c.session_id == session_id)
        .order_by(checkpoints.c.generation)
    )
    covered = 0
    for due, row in enumerate(tx.execute(query), start=1):
        if row.generation != due:
            yield Problem(session_id, "checkpoint", row.id, f"is generation {row.generation}, due was {due}")
        if not row.summary.strip():
            yield Problem(session_id, "checkpoint", row.id, "has no summary")
        if row.through_position is None or row.anchor_lane is not None:
            yield Problem(session_id, "checkpoint", row.id, "is anchored at no message of the parent")
            continue
        if row.through_position < covered:
            yield Problem(session_id, "checkpoint", row.id, "covers less than the one before it")
        covered = row.through_position
        try:
            as_checkpoint(row)
        except ValueError:
            yield Problem(session_id, "checkpoint", row.id, "cannot be read")


def _delegations(tx: Connection, session_id: str) -> Iterator[Problem]:
    rows = tx.execute(
        select(delegations).where(delegations.c.session_id == session_id).order_by(delegations.c.number)
    ).all()
    chain_of: dict[str, str] = {}
    said = {row.delivered_by for row in rows if row.delivered_by is not None}
    parents = and_(messages.c.session_id == session_id, messages.c.delegation_id.is_(None))
    known = set(tx.execute(select(messages.c.id).where(parents, messages.c.id.in_(said))).scalars())
    for due, row in enumerate(rows, start=1):
        chain_of[row.id] = chain_of.get(row.resumed_from, "") if row.resumed_from else row.id
        for message in _delegation_problems(row, due, chain_of[row.id], known):
            yield Problem(session_id, "delegation", row.id, message)


def _delegation_problems(row: AnyRow, due: int, chain_id: str, known: set[str]) -> Iterator[str]:
    if row.number != due:
        yield f"has number {row.number}, due was {due}"
    if row.chain_id != chain_id:
        yield f"belongs to chain {row.chain_id}, its links say {chain_id or 'nothing'}"
    if row.status not in set(Status):
        yield f"has the unknown status {row.status}"
    running = row.status == Status.RUNNING.value
    if running != (row.completed_at_ms is None) or (running and row.outcome is not None):
        yield f"is {row.status} and {'has not ended' if row.completed_at_ms is None else 'has ended'}"
    # What the parent's call did not start may have been given to a program, by no message.
    carried = row.delivered_by is not None or (row.delivered and row.parent_tool_call_id is None)
    if row.delivered != carried or (row.delivered and running):
        yield "has a delivery flag that contradicts itself"
    if row.delivered_by is not None and row.delivered_by not in known:
        yield f"was delivered by message {row.delivered_by}, which is not the parent's"
    if not (_is_json(row.definition) and (row.outcome is None or _is_json(row.outcome))):
        yield "cannot be read"


def _events(tx: Connection, session_id: str) -> Iterator[Problem]:
    number = events.c.number
    mine = events.c.session_id == session_id
    count, first, last = tx.execute(
        select(func.count(), func.min(number), func.max(number)).where(mine)
    ).one()
    if count and (first, last) != (1, count):
        yield Problem(session_id, "events", "numbers", f"are {count}, from {first} to {last}")
    for row in _in_batches(tx, select(events).where(mine), number):
        if not _is_json(row.payload) or json.loads(row.payload).get("number") != row.number:
            yield Problem(session_id, "events", str(row.number), "cannot be read")


def _in_batches(tx: Connection, query: Any, *order: Any) -> Iterator[AnyRow]:
    yield from tx.execute(query.order_by(*order).execution_options(yield_per=_BATCH))


def _same_row(message: FromClause, column: str) -> Any:
    return and_(message.c.session_id == tool_results.c.session_id, message.c.id == tool_results.c[column])


def _loaded(row: AnyRow) -> ModelMessage | None:
    try:
        return payload.load(row.payload)
    except ValueError:
        return None


def _is_json(document: str) -> bool:
    try:
        return isinstance(json.loads(document), dict)
    except ValueError:
        return False
