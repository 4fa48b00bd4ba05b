"""Marking reports as delivered, once: in the transaction of the message that carries them to the parent."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, select, update

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.outcome import Status
from sidequest.store.tables import delegations


def mark_delivered(
    tx: Connection, session_id: str, delegation_ids: Collection[str], *, message_id: str | None
) -> None:
    """Set the flags of delegations whose reports `message_id` carries; None when no message does.

    One that this very message delivered already stays as it is: its answer was lost and it comes again.

    Raises:
        SidequestError: `DELEGATION_UNKNOWN`; `STORE_CONFLICT` when one still runs or was delivered before.
    """
    if not delegation_ids:
        return
    mine = (delegations.c.session_id == session_id) & delegations.c.id.in_(delegation_ids)
    rows = tx.execute(
        select(
            delegations.c.id, delegations.c.status, delegations.c.delivered, delegations.c.delivered_by
        ).where(mine)
    ).all()
    unknown = set(delegation_ids) - {row.id for row in rows}
    if unknown:
        raise unknown_delegation(", ".join(sorted(unknown)))
    for row in rows:
        if row.status == Status.RUNNING.value:
            raise _refused(f"Delegation {row.id} is still running and has no report to deliver.")
        if row.delivered and (message_id is None or row.delivered_by != message_id):
            how = f"by message {row.delivered_by}" if row.delivered_by else "to whoever asked for it"
            raise _refused(f"The report of delegation {row.id} was delivered {how}.")
    tx.execute(update(delegations).where(mine).values(delivered=True, delivered_by=message_id))


def take_back(tx: Connection, session_id: str, delegation_ids: Collection[str]) -> None:
    """Clear the flags of delegations whose reports a message carried and nobody read."""
    mine = (delegations.c.session_id == session_id) & delegations.c.id.in_(delegation_ids)
    carried = mine & delegations.c.delivered_by.is_not(None)
    tx.execute(update(delegations).where(carried).values(delivered=False, delivered_by=None))


def unknown_delegation(delegation_id: str) -> SidequestError:
    """Return the error for an id that no delegation of the session has."""
    return SidequestError(
        ErrorCode.DELEGATION_UNKNOWN,
        f"There is no delegation {delegation_id}.",
        "`sidequest delegations list` shows what there is.",
    )


def _refused(cause: str) -> SidequestError:
    return SidequestError(
        ErrorCode.STORE_CONFLICT, cause, "Leave it out: a report is delivered once, after it settled."
    )
