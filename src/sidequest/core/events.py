"""Everything a surface can be told, numbered per session.

A surface that lost its connection asks for what came after the last number it saw. Events are facts about
what happened; nothing in them asks a surface to do something.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar

from sidequest.core.outcome import Outcome
from sidequest.core.shares import Shares


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events; `delegation_id` None means the session's own agent."""

    type: ClassVar[str] = "event"
    delegation_id: str | None


@dataclass(frozen=True, slots=True)
class PromptReceived(Event):
    """A person gave the session's own agent a message: its turn begins."""

    type: ClassVar[str] = "prompt"
    text: str


@dataclass(frozen=True, slots=True)
class TurnStarted(Event):
    """A model request is about to leave."""

    type: ClassVar[str] = "turn_started"
    turn: int
    """Counted from 1."""
    tokens: int
    """Estimated size of the request, in tokens."""
    hard_limit: int
    """First size in tokens that would be too large."""
    shares: Shares = Shares()
    """What fills the request, by kind."""


@dataclass(frozen=True, slots=True)
class TextProduced(Event):
    """Assistant text, as it comes or at the end of a turn."""

    type: ClassVar[str] = "text"
    text: str


@dataclass(frozen=True, slots=True)
class ToolStarted(Event):
    """A tool call is about to run."""

    type: ClassVar[str] = "tool_started"
    call_id: str
    tool: str
    summary: str
    """The arguments in one line of at most 120 characters."""


@dataclass(frozen=True, slots=True)
class ToolEnded(Event):
    """A tool call has a result."""

    type: ClassVar[str] = "tool_ended"
    call_id: str
    tool: str
    ok: bool
    chars: int
    """Size of the result in characters."""
    reason: str = ""
    """Beginning of what the model was told when it failed, in one line; empty when it did not."""


@dataclass(frozen=True, slots=True)
class ContextCompacted(Event):
    """History was replaced by a summary; sizes in tokens."""

    type: ClassVar[str] = "context_compacted"
    tokens_before: int
    tokens_after: int
    hard_limit: int


@dataclass(frozen=True, slots=True)
class ContextDegraded(Event):
    """History was lost without a summary, as a rule to the brief and the newest rounds; sizes in tokens."""

    type: ClassVar[str] = "context_degraded"
    tokens_before: int
    tokens_after: int
    hard_limit: int
    reason: str


@dataclass(frozen=True, slots=True)
class DelegationStarted(Event):
    """A delegation was accepted and runs."""

    type: ClassVar[str] = "delegation_started"
    agent: str
    label: str
    task: str
    model: str
    context_mode: str
    hard_limit: int
    started_at_ms: int
    """Milliseconds since the epoch."""


@dataclass(frozen=True, slots=True)
class ModelSwitched(Event):
    """A delegation goes on with another model, after the one before it failed."""

    type: ClassVar[str] = "model_switched"
    model: str
    after: str
    """Key of the model that failed."""
    code: str
    message: str
    hard_limit: int


@dataclass(frozen=True, slots=True)
class RetryScheduled(Event):
    """A request failed in a way that waiting may cure."""

    type: ClassVar[str] = "retry_scheduled"
    attempt: int
    delay_s: float
    code: str
    message: str = ""
    """What the provider said, or why it was not reached."""


@dataclass(frozen=True, slots=True)
class DelegationSettled(Event):
    """A delegation ended; nothing about it changes after this."""

    type: ClassVar[str] = "delegation_settled"
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class RunEnded(Event):
    """The session's own agent finished its turn, or failed."""

    type: ClassVar[str] = "run_ended"
    ok: bool
    text: str
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Notice(Event):
    """Something a person should know that changes nothing: a diagnostic, a default that was taken."""

    type: ClassVar[str] = "notice"
    text: str


@dataclass(frozen=True, slots=True)
class Numbered:
    """An event with its place in the session: numbers start at 1 and have no gaps."""

    number: int
    at_ms: int
    """Milliseconds since the epoch."""
    event: Event


Listener = Callable[[Numbered], None]


@dataclass
class EventLog:
    """The events of one session, in order; `now_ms` is the caller's clock, milliseconds since the epoch."""

    now_ms: Callable[[], int]
    start: int = 0
    """Number of the newest event that an earlier process stored; 0 for a new session."""
    failed_listeners: list[tuple[Listener, Exception]] = field(default_factory=list)
    """Listeners that raised, with what they raised; they are told nothing more."""
    _events: list[Numbered] = field(default_factory=list)
    _listeners: list[Listener] = field(default_factory=list)

    @property
    def newest(self) -> int:
        """Number of the newest event, 0 when there is none."""
        return self.start + len(self._events)

    def emit(self, event: Event) -> Numbered:
        """Number `event`, keep it and tell every listener."""
        numbered = Numbered(self.newest + 1, self.now_ms(), event)
        self._events.append(numbered)
        for listener in tuple(self._listeners):
            try:
                listener(numbered)
            except Exception as error:  # noqa: BLE001 - a screen that fails must not end what it shows
                self.failed_listeners.append((listener, error))
                self._drop(listener)
        return numbered

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` for every event from now on; the returned function ends that."""
        self._listeners.append(listener)
        return lambda: self._drop(listener)

    def _drop(self, listener: Listener) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)

    def after(self, number: int = 0) -> Iterator[Numbered]:
        """Return this process's events whose number is greater than `number`; 0 means all of them."""
        return iter(self._events[max(0, number - self.start) :])


def event_as_dict(numbered: Numbered) -> dict[str, Any]:
    """Return an event as plain values, as `--json` prints it and a web client reads it."""
    event = numbered.event
    values = {_camel(item.name): _plain(getattr(event, item.name)) for item in fields(event)}
    return {"number": numbered.number, "atMs": numbered.at_ms, "type": event.type, **values}


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def _plain(value: Any) -> Any:
    if isinstance(value, Shares):
        return asdict(value)
    return outcome_as_dict(value) if isinstance(value, Outcome) else value


def outcome_as_dict(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as plain values: the metadata block of specification 5.4 and the counters of 3.1.

    `costUsd` is None when a price is unknown. Empty optional parts are left out: `error`, `modelFailures`,
    `contextCompactions` when 0, `contextDegraded` unless true.
    """
    data: dict[str, Any] = {
        "delegationId": outcome.delegation_id,
        "agent": outcome.agent,
        "model": outcome.model,
        "contextMode": outcome.context_mode,
        "status": outcome.status.value,
        "stopReason": outcome.stop_reason.value,
        "elapsedMs": round(outcome.elapsed_s * 1000),
        "turns": outcome.turns,
        "toolCalls": outcome.tool_calls,
        "usage": {
            "requests": outcome.usage.requests,
            "inputTokens": outcome.usage.input_tokens,
            "outputTokens": outcome.usage.output_tokens,
            "costUsd": outcome.usage.cost_usd,
        },
        "report": outcome.report,
    }
    if outcome.failure is not None:
        data["error"] = {
            "code": outcome.failure.code.value,
            "message": outcome.failure.message,
            "retriable": outcome.failure.retriable,
            "details": dict(outcome.failure.details),
        }
    if outcome.model_failures:
        data["modelFailures"] = [
            {"model": f.model, "code": f.code.value, "message": f.message} for f in outcome.model_failures
        ]
    if outcome.compactions:
        data["contextCompactions"] = outcome.compactions
    if outcome.degraded:
        data["contextDegraded"] = True
        data["contextDegradations"] = outcome.degradations
    if outcome.unfinished_tool:
        data["unfinishedTool"] = outcome.unfinished_tool
    return data
