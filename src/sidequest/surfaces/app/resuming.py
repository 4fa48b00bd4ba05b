"""Which delegations a person can go on with, and why another one cannot be gone on with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.outcome import Status
from sidequest.runtime.chains import MAX_CHAINS_PER_AGENT, MAX_READ_LINES
from sidequest.runtime.planning import StartRequest
from sidequest.runtime.records import Records
from sidequest.surfaces.text import count, one_line

if TYPE_CHECKING:
    from sidequest.runtime.session import Session
    from sidequest.store import DelegationRow
    from sidequest.surfaces.app.live import Live

_ANEW = "Ask for the work anew, in a message to the session."
_REMEDIES = {
    ErrorCode.SUBAGENT_INVALID: f"Take that change of the subagent back. Or: {_ANEW}",
    ErrorCode.AGENT_BUSY: "Wait until something has ended, or begin another session.",
    ErrorCode.STORE_DAMAGED: _ANEW,
}
"""What a person can do; the words of the registry are for a model that calls its tools."""


def resumable_rows(rows: Sequence[DelegationRow]) -> frozenset[str]:
    """Return the ids of those that a process which opens the session could resume; `rows` are all of it."""
    records = Records()
    records.restore(rows)
    return frozenset(record.id for record in records.resumable())


def resumable_now(live: Live | None, stored: frozenset[str], *, working: bool) -> frozenset[str]:
    """Return the ids of the delegations that can be resumed at this moment.

    `live` is the session where this process has it open; `stored` is what the rows say, which counts for
    one that nobody has open. While the session works there are none.
    """
    if working or (live is not None and live.busy):
        return frozenset()
    if live is None:
        return stored
    return frozenset(record.id for record in live.session.delegations.records.resumable())


def require_resumable(session: Session, agent: str, delegation_id: str, instruction: str) -> None:
    """Refuse, in words for a person, what the session would refuse to go on with.

    Raises:
        SidequestError: with the code of the session's own refusal.
    """
    try:
        session.delegations.check(StartRequest(agent, instruction, resume=delegation_id))
    except SidequestError as error:
        why = _why_not(session.delegations.records, delegation_id)
        remedy = _ANEW if why else _REMEDIES.get(error.code, error.remedy)
        raise SidequestError(error.code, why or error.cause, remedy) from error


def _why_not(records: Records, delegation_id: str) -> str:
    """Return what is in the way in the work itself; empty when nothing is."""
    record = records.latest(delegation_id)
    if record is None:
        return "This delegation is too long ago to be resumed."
    if record.status is Status.STOPPED:
        return "This work was stopped, and what was stopped is not resumed."
    if not records.has_work(record):
        return "This delegation did nothing that could be gone on with."
    if record.reads.lines > MAX_READ_LINES:
        return f"This work has read {count(record.reads.lines)} lines, which is too much to go on with."
    kept = records.resumable()
    if record not in kept and sum(other.agent == record.agent for other in kept) >= MAX_CHAINS_PER_AGENT:
        agent = one_line(record.agent, 40)
        return f"{agent} has newer work: of each subagent the newest {MAX_CHAINS_PER_AGENT} can be resumed."
    return ""
