"""What a session knows of its delegations: which there are, how each stands, which can be gone on with."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from pydantic_ai.messages import ModelResponse

from sidequest.core.errors import SidequestError
from sidequest.core.outcome import Outcome, Status
from sidequest.runtime.chains import (
    BLOCK_SHARE,
    MAX_BLOCK_TOKENS,
    MAX_CHAINS_PER_AGENT,
    MAX_READ_LINES,
    ChainLine,
    Reads,
    chains_block,
)
from sidequest.runtime.delegation import DelegationRun
from sidequest.runtime.past import PastRun, past_outcome, past_run
from sidequest.store.rows import DelegationRow

MAX_TAKEN_BACK = 2
"""So often a report that no model saw is handed over again: a window that cannot hold it must not loop."""
MAX_RETAINED = 100
"""Settled delegations that are remembered, inclusive; the oldest is forgotten first, a running one never."""
RESUMABLE = frozenset({Status.COMPLETED, Status.PARTIAL, Status.FAILED, Status.INTERRUPTED})


@dataclass
class DelegationRecord:
    """One delegation as the session knows it."""

    run: DelegationRun | PastRun
    label: str
    task: str
    original_task: str
    started_at_ms: int
    started: float
    """Clock seconds at the start."""
    resumed_from: str | None = None
    chain: str = ""
    """Id of the first delegation of its chain."""
    model_changed_from: str | None = None
    """Key of the model that the chain ran on before, when that is no longer to be had."""
    tool_call_id: str | None = None
    outcome: Outcome | None = None
    completed_at_ms: int | None = None
    delivered: bool = False
    """Whether the parent, or who asked instead of the parent, has been given the report."""
    seen: bool = False
    """Whether the report was in a request that the parent's model has answered."""
    in_history: bool = False
    """Whether the report was in the parent's history since it was handed over."""
    taken_back: int = 0
    """How often it was handed over in vain: a compaction took it before the parent's model had seen it."""
    reads_before: Reads = field(default_factory=Reads)
    """What the runs of its chain before this one have looked at."""
    for_caller: bool = False
    """Whether a program asked for it and not the parent, which is then not given the report."""
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    stored: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when its start is stored, could not be, or need not be."""
    store_error: SidequestError | None = None
    """Why its start is not stored; it does not run then."""
    job: asyncio.Task[None] | None = None
    end_of_overdue: asyncio.Task[None] | None = None
    """Stores the end of a run that did not end by itself."""

    @property
    def id(self) -> str:
        """The delegation id, a UUID."""
        return self.run.plan.delegation_id

    @property
    def agent(self) -> str:
        """Id of the subagent."""
        return self.run.plan.agent

    @property
    def status(self) -> Status:
        """Where it stands."""
        return self.outcome.status if self.outcome else Status.RUNNING

    @property
    def reads(self) -> Reads:
        """What its chain has looked at; nothing is known of one that is not loaded yet."""
        return self.reads_before.plus(self.run.progress.reads)

    @property
    def model(self) -> str:
        """Key of the model that runs, or ran last."""
        return self.run.model_key


@dataclass
class Records:
    """The delegations that are remembered."""

    begun: int = 0
    """How many were started, in earlier processes too."""
    _known: dict[str, DelegationRecord] = field(default_factory=dict, init=False)

    def add(self, record: DelegationRecord) -> None:
        """Remember a delegation that starts; the oldest ones that are over may be forgotten for it."""
        self._known[record.id] = record
        self.begun += 1
        self._forget_oldest()

    def restore(self, rows: Sequence[DelegationRow], now: float = 0.0) -> None:
        """Remember the delegations of earlier processes, oldest first; `now` is in clock seconds.

        One that was left running was interrupted.
        """
        chains = {row.id: row.brief for row in rows}
        oldest = len(rows) - MAX_RETAINED
        self.begun = max(self.begun, len(rows))
        for number, row in enumerate(rows):
            if number < oldest and (row.delivered or row.status is Status.STOPPED):
                continue
            record = DelegationRecord(
                past_run(row),
                row.label,
                row.task,
                chains.get(row.chain_id, row.brief),
                row.started_at_ms,
                now,
                row.resumed_from,
                row.chain_id,
                outcome=past_outcome(row),
                completed_at_ms=row.completed_at_ms,
                delivered=row.delivered,
                seen=row.delivered,
            )
            record.settled.set()
            self._known[record.id] = record

    def clear(self) -> None:
        """Forget all of them."""
        self._known.clear()

    def _forget_oldest(self) -> None:
        unread = {record.id for record in self.undelivered()}
        settled = [r for r in self._known.values() if r.outcome is not None and r.id not in unread]
        for record in settled[: max(0, len(settled) - MAX_RETAINED)]:
            del self._known[record.id]

    def get(self, delegation_id: str) -> DelegationRecord | None:
        """Return the delegation with that id, or None."""
        return self._known.get(delegation_id)

    def all(self) -> list[DelegationRecord]:
        """Return every delegation that is remembered, oldest first."""
        return list(self._known.values())

    def running(self) -> list[DelegationRecord]:
        """Return those that run now, oldest first."""
        return [record for record in self.all() if record.outcome is None]

    def of_parent(self) -> list[DelegationRecord]:
        """Return those that run for the parent agent and not for a program, oldest first."""
        return [record for record in self.running() if not record.for_caller]

    def undelivered(self) -> list[DelegationRecord]:
        """Return those whose report the parent has not seen and should: settled by themselves.

        One that was interrupted and then resumed has nothing more to say.
        """
        unread = [r for r in self.all() if r.outcome and not r.delivered and r.status is not Status.STOPPED]
        return [r for r in unread if r.status is not Status.INTERRUPTED or self.latest(r.id) is r]

    def in_history(self, ids: Collection[str]) -> None:
        """Note that the reports of the delegations `ids` stand in the parent's history."""
        for record in self._unseen():
            record.in_history = record.in_history or record.id in ids

    def sent(self, ids: Collection[str]) -> list[DelegationRecord]:
        """Note that the parent's model has answered a request with the reports of `ids`.

        Returns those that had been in the history and were not in the request: no model has seen them. Each
        is returned `MAX_TAKEN_BACK` times at most.
        """
        lost: list[DelegationRecord] = []
        for record in self._unseen():
            if record.id in ids:
                record.seen = True
            elif record.in_history and record.taken_back < MAX_TAKEN_BACK:
                record.taken_back += 1
                lost.append(record)
        return lost

    def _unseen(self) -> list[DelegationRecord]:
        return [r for r in self._known.values() if r.delivered and not r.seen and not r.for_caller]

    def outstanding(self) -> list[DelegationRecord]:
        """Return those that run for the parent, and those whose report it has not seen, oldest first."""
        ids = {record.id for record in (*self.of_parent(), *self.undelivered())}
        return [record for record in self.all() if record.id in ids]

    def latest(self, delegation_id: str) -> DelegationRecord | None:
        """Return the newest delegation of the chain that `delegation_id` belongs to."""
        record = self._known.get(delegation_id)
        if record is None:
            return None
        return [other for other in self.all() if other.chain == record.chain][-1]

    def resumable(self) -> list[DelegationRecord]:
        """Return the newest delegation of each chain that can be gone on with, newest use first.

        Two chains for each subagent, and none that has read more than 50,000 lines (specification 3.11).
        Those that were interrupted are kept beside these two: their work was not finished.
        """
        newest = {record.chain: record for record in self.all()}
        usable = [
            record
            for record in newest.values()
            if record.status in RESUMABLE and self.has_work(record) and record.reads.lines <= MAX_READ_LINES
            if not (isinstance(record.run, PastRun) and record.run.damage is not None)
        ]
        usable.sort(key=lambda record: record.completed_at_ms or 0, reverse=True)
        kept: list[DelegationRecord] = []
        for record in usable:
            settled = [r for r in kept if r.agent == record.agent and r.status is not Status.INTERRUPTED]
            if record.status is Status.INTERRUPTED or len(settled) < MAX_CHAINS_PER_AGENT:
                kept.append(record)
        return kept

    def has_work(self, record: DelegationRecord) -> bool:
        """Say whether anything was done in the chain that `record` is the newest of."""
        if isinstance(record.run, PastRun) and not record.run.loaded:
            return any(r.run.progress.turns > 0 for r in self._known.values() if r.chain == record.chain)
        given = record.run.given if isinstance(record.run, PastRun) else 0
        return any(isinstance(message, ModelResponse) for message in record.run.messages[given:])

    def chains_block(self, hard_limit: int | None = None) -> str:
        """Return what the parent's prompt says about delegations that can be resumed.

        `hard_limit` is that of the parent's model, in tokens; None takes the most that a block may have.
        """
        limit = MAX_BLOCK_TOKENS if hard_limit is None else min(MAX_BLOCK_TOKENS, hard_limit // BLOCK_SHARE)
        return chains_block(
            [ChainLine(r.agent, r.id, r.task, r.reads.files) for r in self.resumable()], limit
        )
