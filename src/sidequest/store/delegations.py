"""Delegations as rows: started, followed, settled once, delivered once, resumable after a kill."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, and_, func, insert, select, update

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.events import ContextDegraded, outcome_as_dict
from sidequest.core.outcome import Outcome, Status, StopReason
from sidequest.store.database import AnyRow, Database
from sidequest.store.delivery import mark_delivered, take_back, unknown_delegation
from sidequest.store.masking import to_json
from sidequest.store.rows import Chain, DelegationProgress, DelegationRow, NewDelegation, NewMessage
from sidequest.store.tables import delegations, events, messages, sessions, tool_results
from sidequest.store.unfinished import is_whole

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement


class DelegationRows:
    """The delegations of all sessions. Their messages are lanes of the transcript with their id."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def start(self, session_id: str, new: NewDelegation) -> DelegationRow:
        """Store a delegation as running; before its first message.

        Raises:
            SidequestError: `SESSION_UNKNOWN`; `DELEGATION_UNKNOWN` when it resumes one that is not there;
                `MESSAGE_UNKNOWN` when its parent message is not there; `STORE_CONFLICT` when the id is
                taken or the resumed one still runs.
        """

        def begin(tx: Connection) -> DelegationRow:
            chain_id = _chain_to_join(tx, session_id, new) if new.resumed_from else new.id
            tx.execute(
                insert(delegations).values(
                    session_id=session_id,
                    id=new.id,
                    number=_last_number(tx, session_id) + 1,
                    chain_id=chain_id,
                    resumed_from=new.resumed_from,
                    agent=new.agent,
                    label=new.label,
                    task=new.task,
                    brief=new.brief,
                    model=new.model,
                    context_mode=new.context_mode,
                    definition=to_json(dict(new.definition)),
                    parent_message_id=new.parent_message_id,
                    parent_tool_call_id=new.parent_tool_call_id,
                    started_after=_anchor(tx, session_id, new.parent_message_id),
                    status=Status.RUNNING.value,
                    turns=0,
                    tool_calls=0,
                    tokens=0,
                    delivered=False,
                    started_at_ms=new.started_at_ms,
                    updated_at_ms=new.started_at_ms,
                )
            )
            return require(tx, session_id, new.id)

        return await self._db.write_session(session_id, begin)

    async def progress(
        self, session_id: str, delegation_id: str, progress: DelegationProgress, at_ms: int
    ) -> None:
        """Store how far a running delegation is; nothing happens when it has settled.

        Raises:
            SidequestError: `SESSION_UNKNOWN`, or the store failed.
        """
        values = {
            "turns": progress.turns,
            "tool_calls": progress.tool_calls,
            "tokens": progress.tokens,
            "model": progress.model,
            "last_tool": progress.last_tool,
            "updated_at_ms": at_ms,
        }
        running = and_(_is(session_id, delegation_id), delegations.c.status == Status.RUNNING.value)
        await self._db.write_session(
            session_id, lambda tx: tx.execute(update(delegations).where(running).values(values))
        )

    async def settle(self, session_id: str, outcome: Outcome, completed_at_ms: int) -> None:
        """Store how a delegation ended: status, outcome and report together, not yet delivered.

        The same end at the same time again changes nothing: the database's answer to the first was lost.

        Raises:
            SidequestError: `DELEGATION_UNKNOWN`; `STORE_CONFLICT` when it has settled before, or when the
                outcome says that it still runs.
        """
        if outcome.status is Status.RUNNING:
            raise _conflict(f"The outcome of delegation {outcome.delegation_id} says that it still runs.")
        data = outcome_as_dict(outcome)
        report = data.pop("report")
        values = {
            "status": outcome.status.value,
            "outcome": to_json(data),
            "report": report,
            "model": outcome.model,
            "turns": outcome.turns,
            "tool_calls": outcome.tool_calls,
            "updated_at_ms": completed_at_ms,
            "completed_at_ms": completed_at_ms,
        }

        def end(tx: Connection) -> None:
            row = require(tx, session_id, outcome.delegation_id)
            if (row.status, row.completed_at_ms) == (outcome.status, completed_at_ms):
                return
            if row.status is not Status.RUNNING:
                raise _conflict(f"Delegation {row.id} has settled before: it was {row.status.value}.")
            tx.execute(update(delegations).where(_is(session_id, row.id)).values(values))

        await self._db.write_session(session_id, end)

    async def deliver(self, session_id: str, message: NewMessage, delegation_ids: Collection[str]) -> int:
        """Append the parent's message that carries these reports and mark them, in one transaction.

        Returns the position of the message.

        Raises:
            SidequestError: `DELEGATION_UNKNOWN`; `STORE_CONFLICT` when one still runs, was delivered
                before, or the message is a delegate's; what `Transcript.append` raises. Nothing is stored.
        """
        from sidequest.store.transcript import append_rows

        if message.delegation_id is not None:
            raise _conflict("Reports are delivered to the parent, not to a delegate.")

        def hand_over(tx: Connection) -> int:
            (position,) = append_rows(tx, self._db.masker, session_id, [message])
            mark_delivered(tx, session_id, delegation_ids, message_id=message.id)
            return position

        return await self._db.write_session(session_id, hand_over)

    async def given(self, session_id: str, delegation_id: str) -> None:
        """Note that whoever asked for a delegation without the parent was given its report.

        The parent is not given it then, in this process and in any later one.

        Raises:
            SidequestError: `DELEGATION_UNKNOWN`; `STORE_CONFLICT` when it still runs or was delivered before.
        """
        await self._db.write_session(
            session_id, lambda tx: mark_delivered(tx, session_id, [delegation_id], message_id=None)
        )

    async def take_back(self, session_id: str, delegation_ids: Collection[str]) -> None:
        """Note that nobody has read these reports: a compaction took the message that carried them.

        They can be delivered again. One that was not delivered stays as it is.

        Raises:
            SidequestError: the store failed.
        """
        await self._db.write_session(session_id, lambda tx: take_back(tx, session_id, delegation_ids))

    async def undelivered(self, session_id: str) -> list[DelegationRow]:
        """Return settled delegations whose report the parent has not seen, oldest first.

        A stopped one is not among them: who stopped it knows (specification 3.7). An interrupted one is.
        """
        silent = (Status.RUNNING.value, Status.STOPPED.value)
        return await self._rows(
            delegations.c.session_id == session_id,
            delegations.c.delivered.is_(False),
            delegations.c.status.not_in(silent),
        )

    async def interrupt_running(self, session_id: str, at_ms: int) -> list[DelegationRow]:
        """Mark every running delegation as interrupted and return them; for opening after a kill.

        Open calls of their rows are closed by placeholders, and the last text becomes the report. One that
        lost history, as its events tell, has an outcome that says so.

        Raises:
            SidequestError: `SESSION_UNKNOWN`, or the store failed.
        """
        return await self._db.write_session(session_id, lambda tx: interrupt_running(tx, session_id, at_ms))

    async def get(self, session_id: str, delegation_id: str) -> DelegationRow:
        """Return one delegation.

        Raises:
            SidequestError: `DELEGATION_UNKNOWN`.
        """
        return await self._db.read(lambda tx: require(tx, session_id, delegation_id))

    async def find(self, prefix: str, session_id: str | None = None) -> DelegationRow:
        """Return the delegation with that id, or the only one whose id begins so.

        `session_id` None looks in every session. A fork keeps the ids of what it copied: of several with one
        id, that of the session which was used last is meant then.

        Raises:
            SidequestError: `DELEGATION_UNKNOWN`, also when several ids begin so.
        """
        query = (
            select(delegations)
            .join(sessions, sessions.c.id == delegations.c.session_id)
            .where(func.substr(delegations.c.id, 1, len(prefix)) == prefix, is_whole(sessions.c.id))
            .order_by(sessions.c.updated_at_ms.desc(), sessions.c.created_at_ms, sessions.c.id)
        )
        if session_id is not None:
            query = query.where(delegations.c.session_id == session_id)
        rows = await self._db.read(lambda tx: [_as_row(row) for row in tx.execute(query)]) if prefix else []
        rows = [row for row in rows if row.id == prefix] or rows
        if not rows:
            raise unknown_delegation(prefix or "without an id")
        if len({row.id for row in rows}) > 1:
            raise SidequestError(
                ErrorCode.DELEGATION_UNKNOWN,
                f"{len({row.id for row in rows})} delegations begin with {prefix}.",
                "Write more of the id.",
            )
        return rows[0]

    async def chain(self, session_id: str, delegation_id: str) -> Chain:
        """Return the chain that a delegation belongs to; any id of it will do.

        Raises:
            SidequestError: `DELEGATION_UNKNOWN`.
        """
        row = await self.get(session_id, delegation_id)
        mine, same = delegations.c.session_id == session_id, delegations.c.chain_id == row.chain_id
        return Chain(tuple(await self._rows(mine, same)))

    async def chains(self, session_id: str) -> list[Chain]:
        """Return every chain of a session, the one that was worked on last at the end."""
        by_id: dict[str, list[DelegationRow]] = {}
        for row in await self._rows(delegations.c.session_id == session_id):
            by_id.setdefault(row.chain_id, []).append(row)
        found = [Chain(tuple(rows)) for rows in by_id.values()]
        return sorted(found, key=lambda chain: chain.latest.number)

    async def lines_read(
        self, session_id: str, delegation_ids: Collection[str], tools: Collection[str]
    ) -> int:
        """Return how many lines the results of `tools` (in lower case) have in all of these delegations.

        Failed calls do not count. The database counts: no result is loaded.
        """
        # In JSON a line break is a backslash and an n, once the pairs that stand for a backslash are gone.
        bare = func.replace(tool_results.c.payload, "\\\\", "")
        breaks = (func.length(bare) - func.length(func.replace(bare, "\\n", ""))) / 2
        query = (
            select(func.coalesce(func.sum(breaks + 1), 0))
            .join(
                messages,
                and_(
                    messages.c.session_id == tool_results.c.session_id,
                    messages.c.id == tool_results.c.message_id,
                ),
            )
            .where(
                messages.c.session_id == session_id,
                messages.c.delegation_id.in_(delegation_ids),
                messages.c.kind == "response",
                tool_results.c.outcome == "success",
                func.lower(tool_results.c.tool_name).in_(tools),
            )
        )
        return int(await self._db.read(lambda tx: tx.execute(query).scalar_one()))

    async def _rows(self, *conditions: ColumnElement[bool]) -> list[DelegationRow]:
        order = (delegations.c.session_id, delegations.c.number)
        query = select(delegations).where(*conditions).order_by(*order)
        return await self._db.read(lambda tx: [_as_row(row) for row in tx.execute(query)])

    async def list(self, session_id: str | None = None) -> list[DelegationRow]:
        """Return the delegations of a session in the order of their start; None: of all, oldest first."""
        if session_id is None:
            rows = await self._rows(is_whole(delegations.c.session_id))
            return sorted(rows, key=lambda row: row.started_at_ms)
        return await self._rows(delegations.c.session_id == session_id)


def require(tx: Connection, session_id: str, delegation_id: str) -> DelegationRow:
    """Return one delegation inside a transaction; raises `DELEGATION_UNKNOWN`."""
    row = tx.execute(select(delegations).where(_is(session_id, delegation_id))).one_or_none()
    if row is None:
        raise unknown_delegation(delegation_id)
    return _as_row(row)


def interrupt_running(
    tx: Connection, session_id: str, at_ms: int, *, events_of: str | None = None
) -> list[DelegationRow]:
    """Interrupt inside a transaction; see `DelegationRows.interrupt_running`.

    `events_of` is the session that has the events of these delegations: a copy has none of its own.
    """
    from sidequest.store.transcript import close_open

    running = select(delegations.c.id).where(
        delegations.c.session_id == session_id, delegations.c.status == Status.RUNNING.value
    )
    ids = tx.execute(running.order_by(delegations.c.number)).scalars().all()
    for delegation_id in ids:
        known = _account_of(tx, session_id, delegation_id)
        close_open(tx, session_id, delegation_id, at_ms)
        row = require(tx, session_id, delegation_id)
        lost = _degradations(tx, events_of or session_id, delegation_id)
        tx.execute(
            update(delegations)
            .where(_is(session_id, delegation_id))
            .values(
                status=Status.INTERRUPTED.value,
                outcome=_lossy_end(row, known, lost) if lost else None,
                report=_last_text(tx, session_id, delegation_id),
                updated_at_ms=at_ms,
                **known,
            )
        )
    return [require(tx, session_id, delegation_id) for delegation_id in ids]


def _degradations(tx: Connection, session_id: str, delegation_id: str) -> int:
    """Return how often a delegation lost history: an event is stored ahead of the answer that follows it."""
    found = select(func.count()).where(
        events.c.session_id == session_id,
        events.c.delegation_id == delegation_id,
        events.c.type == ContextDegraded.type,
    )
    return tx.execute(found).scalar_one()


def _lossy_end(row: DelegationRow, known: dict[str, Any], degradations: int) -> str:
    """Return the outcome of a delegation that nobody was left to settle: it says that history is lost.

    What it used is not known, and left out.
    """
    outcome = Outcome(
        delegation_id=row.id,
        agent=row.agent,
        status=Status.INTERRUPTED,
        stop_reason=StopReason.STOPPED,
        report="",
        model=row.model,
        context_mode=row.context_mode,
        elapsed_s=(known["completed_at_ms"] - row.started_at_ms) / 1000,
        turns=row.turns,
        tool_calls=known["tool_calls"],
        degradations=degradations,
    )
    data = outcome_as_dict(outcome)
    del data["report"], data["usage"]
    return to_json(data)


def _account_of(tx: Connection, session_id: str, delegation_id: str) -> dict[str, Any]:
    """Return what a delegation did until its process died, as far as it is stored; its calls are still open.

    It ended when the last thing of it was stored: nobody knows of more. Of the calls that have no result the
    first one had begun, since a delegate's tools run one after the other.
    """
    from sidequest.store.transcript import open_calls

    row = tx.execute(select(delegations).where(_is(session_id, delegation_id))).one()
    lane = and_(messages.c.session_id == session_id, messages.c.delegation_id == delegation_id)
    said = tx.execute(select(func.max(messages.c.created_at_ms)).where(lane)).scalar_one()
    count, given = tx.execute(
        select(func.count(), func.max(tool_results.c.created_at_ms))
        .join(
            messages,
            and_(
                messages.c.session_id == tool_results.c.session_id, messages.c.id == tool_results.c.message_id
            ),
        )
        .where(lane)
    ).one()
    begun = open_calls(tx, session_id, delegation_id)[:1]
    return {
        "completed_at_ms": max(row.updated_at_ms, said or 0, given or 0),
        "tool_calls": max(row.tool_calls, count + len(begun)),
        "last_tool": begun[0] if begun else row.last_tool,
    }


def _is(session_id: str, delegation_id: str) -> ColumnElement[bool]:
    return and_(delegations.c.session_id == session_id, delegations.c.id == delegation_id)


def _chain_to_join(tx: Connection, session_id: str, new: NewDelegation) -> str:
    earlier = require(tx, session_id, new.resumed_from or "")
    if earlier.status is Status.RUNNING:
        raise _conflict(f"Delegation {earlier.id} is still running and cannot be resumed.")
    return earlier.chain_id


def _anchor(tx: Connection, session_id: str, message_id: str | None) -> int:
    """Return the parent's position behind which a delegation begins, never before an earlier one's."""
    lane = and_(messages.c.session_id == session_id, messages.c.delegation_id.is_(None))
    if message_id is None:
        return tx.execute(select(func.max(messages.c.position)).where(lane)).scalar_one() or 0
    found = select(messages.c.position).where(lane, messages.c.id == message_id)
    position: int | None = tx.execute(found).scalar_one_or_none()
    if position is None:
        raise SidequestError(
            ErrorCode.MESSAGE_UNKNOWN,
            f"The parent of session {session_id} has no message {message_id}.",
            "Append the response before the delegations that it starts.",
        )
    begun = select(func.max(delegations.c.started_after)).where(delegations.c.session_id == session_id)
    return max(position, tx.execute(begun).scalar_one() or 0)


def _last_number(tx: Connection, session_id: str) -> int:
    newest = select(func.max(delegations.c.number)).where(delegations.c.session_id == session_id)
    return tx.execute(newest).scalar_one() or 0


def _last_text(tx: Connection, session_id: str, delegation_id: str) -> str:
    said = (
        select(messages.c.text)
        .where(
            messages.c.session_id == session_id,
            messages.c.delegation_id == delegation_id,
            messages.c.kind == "response",
            messages.c.text != "",
        )
        .order_by(messages.c.position.desc())
        .limit(1)
    )
    return tx.execute(said).scalar_one_or_none() or ""


def _readable(document: str) -> dict[str, Any]:
    """Return a JSON object, empty when it is damaged: that grants nothing, and `verify` tells."""
    try:
        found = json.loads(document)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _as_row(row: AnyRow) -> DelegationRow:
    outcome = _readable(row.outcome) if row.outcome is not None else None
    return DelegationRow(
        id=row.id,
        session_id=row.session_id,
        number=row.number,
        chain_id=row.chain_id,
        resumed_from=row.resumed_from,
        agent=row.agent,
        label=row.label,
        task=row.task,
        brief=row.brief,
        model=row.model,
        context_mode=row.context_mode,
        definition=_readable(row.definition),
        parent_message_id=row.parent_message_id,
        parent_tool_call_id=row.parent_tool_call_id,
        started_after=row.started_after,
        status=Status(row.status),
        turns=row.turns,
        tool_calls=row.tool_calls,
        tokens=row.tokens,
        last_tool=row.last_tool,
        report=row.report or "",
        outcome={**outcome, "report": row.report or ""} if outcome else None,
        delivered=row.delivered,
        delivered_by=row.delivered_by,
        started_at_ms=row.started_at_ms,
        completed_at_ms=row.completed_at_ms,
    )


def _conflict(cause: str) -> SidequestError:
    return SidequestError(
        ErrorCode.STORE_CONFLICT, cause, "A delegation starts once, settles once and is resumed afterwards."
    )
