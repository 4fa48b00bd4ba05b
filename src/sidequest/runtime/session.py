"""A session: one conversation with the parent agent, its delegations and its events; in memory."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterable, Callable, Collection, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    UserPromptPart,
)
from pydantic_ai.tools import Tool
from pydantic_ai.toolsets import AbstractToolset, CombinedToolset, FunctionToolset

from sidequest.core.compaction import NOT_SMALLER, Compacted, CompactionOutcome, Overflow, compact
from sidequest.core.context_modes import ContextMode
from sidequest.core.enclosures import Snippet
from sidequest.core.errors import ErrorCode, Failure, SidequestError
from sidequest.core.events import (
    ContextCompacted,
    DelegationSettled,
    EventLog,
    Notice,
    PromptReceived,
    RunEnded,
    TextProduced,
)
from sidequest.core.outcome import LIMITS, Outcome, StopReason, Usage
from sidequest.core.permissions import DenyRules, Mode
from sidequest.core.provider_errors import Pattern
from sidequest.core.tokens import TokenMeter
from sidequest.core.transcript import reports_in, snapshot
from sidequest.models.registry import ModelRegistry
from sidequest.runtime.attempts import Attempts, ResolvedModel, RunFailed
from sidequest.runtime.costs import telling
from sidequest.runtime.delegation import OUTPUT_RETRIES, TOOL_RETRIES, is_cancelled
from sidequest.runtime.delegations import MAX_RUNNING, MAX_TOTAL, Delegations
from sidequest.runtime.guard import GuardTotals
from sidequest.runtime.hold import Hold
from sidequest.runtime.journal import Journal, LaneJournal, new_id
from sidequest.runtime.limits import Account, Limits, LimitWatch
from sidequest.runtime.model_choice import RegistryModels
from sidequest.runtime.past import past_outcome
from sidequest.runtime.permissions import PermissionGate, Rights
from sidequest.runtime.planning import StartRequest
from sidequest.runtime.prompts import load_project_instructions, parent_instructions
from sidequest.runtime.recall import Recall
from sidequest.runtime.recorder import RunRecorder
from sidequest.runtime.records import DelegationRecord
from sidequest.runtime.reminders import NEW_CONTEXT_DESCRIPTION, NEW_CONTEXT_REPLY, WindowState
from sidequest.runtime.sandbox import Sandbox
from sidequest.runtime.scratch import make_scratch, remove_scratch
from sidequest.runtime.spawning import spawn
from sidequest.runtime.stored import Origin, begin, branch, chain_history, first_words, load, title_of
from sidequest.runtime.summariser import Sleep, model_summariser
from sidequest.runtime.toolbox import Toolbox
from sidequest.runtime.tools import Delegation
from sidequest.runtime.waiting import RunTime
from sidequest.runtime.workspace import Workspace
from sidequest.store.rows import DelegationRow, NewSession
from sidequest.subagents.catalog import Catalog

if TYPE_CHECKING:
    from types import TracebackType

    from pydantic_ai import RunContext
    from pydantic_ai.messages import AgentStreamEvent

    from sidequest.store.store import Store


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class TurnResult:
    """How one prompt of a session ended."""

    ok: bool
    text: str
    """The answer, or the last text before it failed or was stopped."""
    stop_reason: StopReason
    model: str
    usage: Usage
    """The parent's own, its summaries included; delegations carry their own."""
    turns: int
    elapsed_s: float
    failure: Failure | None = None
    compactions: int = 0
    degradations: int = 0
    delegations: tuple[Outcome, ...] = ()
    """Delegations that were started in this turn, in order."""

    @property
    def total_usage(self) -> Usage:
        """The parent and all delegations of this turn together."""
        total = self.usage
        for outcome in self.delegations:
            total = total.plus(outcome.usage)
        return total


@dataclass(frozen=True)
class SessionOptions:
    """What a session is opened with."""

    root: Path = Path()
    """Folder to work in."""
    model: str | None = None
    """Key of the parent's model; None takes the registry's default."""
    project_instructions: bool | str = True
    """Whether AGENTS.md (else CLAUDE.md) of `root` is loaded; a text is taken instead of the file."""
    default_context: ContextMode | None = None
    max_running: int = MAX_RUNNING
    max_total: int = MAX_TOTAL
    """Most delegations over the life of the session, inclusive."""
    patterns: tuple[Pattern, ...] = ()
    permission_mode: Mode = Mode.ASK
    """How edits, commands and folders outside are approved."""
    deny: DenyRules = field(default_factory=DenyRules)
    """What is refused in every mode."""
    sandbox: Sandbox = Sandbox.OFF
    """Whether commands run in a sandbox: off, where it works, or always."""
    limits: Limits = field(default_factory=Limits)
    """Limits of each turn of the parent agent."""
    max_cost_usd: float | None = None
    """Most US dollars that the session and all of its delegations may spend, in all processes that go on with
    it, summaries included; None means no limit. A fork has an account of its own."""
    stream: bool = False
    """Whether answers of the parent are emitted as they come instead of per turn."""


class Session:
    """One conversation. Open it with `Session.open`, use it as an async context manager.

    ```python
    async with Session.open(root=".") as session:
        result = await session.prompt("Where is the budget computed?")
    ```
    """

    def __init__(
        self,
        options: SessionOptions,
        catalog: Catalog,
        models: RegistryModels,
        *,
        sleep: Sleep = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.options = options
        self.catalog = catalog
        self.models = models
        self.id = new_id()
        self.log = EventLog(_now_ms)
        self._journal: Journal | None = None
        self._lane: LaneJournal | None = None
        self._hold: Hold | None = None
        self._origin: Origin | None = None
        """The stored conversation that this one was forked from; None when there is none."""
        self._through: str | None = None
        """Id of the newest stored row that `messages` reach to; None when they hold what is not stored."""
        self._untitled = True
        self.messages: list[ModelMessage] = []
        self._sleep = sleep
        self._jitter = jitter
        self._scratch = make_scratch()
        try:
            self.workspace = Workspace(
                options.root, self._scratch, denied=options.deny.paths, sandbox=options.sandbox
            )
            self._project = self._instructions_of(options)
        except BaseException:
            remove_scratch(self._scratch)
            raise
        self.rights = Rights(
            options.permission_mode,
            options.deny,
            roots=(self.workspace.root, Path(os.path.realpath(self._scratch))),
            here=self.workspace.spilled.here,
        )
        self.delegations = Delegations(
            catalog,
            models,
            Toolbox(self.workspace),
            self.log,
            project_instructions=self._project,
            default_context=options.default_context,
            max_running=options.max_running,
            max_total=options.max_total,
            patterns=options.patterns,
            account=Account(options.max_cost_usd),
            rights=self.rights,
            sleep=sleep,
            jitter=jitter,
        )
        self._job: asyncio.Task[Any] | None = None
        self._in_turn = False
        """Whether what runs is a turn."""
        self._ending = False
        """Whether the turn is over but for its end being stored, which no stop interrupts."""
        self._window = WindowState(remind=True)
        self._overhead: int | None = None
        """Tokens of instructions and tools in the newest request; None before the first one."""
        self._closed = False

    @classmethod
    def open(
        cls,
        root: str | Path = ".",
        *,
        model: str | None = None,
        registry: ModelRegistry | None = None,
        catalog: Catalog | None = None,
        options: SessionOptions | None = None,
    ) -> Session:
        """Open a session in the folder `root`.

        `registry` None knows the environment's keys and the embedded engine; `catalog` None holds the
        builtins and the user's own definitions that are not switched off.

        Raises:
            SidequestError: the folder is not there, the model is not configured, a package is missing.
        """
        from sidequest.subagents.sources import standard_sources
        from sidequest.subagents.switches import SwitchFile

        chosen = options or SessionOptions()
        chosen = replace(chosen, root=Path(root), model=model or chosen.model)
        registry = registry if registry is not None else ModelRegistry(env=os.environ)
        binding = registry.resolve(chosen.model) if chosen.model else registry.default()
        binding.require_ready()
        if catalog is None:
            disabled = SwitchFile.of(os.environ).disabled()
            catalog = Catalog.load(standard_sources(Path.home(), chosen.root), disabled=disabled)
        return cls(chosen, catalog, RegistryModels(registry, binding))

    def _instructions_of(self, options: SessionOptions) -> str:
        given = options.project_instructions
        return given or "" if given is not True else load_project_instructions(self.workspace.root)

    def renew(self, options: SessionOptions, catalog: Catalog, registry: ModelRegistry | None = None) -> None:
        """Go on, from the next turn on, with what a session that is opened now would get.

        That is the subagents of `catalog`, the models of `registry` (None: those that are known), and all of
        `options` but `root`, `model` and `stream`. The session keeps these three, what was said, what was
        allowed for the session, and what it has spent.

        Raises:
            SidequestError: `AGENT_BUSY` while something runs; `SETTINGS_INVALID` when a sandbox is required
                and does not work here; `USAGE` when the folder is gone; the session's model cannot be used
                any more. Nothing is changed then.
        """
        if self._job is not None or self.delegations.records.running():
            raise SidequestError(ErrorCode.AGENT_BUSY, "This session is working.", "Wait for it or stop it.")
        kept = self.options
        options = replace(options, root=kept.root, model=kept.model, stream=kept.stream)
        workspace = self.workspace
        if (workspace.denied, workspace.sandbox) != (options.deny.paths, options.sandbox):
            workspace = replace(workspace, denied=options.deny.paths, sandbox=options.sandbox)
            workspace.spilled = self.workspace.spilled
        project = self._instructions_of(options)
        if registry is not None:
            self.models.renew(registry)
        # From here on nothing can fail: half of a change would be neither the old settings nor the new ones.
        self.options, self.catalog, self.workspace, self._project = options, catalog, workspace, project
        # In place: gates hold the rights, and with them the queue and what was allowed for the session.
        self.rights.mode, self.rights.rules = options.permission_mode, options.deny
        known = self.delegations
        known.catalog, known.toolbox, known.project_instructions = catalog, Toolbox(workspace), project
        known.default_context, known.patterns = options.default_context, options.patterns
        known.max_running, known.max_total = options.max_running, options.max_total
        known.account.limit_usd = options.max_cost_usd

    async def attach(self, store: Store, session_id: str | None = None) -> None:
        """Write this session to `store` from now on; `session_id` continues a stored one, None begins one.

        A stored session is loaded as it was after the newest thing that was stored: calls that were running
        are closed as interrupted, delegations that were running can be resumed. One that worked in another
        folder belongs to that of this session from then on, and a notice says so.

        A new session is stored with
        what it holds. If it is a fork of a session of this store, all that was said there comes along, also
        what was summarised away. Delegations that ended before are not stored and cannot be resumed.

        Raises:
            SidequestError: `SESSION_UNKNOWN`; `AGENT_BUSY` when another process works on it, with its name,
                or when a turn runs; what the store raises.
        """
        if self._job is not None or self.delegations.records.running():
            raise SidequestError(ErrorCode.AGENT_BUSY, "This session is working.", "Attach it between turns.")
        store.mask(self.models.registry.secrets())
        key, held, stored = self.id, self.messages, True
        if session_id is not None:
            key, held = (await store.sessions.get(session_id)).id, []
        elif self._origin is not None and self._origin.begins(held):
            stored = await branch(store, self._origin, self.id, self.models.session.key, _now_ms())
            held = held[len(self._origin.messages) :] if stored else held
        else:
            stored = False
        if not stored:
            root, model, title = (
                str(self.workspace.root),
                self.models.session.key,
                first_words(held, store.masked),
            )
            await store.sessions.create(NewSession(self.id, _now_ms(), title, root, model))
        self._hold = await Hold.take(store, key, _now_ms)
        self.id = key
        self._journal = Journal(store, self.id, _now_ms)
        self._journal.on_unsaved = self._end_turn
        self._lane = self._journal.lane()
        self.delegations.let_go()
        unsettled = await self._load(store, self._lane) if stored else []
        await self._keep_account(store, self._journal)
        await self._keep_grants(store, self._journal)
        await self._keep_whole(store, self._journal, stored)
        if session_id is None:
            await self._store_held(store, self._lane, held)
        self.log.subscribe(self._journal.event)
        for row in unsettled:
            self.log.emit(DelegationSettled(row.id, past_outcome(row)))
        await self._note_place(store)
        await self._journal.flush()
        self._window.recall = True
        self.delegations.journal = self._journal
        self.delegations.load_history = partial(chain_history, store, self.id)
        for record in self.delegations.records.resumable():
            await self.delegations.list_past(record.id)

    async def _load(self, store: Store, lane: LaneJournal) -> list[DelegationRow]:
        """Take over what is stored; return the delegations of which no event says that they ended."""
        loaded = await load(store, self.id, _now_ms())
        lane.know(loaded.known, loaded.newest_id)
        self.messages, self._through = loaded.messages, loaded.newest_id
        self.log.start = loaded.newest_event
        self.delegations.restore(loaded.delegations)
        return loaded.unsettled

    async def _keep_account(self, store: Store, journal: Journal) -> None:
        """Go on with the account of earlier processes, and have what is spent stored."""
        account = self.delegations.account
        if account.spent_usd:
            journal.spent(account.spent_usd)
        account.spent_usd += (await store.sessions.get(self.id)).spent_usd
        account.told = journal.spent

    async def _keep_grants(self, store: Store, journal: Journal) -> None:
        """Go on with what a person allowed for this session; of another folder nothing was allowed."""
        row, questions = await store.sessions.get(self.id), self.rights.questions
        journal.granted(questions.granted)
        questions.on_granted = journal.granted
        for grant in await store.grants.list(self.id):
            if row.root is None or not _same_folder(row.root, str(self.workspace.root)):
                await store.grants.remove(self.id, grant.rule)
            elif grant.allowed:
                questions.grant([grant.rule])

    async def _keep_whole(self, store: Store, journal: Journal, stored: bool) -> None:
        """Have tool results that were cut stored whole, and let those be read that are stored already."""
        spilled = self.workspace.spilled
        for path, text in await spilled.whole() if not stored or spilled.own else ():
            journal.whole(path, text)
        await journal.flush()
        if stored:
            paths = await store.whole_results.list(self.id)
            spilled.expect(paths, partial(store.whole_results.get, self.id))
        spilled.keep = journal.whole

    async def _note_place(self, store: Store) -> None:
        """Store where the session works from now on, and say so when it worked elsewhere before."""
        row, here = await store.sessions.get(self.id), str(self.workspace.root)
        self._untitled = not row.title
        if row.root is not None and _same_folder(row.root, here):
            return
        await store.sessions.touch(self.id, row.updated_at_ms, root=here)
        if row.root is not None:
            moved = f"This session worked in {row.root} and goes on in {here}."
            self.log.emit(Notice(None, f"{moved} What was said before is about files of the other folder."))

    async def _store_held(self, store: Store, lane: LaneJournal, held: list[ModelMessage]) -> None:
        """Store what a new session holds already: messages behind the branch it came from, and events."""
        lane.know(held, await begin(store, self.id, held, _now_ms()))
        self.messages = [*self.messages, *held] if held is not self.messages else held
        self._through = lane.newest_id
        for numbered in self.log.after():
            lane.journal.event(numbered)
        await lane.journal.flush()

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop what runs, store the last events, close the models' clients and remove the scratch folder.

        Raises:
            SidequestError: the store failed; everything is closed all the same.
        """
        self._closed = True
        async with AsyncExitStack() as closing:
            closing.callback(remove_scratch, self._scratch)
            closing.callback(self.workspace.leftovers.kill_all)  # in case that the stop is interrupted
            closing.push_async_callback(self.models.close)
            if self._hold is not None:
                closing.push_async_callback(self._hold.release)
            if self._journal is not None:
                closing.callback(self._tell_unstored)
                closing.push_async_callback(self._journal.flush)
            await self.stop()

    def _tell_unstored(self) -> None:
        if self.delegations.unstored_end is not None:
            raise self.delegations.unstored_end

    async def prompt(self, text: str) -> TurnResult:
        """Give the parent agent a message and return how its turn ended; failures are in the result.

        Raises:
            SidequestError: `USAGE` for an empty text, `AGENT_BUSY` while another turn runs,
                `SUBAGENT_COST_LIMIT` when the session has spent all it may; nothing was asked then.
        """
        text = _sendable(text)
        if not text.strip():
            raise SidequestError(ErrorCode.USAGE, "The prompt is empty.", "Write what you want to be done.")
        self._require_open()
        if self._job is not None:
            raise SidequestError(
                ErrorCode.AGENT_BUSY, "This session is working already.", "Wait for it or stop it."
            )
        self.delegations.account.require()
        job: asyncio.Task[TurnResult] = asyncio.create_task(self._turn(text))
        self._job, self._ending, self._in_turn = job, False, True
        try:
            # Not awaited itself: the turn answers its own cancellation, and the caller's must go on.
            await asyncio.wait([job])
        except asyncio.CancelledError:
            if not self._ending:
                job.cancel()
            await _ended(job)
            raise
        finally:
            self._job, self._ending, self._in_turn = None, False, False
        return job.result()

    def _end_turn(self) -> None:
        """End the turn that runs: a delegation of this session cannot be stored any more."""
        job = self._job
        if job is not None and self._in_turn and not (self._ending or job.done() or job.cancelling()):
            job.cancel()

    def _require_open(self) -> None:
        if self._closed:
            raise SidequestError(ErrorCode.USAGE, "This session is closed.", "Open another one.")

    async def _turn(self, text: str) -> TurnResult:
        started = time.monotonic()
        before = {record.id for record in self.delegations.records.all()}
        delivered = {record.id for record in self.delegations.records.all() if record.delivered}
        attempts = self._attempts()
        run_time = RunTime()
        run_time.measured_by(attempts.recorder.watch)
        if self._journal is not None:
            self._journal.unsaved = None
        failure: Failure | None = None
        reason, answer = StopReason.STOP, ""
        attempts.messages = [*self.messages, ModelRequest(parts=[UserPromptPart(text)])]
        self.log.emit(PromptReceived(None, text))
        try:
            await self.delegations.stop(self.delegations.records.of_parent())
            await self._entitle(text)
            with run_time.of_this_agent():
                answer = await attempts.run(attempts.messages)
            self.messages = attempts.messages
            reason = attempts.recorder.progress.limit or StopReason.STOP
        except SidequestError as error:
            failure, reason = error.failure, StopReason.ERROR
        except RunFailed as failed:
            struck = attempts.recorder.progress.limit
            if struck is not None and failed.failure.code is LIMITS[struck][0] and _said(attempts):
                # Its last words are there; what came behind them, a late report, is read in the next turn.
                answer, reason = _said(attempts), struck
                self.messages = _closed(attempts.messages, failed.failure)
            else:
                failure, reason = _told_to_user(failed.failure), StopReason.ERROR
        except asyncio.CancelledError:
            unsaved = self._journal.unsaved if self._journal is not None else None
            if unsaved is not None:
                failure, reason = unsaved.failure, StopReason.ERROR
            elif is_cancelled():
                failure, reason = Failure(ErrorCode.TURN_ABORTED, "The turn was stopped."), StopReason.STOPPED
            else:
                message = "A model or a tool cancelled itself; nobody stopped the turn."
                failure, reason = Failure(ErrorCode.INTERNAL, message), StopReason.ERROR
        self._ending = True
        if failure is None and attempts.recorder.progress.broken_off:
            word = attempts.recorder.progress.broken_off
            failure = Failure(ErrorCode.PROVIDER_ERROR, f"The provider ended the answer early ({word}).")
            reason = StopReason.ERROR
        elif failure is None and attempts.recorder.progress.filtered:
            reason = StopReason.CONTENT_FILTER
        elif failure is None and reason is StopReason.STOP and attempts.recorder.progress.output_cut:
            reason = StopReason.LENGTH
        if failure is not None:
            await self.delegations.stop(self.delegations.records.of_parent())
            answer = attempts.recorder.progress.report
            self.messages = _closed(attempts.messages, failure)
            await self._take_back_lost(delivered, attempts.guard.totals)
            await self._store_end(failure)
        progress, totals = attempts.recorder.progress, attempts.guard.totals
        self._overhead = attempts.overhead or self._overhead
        self.log.emit(RunEnded(None, failure is None, answer, failure.code.value if failure else None))
        unstored = await self._flushed()
        failure = failure or unstored
        if self._lane is not None:
            self._through = None if self._lane.lacks(self.messages) else self._lane.newest_id
        return TurnResult(
            ok=failure is None,
            text=answer,
            stop_reason=reason,
            model=attempts.model.key,
            usage=progress.usage.plus(totals.summary_usage),
            turns=progress.turns,
            elapsed_s=time.monotonic() - started,
            failure=failure,
            compactions=totals.compactions,
            degradations=totals.degradations,
            delegations=tuple(
                r.outcome
                for r in self.delegations.records.all()
                if r.outcome is not None and r.id not in before
            ),
        )

    async def _take_back_lost(self, delivered: Collection[str], totals: GuardTotals) -> None:
        """Let reports be delivered again that went down with the round in which the parent was given them.

        Of those that are not in the history any more, a compaction has summarised what the model had seen.
        """
        kept = reports_in(self.messages)
        compacted = bool(totals.compactions + totals.degradations)
        lost = [
            record
            for record in self.delegations.records.all()
            if record.delivered and record.id not in delivered and record.id not in kept
            if not record.for_caller and not (compacted and record.seen)
        ]
        await self.delegations.take_back(lost)

    async def _entitle(self, text: str) -> None:
        """Name a session after its first prompt, unless somebody has named it meanwhile."""
        if self._journal is None or not self._untitled:
            return
        store = self._journal.store
        if not (await store.sessions.get(self.id)).title:
            await store.sessions.rename(self.id, title_of(text, store.masked))
        self._untitled = False

    async def _store_end(self, failure: Failure) -> None:
        """Store the line that says how a failed turn ended, behind what else is not stored yet."""
        newest = self.messages[-1] if self.messages else None
        if self._lane is None or not isinstance(newest, ModelResponse) or newest.finish_reason != "error":
            return
        try:
            await self._lane.sent(self.messages)
        except SidequestError as error:
            self.log.emit(Notice(None, f"The end of this turn ({failure.code}) is not stored. {error}"))

    async def _flushed(self) -> Failure | None:
        """Store the last events of a turn; what fails to be stored is how the turn ended."""
        if self._journal is None:
            return None
        try:
            await self._journal.flush()
        except SidequestError as error:
            return error.failure
        return None

    def _attempts(self) -> Attempts:
        watch = LimitWatch(self.options.limits, self.delegations.account)
        watch.start()
        recorder = RunRecorder(
            None, self.log.emit, watch=watch, lane=self._lane, emit_text=not self.options.stream
        )
        return Attempts(
            self._make_agent,
            recorder,
            self.models.session_model(),
            spill=self.workspace.spill,
            patterns=self.options.patterns,
            sequential_tools=False,
            stream=self._stream if self.options.stream else None,
            sleep=self._sleep,
            jitter=self._jitter,
            knowledge=self.delegations.knowledge,
            window_state=self._window,
        )

    def _make_agent(self, model: ResolvedModel, capabilities: Sequence[Any]) -> Agent[Any, str]:
        delegation: Delegation[Any] = Delegation(self.catalog, delegations=self.delegations)
        recorder = next((one for one in capabilities if isinstance(one, RunRecorder)), None)
        gate = PermissionGate(self.rights, ("parent",), denied=recorder.denied if recorder else None)
        return Agent(
            model.model,
            name="sidequest",
            instructions=parent_instructions(str(self.workspace.root), self._project),
            toolsets=[self.workspace.toolset(), self._own_tools()],
            capabilities=[gate, delegation, *capabilities],
            retries={"tools": TOOL_RETRIES, "output": OUTPUT_RETRIES},
        )

    def _own_tools(self) -> AbstractToolset[Any]:
        """Tools about the conversation itself; a delegate has neither `new_context` nor the parent's rows."""
        own: FunctionToolset[Any] = FunctionToolset(
            [Tool(self.new_context, name="new_context", description=NEW_CONTEXT_DESCRIPTION)]
        )
        if self._journal is None:
            return own
        return CombinedToolset([own, Recall(self._journal.store, self.id).toolset()])

    async def new_context(self) -> str:
        """Summarise the conversation before the next request, if a summary can be made."""
        self._window.compact_requested = True
        return NEW_CONTEXT_REPLY

    async def _stream(self, ctx: RunContext[Any], events: AsyncIterable[AgentStreamEvent]) -> None:
        """Tell the text as it comes; what may be the beginning of a secret waits for the rest of it."""
        held = ""
        try:
            async for event in events:
                if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                    self._tell(held)
                    held = event.part.content
                elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                    held += event.delta.content_delta
                else:
                    continue
                # Each piece is stored by itself: a secret in two of them would not be found.
                ready = len(held) if self._journal is None else self._journal.store.safe_length(held)
                self._tell(held[:ready])
                held = held[ready:]
        finally:
            self._tell(held)

    def _tell(self, text: str) -> None:
        if text:
            self.log.emit(TextProduced(None, text))

    async def delegate(
        self,
        agent: str,
        task: str,
        *,
        model: str | None = None,
        context: ContextMode | None = None,
        resume: str | None = None,
        attachments: Sequence[str | Path] = (),
        snippets: Sequence[Snippet] = (),
        named_by_person: bool = True,
    ) -> Outcome:
        """Run one delegation without the parent agent and return its outcome.

        `resume` goes on with the work of an earlier delegation of this session. `attachments` are text files
        and `snippets` texts whose contents go with the task, at most 16 with 32,000 characters together.
        `named_by_person` says that a person, or the program that calls this, chose subagent and files: that
        is the consent to start it and to read them, and deny rules hold all the same. Give False when a model
        or another program chose them: then it is asked for as it is for Task.

        Raises:
            SidequestError: the delegation was refused, or the session is closed; nothing was started.
        """
        self._require_open()
        request = StartRequest(
            agent, _sendable(task), model=model, context=context, resume=resume, snippets=tuple(snippets)
        )
        paths = [str(path) for path in attachments]
        record = await spawn(self.delegations, request, self.messages, None, paths, consented=named_by_person)
        record.for_caller = record.delivered = True
        try:
            await self.delegations.wait([record])
        except asyncio.CancelledError:
            await self.delegations.stop([record])
            # A report that was there already and that nobody was given is the parent's to read.
            record.for_caller = record.delivered = False
            raise
        await self._note_given(record)
        if record.outcome is None:
            raise SidequestError(
                ErrorCode.INTERNAL, "The delegation did not settle.", "Report this as a defect."
            )
        return record.outcome

    async def _note_given(self, record: DelegationRecord) -> None:
        """Store that the caller has the report, so that no later process gives it to the parent as well."""
        if self._journal is None or record.store_error is not None:
            return
        try:
            await self._journal.given(record.id)
        except SidequestError as error:
            self.log.emit(Notice(record.id, f"That its report was read is not stored. {error}"))

    async def compact(self, focus: str | None = None) -> CompactionOutcome:
        """Summarise the conversation now, between turns; there is no fallback when that fails.

        Raises:
            SidequestError: `AGENT_BUSY` during a turn; `CONTEXT_COMPACTION_FAILED` when there is nothing to
                summarise or no summary could be made; `TURN_ABORTED` when `stop` ended it; `USAGE` when the
                session is closed; `SUBAGENT_COST_LIMIT` when it has spent all it may. The conversation is
                then unchanged.
        """
        self._require_open()
        if self._job is not None:
            raise SidequestError(ErrorCode.AGENT_BUSY, "A turn is running.", "Compact between turns.")
        self.delegations.account.require()
        # A job like a turn: what is said meanwhile must not be overwritten by the summary of what was.
        job: asyncio.Task[CompactionOutcome] = asyncio.create_task(self._compact(focus))
        self._job = job
        try:
            await asyncio.wait([job])
        except asyncio.CancelledError:
            job.cancel()
            await _ended(job)
            raise
        finally:
            self._job = None
        if job.cancelled():
            raise SidequestError(
                ErrorCode.TURN_ABORTED, "The compaction was stopped.", "The conversation is unchanged."
            )
        return job.result()

    async def _compact(self, focus: str | None) -> CompactionOutcome:
        model = self.models.session_model()
        if not self.messages:
            raise _nothing_to_compact()
        watch = LimitWatch(account=self.delegations.account)
        price = telling(model.price, watch.spend_on_summary)
        outcome = await compact(
            self.messages,
            budget=model.budget(),
            summarise=model_summariser(
                model.model,
                model.settings,
                lambda error: False,
                self._sleep,
                price,
                window=model.budget().window,
            ),
            overhead=self._carried(),
            factor=self.delegations.knowledge.of(model.key).calibration.factor,
            retention="completed_turn",
            force=True,
            focus=None if focus is None else _sendable(focus),
            recall=self._window.recall,
        )
        if isinstance(outcome, Overflow) and outcome.reason == NOT_SMALLER:
            raise _nothing_to_compact()
        if not isinstance(outcome, Compacted):
            why = f": {outcome.reason}" if isinstance(outcome, Overflow) and outcome.reason else ""
            raise SidequestError(
                ErrorCode.CONTEXT_COMPACTION_FAILED,
                f"The conversation could not be compacted{why}.",
                "Go on, or start a new session.",
            )
        if self._lane is not None:
            await self._lane.checkpoint(outcome, model.key)
        self.messages = outcome.messages
        self._window.renewed()
        limit = model.budget().hard_limit
        self.log.emit(ContextCompacted(None, outcome.tokens_before, outcome.tokens_after, limit))
        # Events that cannot be stored now are stored ahead of the next step of a turn.
        await self._flushed()
        return outcome

    def _carried(self) -> int:
        """Return the tokens of instructions and tools that the next request carries beside its messages.

        Before the first request of this process it is what the newest reported usage has beyond our count of
        the messages; 0 when nothing was reported.
        """
        if self._overhead is not None:
            return self._overhead
        meter = TokenMeter()
        return meter.measure(self.messages) - meter.heuristic(self.messages)

    def fork(self) -> Session:
        """Return a new session that starts from a copy of this conversation; this one is not changed.

        The new one is in memory until it is attached to a store. It holds what the model is given now; what
        was summarised away comes along when it is attached to the store of this one.
        """
        # Models of its own: closing one of the two sessions must not close the clients of the other.
        models = RegistryModels(self.models.registry, self.models.session)
        other = Session(self.options, self.catalog, models, sleep=self._sleep, jitter=self._jitter)
        other.messages = snapshot(self.messages, same_model=True)
        other.workspace.spilled.copy_from(self.workspace.spilled)
        if self._through is not None:
            other._origin = Origin(self.id, self._through, tuple(other.messages))
        return other

    async def stop(self) -> None:
        """Stop the turn, every delegation that runs and what commands left running; wait for their end."""
        self.rights.questions.deny_all()
        job = self._job
        if job is not None and not job.done():
            await asyncio.sleep(0)  # one that has not begun could not say how it ended
            # A second stop must not interrupt what the first one made it do.
            if not job.cancelling() and not self._ending:
                job.cancel()
            await asyncio.wait([job])
        await self.delegations.stop()
        await self._end_commands()

    async def _end_commands(self) -> None:
        """End what commands left running, and say so."""
        told = await self.workspace.leftovers.end_all()
        if told is not None:
            self.log.emit(Notice(None, told))


def _nothing_to_compact() -> SidequestError:
    return SidequestError(
        ErrorCode.CONTEXT_COMPACTION_FAILED,
        "There is nothing to compact: the conversation is shorter than a summary of it.",
        "Go on; when the context fills, it is compacted by itself.",
    )


async def _ended(job: asyncio.Task[Any]) -> None:
    """Wait until `job` has ended, however often the caller is cancelled: two turns never run at once."""
    while not job.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([job])


def _sendable(text: str) -> str:
    """Return a text that can be sent and stored: bytes of a command line that are no UTF-8 are U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _same_folder(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _said(attempts: Attempts) -> str:
    return attempts.recorder.progress.report


def _told_to_user(failure: Failure) -> Failure:
    """Return an overflow as a failed compaction, unless no compaction could have helped."""
    fixed, limit = failure.details.get("fixed"), failure.details.get("hardLimit")
    if failure.code is not ErrorCode.CONTEXT_TOO_LARGE or int(fixed or 0) >= int(limit or 1):
        return failure
    return replace(failure, code=ErrorCode.CONTEXT_COMPACTION_FAILED)


def _closed(messages: Sequence[ModelMessage], failure: Failure) -> list[ModelMessage]:
    """Return a history that the next prompt can follow: it says what happened and stays valid."""
    if not messages or isinstance(messages[-1], ModelResponse):
        return list(messages)
    note = TextPart(f"[This turn ended with {failure.code}: {failure.message}]")
    return [*messages, ModelResponse(parts=[note], finish_reason="error")]
