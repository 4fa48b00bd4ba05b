"""Copying and cutting a session at a position of the parent's lane."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Table,
    and_,
    case,
    delete,
    exists,
    func,
    insert,
    literal,
    null,
    or_,
    select,
    update,
)

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.outcome import Status
from sidequest.store.delegations import interrupt_running
from sidequest.store.rows import Truncated
from sidequest.store.tables import (
    checkpoints,
    delegations,
    messages,
    search_words,
    tool_results,
    tool_words,
    whole_results,
)


def begin_copy(tx: Connection, source: str, target: str, through: int) -> Sequence[int]:
    """Copy the delegations of the branch up to the parent's position `through`, inclusive, into `target`.

    Returns the row ids of the messages that belong to the branch, in the order of writing: they are what
    comes along, whatever is written meanwhile.
    """
    begun = and_(delegations.c.session_id == source, delegations.c.started_after <= through)
    inside = or_(
        and_(messages.c.delegation_id.is_(None), messages.c.position <= through),
        messages.c.delegation_id.in_(select(delegations.c.id).where(begun)),
    )
    kept = and_(messages.c.session_id == source, inside)
    renumbered = func.row_number().over(order_by=delegations.c.number)
    known = delegations.c.delivered_by.in_(select(messages.c.id).where(kept))
    _copy(
        tx,
        delegations,
        {
            "session_id": literal(target),
            "number": renumbered,
            "delivered": and_(delegations.c.delivered, or_(delegations.c.delivered_by.is_(None), known)),
            "delivered_by": case((known, delegations.c.delivered_by), else_=null()),
        },
        select().where(begun).order_by(delegations.c.number),
    )
    return tx.execute(select(messages.c.row_id).where(kept).order_by(messages.c.row_id)).scalars().all()


def copy_messages(tx: Connection, source: str, target: str, row_ids: Sequence[int]) -> None:
    """Copy messages with the words to find them by.

    Raises:
        SidequestError: `STORE_CONFLICT` when some of them are gone.
    """
    chosen = and_(messages.c.session_id == source, messages.c.row_id.in_(row_ids))
    # The row ids keep the order of writing: `row_id` itself is given by the database.
    copied = _copy(
        tx,
        messages,
        {"session_id": literal(target)},
        select().where(chosen).order_by(messages.c.row_id),
        leave_out={"row_id"},
    )
    if copied != len(row_ids):
        raise SidequestError(
            ErrorCode.STORE_CONFLICT,
            f"Session {source} was cut or removed while it was copied.",
            "Copy it again.",
        )
    old, new = messages.alias("old"), messages.alias("new")
    words = (
        select(new.c.row_id, search_words.c.words)
        .select_from(search_words)
        .join(old, and_(old.c.row_id == search_words.c.message_row_id, old.c.row_id.in_(row_ids)))
        .join(new, and_(new.c.session_id == target, new.c.id == old.c.id))
    )
    tx.execute(insert(search_words).from_select(["message_row_id", "words"], words))


def copy_results(tx: Connection, source: str, target: str, row_ids: Sequence[int]) -> None:
    """Copy what the calls of messages gave; after all messages, which carry it."""
    callers = select(messages.c.id).where(messages.c.row_id.in_(row_ids))
    arrived = select(messages.c.id).where(messages.c.session_id == target)
    carrier = messages.c.id == tool_results.c.carrier_id
    carried = exists(arrived.where(carrier).correlate(tool_results))
    _copy(
        tx,
        tool_results,
        {
            "session_id": literal(target),
            "carrier_id": case((carried, tool_results.c.carrier_id), else_=null()),
        },
        select().where(tool_results.c.session_id == source, tool_results.c.message_id.in_(callers)),
    )
    _copy(
        tx,
        tool_words,
        {"session_id": literal(target)},
        select()
        .where(tool_words.c.session_id == source, tool_words.c.message_id.in_(callers))
        .order_by(tool_words.c.row_id),
        leave_out={"row_id"},
    )


def end_copy(tx: Connection, source: str, target: str, at_ms: int) -> None:
    """Copy the checkpoints and whole results of what was copied, and interrupt what runs in the source."""
    _copy(
        tx,
        whole_results,
        {"session_id": literal(target)},
        select().where(whole_results.c.session_id == source),
    )
    anchors = select(messages.c.id).where(messages.c.session_id == target, messages.c.delegation_id.is_(None))
    _copy(
        tx,
        checkpoints,
        {"session_id": literal(target)},
        select().where(checkpoints.c.session_id == source, checkpoints.c.through_message_id.in_(anchors)),
    )
    interrupt_running(tx, target, at_ms, events_of=source)


def _copy(
    tx: Connection,
    table: Table,
    changed: Mapping[str, ColumnElement[Any]],
    which: Select[Any],
    leave_out: frozenset[str] | set[str] = frozenset(),
) -> int:
    """Copy rows and return how many."""
    columns = [column for column in table.c if column.name not in leave_out]
    values = [changed.get(column.name, column) for column in columns]
    statement = insert(table).from_select(columns, which.add_columns(*values))
    return tx.execute(statement, execution_options={"preserve_rowcount": True}).rowcount


def cut_branch(tx: Connection, session_id: str, through: int) -> Truncated:
    """Remove what lies behind the parent's position `through`; see `Sessions.truncate`."""
    late = and_(delegations.c.session_id == session_id, delegations.c.started_after > through)
    rows = tx.execute(
        select(delegations.c.id, delegations.c.status).where(late).order_by(delegations.c.number)
    ).all()
    running = [row.id for row in rows if row.status == Status.RUNNING.value]
    if running:
        raise SidequestError(
            ErrorCode.AGENT_BUSY,
            f"Delegation {running[0]} was started behind the cut and still runs.",
            "Stop it first, then cut.",
        )
    gone = and_(
        messages.c.session_id == session_id,
        messages.c.delegation_id.is_(None),
        messages.c.position > through,
    )
    gone_ids = select(messages.c.id).where(gone)
    # What the kept responses' calls gave stays, as results that no message has carried yet.
    tx.execute(
        update(tool_results)
        .where(tool_results.c.session_id == session_id, tool_results.c.carrier_id.in_(gone_ids))
        .values(carrier_id=None, place=None)
    )
    tx.execute(
        update(delegations)
        .where(delegations.c.session_id == session_id, delegations.c.delivered_by.in_(gone_ids))
        .values(delivered=False, delivered_by=None)
    )
    dropped = _count(
        tx,
        select(checkpoints.c.id).where(
            checkpoints.c.session_id == session_id, checkpoints.c.through_message_id.in_(gone_ids)
        ),
    )
    tx.execute(delete(delegations).where(late))
    removed = tx.execute(delete(messages).where(gone)).rowcount
    return Truncated(removed, dropped, tuple(row.id for row in rows))


def _count(tx: Connection, which: Select[Any]) -> int:
    return tx.execute(select(func.count()).select_from(which.subquery())).scalar_one()
