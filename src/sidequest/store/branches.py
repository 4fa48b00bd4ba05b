"""Copying and cutting a session at a position of the parent's lane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Table,
    and_,
    case,
    delete,
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


def copy_branch(tx: Connection, source: str, target: str, through: int, at_ms: int) -> None:
    """Copy what belongs to the branch up to the parent's position `through`, inclusive, into `target`."""
    begun = and_(delegations.c.session_id == source, delegations.c.started_after <= through)
    inside = or_(
        and_(messages.c.delegation_id.is_(None), messages.c.position <= through),
        messages.c.delegation_id.in_(select(delegations.c.id).where(begun)),
    )
    kept = and_(messages.c.session_id == source, inside)
    kept_ids = select(messages.c.id).where(kept)
    mine = {"session_id": literal(target)}

    renumbered = func.row_number().over(order_by=delegations.c.number)
    known = delegations.c.delivered_by.in_(kept_ids)
    _copy(
        tx,
        delegations,
        mine
        | {
            "number": renumbered,
            "delivered": and_(delegations.c.delivered, or_(delegations.c.delivered_by.is_(None), known)),
            "delivered_by": case((known, delegations.c.delivered_by), else_=null()),
        },
        select().where(begun).order_by(delegations.c.number),
    )
    # The row ids keep the order of writing: `row_id` itself is given by the database.
    _copy(tx, messages, mine, select().where(kept).order_by(messages.c.row_id), leave_out={"row_id"})
    carrier = case((tool_results.c.carrier_id.in_(kept_ids), tool_results.c.carrier_id), else_=null())
    _copy(
        tx,
        tool_results,
        mine | {"carrier_id": carrier},
        select().where(tool_results.c.session_id == source, tool_results.c.message_id.in_(kept_ids)),
    )
    _copy_words(tx, source, target)
    _copy(
        tx,
        tool_words,
        mine,
        select()
        .where(tool_words.c.session_id == source, tool_words.c.message_id.in_(kept_ids))
        .order_by(tool_words.c.row_id),
        leave_out={"row_id"},
    )
    _copy(tx, whole_results, mine, select().where(whole_results.c.session_id == source))
    anchors = select(messages.c.id).where(kept, messages.c.delegation_id.is_(None))
    _copy(
        tx,
        checkpoints,
        mine,
        select().where(checkpoints.c.session_id == source, checkpoints.c.through_message_id.in_(anchors)),
    )
    interrupt_running(tx, target, at_ms)


def _copy(
    tx: Connection,
    table: Table,
    changed: Mapping[str, ColumnElement[Any]],
    which: Select[Any],
    leave_out: frozenset[str] | set[str] = frozenset(),
) -> None:
    columns = [column for column in table.c if column.name not in leave_out]
    values = [changed.get(column.name, column) for column in columns]
    tx.execute(insert(table).from_select(columns, which.add_columns(*values)))


def _copy_words(tx: Connection, source: str, target: str) -> None:
    old, new = messages.alias("old"), messages.alias("new")
    words = (
        select(new.c.row_id, search_words.c.words)
        .select_from(search_words)
        .join(old, and_(old.c.row_id == search_words.c.message_row_id, old.c.session_id == source))
        .join(new, and_(new.c.session_id == target, new.c.id == old.c.id))
    )
    tx.execute(insert(search_words).from_select(["message_row_id", "words"], words))


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
