"""One delegation run: build the agent, run it through its attempts, settle in exactly one outcome."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage

from sidequest.core.context_modes import ContextMode
from sidequest.core.errors import ErrorCode, Failure, subagent_overflow
from sidequest.core.outcome import LIMITS, Outcome, RunFacts, StopReason, settle
from sidequest.core.provider_errors import Pattern
from sidequest.core.transcript import brief_request
from sidequest.runtime.attempts import Alternative, Attempts, ResolvedModel, RunFailed
from sidequest.runtime.journal import LaneJournal
from sidequest.runtime.knowledge import Knowledge
from sidequest.runtime.limits import Account, Limits, LimitWatch
from sidequest.runtime.permissions import PermissionGate
from sidequest.runtime.prefix import GrantedOnly
from sidequest.runtime.recorder import Emit, Progress, RunRecorder
from sidequest.runtime.reminders import WindowState
from sidequest.runtime.results import Spill
from sidequest.runtime.summariser import Sleep
from sidequest.runtime.waiting import Deadline, RunTime

if TYPE_CHECKING:
    from pydantic_ai.toolsets import AbstractToolset

TOOL_RETRIES = 10
"""How often in a row a delegate may send arguments that a tool's schema refuses."""
OUTPUT_RETRIES = 2


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    """How a fork's requests begin as its parent's do, so that a prompt cache serves them."""

    instructions: str
    """The parent's."""
    toolset: AbstractToolset[Any]
    """Everything the parent is offered; what is not granted fails."""
    granted_only: GrantedOnly
    """Refuses what is offered only for the sake of the prefix, before anybody is asked about it."""


@dataclass(frozen=True)
class Plan:
    """Everything that decides how a delegation runs, resolved before it starts."""

    delegation_id: str
    agent: str
    brief: str
    """What the delegate is asked, verbatim; for a fork this is the wrapped task."""
    instructions: str
    model: ResolvedModel
    toolset: AbstractToolset[Any]
    tool_names: tuple[str, ...]
    context_mode: ContextMode = ContextMode.INDEPENDENT
    history: Sequence[ModelMessage] = ()
    """What comes before the brief: nothing, a parent's branch, or the seed of a resumed chain."""
    alternatives: tuple[Alternative, ...] = ()
    cap: int | None = None
    """The definition's `maxTokens`, in tokens; None follows the model."""
    limits: Limits = field(default_factory=Limits)
    gate: PermissionGate | None = None
    """Decides about each tool call; None lets every granted tool run."""
    spill: Spill | None = None
    patterns: tuple[Pattern, ...] = ()
    shared: SharedPrefix | None = None
    """What a fork begins with on the model of the plan; None for everybody else, and on every fallback."""
    history_lost: bool = False
    """Whether `history` lacks work that no summary covers: the report then comes from lost history."""


@dataclass
class DelegationRun:
    """Runs one `Plan`. `run` never raises for what happens inside: every end is an `Outcome`."""

    plan: Plan
    emit: Emit
    sleep: Sleep = asyncio.sleep
    jitter: Callable[[], float] = random.random
    window_state: WindowState = field(default_factory=WindowState)
    lane: LaneJournal | None = None
    """Where the run is written down; None keeps it in memory."""
    clock: Callable[[], float] = time.monotonic
    """Seconds, only differences count."""
    knowledge: Knowledge = field(default_factory=Knowledge)
    account: Account = field(default_factory=Account)
    """What the session and its delegations draw from."""
    progress: Progress = field(default_factory=Progress)
    attempts: Attempts = field(init=False)
    run_time: RunTime = field(default_factory=RunTime, init=False)
    """What measures its time and stands still while a question of it waits for a person."""
    _stop_requested: bool = field(default=False, init=False)
    _why_silent: str = field(default="", init=False)

    def __post_init__(self) -> None:
        watch = LimitWatch(self.plan.limits, self.account, self.clock)
        self.run_time.measured_by(watch)
        recorder = RunRecorder(
            self.plan.delegation_id,
            self.emit,
            self.progress,
            watch=watch,
            lane=self.lane,
        )
        self.attempts = Attempts(
            self._make_agent,
            recorder,
            self.plan.model,
            self.plan.alternatives,
            cap=self.plan.cap,
            spill=self.plan.spill,
            patterns=self.plan.patterns,
            sleep=self.sleep,
            jitter=self.jitter,
            clock=self.clock,
            knowledge=self.knowledge,
            window_state=self.window_state,
        )

    @property
    def messages(self) -> list[ModelMessage]:
        """The delegate's own history as it stands."""
        return self.attempts.messages

    @property
    def overhead(self) -> int:
        """Tokens of instructions and tool schemas in the newest request, 0 before the first."""
        return self.attempts.overhead

    @property
    def model_key(self) -> str:
        """Key of the model that runs, or ran last."""
        return self.attempts.model.key

    def request_stop(self) -> None:
        """Remember that the coming cancellation is a stop; the caller then cancels the task."""
        self._stop_requested = True

    async def run(self) -> Outcome:
        """Run to the end and return how it ended.

        A cancellation settles as `stopped` and does not go on: the outcome is what its owner waits for.
        """
        started = self.clock()
        failure: Failure | None = None
        stopped = False
        try:
            if self._stop_requested:
                stopped = True
            else:
                self.attempts.recorder.watch.start()
                async with asyncio.timeout(None) as timeout:
                    with self.run_time.of_this_agent(), self._cut_by(timeout):
                        await self.attempts.run([*self.plan.history, brief_request(self.plan.brief)])
        except RunFailed as failed:
            failure = self._told_to_parent(failed.failure)
        except TimeoutError:
            self.progress.limit = StopReason.TIME_LIMIT
        except asyncio.CancelledError:
            stopped = self._stop_requested or is_cancelled()
            if not stopped:
                message = "A model or a tool cancelled itself; nobody stopped the delegation."
                failure = Failure(ErrorCode.UNEXPECTED_DELEGATION_REJECTION, message)
        except Exception as error:  # noqa: BLE001 - the edge of a run: it settles, and the cause is recorded
            failure = Failure(ErrorCode.UNEXPECTED_DELEGATION_REJECTION, f"{type(error).__name__}: {error}")
        return self._outcome(failure, stopped, self.clock() - started)

    @contextmanager
    def _cut_by(self, timeout: asyncio.Timeout) -> Iterator[None]:
        """Let `timeout` strike when the wall time of the plan is over."""
        if self.plan.limits.seconds is None:
            yield
            return
        deadline = Deadline(self.plan.limits.seconds, lambda: timeout.reschedule(0))
        self.run_time.measured_by(deadline)
        try:
            yield
        finally:
            deadline.cancel()

    def overdue(self) -> Outcome:
        """Return the outcome of a run that did not end when its time was over."""
        self.progress.limit = StopReason.TIME_LIMIT
        elapsed = self.clock() - (self.attempts.recorder.watch.started or self.clock())
        return self._outcome(None, False, elapsed)

    def refused(self, failure: Failure) -> Outcome:
        """Return the outcome of a run that could not begin."""
        return self._outcome(failure, False, 0.0)

    def _make_agent(self, model: ResolvedModel, capabilities: Sequence[Any]) -> Agent[Any, str]:
        plan = self.plan
        # Another model has no cache to keep: there a fork has instructions and tools of its own.
        shared = plan.shared if model.key == plan.model.key else None
        toolset = shared.toolset if shared else plan.toolset
        gate = plan.gate and replace(plan.gate, denied=self.attempts.recorder.denied)
        before = (shared.granted_only if shared else None, gate)
        return Agent(
            model.model,
            name=plan.agent,
            instructions=shared.instructions if shared else plan.instructions,
            toolsets=[toolset] if plan.tool_names else [],
            capabilities=[*(one for one in before if one is not None), *capabilities],
            retries={"tools": TOOL_RETRIES, "output": OUTPUT_RETRIES},
        )

    def _told_to_parent(self, failure: Failure) -> Failure | None:
        if failure.code is ErrorCode.CONTEXT_TOO_LARGE:
            details = failure.details
            return subagent_overflow(
                self.attempts.model.key,
                int(details.get("tokens") or 0),
                int(details.get("hardLimit") or 0),
                int(details.get("fixed") or 0),
                learned=_number(details.get("learnedWindow")),
                told=_number(details.get("toldWindow")),
            ).failure
        # A limit or a silent end is not a failure of the run when there is text: settle decides from that.
        if failure.code in {*(code for code, _ in LIMITS.values()), ErrorCode.EMPTY_MODEL_RESPONSE}:
            self._why_silent = failure.message
            return None
        return failure

    def _outcome(self, failure: Failure | None, stopped: bool, elapsed: float) -> Outcome:
        progress, totals = self.progress, self.attempts.guard.totals
        ending = settle(
            RunFacts(
                report=progress.report,
                report_is_final=progress.final,
                stop_requested=stopped,
                failure=failure,
                limit=progress.limit,
                output_cut=progress.output_cut,
                filtered=progress.filtered,
                broken_off=progress.broken_off,
            )
        )
        return Outcome(
            delegation_id=self.plan.delegation_id,
            agent=self.plan.agent,
            status=ending.status,
            stop_reason=ending.stop_reason,
            report=progress.report,
            model=self.attempts.model.key,
            context_mode=self.plan.context_mode.value,
            elapsed_s=elapsed,
            turns=progress.turns,
            tool_calls=progress.tool_calls,
            usage=progress.usage.plus(totals.summary_usage),
            failure=self._explained(ending.failure),
            model_failures=tuple(self.attempts.model_failures),
            compactions=totals.compactions,
            degradations=totals.degradations + self.plan.history_lost,
            unfinished_tool=progress.running_tool,
        )

    def _explained(self, failure: Failure | None) -> Failure | None:
        """Add what made the model fall silent: without it a missing report has no cause."""
        if failure is None or failure.code is not ErrorCode.SUBAGENT_NO_REPORT or not self._why_silent:
            return failure
        return replace(failure, message=f"{failure.message} {self._why_silent}")


def _number(value: str | int | float | bool | None) -> int | None:
    return value if isinstance(value, int) else None


def is_cancelled() -> bool:
    """Say whether somebody cancelled the current task, and not what it awaits by itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
