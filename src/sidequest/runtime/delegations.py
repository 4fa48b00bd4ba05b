"""The registry of a session's delegations: start, wait, list, stop, resume, deliver."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.toolsets import AbstractToolset, CombinedToolset

from sidequest.core.context_modes import ContextMode, resolve_context_mode
from sidequest.core.enclosures import Attachment, Snippet, with_enclosures
from sidequest.core.errors import ErrorCode, Failure, SidequestError
from sidequest.core.events import DelegationSettled, DelegationStarted, EventLog, Notice
from sidequest.core.outcome import Outcome, Status, StopReason
from sidequest.core.permissions import Mode, effective_mode
from sidequest.core.provider_errors import Pattern
from sidequest.core.tokens import compact_json, estimate_message, estimate_text
from sidequest.core.transcript import amount_of_work, brief_request, seed, snapshot
from sidequest.runtime.chains import (
    MAX_CHAINS_PER_AGENT,
    MAX_READ_LINES,
    ChainLine,
    Reads,
    chains_block,
    files_of,
)
from sidequest.runtime.confirming import Confirmations
from sidequest.runtime.delegation import DelegationRun, Plan
from sidequest.runtime.journal import NEVER_STORED, Journal, to_its_end
from sidequest.runtime.knowledge import Knowledge
from sidequest.runtime.limits import Account, Limits
from sidequest.runtime.model_choice import Choice, ModelChooser
from sidequest.runtime.past import PastPlan, PastRun, past_outcome, past_run
from sidequest.runtime.permissions import PermissionGate, Rights
from sidequest.runtime.prefix import GrantedOnly, Prefix, PrefixToolset
from sidequest.runtime.prompts import FORK_RULES, FORK_WRAPPER, delegate_instructions
from sidequest.runtime.recall import Recall
from sidequest.runtime.reminders import WindowState
from sidequest.runtime.summariser import Sleep
from sidequest.runtime.toolbox import Toolbox
from sidequest.store.rows import DelegationRow, NewDelegation
from sidequest.subagents.catalog import Catalog
from sidequest.subagents.definition import Permission, SubagentDefinition, definition_as_dict
from sidequest.subagents.tool_names import denies

MAX_RUNNING = 10
"""Most delegations of one session that run at the same time, inclusive (specification 3.7)."""
MAX_TOTAL = 100
"""Most delegations a session starts unless it is told otherwise, resumed ones counted again."""
MAX_RETAINED = 100
"""Settled delegations that are remembered, inclusive; the oldest is forgotten first, a running one never."""
STOP_GRACE_S = 5.0
"""How long a stopped delegation may take to end by itself."""
RESUMABLE = frozenset({Status.COMPLETED, Status.PARTIAL, Status.FAILED, Status.INTERRUPTED})


@dataclass(frozen=True, slots=True)
class ChainHistory:
    """What is stored of a chain."""

    given: Sequence[ModelMessage]
    """The parent's conversation that a fork was given, empty for an independent one."""
    own: Sequence[ModelMessage]
    """The newest messages of its runs."""
    lines_read: int
    """Lines that all of its runs have read."""


LoadHistory = Callable[[str], Awaitable[ChainHistory]]
"""Reads a chain, given the id of one of its delegations, from where it is stored."""


@dataclass(frozen=True, slots=True)
class StartRequest:
    """What a Task call asks for."""

    agent: str
    task: str
    label: str = ""
    model: str | None = None
    context: ContextMode | None = None
    resume: str | None = None
    """Id of an earlier delegation whose work this one goes on with, or None."""
    tool_call_id: str | None = None
    """The parent's call that asks, or None when nobody's call does."""
    attachments: tuple[Attachment, ...] = ()
    """Texts of files that go with the task; of an independent delegation only."""
    snippets: tuple[Snippet, ...] = ()


@dataclass(frozen=True)
class Checked:
    """What a request leads to."""

    definition: SubagentDefinition
    task: str
    brief: str
    """The task and what is put with it."""
    choice: Choice
    names: tuple[str, ...]
    """The tools that are granted."""
    context_mode: ContextMode
    earlier: DelegationRecord | None
    """The delegation whose work is gone on with, or None."""


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
    begun: int = field(default=0, init=False)
    """How many were started, in earlier processes too."""
    unstored_end: SidequestError | None = field(default=None, init=False)
    """Why the end of a delegation cannot be stored, ever; None when all of them are or will be."""
    _records: dict[str, DelegationRecord] = field(default_factory=dict, init=False)

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
        checked = self.check(request)
        plan = self._plan(checked, request, parent)
        if plan.context_mode is ContextMode.FORK and checked.earlier is None and prefix is not None:
            plan = self._under_prefix(plan, checked.definition, checked.task, prefix)
        return self._launch(plan, request, checked)

    def check(self, request: StartRequest) -> Checked:
        """Return what `request` leads to, and start nothing. The order is that of specification 3.3.

        Raises:
            SidequestError: what is wrong and what can be done.
        """
        definition = self.catalog.require(request.agent)
        if request.resume and (request.model or request.context):
            which = "model" if request.model else "context"
            raise _refused(f"{which} cannot be given together with resume.", f"Leave {which} out.")
        enclosed = bool(request.attachments or request.snippets)
        if request.resume and enclosed:
            raise _refused(
                "attachments and snippets cannot be given together with resume.",
                "Leave them out; name in the task what the subagent should read.",
            )
        task = request.task.strip()
        if not task:
            raise _refused("The task is empty.", "Write the task the subagent should do, self-contained.")
        before = self._latest(request.resume) if request.resume else None
        recorded = self.models.recorded(before.model, definition) if before else None
        choice = recorded or self.models.choose(definition, request.model)
        names = definition.granted_tools(self.toolbox.names)
        if not names:
            raise _no_tools(definition, self.toolbox)
        running = len(self.running())
        if running >= self.max_running:
            raise SidequestError(
                ErrorCode.AGENT_BUSY,
                f"{running} delegations are running, which is the limit.",
                "Wait for one with TaskWait or stop one with TaskStop, then try again.",
                retriable=True,
                running=running,
            )
        if self.begun >= self.max_total:
            raise SidequestError(
                ErrorCode.AGENT_BUSY,
                f"This session has started {self.begun} delegations, which is all it may.",
                "Do the rest without delegating, or ask the user to raise max_total.",
                total=self.begun,
            )
        earlier = self._resumable(request.resume, definition) if request.resume else None
        if earlier is not None:
            self._require_nothing_gained(earlier, definition)
        mode = resolve_context_mode(
            spawn=request.context,
            definition=definition.context,
            session=self.default_context,
            allowed=definition.allowed_contexts,
            agent=definition.name,
        )
        if earlier is not None:
            mode = earlier.run.plan.context_mode
        elif enclosed and mode is ContextMode.FORK:
            raise _refused(
                "attachments and snippets cannot be given together with context fork, which sees the whole "
                "conversation.",
                "Leave them out, or give context independent.",
            )
        brief = with_enclosures(task, request.attachments, request.snippets)
        return Checked(definition, task, brief, choice, names, mode, earlier)

    def _plan(self, checked: Checked, request: StartRequest, parent: Sequence[ModelMessage]) -> Plan:
        delegation_id = str(uuid.uuid4())
        definition, names, choice = checked.definition, checked.names, checked.choice
        task, earlier, mode = checked.task, checked.earlier, checked.context_mode
        workspace = self.toolbox.workspace
        scratch = str(workspace.scratch) if workspace and workspace.scratch else None
        instructions = delegate_instructions(
            definition, names, scratch=scratch, project_instructions=self.project_instructions
        )
        brief, history, lost = checked.brief, list[ModelMessage](), False
        if earlier is not None:
            history = self._seed(earlier, task, instructions, choice, definition)
            already_lost = earlier.outcome is not None and earlier.outcome.degraded
            lost = already_lost or amount_of_work(history) < amount_of_work(earlier.run.messages)
        elif mode is ContextMode.FORK:
            brief = FORK_WRAPPER.format(name=definition.name, role=definition.description, task=task)
            history = snapshot(parent, same_model=self.models.is_session_model(choice.model.key))
        return Plan(
            delegation_id=delegation_id,
            agent=definition.name,
            brief=brief,
            instructions=instructions,
            model=choice.model,
            toolset=self._toolset(definition, names, delegation_id, earlier),
            tool_names=names,
            context_mode=mode,
            history=history,
            history_lost=lost,
            alternatives=choice.alternatives,
            cap=definition.max_tokens,
            limits=Limits(definition.max_turns, definition.max_seconds, definition.max_cost_usd),
            gate=self._gate(definition),
            spill=workspace.spill if workspace else None,
            patterns=self.patterns,
        )

    def _under_prefix(self, plan: Plan, definition: SubagentDefinition, task: str, prefix: Prefix) -> Plan:
        """Return the plan of a fork that begins as its parent does; another model has no cache to keep."""
        if not self.models.is_session_model(plan.model.key) or not prefix.covers(plan.tool_names):
            return plan
        extra = {"recall"} if self.journal is not None else set[str]()
        granted = frozenset(plan.tool_names) | (extra & {tool.name for tool in prefix.tools})
        role = FORK_RULES.format(
            instructions=delegate_instructions(definition, plan.tool_names), tools=", ".join(plan.tool_names)
        )
        return replace(
            plan,
            brief=FORK_WRAPPER.format(name=definition.name, role=role, task=task),
            instructions=prefix.instructions,
            toolset=PrefixToolset(plan.toolset, prefix),
            granted_only=GrantedOnly(granted),
        )

    def _gate(self, definition: SubagentDefinition) -> PermissionGate | None:
        if self.rights is None:
            return None
        return PermissionGate(self.rights, ("parent", definition.name), _mode_of(definition))

    def _toolset(
        self,
        definition: SubagentDefinition,
        names: tuple[str, ...],
        delegation_id: str,
        earlier: DelegationRecord | None,
    ) -> AbstractToolset[Any]:
        """Return the granted tools, and recall over the chain's own rows where those are stored."""
        granted = self.toolbox.toolset(names)
        if self.journal is None or any(denies(denial, "recall") for denial in definition.disallowed_tools):
            return granted
        chain = [r.id for r in self.all() if r.chain == earlier.chain] if earlier else []
        recall = Recall(self.journal.store, self.journal.session_id, [*chain, delegation_id])
        return CombinedToolset([granted, recall.toolset()])

    def _seed(
        self,
        earlier: DelegationRecord,
        task: str,
        instructions: str,
        choice: Choice,
        definition: SubagentDefinition,
    ) -> list[ModelMessage]:
        """Seed a resumed run so that it starts below the limit, the new instruction included (8.8)."""
        budget = choice.model.budget(definition.max_tokens)
        names = definition.granted_tools(self.toolbox.names)
        overhead = max(earlier.run.overhead, estimate_text(instructions) + self._tool_tokens(names))
        limit = budget.hard_limit - overhead - estimate_message(brief_request(task))
        return seed(earlier.original_task, earlier.run.messages, limit=max(1, limit))

    def _tool_tokens(self, names: Sequence[str]) -> int:
        """Return the tokens of the schemas a delegate with these tools is sent: a past run did not say."""
        tools = dict(self.toolbox.extra.tools) if self.toolbox.extra is not None else {}
        if self.toolbox.workspace is not None:
            tools |= self.toolbox.workspace.toolset(names).tools
        offered = [tool for name, tool in tools.items() if name in names]
        if self.journal is not None:
            offered += Recall(self.journal.store, self.journal.session_id).toolset().tools.values()
        return sum(
            estimate_text(f"{t.name}{t.description or ''}{compact_json(t.function_schema.json_schema)}")
            for t in offered
        )

    def _resumable(self, delegation_id: str, definition: SubagentDefinition) -> DelegationRecord:
        record = self._latest(delegation_id)
        kept = self.resumable()
        known = [r.id for r in kept]
        usable = f"Use one of: {', '.join(known)}, or leave resume out." if known else "Leave resume out."
        if record is None:
            raise _refused(f"There is no delegation {delegation_id} to resume.", usable)
        if record.agent != definition.name:
            raise _refused(
                f"Delegation {delegation_id} belongs to {record.agent}.",
                f"Resume it with agent {record.agent}, or leave resume out.",
            )
        if record.status is Status.RUNNING:
            raise _refused(
                f"Delegation {delegation_id} is still running.", "Call TaskWait for it first, then resume it."
            )
        if record.status not in RESUMABLE:
            raise _refused(f"Delegation {delegation_id} was {record.status} and cannot be resumed.", usable)
        if isinstance(record.run, PastRun) and record.run.damage is not None:
            damage = record.run.damage
            raise SidequestError(
                ErrorCode.STORE_DAMAGED,
                f"Delegation {delegation_id} cannot be gone on with: {damage.cause}",
                "Delegate the work anew, with resume left out.",
            )
        if not self._has_work(record):
            raise _refused(f"Delegation {delegation_id} did nothing that could be gone on with.", usable)
        if record.reads.lines > MAX_READ_LINES:
            raise _refused(
                f"Delegation {delegation_id} has read {record.reads.lines} lines, too many to go on with.",
                usable,
            )
        if record not in kept:
            raise _refused(f"Delegation {delegation_id} is no longer kept for resuming.", usable)
        return record

    def require_nothing_gained(self, delegation_id: str) -> None:
        """Refuse a chain whose definition allows more than when it ran last: a resume grants nothing new.

        Raises:
            SidequestError: `SUBAGENT_INVALID` with what was gained; `SUBAGENT_UNKNOWN` when the definition
                is gone.
        """
        record = self._latest(delegation_id)
        if record is not None:
            self._require_nothing_gained(record, self.catalog.require(record.agent))

    def _require_nothing_gained(self, earlier: DelegationRecord, definition: SubagentDefinition) -> None:
        then = earlier.run.plan
        offered = self.toolbox.names
        before = then.granted(offered) if isinstance(then, PastPlan) else then.tool_names
        gained = [name for name in definition.granted_tools(offered) if name not in before]
        if gained:
            raise _refused(
                f"{definition.name} was given more tools since that delegation ran: {', '.join(gained)}.",
                "Take them away again, or delegate the work anew, with resume left out.",
            )
        if self.rights is None:
            return
        if isinstance(then, PastPlan):
            mode_then = then.mode
        else:
            mode_then = then.gate.definition_mode if then.gate is not None else None
        was = effective_mode(self.rights.mode, mode_then)
        now = effective_mode(self.rights.mode, _mode_of(definition))
        if effective_mode(was, now) is not now:
            raise _refused(
                f"{definition.name} may do more without asking since that delegation ran: permission was "
                f"{was}, and is {now}.",
                "Set it back, or delegate the work anew, with resume left out.",
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
            label=request.label.strip() or task.splitlines()[0][:60],
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
        self._records[record.id] = record
        self.begun += 1
        self._forget_oldest()
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
        record.job = asyncio.create_task(self._supervise(record), name=f"delegation-{record.id}")
        record.job.add_done_callback(lambda job: self._ensure_settled(record))
        if plan.limits.seconds is not None:
            patience = plan.limits.seconds + self.grace_s
            timer = asyncio.get_running_loop().call_later(patience, self._overdue, record)
            record.job.add_done_callback(lambda job: timer.cancel())
        return record

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
        outcome = await run.run()
        if record.outcome is None:
            await self._store_end(record, outcome)
        self._settle(record, outcome)

    def _overdue(self, record: DelegationRecord) -> None:
        """Settle a delegation whose tool swallowed the end of its time: nobody waits for it any longer."""
        if record.outcome is None and isinstance(record.run, DelegationRun):
            outcome = record.run.overdue()
            self._settle(record, outcome)
            record.end_of_overdue = asyncio.create_task(self._store_end(record, outcome))

    async def stored(self, record: DelegationRecord) -> None:
        """Wait until `record` is stored: nobody is told an id of which a kill would leave no trace.

        Raises:
            SidequestError: the store failed; the delegation has ended.
        """
        await record.stored.wait()
        if record.store_error is not None:
            raise record.store_error

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
                self.clock(),
                row.resumed_from,
                row.chain_id,
                outcome=past_outcome(row),
                completed_at_ms=row.completed_at_ms,
                delivered=row.delivered,
            )
            record.settled.set()
            self._records[record.id] = record

    def let_go(self) -> None:
        """Forget what ended before the session was stored: no row knows it, so none can go on with it."""
        self._records.clear()

    async def prepare(self, delegation_id: str) -> None:
        """Load the messages of a delegation of an earlier process, before it is resumed.

        One whose rows are damaged is not listed any more; resuming it is refused with the damage.

        Raises:
            SidequestError: the store failed.
        """
        record = self._latest(delegation_id)
        if record is None or not isinstance(record.run, PastRun) or record.run.loaded:
            return
        if self.load_history is not None:
            try:
                history = await self.load_history(record.id)
            except SidequestError as error:
                if error.code is not ErrorCode.STORE_DAMAGED:
                    raise
                record.run.damage = error
            else:
                record.run.messages, record.run.given = [*history.given, *history.own], len(history.given)
                record.run.progress.reads = Reads(files_of(history.own), history.lines_read)
        record.run.loaded = True

    def _latest(self, delegation_id: str) -> DelegationRecord | None:
        """Return the newest delegation of the chain that `delegation_id` belongs to."""
        record = self._records.get(delegation_id)
        if record is None:
            return None
        return [other for other in self.all() if other.chain == record.chain][-1]

    def resumable(self) -> list[DelegationRecord]:
        """Return the newest delegation of each chain that can be gone on with, newest use first.

        Two chains for each subagent, and none that has read more than 50,000 lines (specification 3.11).
        """
        newest = {record.chain: record for record in self.all()}
        usable = [
            record
            for record in newest.values()
            if record.status in RESUMABLE and self._has_work(record) and record.reads.lines <= MAX_READ_LINES
        ]
        usable.sort(key=lambda record: record.completed_at_ms or 0, reverse=True)
        kept: list[DelegationRecord] = []
        for record in usable:
            if sum(other.agent == record.agent for other in kept) < MAX_CHAINS_PER_AGENT:
                kept.append(record)
        return kept

    def _has_work(self, record: DelegationRecord) -> bool:
        """Say whether anything was done in the chain that `record` is the newest of."""
        if isinstance(record.run, PastRun) and not record.run.loaded:
            return any(r.run.progress.turns > 0 for r in self._records.values() if r.chain == record.chain)
        given = record.run.given if isinstance(record.run, PastRun) else 0
        return any(isinstance(message, ModelResponse) for message in record.run.messages[given:])

    def chains_block(self) -> str:
        """Return what the parent's prompt says about delegations that can be resumed."""
        return chains_block([ChainLine(r.agent, r.id, r.task, r.reads.files) for r in self.resumable()])

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

    def _forget_oldest(self) -> None:
        unread = {record.id for record in self.undelivered()}
        settled = [r for r in self._records.values() if r.outcome is not None and r.id not in unread]
        for record in settled[: max(0, len(settled) - MAX_RETAINED)]:
            del self._records[record.id]

    def get(self, delegation_id: str) -> DelegationRecord | None:
        """Return the delegation with that id, or None."""
        return self._records.get(delegation_id)

    def all(self) -> list[DelegationRecord]:
        """Return every delegation that is remembered, oldest first."""
        return sorted(self._records.values(), key=lambda record: record.started_at_ms)

    def running(self) -> list[DelegationRecord]:
        """Return those that run now, oldest first."""
        return [record for record in self.all() if record.outcome is None]

    def undelivered(self) -> list[DelegationRecord]:
        """Return those whose report the parent has not seen and should: settled by themselves.

        One that was interrupted and then resumed has nothing more to say.
        """
        unread = [r for r in self.all() if r.outcome and not r.delivered and r.status is not Status.STOPPED]
        return [r for r in unread if r.status is not Status.INTERRUPTED or self._latest(r.id) is r]

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
        chosen = [r for r in (self.running() if records is None else records) if r.outcome is None]
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
                await self._store_end(record, ended)
        return chosen


def _mode_of(definition: SubagentDefinition) -> Mode | None:
    """Return how the definition has actions approved, None as the session does it."""
    own = definition.permission
    return None if own is Permission.INHERIT else Mode(own.value)


def _refused(cause: str, remedy: str) -> SidequestError:
    return SidequestError(ErrorCode.SUBAGENT_INVALID, cause, remedy)


def _no_tools(definition: SubagentDefinition, toolbox: Toolbox) -> SidequestError:
    offered = ", ".join(toolbox.names) or "none"
    return SidequestError(
        ErrorCode.SUBAGENT_INVALID,
        f"{definition.name} has no usable tool here: it names {definition.tools_label}, "
        f"the session offers {offered}.",
        "Delegate to another subagent, or change the tools of the definition."
        if toolbox.names
        else "Give the session a workspace: pip install 'sidequest[app]' brings the file and shell tools.",
    )
