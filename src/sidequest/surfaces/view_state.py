"""What a person watches while a session works: events in, data out, nothing drawn.

`reduce` is pure, so a recorded list of events always gives the same view.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sidequest.core.events import (
    ContextCompacted,
    ContextDegraded,
    DelegationSettled,
    DelegationStarted,
    Event,
    ModelSwitched,
    Numbered,
    RetryScheduled,
    RunEnded,
    TextProduced,
    ToolEnded,
    ToolStarted,
    TurnStarted,
)
from sidequest.core.outcome import Outcome, Status


@dataclass(frozen=True, slots=True)
class AgentView:
    """How far an agent is: the parent's, or the part that every delegation has too."""

    turns: int = 0
    tools: int = 0
    tokens: int = 0
    """Size of the newest request, or of what a compaction left; in tokens."""
    hard_limit: int = 0
    """First size in tokens that would be too large."""
    compactions: int = 0
    degradations: int = 0
    tool: str = ""
    """Name of the tool that was called last."""
    tool_summary: str = ""
    tool_running: bool = False
    waiting_for: str = ""
    """Why nothing happens at the moment, or empty."""


@dataclass(frozen=True, slots=True)
class DelegationView:
    """One delegation as it is shown."""

    number: int
    """Counted from 1 in the order of the starts, over all processes that worked on the session."""
    id: str
    agent: str
    label: str
    model: str
    context_mode: str
    started_at_ms: int
    at: AgentView = AgentView()
    ended_at_ms: int | None = None
    outcome: Outcome | None = None

    @property
    def status(self) -> Status:
        """Where it stands."""
        return self.outcome.status if self.outcome else Status.RUNNING

    def elapsed_s(self, now_ms: int) -> float:
        """Return for how many seconds it has been running, or how long it took."""
        end = self.ended_at_ms if self.ended_at_ms is not None else now_ms
        return max(0, end - self.started_at_ms) / 1000


@dataclass(frozen=True, slots=True)
class ViewState:
    """Everything that is shown of a session."""

    started_at_ms: int | None = None
    parent: AgentView = AgentView()
    text: str = ""
    """What the parent has written in the turn that runs, until a tool call or the next turn."""
    delegations: tuple[DelegationView, ...] = ()
    ended: bool = False
    earlier: int = 0
    """How many delegations the session had before; numbers go on from there."""

    def find(self, delegation_id: str | None) -> DelegationView | None:
        """Return the delegation with that id, or None."""
        return next((found for found in self.delegations if found.id == delegation_id), None)

    @property
    def running(self) -> tuple[DelegationView, ...]:
        """Delegations that have not ended, oldest first."""
        return tuple(found for found in self.delegations if found.outcome is None)


def reduce(state: ViewState, numbered: Numbered) -> ViewState:
    """Return what is to be shown after one more event; events of unknown delegations change nothing."""
    event = numbered.event
    if state.started_at_ms is None:
        state = replace(state, started_at_ms=numbered.at_ms)
    if isinstance(event, DelegationStarted):
        new = started(event, state.earlier + len(state.delegations) + 1)
        return replace(state, delegations=(*state.delegations, new))
    if event.delegation_id is None:
        return _parent(state, event)
    found = state.find(event.delegation_id)
    return state if found is None else _with(state, reduce_delegation(found, event, numbered.at_ms))


def started(event: DelegationStarted, number: int) -> DelegationView:
    """Return a delegation as it begins; `number` is its place among those of the session."""
    return DelegationView(
        number=number,
        id=event.delegation_id or "",
        agent=event.agent,
        label=event.label,
        model=event.model,
        context_mode=event.context_mode,
        started_at_ms=event.started_at_ms,
        at=AgentView(hard_limit=event.hard_limit),
    )


def _with(state: ViewState, changed: DelegationView) -> ViewState:
    every = tuple(changed if old.id == changed.id else old for old in state.delegations)
    return replace(state, delegations=every)


def _parent(state: ViewState, event: Event) -> ViewState:
    state = replace(state, parent=reduce_agent(state.parent, event))
    match event:
        case TextProduced(text=text):
            return replace(state, text=state.text + text)
        case TurnStarted() | ToolStarted() | RetryScheduled():
            return replace(state, text="")
        case RunEnded():
            return replace(state, ended=True)
        case _:
            return state


def reduce_delegation(view: DelegationView, event: Event, at_ms: int) -> DelegationView:
    """Return a delegation after one more event of its own."""
    match event:
        case ModelSwitched(model=model, hard_limit=limit):
            return replace(view, model=model, at=replace(view.at, hard_limit=limit, waiting_for=""))
        case DelegationSettled(outcome=outcome):
            if outcome.status is Status.INTERRUPTED:
                # Told by the process that goes on, perhaps a day later.
                at_ms = view.started_at_ms + round(outcome.elapsed_s * 1000)
            return replace(
                view, outcome=outcome, model=outcome.model, ended_at_ms=at_ms, at=_settled(view.at, outcome)
            )
        case _:
            return replace(view, at=reduce_agent(view.at, event))


def _settled(at: AgentView, outcome: Outcome) -> AgentView:
    """The outcome has the last word on every count, unless it was put together after a kill."""
    killed = outcome.status is Status.INTERRUPTED
    return replace(
        at,
        turns=outcome.turns,
        tools=max(at.tools, outcome.tool_calls) if killed else outcome.tool_calls,
        compactions=outcome.compactions,
        degradations=outcome.degradations,
        tool_running=False,
        waiting_for="",
    )


def reduce_agent(at: AgentView, event: Event) -> AgentView:
    """Return how far an agent is after one more event of its own."""
    match event:
        case TurnStarted(turn=turn, tokens=tokens, hard_limit=limit):
            return replace(at, turns=turn, tokens=tokens, hard_limit=limit, waiting_for="")
        case ToolStarted(tool=tool, summary=summary):
            return replace(at, tools=at.tools + 1, tool=tool, tool_summary=summary, tool_running=True)
        case ToolEnded(tool=tool):
            return replace(at, tool_running=at.tool_running and tool != at.tool)
        case ContextCompacted(tokens_after=tokens, hard_limit=limit):
            return replace(at, compactions=at.compactions + 1, tokens=tokens, hard_limit=limit)
        case ContextDegraded(tokens_after=tokens, hard_limit=limit):
            return replace(at, degradations=at.degradations + 1, tokens=tokens, hard_limit=limit)
        case RetryScheduled(delay_s=delay, code=code):
            return replace(at, waiting_for=f"{code}, trying again in {delay:.0f}s")
        case _:
            return at
