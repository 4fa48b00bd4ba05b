"""Attempts of an agent around failures of its model: wait, compact, repair, or go on with another model.

Shared by delegations and sessions. The carried messages are the history of the next attempt and there is
never a new prompt, so the task is in each request exactly once and completed tools are not run again.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import AsyncIterable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pydantic_ai import Agent, capture_run_messages
from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.messages import (
    AgentStreamEvent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ToolReturnPart,
    UserPromptPart,
    is_multi_modal_content,
)
from pydantic_ai.usage import UsageLimits

from sidequest.core.budget import ContextBudget, stricter_cap
from sidequest.core.calibration import Calibration, Report, cut_by_window, prompt_tokens
from sidequest.core.compaction import Compacted, Degraded
from sidequest.core.errors import ErrorCode, Failure, SidequestError
from sidequest.core.events import ContextDegraded, ModelSwitched, Notice, RetryScheduled
from sidequest.core.outcome import ModelFailure
from sidequest.core.provider_errors import (
    Kind,
    Meaning,
    Pattern,
    ProviderFacts,
    came_from_provider,
    classify,
    facts_from_exception,
    stop_kind,
)
from sidequest.core.recovery import (
    Action,
    CompactNow,
    DropOutputLimit,
    GiveUp,
    LowerOutput,
    Recovery,
    RepairHistory,
    ShrinkMedia,
    Wait,
)
from sidequest.core.reduction import repair, shrink_bytes, without_unfinished_tail
from sidequest.core.tokens import TokenMeter, estimate_message
from sidequest.core.transcript import marked
from sidequest.runtime.costs import Price, catalog_price, telling
from sidequest.runtime.gate import GatedModel, gate_for
from sidequest.runtime.guard import ContextGuard, ContextOverflow, Measured
from sidequest.runtime.journal import with_calls_closed
from sidequest.runtime.knowledge import Knowledge
from sidequest.runtime.recorder import CutAnswer, RunRecorder
from sidequest.runtime.reminders import WindowState
from sidequest.runtime.results import Spill
from sidequest.runtime.summariser import Sleep, model_summariser
from sidequest.runtime.unreachable import unreachable

if TYPE_CHECKING:
    from pydantic_ai import RunContext
    from pydantic_ai.models import Model
    from pydantic_ai.settings import ModelSettings


FEWER_BYTES = "the provider refused so many bytes: media and the middle of the largest result were left out"
"""Why a request without its media is a degradation, for records."""


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model that is ready to be asked, with what is known about it for this run only."""

    key: str
    """`provider/model`."""
    model: Model
    window: int | None = None
    """Context window in tokens; None takes what the model reports."""
    max_tokens: int | None = None
    """The model's own output limit in tokens; None means unknown."""
    price: Price = catalog_price
    """What an answer of this model cost."""
    settings: ModelSettings | None = None
    """Settings of this run: thinking and output limit of this delegation, nothing of a sibling's."""

    def budget(self, cap: int | None = None) -> ContextBudget:
        """Return the budget of this model under a definition's output cap, in tokens."""
        return ContextBudget.for_model(self.model, window=self.window, max_tokens=self.max_tokens, cap=cap)


@dataclass(frozen=True, slots=True)
class Alternative:
    """A fallback model that is resolved when its turn comes."""

    key: str
    resolve: Callable[[], ResolvedModel]
    """May raise `SidequestError`; the alternative is then recorded and passed over."""


class PromptTooLong(Exception):
    """An answer that shows that its prompt was cut, or that it filled the window; it is thrown away.

    `window` is what it showed of the model's window, in tokens; None when that is nothing new.
    """

    def __init__(self, window: int | None) -> None:
        super().__init__("the prompt was too long for the window")
        self.window = window


class RunFailed(Exception):
    """A run that no attempt could save; `failure` says why, the recorder holds what was achieved."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


MakeAgent = Callable[[ResolvedModel, Sequence[Any]], Agent[Any, str]]
"""Builds the agent for a model, given the capabilities that watch and guard it."""
StreamHandler = Callable[["RunContext[Any]", AsyncIterable[AgentStreamEvent]], Any]


@dataclass
class Attempts:
    """Runs an agent until it has an answer or nothing more can be tried."""

    make_agent: MakeAgent
    recorder: RunRecorder
    model: ResolvedModel
    alternatives: Sequence[Alternative] = ()
    cap: int | None = None
    """Output cap of the definition in tokens; binds every model of this run."""
    spill: Spill | None = None
    patterns: Sequence[Pattern] = ()
    """Error wordings that the user added."""
    sequential_tools: bool = True
    stream: StreamHandler | None = None
    sleep: Sleep = asyncio.sleep
    jitter: Callable[[], float] = random.random
    clock: Callable[[], float] = time.monotonic
    """Seconds; only differences count."""
    window_state: WindowState = field(default_factory=WindowState)
    knowledge: Knowledge = field(default_factory=Knowledge)
    """What the session learned about its models; shared by all of its runs."""
    model_failures: list[ModelFailure] = field(default_factory=list)
    guard: ContextGuard[Any] = field(init=False)
    messages: list[ModelMessage] = field(default_factory=list, init=False)
    """The history as the run left it; ends with the final answer when the run succeeded."""
    _recovery: Recovery = field(default_factory=Recovery, init=False)
    _tried: set[str] = field(default_factory=set, init=False)
    _sent: int = field(default=0, init=False)
    """Size of the newest request by the plain heuristic, in tokens."""
    _last_report: Report | None = field(default=None, init=False)
    _resent: bool = field(default=False, init=False)
    """Whether the request at hand repeats one whose answer was thrown away."""
    overhead: int = field(default=0, init=False)
    """Tokens of instructions and tool schemas in the newest request."""

    def __post_init__(self) -> None:
        self._tried.add(self.model.key)
        self.guard = self._guard_for(self.model)
        self.recorder.price, self.recorder.model_key = self.model.price, self.model.key
        self.recorder.on_response = self._answered

    async def run(self, messages: Sequence[ModelMessage]) -> str:
        """Run from `messages`, which end with a request, and return the final text.

        Raises:
            RunFailed: with the failure that ended it.
            asyncio.CancelledError: the owner stopped it.
        """
        self.messages = list(messages)
        while True:
            try:
                return await self._attempt()
            except CutAnswer as cut:
                self._continue_after_cut(cut)
            except PromptTooLong as answer:
                self._learn_window(answer.window)
                self.guard.force_next = True
            except ContextOverflow as overflow:
                self._next_model(overflow.code, overflow.failure.message, overflow=overflow)
            except SidequestError as error:
                raise RunFailed(error.failure) from error
            except UnexpectedModelBehavior as error:
                if not self.recorder.request_failed:
                    raise RunFailed(_silent(error)) from error
                await self._recover(error)
            except Exception as error:
                if not self.recorder.request_failed:
                    message = f"{type(error).__name__}: {error}"
                    raise RunFailed(
                        Failure(ErrorCode.INTERNAL, message, details={"origin": "local"})
                    ) from error
                await self._recover(error)

    async def _attempt(self) -> str:
        # Two sessions may give one key to two servers.
        server = getattr(self.model.model, "base_url", None) or ""
        gate = gate_for(f"{self.model.key} {server}", self.clock, self.sleep)
        gated = replace(self.model, model=GatedModel(self.model.model, gate, self._meaning))
        # Every answer to a summary request is paid for, also one that cannot be used.
        price = telling(self.model.price, self.recorder.watch.spend_on_summary)
        self.guard.summarise = model_summariser(
            self.model.model,
            self.model.settings,
            self._is_transient,
            self.sleep,
            price,
            window=self._budget().window,
            gate=lambda model: GatedModel(model, gate, self._meaning),
            send_output_limit=self.guard.send_output_limit,
            refused=self._summary_refused,
            was_cut=self._summary_was_cut,
        )
        agent = self.make_agent(gated, [self.recorder, self.guard])
        self.recorder.asked = False
        with capture_run_messages() as captured:
            try:
                with Agent.parallel_tool_call_execution_mode(
                    "sequential" if self.sequential_tools else "parallel"
                ):
                    result = await agent.run(
                        message_history=list(self.messages),
                        model_settings=self.model.settings,
                        # Without this pydantic-ai ends a run at its 50th request.
                        usage_limits=UsageLimits(request_limit=None),
                        event_stream_handler=self.stream,
                    )
            except BaseException:
                self.messages = self._left_by(captured)
                raise
        self.messages = result.all_messages()
        return result.output

    def _left_by(self, captured: Sequence[ModelMessage]) -> list[ModelMessage]:
        """Return the history of an attempt that broke off: half an answer goes, what tools did stays."""
        if not self.recorder.asked:
            return self.messages  # nothing has happened, and the loop may hold less than it was given
        lane = self.recorder.lane
        closed = with_calls_closed(captured, lane.results if lane is not None else {})
        messages = closed or without_unfinished_tail(captured) or self.messages
        answer = lane.answer if lane is not None else None
        if answer is None or any(message is answer for message in messages):
            return messages
        # It was stored, and the run was stopped before it got it.
        cut = [*messages, answer, ModelRequest(parts=[], state="interrupted")]
        return (with_calls_closed(cut, {}) or cut) if answer.tool_calls else cut[:-1]

    def _guard_for(self, model: ResolvedModel) -> ContextGuard[Any]:
        totals = self.guard.totals if hasattr(self, "guard") else None
        known = self.knowledge.of(model.key)
        guard: ContextGuard[Any] = ContextGuard(
            window=model.window,
            learned=lambda: known.window,
            name=model.key,
            max_tokens=model.max_tokens,
            cap=self.cap,
            on_measured=self._measured,
            spill=self.spill,
            install=self._install,
            window_state=self.window_state,
            is_transient=self._is_transient,
            factor=lambda: known.calibration.factor,
            price=model.price,
        )
        if totals is not None:
            guard.totals = totals
        return guard

    def _recounted(self) -> int:
        """Return the size of the newest request, in tokens, with what was learned since it left."""
        factor = self.knowledge.of(self.model.key).calibration.factor
        return max(self.recorder.progress.tokens, math.ceil(self._sent * factor))

    def _window_of(self, model: ResolvedModel) -> int | None:
        """Return the window we believe in, in tokens: what was learned about `model`, when it is smaller."""
        return self.knowledge.of(model.key).smaller(model.window or model.model.context_window)

    def _budget(self) -> ContextBudget:
        """Return the budget of the model at hand, with what was learned about it."""
        return self.guard.budget_for(self.model.model)

    def _measured(self, measured: Measured) -> None:
        self.overhead = measured.overhead.total
        self._sent = measured.heuristic
        if isinstance(measured.outcome, Compacted | Degraded):
            self._last_report = None
        self.recorder.measured(measured)

    async def _install(self, outcome: Compacted | Degraded) -> None:
        """Make a compaction durable before it is installed; the recorder's journal knows whether it is."""
        if self.recorder.lane is not None:
            await self.recorder.lane.checkpoint(outcome, self.model.key)

    def _answered(self, response: ModelResponse) -> None:
        """Learn from an answer that came through, and throw it away when its prompt was too long.

        Raises:
            PromptTooLong: once per request, and only when there is history that can be compacted.
        """
        self._recovery.reset()
        self._learn(response)
        self._resent = False  # it is kept: the next request is another one

    def _learn(self, response: ModelResponse) -> None:
        usage, known = response.usage, self.knowledge.of(self.model.key)
        reported = prompt_tokens(usage.input_tokens, usage.cache_read_tokens + usage.cache_write_tokens)
        # A last turn is asked without tools: its report is smaller than our count of it.
        last_turn = self.recorder.progress.limit is not None
        if not last_turn and known.calibration.truncated(self._sent, reported, self._last_report):
            # The flat price of an image may be many times what a provider takes for a small one.
            if any(map(_holds_media, self.recorder.sent)):
                return
            self._tell_truncation(reported)
            window = known.shown_window(reported)
            self._ask_again(window)
            self._learn_window(window)
            return
        known.calibration = known.calibration.observe(self._sent, reported)
        if reported > 0 and not last_turn:
            self._last_report = Calibration.reference(self._last_report, Report(self._sent, reported))
        if self._fills_window(response, reported):
            used = reported + usage.output_tokens
            self._ask_again(used if reported > 0 and used < self._budget().window else None)
            # Kept all the same: half an answer. pydantic-ai knows the word for that in one format only.
            response.finish_reason = response.finish_reason or "length"

    def _fills_window(self, response: ModelResponse, reported: int) -> bool:
        facts = ProviderFacts(
            stop_reason=(response.provider_details or {}).get("finish_reason") or response.finish_reason,
            estimate=self.recorder.progress.tokens,
            window=self._budget().window,
            input_tokens=reported,
            output_tokens=response.usage.output_tokens,
        )
        if stop_kind(facts) is Kind.INPUT:
            return True
        limit = self.recorder.sent_output_limit
        return response.finish_reason == "length" and cut_by_window(
            reported, response.usage.output_tokens, limit
        )

    def _ask_again(self, window: int | None) -> None:
        # Without a response there is only what no compaction may drop: the brief, and perhaps a summary.
        if self._resent or not any(isinstance(message, ModelResponse) for message in self.recorder.sent):
            return
        self._resent = True
        raise PromptTooLong(window)

    def _tell_truncation(self, reported: int) -> None:
        said = (
            f"the server cut the prompt and did not say so: it counted {reported:,} of {self._sent:,} tokens"
        )
        self._tell_loss(reported, said)

    def _tell_loss(self, left: int, reason: str) -> None:
        """Count and tell that history is gone without a summary; `left` tokens of the request remain."""
        self.guard.totals.degradations += 1
        limit = self.recorder.progress.hard_limit
        self.recorder.emit(ContextDegraded(self.recorder.delegation_id, self._sent, left, limit, reason))

    def _learn_window(self, window: int | None) -> None:
        """Believe that the model has no larger window than `window`, and say so when that is news."""
        known = self.knowledge.of(self.model.key)
        believed = self._budget().window
        if not known.learn_window(window) or known.window is None or known.window >= believed:
            return
        told = self.model.window or self.model.model.context_window
        instead = f"the {told:,} of settings or catalog" if told else f"the assumed {believed:,}"
        said = (
            f"{self.model.key} accepts {known.window:,} tokens, as its provider shows, not {instead}: "
            "this session goes on with the smaller window"
        )
        self.recorder.emit(Notice(self.recorder.delegation_id, said))

    def _summary_refused(self, error: Exception) -> None:
        """Learn the window that a provider states when a summary is too long for it."""
        meaning = classify(facts_from_exception(error), extra_patterns=self.patterns)
        if meaning.kind in {Kind.INPUT, Kind.SUM}:
            self._learn_window(meaning.limit_tokens)

    def _summary_was_cut(self, estimate: int, reported: int) -> bool:
        known = self.knowledge.of(self.model.key)
        if not known.calibration.truncated(estimate, reported):
            return False
        self._learn_window(known.shown_window(reported))
        return True

    def _is_transient(self, error: Exception) -> bool:
        return classify(facts_from_exception(error), extra_patterns=self.patterns).retriable

    def _continue_after_cut(self, cut: CutAnswer) -> None:
        notice = marked(cut.notice, "notice")
        if cut.response.parts:
            self.messages = [*self.messages, cut.response, ModelRequest(parts=[notice])]
        else:
            self.messages = [*self.messages, ModelRequest(parts=[notice])]

    async def _recover(self, error: Exception) -> None:
        if not came_from_provider(error):
            # A defect of the model's code, not an answer of a provider: sending again would not help.
            message = f"{type(error).__name__}: {error}"
            raise RunFailed(Failure(ErrorCode.INTERNAL, message, details={"origin": "local"})) from error
        meaning = self._meaning(error)
        if meaning.kind in {Kind.INPUT, Kind.SUM}:
            known = self.knowledge.of(self.model.key)
            known.calibration = known.calibration.reject(self._sent, meaning.input_tokens or 0)
            self._learn_window(meaning.limit_tokens)
        action = self._recovery.decide(
            meaning, jitter=self.jitter(), output_limit=self.recorder.sent_output_limit
        )
        await self._apply(action, meaning)

    def _meaning(self, error: Exception) -> Meaning:
        facts = facts_from_exception(
            error,
            estimate=self.recorder.progress.tokens or None,
            window=self._budget().window,
        )
        meaning = classify(facts, extra_patterns=self.patterns, now=datetime.now(UTC))
        if meaning.kind not in {Kind.NETWORK, Kind.TIMEOUT}:
            return meaning
        found = unreachable(error, getattr(self.model.model, "base_url", None))
        if found is None:
            return meaning
        return replace(meaning, message=found.message, nobody_listens=found.nobody_listens)

    async def _apply(self, action: Action, meaning: Meaning) -> None:
        match action:
            case Wait(seconds):
                tried = self._recovery.rate_retries + self._recovery.transient_retries
                self.recorder.emit(
                    RetryScheduled(
                        self.recorder.delegation_id, tried, seconds, meaning.code.value, meaning.message
                    )
                )
                await self.sleep(seconds)
            case CompactNow():
                self.guard.force_next = True
            case LowerOutput(max_tokens):
                # An input that does not fit the window just learned is compacted, and needs no small answer.
                if meaning.kind is not Kind.SUM or self._budget().fits(self._recounted()):
                    self.guard.cap = stricter_cap(self.guard.cap, max_tokens)
            case DropOutputLimit():
                self.guard.send_output_limit = False
            case ShrinkMedia():
                shrunk = shrink_bytes(self.messages)
                if shrunk == self.messages:
                    self._next_model(meaning.code, meaning.message)
                else:
                    self._tell_loss(sum(map(estimate_message, shrunk)) + self.overhead, FEWER_BYTES)
                    self._reshape(shrunk)
            case RepairHistory():
                self._reshape(repair(self.messages))
            case GiveUp():
                raise RunFailed(Failure(ErrorCode.TURN_ABORTED, meaning.message))
            case _:
                self._next_model(meaning.code, meaning.message)

    def _reshape(self, messages: list[ModelMessage]) -> None:
        """Go on with another form of the history; it stands for what is stored and is not stored again."""
        self.messages = messages
        if self.recorder.lane is not None:
            self.recorder.lane.know(messages)

    def _next_model(
        self,
        code: ErrorCode,
        message: str,
        *,
        overflow: ContextOverflow | None = None,
    ) -> None:
        """Switch to the next alternative that fits, or raise `RunFailed`."""
        failed = self.model.key
        recorded = ErrorCode.SUBAGENT_CONTEXT_OVERFLOW if overflow is not None else code
        failures = [ModelFailure(failed, recorded, message)]
        for alternative in self.alternatives:
            if alternative.key in self._tried:
                continue
            self._tried.add(alternative.key)
            try:
                candidate = alternative.resolve()
            except SidequestError as error:
                failures.append(ModelFailure(alternative.key, error.code, error.failure.message))
                continue
            factor = self.knowledge.of(candidate.key).calibration.factor
            budget = replace(candidate, window=self._window_of(candidate)).budget(self.cap)
            tokens = TokenMeter().measure(self.messages, self.overhead, factor)
            if not budget.fits(tokens):
                said = f"skipped: {tokens:,} tokens do not fit its limit of {budget.hard_limit:,}"
                failures.append(ModelFailure(candidate.key, ErrorCode.SUBAGENT_CONTEXT_OVERFLOW, said))
                continue
            self.model_failures += failures
            self._switch(candidate, failed, code, message, budget.hard_limit)
            return
        if self.alternatives:
            self.model_failures += failures
        raise RunFailed(self._final(code, message, overflow))

    def _switch(
        self, candidate: ResolvedModel, failed: str, code: ErrorCode, message: str, hard_limit: int
    ) -> None:
        self.model = candidate
        self.guard = self._guard_for(candidate)
        self.recorder.price, self.recorder.model_key = candidate.price, candidate.key
        self._last_report = None
        self._recovery = Recovery()
        self.recorder.emit(
            ModelSwitched(self.recorder.delegation_id, candidate.key, failed, code.value, message, hard_limit)
        )

    def _final(self, code: ErrorCode, message: str, overflow: ContextOverflow | None) -> Failure:
        if overflow is not None:
            return overflow.failure
        if code is ErrorCode.CONTEXT_TOO_LARGE:
            learned, told = self.guard.learned_for(self.model.model)
            return replace(
                Failure(ErrorCode.CONTEXT_TOO_LARGE, message),
                details={
                    "model": self.model.key,
                    "tokens": self.recorder.progress.tokens,
                    "hardLimit": self._budget().hard_limit,
                    "fixed": self.overhead,
                    "learnedWindow": learned,
                    "toldWindow": told,
                },
            )
        return Failure(code, message)


def _holds_media(message: ModelMessage) -> bool:
    for part in message.parts:
        if isinstance(part, ToolReturnPart) and part.files:
            return True
        if not isinstance(part, UserPromptPart) or isinstance(part.content, str):
            continue
        if any(map(is_multi_modal_content, part.content or ())):
            return True
    return False


def _silent(error: UnexpectedModelBehavior) -> Failure:
    return Failure(ErrorCode.EMPTY_MODEL_RESPONSE, f"The model gave no usable answer: {error}")
