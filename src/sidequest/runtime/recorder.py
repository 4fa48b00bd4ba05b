"""The pydantic-ai capability that watches a run: counts, events, the turn limit, answers that were cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ToolFailed, ToolFailedError, ToolRetryError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.tools import RunContext, ToolDefinition

from sidequest.core.compaction import Compacted, Degraded, Overflow
from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.events import (
    ContextCompacted,
    ContextDegraded,
    Event,
    Notice,
    TextProduced,
    ToolEnded,
    ToolStarted,
    TurnStarted,
)
from sidequest.core.outcome import LIMITS, StopReason, Usage
from sidequest.core.tokens import compact_json
from sidequest.core.transcript import marked
from sidequest.runtime.chains import Reads, read_by
from sidequest.runtime.costs import Price, catalog_price, usage_of
from sidequest.runtime.endings import broken_off, cut_by_limit
from sidequest.runtime.guard import ContextOverflow, Measured
from sidequest.runtime.journal import LaneJournal
from sidequest.runtime.limits import LimitWatch
from sidequest.runtime.prompts import LAST_TURN_NOTICE
from sidequest.store.rows import DelegationProgress

if TYPE_CHECKING:
    from pydantic_ai.models import ModelRequestContext

Emit = Callable[[Event], object]


class LimitReached(SidequestError):
    """A limit struck and the last turn wrote no report."""

    def __init__(self, reason: StopReason) -> None:
        code, name = LIMITS[reason]
        super().__init__(
            code, f"The {name} was reached without a report.", f"Raise the {name} or narrow the task."
        )


class ToolCallCut(SidequestError):
    """The output limit cut an answer inside a tool call, twice in a row; it was not executed."""

    def __init__(self, tool: str, limit: int | None) -> None:
        said = f"limit of {limit} tokens" if limit else "limit"
        super().__init__(
            ErrorCode.SUBAGENT_OUTPUT_TRUNCATED,
            f"The output {said} cut the call of {tool} before it was complete; it was not executed.",
            "Raise maxTokens in the definition, or ask for smaller steps.",
            maxTokens=limit,
        )


@dataclass
class Progress:
    """How far a run is; read by heartbeats and screens while it runs."""

    turns: int = 0
    tool_calls: int = 0
    last_tool: str | None = None
    running_tool: str | None = None
    """A tool that has started and not ended, or None."""
    reads: Reads = field(default_factory=Reads)
    """What was looked at so far, also what a compaction took out of the history."""
    tokens: int = 0
    """Size of the newest request, in tokens."""
    hard_limit: int = 0
    report: str = ""
    """Last assistant text with content."""
    final: bool = False
    """Whether `report` came after the last tool result."""
    output_cut: bool = False
    """Whether the answer that holds `report` was cut by the output limit."""
    filtered: bool = False
    """Whether the provider's content filter ended the newest answer."""
    broken_off: str = ""
    """The provider's word when a trouble of its own ended the newest answer."""
    limit: StopReason | None = None
    """Which limit made the newest turn the last one."""
    usage: Usage = field(default_factory=Usage)


@dataclass
class RunRecorder(AbstractCapability[Any]):
    """Tells `emit` what a run does and keeps `progress` true.

    Before a limit of `watch` strikes, the last turn is asked for a report without tools.
    A tool call in an answer that the output limit cut is never executed: the model is told and asked again
    once, then the run ends with `ToolCallCut`.
    """

    delegation_id: str | None
    emit: Emit
    progress: Progress = field(default_factory=Progress)
    watch: LimitWatch = field(default_factory=LimitWatch)
    emit_text: bool = True
    lane: LaneJournal | None = None
    """Where the run is written down; None keeps it in memory."""
    model_key: str = ""
    """Key of the model that runs."""
    on_response: Callable[[ModelResponse], None] | None = None
    """Called with each answer; may raise to throw the answer away."""
    price: Price = catalog_price
    model_error: Exception | None = field(default=None, init=False)
    """The failure of the newest model request, None when it came through."""
    asked: bool = field(default=False, init=False)
    """Whether this attempt has come to a request; the attempt's history is its own from then on."""
    in_flight: bool = field(default=False, init=False)
    """Whether a request has left and its answer is not complete: a stream that breaks tells no other hook."""
    sent: Sequence[ModelMessage] = field(default=(), init=False)
    """Messages of the newest request that was answered."""
    sent_output_limit: int | None = field(default=None, init=False)
    _cut_calls: int = field(default=0, init=False)
    _again: bool = field(default=False, init=False)
    """Whether the coming request repeats one that failed: however often it is tried, it is one turn."""

    @property
    def request_failed(self) -> bool:
        """Whether the newest request left and did not come through, whichever way that was told."""
        return self.model_error is not None or self.in_flight

    def measured(self, measured: Measured) -> None:
        """Take note of a request that is about to leave; the guard calls this."""
        outcome, budget = measured.outcome, measured.budget
        if isinstance(outcome, Compacted):
            self.emit(
                ContextCompacted(
                    self.delegation_id, outcome.tokens_before, outcome.tokens_after, budget.hard_limit
                )
            )
        elif isinstance(outcome, Degraded):
            self.emit(
                ContextDegraded(
                    self.delegation_id,
                    outcome.tokens_before,
                    outcome.tokens_after,
                    budget.hard_limit,
                    outcome.reason,
                )
            )
        elif isinstance(outcome, Overflow):
            return
        self.in_flight = True
        if not self._again:
            self.progress.turns += 1
        self.progress.tokens = measured.tokens
        self.progress.hard_limit = budget.hard_limit
        turn = self.progress.turns
        self.emit(TurnStarted(self.delegation_id, turn, measured.tokens, budget.hard_limit, measured.shares))

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Store what is about to be sent, and ask for the report when a limit makes this the last turn."""
        self.asked = True
        if self.lane is not None:
            await self.lane.sent(ctx.messages)
        self._again = self.request_failed
        self.model_error, self.in_flight = None, False
        turn = self.progress.turns + (0 if self._again else 1)
        struck = self.progress.limit
        if struck is not None and not self._again:
            raise LimitReached(struck)
        struck = struck or self.watch.coming(turn)
        if struck is None:
            return request_context
        if turn == 1 and self.watch.account.exhausted:
            self.progress.limit = struck
            raise LimitReached(struck)  # nothing was done that could be reported
        self.progress.limit = struck
        notice = ModelRequest(parts=[marked(LAST_TURN_NOTICE, "notice")])
        return replace(
            request_context,
            messages=[*request_context.messages, notice],
            model_settings={**(request_context.model_settings or {}), "tool_choice": "none"},
        )

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Count the answer, and keep its calls from running when they must not."""
        self.sent = request_context.messages
        self.sent_output_limit = (request_context.model_settings or {}).get("max_tokens")
        used = usage_of(response, self.price)
        self.progress.usage = self.progress.usage.plus(used)
        self._spend(response, used)
        if self.on_response is not None:
            self.on_response(response)
        # Not before: an answer that was thrown away is asked for again, in the same turn.
        self.in_flight = False
        text = "\n\n".join(part.content for part in response.parts if isinstance(part, TextPart)).strip()
        calls = [part for part in response.parts if isinstance(part, ToolCallPart)]
        cut = cut_by_limit(response)
        self.progress.filtered = response.finish_reason == "content_filter"
        self.progress.broken_off = broken_off(response)
        if text or (cut and not calls):
            self.progress.output_cut = cut
        if text:
            self.progress.report = text
            if self.emit_text:
                self.emit(TextProduced(self.delegation_id, text))
        self.progress.final = bool(text) and not calls
        if calls and cut:
            raise await self._cut_answer(response, calls)
        if calls and self.progress.limit is not None:
            response = self._without_late_calls(response, text)
        self._cut_calls = 0
        await self._store(response)
        return response

    async def _store(self, response: ModelResponse) -> None:
        if self.lane is None or not response.parts:
            return
        now = self.progress
        far = DelegationProgress(now.turns, now.tool_calls, now.tokens, self.model_key, now.last_tool)
        await self.lane.said(response, far)

    async def on_model_request_error(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, error: Exception
    ) -> ModelResponse:
        """Remember that it was the model's request that failed, and let the failure go on."""
        self.model_error = error
        self.sent_output_limit = (request_context.model_settings or {}).get("max_tokens")
        raise error

    async def before_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
    ) -> dict[str, Any]:
        """Tell that a tool starts."""
        self.progress.tool_calls += 1
        self.progress.last_tool = self.progress.running_tool = call.tool_name
        self.progress.final = False
        summary = call_summary(call, self.lane.journal.store.masked if self.lane is not None else str)
        self.emit(ToolStarted(self.delegation_id, call.tool_call_id, call.tool_name, summary))
        return args

    def denied(self, call: ToolCallPart) -> None:
        """Tell of a call that is not let through: `before_tool_execute` is passed over, its end is told."""
        self.progress.tool_calls += 1
        self.progress.last_tool = call.tool_name
        self.progress.final = False
        self.emit(ToolStarted(self.delegation_id, call.tool_call_id, call.tool_name, call_summary(call)))

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        handler: Callable[[dict[str, Any]], Any],
    ) -> Any:
        """Tell that a tool ended, well or not."""
        try:
            result = await handler(args)
        except ContextOverflow as error:
            # Of an agent that the tool runs: this run's own requests fit, and its model can act on it.
            self._tool_ended(call, reason=str(error))
            raise ToolFailed(str(error)) from error
        except Exception as error:
            told = _told_to_model(error)
            if self.lane is not None and told is not None:
                await self.lane.result(told)
            self._tool_ended(call, reason=str(told.content) if told is not None else str(error))
            raise
        if self.lane is not None:
            await self.lane.done(call, result)
        value = getattr(result, "return_value", result)
        self._tool_ended(call, chars=len(value) if isinstance(value, str) else 0)
        return result

    async def after_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        result: Any,
    ) -> Any:
        """Count what was read."""
        self.progress.reads = self.progress.reads.plus(read_by(call, getattr(result, "return_value", result)))
        return result

    def _tool_ended(self, call: ToolCallPart, *, chars: int = 0, reason: str | None = None) -> None:
        """Tell the end of a call; `reason` None means that it went well."""
        if self.progress.running_tool == call.tool_name:
            self.progress.running_tool = None
        line = " ".join((reason or "").split())[:REASON_CHARS]
        self.emit(
            ToolEnded(self.delegation_id, call.tool_call_id, call.tool_name, reason is None, chars, line)
        )

    def _spend(self, response: ModelResponse, used: Usage) -> None:
        limits = (self.watch.limits.cost_usd, self.watch.account.limit_usd)
        model = response.model_name or "the model"
        if used.cost_usd is None and any(limits) and model not in self.watch.account.unpriced:
            text = f"No price is known for {model}: its requests do not count towards the cost limit."
            self.emit(Notice(self.delegation_id, text))
        self.watch.spend(model, used.cost_usd)

    def _without_late_calls(self, response: ModelResponse, text: str) -> ModelResponse:
        if not text:
            raise LimitReached(self.progress.limit or StopReason.TURN_LIMIT)
        self.progress.final = True
        return replace(response, parts=[p for p in response.parts if not isinstance(p, ToolCallPart)])

    async def _cut_answer(self, response: ModelResponse, calls: list[ToolCallPart]) -> Exception:
        """Return what ends this attempt: the answer without its calls, or the end of the run."""
        self._cut_calls += 1
        if self._cut_calls > 1:
            return ToolCallCut(calls[-1].tool_name, self.sent_output_limit)
        limit = f" of {self.sent_output_limit} tokens" if self.sent_output_limit else ""
        kept = [p for p in response.parts if not isinstance(p, ToolCallPart)]
        # Providers refuse an answer that ends in reasoning: without any text nothing of it is kept.
        said = any(isinstance(p, TextPart) and p.content.strip() for p in kept)
        left = replace(response, parts=kept if said else [])
        await self._store(left)
        return CutAnswer(
            left,
            f"Your answer was cut by the output limit{limit} inside a call of {calls[-1].tool_name}, and the "
            "call was not executed. Go on in smaller steps: shorter arguments, several calls.",
        )


REASON_CHARS = 240
"""Longest reason of a failed call in an event, in characters."""


def _told_to_model(error: Exception) -> ToolReturnPart | None:
    """Return the result that a failed tool gives the model, or None when it ends the run instead."""
    match error:
        case ToolFailedError():
            return error.tool_failed
        case ToolRetryError(tool_retry=ToolReturnPart() as told):
            return told
        case _:
            return None


class CutAnswer(Exception):
    """An answer was cut inside a tool call: `response` is what may be kept, `notice` is for the model."""

    def __init__(self, response: ModelResponse, notice: str) -> None:
        super().__init__(notice)
        self.response = response
        self.notice = notice


def call_summary(call: ToolCallPart, mask: Callable[[str], str] = str) -> str:
    """Return the arguments that a model gave, in one line of at most 120 characters.

    `mask` sees them before they are cut: half of a secret would not be found.
    """
    try:
        args = call.args_as_dict()
    except ValueError:
        args = {"": str(call.args)}
    if len(args) == 1:
        (value,) = args.values()
        text = value if isinstance(value, str) else compact_json(value)
    else:
        text = ", ".join(f"{k}={v if isinstance(v, str) else compact_json(v)}" for k, v in args.items())
    line = " ".join(mask(text).split())
    return line if len(line) <= 120 else line[:119] + "…"
