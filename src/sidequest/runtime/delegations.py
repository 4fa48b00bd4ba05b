"""Starts the delegations of a session, waits for them, stops them, and has each of them stored."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from pydantic_ai.messages import ModelMessage

from sidequest.core.context_modes import ContextMode
from sidequest.core.errors import ErrorCode, Failure, SidequestError
from sidequest.core.events import ContextDegraded, DelegationSettled, DelegationStarted, EventLog, Notice
from sidequest.core.outcome import Outcome, Status, StopReason
from sidequest.core.provider_errors import Pattern
from sidequest.core.tokens import estimate_message
from sidequest.runtime.chains import (
    Reads,
    files_of,
)
from sidequest.runtime.confirming import Confirmations
from sidequest.runtime.delegation import DelegationRun, Plan
from sidequest.runtime.journal import NEVER_STORED, Journal, to_its_end
from sidequest.runtime.knowledge import Knowledge
from sidequest.runtime.leftovers import commands_belong_to
from sidequest.runtime.limits import Account
from sidequest.runtime.model_choice import ModelChooser
from sidequest.runtime.past import PastRun
from sidequest.runtime.permissions import Rights
from sidequest.runtime.planning import Checked, Planner, StartRequest
from sidequest.runtime.prefix import Prefix
from sidequest.runtime.records import DelegationRecord, Records
from sidequest.runtime.reminders import WindowState
from sidequest.runtime.summariser import Sleep
from sidequest.runtime.toolbox import Toolbox
from sidequest.runtime.waiting import Deadline
from sidequest.store.rows import DelegationRow, NewDelegation
from sidequest.subagents.catalog import Catalog
from sidequest.subagents.definition import definition_as_dict

MAX_RUNNING = 10
"""Most delegations of one session that run at the same time, inclusive (specification 3.7)."""
MAX_TOTAL = 100
"""Most delegations a session starts unless it is told otherwise, resumed ones counted again."""
LISTED_TOKENS = 200_000
"""How much of a chain of an earlier process is read to list it, in tokens; more only when it is resumed."""
RESUME_LOST = "what the earlier run had done did not fit whole, or had been lost before"
"""Why a resume is degraded from its beginning, for records."""
STOP_GRACE_S = 5.0
"""How long a stopped delegation may take to end by itself."""


@dataclass(frozen=True, slots=True)
class ChainHistory:
    """What is stored of a chain."""

    given: Sequence[ModelMessage]
    """The parent's conversation that a fork was given, empty for an independent one."""
    own: Sequence[ModelMessage]
    """The newest messages of its runs."""
    whole: bool
    """Whether `own` is all that its runs have said and done."""
    lines_read: int
    """Lines that all of its runs have read."""


LoadHistory = Callable[[str, int], Awaitable[ChainHistory]]
"""Reads a chain from where it is stored, given the id of one of its delegations and how many tokens."""


@dataclass
class Delegations:
    """Starts delegations and knows all of them. One per session; not shared between event loops."""

    catalog: Catalog
    models: ModelChooser
    toolbox: Toolbox
    log: EventLog
    project_instructions: str = ""
    default_context: ContextMode | None = None
    max_running: int = MAX_RUNNING
    max_total: int = MAX_TOTAL
    """Most delegations over the life of the session, inclusive."""
    patterns: tuple[Pattern, ...] = ()
    sleep: Sleep = asyncio.sleep
    jitter: Callable[[], float] = random.random
    clock: Callable[[], float] = time.monotonic
    knowledge: Knowledge = field(default_factory=Knowledge)
    account: Account = field(default_factory=Account)
    rights: Rights | None = None
    """What the session allows; None lets every granted tool run."""
    confirmations: Confirmations = field(default_factory=Confirmations)
    """What a person has confirmed about its definitions."""
    journal: Journal | None = None
    """Where delegations are written down; None keeps them in memory."""
    load_history: LoadHistory | None = None
    grace_s: float = STOP_GRACE_S
    """How many seconds a run may go on after its wall time is over."""
    now_ms: Callable[[], int] = field(default=lambda: time.time_ns() // 1_000_000)
    unstored_end: SidequestError | None = field(default=None, init=False)
    """Why the end of a delegation cannot be stored, ever; None when all of them are or will be."""
    records: Records = field(default_factory=Records, init=False)
    """Those that are remembered."""

    def start(
        self,
        request: StartRequest,
        parent: Sequence[ModelMessage] = (),
        prefix: Prefix | None = None,
    ) -> DelegationRecord:
        """Check `request`, start it in the background and return at once.

        `parent` is the parent's history, which a fork copies at this moment; `prefix` is what the parent's
        requests begin with, and None lets a fork begin with its own instructions and tools. The checks and
        their order are those of specification 3.3.

        Raises:
            SidequestError: what is wrong and what can be done; nothing was started.
        """
        planner = self._planner
        checked = planner.check(request)
        self.account.require()
        return self._launch(planner.plan(checked, parent, prefix), request, checked)

    def check(self, request: StartRequest) -> Checked:
        """Return what `request` leads to, and start nothing. The order is that of specification 3.3.

        Raises:
            SidequestError: what is wrong and what can be done.
        """
        checked = self._planner.check(request)
        self.account.require()
        return checked

    def require_nothing_gained(self, delegation_id: str) -> None:
        """Refuse a chain whose definition allows more than when it ran last: a resume grants nothing new.

        Raises:
            SidequestError: `SUBAGENT_INVALID` with what was gained; `SUBAGENT_UNKNOWN` when the definition
                is gone.
        """
        self._planner.require_nothing_gained(delegation_id)

    @property
    def _planner(self) -> Planner:
        return Planner(
            self.catalog,
            self.models,
            self.toolbox,
            self.records,
            self.max_running,
            self.max_total,
            self.project_instructions,
            self.default_context,
            self.patterns,
            self.rights,
            self.journal,
        )

    def _launch(self, plan: Plan, request: StartRequest, checked: Checked) -> DelegationRecord:
        task, earlier = checked.task, checked.earlier
        run = DelegationRun(
            plan,
            self.log.emit,
            sleep=self.sleep,
            jitter=self.jitter,
            clock=self.clock,
            knowledge=self.knowledge,
            account=self.account,
            window_state=WindowState(recall=self.journal is not None),
            lane=self.journal.lane(plan.delegation_id, plan.agent) if self.journal else None,
        )
        if run.lane is not None:
            run.lane.know(plan.history)
        run.attempts.model_failures.extend(checked.choice.failures)
        record = DelegationRecord(
            run,
            label=request.label.strip() or self._first_line(task),
            task=task,
            original_task=earlier.original_task if earlier else plan.brief,
            started_at_ms=self.now_ms(),
            started=self.clock(),
            resumed_from=earlier.id if earlier else None,
            chain=earlier.chain if earlier else plan.delegation_id,
            model_changed_from=earlier.model if earlier and earlier.model != plan.model.key else None,
            tool_call_id=request.tool_call_id,
            reads_before=earlier.reads if earlier else Reads(),
        )
        self.records.add(record)
        self.log.emit(
            DelegationStarted(
                record.id,
                record.agent,
                record.label,
                task,
                record.model,
                plan.context_mode.value,
                plan.model.budget(plan.cap).hard_limit,
                record.started_at_ms,
            )
        )
        if earlier is not None and plan.history_lost:
            self._tell_loss(record, plan, earlier)
        record.job = asyncio.create_task(self._supervise(record), name=f"delegation-{record.id}")
        record.job.add_done_callback(lambda job: self._ensure_settled(record))
        if plan.limits.seconds is not None:
            patience = plan.limits.seconds + self.grace_s
            timer = Deadline(patience, lambda: self._overdue(record))
            run.run_time.measured_by(timer)
            record.job.add_done_callback(lambda job: timer.cancel())
        return record

    def _tell_loss(self, record: DelegationRecord, plan: Plan, earlier: DelegationRecord) -> None:
        """Tell that a resume goes on without all that was done: the store remembers it should it die."""
        limit = plan.model.budget(plan.cap).hard_limit
        before, after = (sum(map(estimate_message, part)) for part in (earlier.run.messages, plan.history))
        self.log.emit(ContextDegraded(record.id, before, after, limit, RESUME_LOST))

    async def _supervise(self, record: DelegationRecord) -> None:
        run = record.run
        if not isinstance(run, DelegationRun):
            return
        try:
            await self._store_start(record, run)
        except SidequestError as error:
            record.store_error = error
        except asyncio.CancelledError:
            # It is stored all the same; as one that was stopped before it began it says so by itself.
            run.request_stop()
        record.stored.set()
        if record.store_error is not None:
            record.delivered = True  # by the error: whoever asked for it is told at once
            self._settle(record, run.refused(record.store_error.failure))
            return
        commands_belong_to(record.id)
        outcome = await run.run()
        await self._end_commands(record)
        if self.journal is not None and self.journal.unsaved is not None:
            # Not before it has ended by itself: one that was stopped is not gone on with.
            self.journal.on_unsaved()
        if record.outcome is None:
            await self._store_end(record, outcome)
        self._settle(record, outcome)

    async def _end_commands(self, record: DelegationRecord) -> None:
        """End what commands of `record` left running, and say so; a stop that comes meanwhile waits."""
        workspace = self.toolbox.workspace
        if workspace is None:
            return

        async def end() -> None:
            told = await workspace.leftovers.end(record.id)
            if told is not None:
                self.log.emit(Notice(record.id, told))

        with suppress(asyncio.CancelledError):
            await to_its_end(end())

    def _overdue(self, record: DelegationRecord) -> None:
        """Settle a delegation whose tool swallowed the end of its time: nobody waits for it any longer."""
        if record.outcome is None and isinstance(record.run, DelegationRun):
            outcome = record.run.overdue()
            self._settle(record, outcome)
            record.end_of_overdue = asyncio.create_task(self._end_late(record, outcome))

    async def _end_late(self, record: DelegationRecord, outcome: Outcome) -> None:
        """Do what a run that did not end by itself has left to do."""
        await self._end_commands(record)
        await self._store_end(record, outcome)

    async def stored(self, record: DelegationRecord) -> None:
        """Wait until `record` is stored: nobody is told an id of which a kill would leave no trace.

        Raises:
            SidequestError: the store failed; the delegation has ended.
        """
        await record.stored.wait()
        if record.store_error is not None:
            raise record.store_error

    def _first_line(self, task: str) -> str:
        # Masked before it is cut: half of a secret would not be found.
        return (self.journal.store.masked(task) if self.journal else task).splitlines()[0][:60]

    async def _store_start(self, record: DelegationRecord, run: DelegationRun) -> None:
        if self.journal is None:
            return
        definition = self.catalog.get(record.agent)
        await self.journal.started(
            NewDelegation(
                record.id,
                record.agent,
                record.task,
                run.plan.brief,
                record.model,
                run.plan.context_mode.value,
                record.started_at_ms,
                record.label,
                definition_as_dict(definition) if definition else {},
                record.resumed_from,
                parent_tool_call_id=record.tool_call_id,
            )
        )

    async def _store_end(self, record: DelegationRecord, outcome: Outcome) -> None:
        """Store how a delegation ended; a stop that comes meanwhile changes nothing of it."""
        if self.journal is None:
            return
        failure: BaseException | None = None
        try:
            await to_its_end(self.journal.settled(outcome))
        except SidequestError as error:
            failure = error
        except asyncio.CancelledError as cancelled:
            failure = cancelled.__cause__
        if isinstance(failure, SidequestError) and failure.code in NEVER_STORED:
            self.unstored_end = failure
        if failure is not None:
            # Shown, not swallowed; the parent's own next step fails on the same store.
            self.log.emit(Notice(record.id, f"The end of this delegation is not stored. {failure}"))

    def restore(self, rows: Sequence[DelegationRow]) -> None:
        """Take over delegations that an earlier process stored; those it left running are interrupted."""
        self.records.restore(rows, self.clock())

    async def sent(self, ids: Collection[str]) -> None:
        """Note that the parent's model has answered a request with the reports of the delegations `ids`.

        Reports that a compaction took out of the history before are handed over again, also by a process
        that comes later.
        """
        await self.take_back(self.records.sent(ids))

    async def take_back(self, records: Collection[DelegationRecord]) -> None:
        """Let reports be handed over again that no model has seen."""
        again = [record for record in records if record.store_error is None]
        for record in again:
            record.delivered = record.seen = record.in_history = False
        if not again or self.journal is None:
            return
        try:
            await self.journal.taken_back([record.id for record in again])
        except SidequestError as error:
            self.log.emit(Notice(None, f"That reports are to be read again is not stored. {error}"))

    def let_go(self) -> None:
        """Forget what ended before the session was stored: no row knows it, so none can go on with it."""
        self.records.clear()

    async def list_past(self, delegation_id: str) -> None:
        """Load the newest messages of a delegation of an earlier process, enough to list what it has read.

        One whose rows are damaged is not listed any more; resuming it is refused with the damage.

        Raises:
            SidequestError: the store failed.
        """
        record = self.records.latest(delegation_id)
        if record is not None and isinstance(record.run, PastRun) and not record.run.loaded:
            await self._load(record.run, record.id, LISTED_TOKENS)

    async def prepare(self, delegation_id: str) -> None:
        """Load what a resume of a delegation of an earlier process may start from.

        That is at least as much as the model has room for, which it is resumed on.

        Raises:
            SidequestError: the store failed.
        """
        await self.list_past(delegation_id)
        record = self.records.latest(delegation_id)
        if record is None or not isinstance(record.run, PastRun) or not record.run.cut:
            return
        room = self._planner.room_of_resume(record)
        if room > LISTED_TOKENS:
            await self._load(record.run, record.id, room)

    async def _load(self, run: PastRun, delegation_id: str, tokens: int) -> None:
        if self.load_history is not None:
            try:
                history = await self.load_history(delegation_id, tokens)
            except SidequestError as error:
                if error.code is not ErrorCode.STORE_DAMAGED:
                    raise
                run.damage = error
            else:
                run.messages, run.given = [*history.given, *history.own], len(history.given)
                run.progress.reads = Reads(files_of(history.own), history.lines_read)
                run.cut = not history.whole
        run.loaded = True

    def _ensure_settled(self, record: DelegationRecord) -> Outcome | None:
        """Settle a delegation whose run could not say how it ended: it can never stay running.

        Returns how it ended then, None for one that has settled by itself.
        """
        if record.outcome is not None:
            return None
        outcome = Outcome(
            record.id,
            record.agent,
            Status.STOPPED,
            StopReason.STOPPED,
            "",
            record.model,
            record.run.plan.context_mode.value,
            self.clock() - record.started,
            failure=Failure(ErrorCode.TURN_ABORTED, "Stopped before the run could say how it ended."),
        )
        self._settle(record, outcome)
        return outcome

    def _settle(self, record: DelegationRecord, outcome: Outcome) -> None:
        if record.outcome is not None:
            return
        record.outcome = outcome
        record.completed_at_ms = self.now_ms()
        record.stored.set()
        record.settled.set()
        self.log.emit(DelegationSettled(record.id, outcome))

    async def wait(
        self,
        records: Collection[DelegationRecord],
        *,
        mode: Literal["all", "any"] = "all",
        min_completed: int = 1,
        timeout_s: float | None = None,
    ) -> bool:
        """Wait until enough of `records` are settled; return False when the time was over first.

        `all` waits for each of them, `any` for `min_completed`, clamped to how many there are. `timeout_s`
        None waits without a deadline. Nothing is stopped by a timeout.
        """
        needed = len(records) if mode == "all" else min(max(1, min_completed), len(records))
        waiting = {asyncio.ensure_future(r.settled.wait()) for r in records if r.outcome is None}
        missing = needed - (len(records) - len(waiting))
        deadline = None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s
        try:
            while missing > 0 and waiting:
                left = None if deadline is None else deadline - asyncio.get_running_loop().time()
                if left is not None and left <= 0:
                    return False
                done, waiting = await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                missing -= len(done)
            return missing <= 0
        finally:
            for future in waiting:
                future.cancel()

    async def stop(
        self, records: Collection[DelegationRecord] | None = None, *, grace_s: float = STOP_GRACE_S
    ) -> list[DelegationRecord]:
        """Stop `records` (None: all that run), wait until each is settled, and return them.

        One that swallows its cancellation is settled as stopped after `grace_s` seconds: nobody waits for it
        without an end.
        """
        chosen = [r for r in (self.records.running() if records is None else records) if r.outcome is None]
        for record in chosen:
            record.run.request_stop()
        await asyncio.sleep(0)  # one that has not begun could not say how it ended
        for record in chosen:
            if record.job is not None:
                record.job.cancel()
        waiting = [asyncio.ensure_future(record.settled.wait()) for record in chosen]
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=grace_s)
            for future in late:
                future.cancel()
        for record in chosen:
            ended = self._ensure_settled(record)
            if ended is not None:
                await self._end_late(record, ended)
        return chosen
