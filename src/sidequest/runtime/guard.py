"""The pydantic-ai capability that applies the ladder before every request (DESIGN, "The way of a task").

Used by parent and delegate alike, and alone by anybody who wants an agent that cannot outgrow its window.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.exceptions import ToolFailedError, ToolRetryError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
    repair_messages,
)
from pydantic_ai.tools import AgentDepsT, RunContext, ToolDefinition
from pydantic_ai.usage import RequestUsage

from sidequest.core.budget import ContextBudget, stricter_cap
from sidequest.core.compaction import (
    Compacted,
    CompactionOutcome,
    Degraded,
    Overflow,
    Unchanged,
    compact,
)
from sidequest.core.errors import ErrorCode, SidequestError, window_remark
from sidequest.core.outcome import Usage
from sidequest.core.share_meter import ShareMeter
from sidequest.core.shares import Shares
from sidequest.core.summary import Summarise, SummaryFailed, SummaryReply, SummaryRequest
from sidequest.core.tokens import Overhead, TokenMeter, estimate_message
from sidequest.core.transcript import TranscriptError, Validator, marked, tool_calls
from sidequest.runtime.costs import Price, catalog_price
from sidequest.runtime.overhead import OverheadMeter
from sidequest.runtime.reminders import WindowState
from sidequest.runtime.results import Spill, bound_result, bound_value, result_limit
from sidequest.runtime.summariser import model_summariser

if TYPE_CHECKING:
    from pydantic_ai.models import ModelRequestContext
    from pydantic_ai.settings import ModelSettings

REQUEST_RESERVE_TOKENS = 4_096
"""Least room kept between input, output and the window when the output limit is set (specification 1.5)."""


MAX_BLIND_TURNS = 3
"""After so many in a row the run ends: the same brief alone would be answered the same way for ever."""
MAX_BLIND_ROUNDS = 10
"""After so many the run ends although smaller requests fit in between, unless one of them held more work."""
MAX_FAILED_SUMMARIES = 3
"""After so many in a row no summary is asked for any more in this run: each costs requests and time."""


class ContextOverflow(SidequestError):
    """A request that nothing can make fit; it did not leave the process."""

    def __init__(
        self, overflow: Overflow, model: str, learned: int | None = None, told: int | None = None
    ) -> None:
        """Take the name of the model, and the window that was learned beside the one it was said to have."""
        if overflow.fixed >= overflow.hard_limit:
            cause = f"The instructions and tool schemas alone are {overflow.fixed:,} tokens"
        elif overflow.tokens < overflow.hard_limit:
            cause = f"The provider refused {overflow.tokens:,} tokens, and they cannot be made fewer"
        else:
            cause = f"The request is {overflow.tokens:,} tokens, even after compaction and reduction"
        why = window_remark(learned, told)
        super().__init__(
            ErrorCode.CONTEXT_TOO_LARGE,
            f"{cause}, and the model {model} leaves {overflow.hard_limit:,} for a request{why}.",
            "Use a model with a larger context window, fewer tools, or a shorter prompt.",
            tokens=overflow.tokens,
            hardLimit=overflow.hard_limit,
            fixed=overflow.fixed,
            learnedWindow=learned,
            toldWindow=told,
        )
        self.overflow = overflow
        self.model = model


@dataclass(frozen=True, slots=True)
class Measured:
    """What the guard found before a request: the size, the budget, and what the ladder did."""

    tokens: int
    """Size of the request that leaves, in tokens."""
    overhead: Overhead
    budget: ContextBudget
    outcome: CompactionOutcome
    heuristic: int = 0
    """The same size by the plain heuristic alone: what reported usage is compared with."""
    shares: Shares = Shares()
    """What fills the request, by kind."""


@dataclass
class GuardTotals:
    """What a guard did over its life."""

    compactions: int = 0
    degradations: int = 0
    summary_usage: Usage = field(default_factory=Usage)
    blind_turns: int = 0
    """Degradations in a row that left nothing but the brief: the model saw no result of its own."""
    blind_rounds: int = 0
    """The same, in a row or not, since a request held more work than any before."""
    most_work: int = 0
    """Most answers and calls that a request held; 0 again after a compaction."""
    failed_summaries: int = 0
    """Summaries in a row that could not be used."""


@dataclass
class ContextGuard(AbstractCapability[AgentDepsT]):
    """Keeps every request of an agent below its `hard_limit`.

    Before each request it measures everything that is sent. Over the limit it compacts; if it cannot, it
    keeps the brief and the newest rounds; if that does not fit either it raises `ContextOverflow`, and the
    request never leaves. What it rewrites it rewrites for good, in the run's history.

    ```python
    agent = Agent("anthropic:claude-sonnet-4-5", capabilities=[ContextGuard()])
    ```
    """

    window: int | None = None
    """Context window in tokens; None takes what the model reports, and 128,000 when it reports none."""
    learned: Callable[[], int | None] = field(default=lambda: None)
    """A window that the provider stated or showed, in tokens; it counts when it is the smaller one."""
    name: str = ""
    """Key by which errors name the model; empty takes what the model calls itself."""
    max_tokens: int | None = None
    """The model's own output limit in tokens; None means unknown."""
    cap: int | None = None
    """A stricter output cap for this agent alone, in tokens; None and 0 mean none."""
    send_output_limit: bool = True
    """False leaves every output limit off the wire, for a server that refuses the parameter."""
    summarise: Summarise | None = None
    """Who summarises; None means the run's own model."""
    install: Callable[[Compacted | Degraded], Awaitable[None]] | None = None
    """Awaited before a rewritten history is installed: what it does is durable first."""
    on_measured: Callable[[Measured], None] | None = None
    """Called before each request that leaves, and before an overflow is raised."""
    spill: Spill | None = None
    """Where a tool result that is too large is stored whole; None means it is cut with a notice only."""
    is_transient: Callable[[Exception], bool] = field(default=lambda error: False)
    """Which failures of a summary request are worth waiting for."""
    factor: Callable[[], float] = field(default=lambda: 1.0)
    """What the model's reports taught about our estimate, at least 1; asked for before each request."""
    price: Price = catalog_price
    """What the answer to a summary request cost."""
    totals: GuardTotals = field(default_factory=GuardTotals)
    window_state: WindowState = field(default_factory=WindowState)
    """What the conversation asked for and was told; shared by all runs of a session."""
    force_next: bool = False
    """Compact before the next request although it fits by our estimate: a provider said otherwise."""
    _meter: TokenMeter = field(default_factory=TokenMeter, init=False, repr=False)
    _shares: ShareMeter = field(default_factory=ShareMeter, init=False, repr=False)
    _validator: Validator = field(default_factory=Validator, init=False, repr=False)
    _overheads: OverheadMeter = field(default_factory=OverheadMeter, init=False, repr=False)
    _result_limit: int | None = field(default=None, init=False, repr=False)

    def get_ordering(self) -> CapabilityOrdering:
        """Innermost: what other capabilities add to a request is counted."""
        return CapabilityOrdering(position="innermost")

    async def for_run(self, ctx: RunContext[AgentDepsT]) -> AbstractCapability[AgentDepsT]:
        """Give each run a measuring state of its own; the totals are shared with the one that was passed."""
        fresh = replace(self)
        self.force_next = False
        return fresh

    def budget_for(self, model: Any) -> ContextBudget:
        """Return the budget of `model` under this guard's overrides."""
        known = [size for size in (self.window or model.context_window, self.learned()) if size]
        window = min(known) if known else None
        return ContextBudget.for_model(model, window=window, max_tokens=self.max_tokens, cap=self.cap)

    def learned_for(self, model: Any) -> tuple[int | None, int | None]:
        """Return the window that was learned and the one that we were told, in tokens.

        Both are None when nothing smaller was learned; the second when none was told.
        """
        learned, told = self.learned(), self.window or model.context_window
        return (learned, told) if learned is not None and (not told or learned < told) else (None, None)

    async def before_model_request(
        self, ctx: RunContext[AgentDepsT], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Apply the ladder; see the class.

        Raises:
            ContextOverflow: nothing that may be dropped makes the request fit.
        """
        budget = self.budget_for(request_context.model)
        overhead = self._overheads.measure(request_context.model_request_parameters, request_context.model)
        self._result_limit = result_limit(budget.hard_limit, overhead.total)
        force, self.force_next = self.force_next, False
        summarise = self.summarise or model_summariser(
            request_context.model,
            request_context.model_settings,
            self.is_transient,
            price=self.price,
            window=budget.window,
            send_output_limit=self.send_output_limit,
        )
        if self.totals.failed_summaries >= MAX_FAILED_SUMMARIES:
            summarise = _given_up
        history, added = _split_added(request_context.messages, ctx.messages)
        ladder = partial(
            compact,
            history,
            summarise=summarise,
            overhead=overhead.total + sum(map(estimate_message, added)),
            retention="active_turn",
            force=force,
            meter=self._meter,
            factor=self.factor(),
            optional=self.window_state.take_request(),
            recall=self.window_state.recall,
            tell_loss=self.window_state.remind,
        )
        outcome = await ladder(budget=budget)
        learned = self.budget_for(request_context.model)
        if learned.hard_limit < budget.hard_limit:
            # The summary request has taught a smaller window, which this request has to fit as well.
            spent, budget = _summary_usage(outcome), learned
            self._result_limit = result_limit(budget.hard_limit, overhead.total)
            outcome = _with_usage(await ladder(budget=budget), spent)
        outcome = self._judged(outcome, history, budget, overhead.total)
        ctx.usage.incr(_request_usage(outcome))
        tokens = self._record(outcome)
        if isinstance(outcome, Overflow):
            self._tell(Measured(tokens, overhead, budget, outcome))
            name = self.name or request_context.model.model_name
            raise ContextOverflow(outcome, name, *self.learned_for(request_context.model))
        if isinstance(outcome, Compacted | Degraded):
            if self.install is not None:
                await self.install(outcome)
            self._count(outcome)
            history = outcome.messages
            # Two lists on purpose: the loop appends to its own, and one shared list would double messages.
            ctx.messages[:] = outcome.messages
            self.window_state.renewed()
        elif (text := self.window_state.reminder(tokens, budget)) is not None:
            reminder = ModelRequest(parts=[marked(text, "notice")])
            with_it = tokens + math.ceil(estimate_message(reminder) * self.factor())
            if budget.fits(with_it):
                added, tokens = [*added, reminder], with_it
        messages = self._checked([*history, *added])
        heuristic = self._meter.heuristic(history, overhead.total) + sum(map(estimate_message, added))
        shares = self._shares.measure(messages, overhead)
        self._tell(Measured(tokens, overhead, budget, outcome, heuristic, shares))
        settings = self._capped(request_context.model_settings, budget, tokens)
        return replace(request_context, messages=messages, model_settings=settings)

    async def after_tool_execute(
        self,
        ctx: RunContext[AgentDepsT],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        result: Any,
    ) -> Any:
        """Bound what a tool returned before it is appended to the history."""
        if self._result_limit is None:
            return result
        return bound_value(result, self._result_limit, f"{call.tool_name}-{call.tool_call_id}", self.spill)

    async def wrap_tool_execute(
        self,
        ctx: RunContext[AgentDepsT],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        handler: Callable[[dict[str, Any]], Awaitable[Any]],
    ) -> Any:
        """Bound what a tool that failed has said, such as the output of a command that ran out of time.

        So is what it says when it wants to be called again (`ModelRetry`).
        """
        try:
            return await handler(args)
        except ToolFailedError as error:
            told = error.tool_failed
            if self._result_limit is None or not isinstance(told.content, str):
                raise
            name = f"{call.tool_name}-{call.tool_call_id}"
            bounded = bound_result(told.content, self._result_limit, name, self.spill)
            raise ToolFailedError(replace(told, content=bounded)) from error
        except ToolRetryError as error:
            retry = error.tool_retry
            if self._result_limit is None or not isinstance(retry, ToolReturnPart):
                raise
            name = f"{call.tool_name}-{call.tool_call_id}"
            said = retry.model_response_str(wrap_if_error=False)
            bounded = bound_result(said, self._result_limit, name, self.spill)
            if bounded == said:
                raise
            raise ToolRetryError(replace(retry, content=bounded)) from error

    def _tell(self, measured: Measured) -> None:
        if self.on_measured is not None:
            self.on_measured(measured)

    def _judged(
        self, outcome: CompactionOutcome, history: Sequence[ModelMessage], budget: ContextBudget, fixed: int
    ) -> CompactionOutcome:
        """Judge by progress: degrading to the brief alone again and again is an overflow (needs.md 1)."""
        totals = self.totals
        if isinstance(outcome, Degraded) and not _has_response(outcome.messages):
            totals.blind_turns += 1
            totals.blind_rounds += 1
            if totals.blind_turns >= MAX_BLIND_TURNS or totals.blind_rounds >= MAX_BLIND_ROUNDS:
                return Overflow(outcome.tokens_before, budget.hard_limit, fixed, outcome.usage)
        elif not isinstance(outcome, Unchanged):
            totals.blind_turns = totals.blind_rounds = totals.most_work = 0
        elif (work := _amount_of_work(history)) > 0:
            totals.blind_turns = 0
            # A small call before each large one fits every time and gets nowhere.
            if work > totals.most_work:
                totals.most_work, totals.blind_rounds = work, 0
        return outcome

    def _record(self, outcome: CompactionOutcome) -> int:
        if isinstance(outcome, Unchanged):
            return outcome.tokens
        self.totals.summary_usage = self.totals.summary_usage.plus(outcome.usage)
        return outcome.tokens if isinstance(outcome, Overflow) else outcome.tokens_after

    def _count(self, outcome: Compacted | Degraded) -> None:
        """Count what was installed: what could not be made durable has not happened."""
        if isinstance(outcome, Compacted):
            self.totals.compactions += 1
            self.totals.failed_summaries = 0
        else:
            self.totals.degradations += 1
            self.totals.failed_summaries += 1

    def _checked(self, messages: list[ModelMessage]) -> list[ModelMessage]:
        try:
            self._validator.check(messages)
        except TranscriptError:
            messages = repair_messages(messages)
            self._validator.check(messages)
        return messages

    def _capped(
        self, settings: ModelSettings | None, budget: ContextBudget, tokens: int
    ) -> ModelSettings | None:
        if not self.send_output_limit:
            bare: ModelSettings = {**(settings or {})}
            bare.pop("max_tokens", None)
            return bare
        asked = (settings or {}).get("max_tokens") or self.max_tokens
        wanted = stricter_cap(self.cap, asked)
        if wanted is None:
            return settings
        # In a small window the reserve would eat the answer; the headroom already guarantees the output.
        reserve = max(REQUEST_RESERVE_TOKENS, -(-budget.window // 100))
        room = max(budget.output, budget.window - tokens - reserve)
        return {**(settings or {}), "max_tokens": min(wanted, room)}


def _amount_of_work(messages: Sequence[ModelMessage]) -> int:
    answers = [message for message in messages if isinstance(message, ModelResponse)]
    return len(answers) + sum(len(tool_calls(message)) for message in answers)


def _has_response(messages: Sequence[ModelMessage]) -> bool:
    return any(isinstance(message, ModelResponse) for message in messages)


def _summary_usage(outcome: CompactionOutcome) -> Usage:
    return Usage() if isinstance(outcome, Unchanged) else outcome.usage


def _with_usage(outcome: CompactionOutcome, spent: Usage) -> CompactionOutcome:
    """Add what an earlier summary request cost; a request that is left unchanged has no place for it."""
    return outcome if isinstance(outcome, Unchanged) else replace(outcome, usage=outcome.usage.plus(spent))


def _request_usage(outcome: CompactionOutcome) -> RequestUsage:
    """Return what a summary request used, for the run's own account."""
    if isinstance(outcome, Unchanged):
        return RequestUsage()
    return RequestUsage(input_tokens=outcome.usage.input_tokens, output_tokens=outcome.usage.output_tokens)


async def _given_up(request: SummaryRequest) -> SummaryReply:
    raise SummaryFailed("given up after summaries in a row that failed")


def _split_added(
    sent: Sequence[ModelMessage], history: Sequence[ModelMessage]
) -> tuple[list[ModelMessage], list[ModelMessage]]:
    """Split off what other capabilities put behind the history for this request only, such as a notice.

    It is counted and sent, and no compaction takes it away or writes it into the history.
    """
    count = len(history)
    if 0 < count < len(sent) and all(a is b for a, b in zip(sent, history, strict=False)):
        return list(sent[:count]), list(sent[count:])
    return list(sent), []
