"""A delegation that ended in an earlier process: what a registry needs to list it and to go on with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai.messages import ModelMessage

from sidequest.core.context_modes import ContextMode, parse_context_mode
from sidequest.core.errors import ErrorCode, Failure, SidequestError, code_of
from sidequest.core.outcome import ModelFailure, Outcome, Status, StopReason, Usage
from sidequest.core.permissions import Mode
from sidequest.runtime.recorder import Progress
from sidequest.store.rows import DelegationRow
from sidequest.subagents.definition import Permission, SubagentDefinition


@dataclass(frozen=True, slots=True)
class PastPlan:
    """What is left of a plan: who ran, and in which mode."""

    delegation_id: str
    agent: str
    context_mode: ContextMode
    definition: Mapping[str, Any]
    """The definition as it was stored when the run began."""

    def granted(self, available: Iterable[str]) -> tuple[str, ...]:
        """Return which of the tools in `available` the definition granted then."""
        stored = self.definition
        then = SubagentDefinition(
            "as-it-was",
            "As it was.",
            "As it was.",
            tools=tuple(stored.get("tools", ())),
            inherit_tools=bool(stored.get("inherit_tools")),
            disallowed_tools=tuple(stored.get("disallowed_tools", ())),
        )
        return then.granted_tools(available)

    @property
    def mode(self) -> Mode | None:
        """How the definition had actions approved then; None as the session does it."""
        stored = self.definition.get("permission", Permission.INHERIT.value)
        # A word of a newer version says nothing that could be relied on: the narrowest is taken.
        return None if stored == Permission.INHERIT else Mode(stored) if stored in set(Mode) else Mode.ASK


@dataclass
class PastRun:
    """Stands where a `DelegationRun` would; its messages are loaded when somebody resumes it."""

    plan: PastPlan
    model_key: str
    progress: Progress
    messages: Sequence[ModelMessage] = field(default_factory=list)
    given: int = 0
    """How many of `messages`, from the first, are the parent's: what a fork was given."""
    loaded: bool = False
    cut: bool = False
    """Whether `messages` are the newest only: the run has said and done more before them."""
    damage: SidequestError | None = None
    """Why what it was given or had done cannot be read again; None when it can."""
    overhead: int = 0

    def request_stop(self) -> None:
        """Nothing runs here."""


def past_run(row: DelegationRow) -> PastRun:
    """Return the run that a stored row stands for."""
    mode = parse_context_mode(row.context_mode) or ContextMode.INDEPENDENT
    progress = Progress(
        turns=row.turns,
        tool_calls=row.tool_calls,
        last_tool=row.last_tool,
        tokens=row.tokens,
        report=row.report,
    )
    return PastRun(PastPlan(row.id, row.agent, mode, row.definition), row.model, progress)


def past_outcome(row: DelegationRow) -> Outcome:
    """Return how a stored delegation ended; one that the process left running was interrupted."""
    data: Mapping[str, Any] = row.outcome or {}
    error = data.get("error")
    failure = None
    if isinstance(error, Mapping):
        details = error.get("details", {})
        failure = Failure(code_of(error["code"]), str(error["message"]), bool(error["retriable"]), details)
    elif row.status is Status.INTERRUPTED:
        failure = Failure(
            ErrorCode.TURN_ABORTED,
            "The process ended while this delegation ran. Resume it to go on with what it had done.",
        )
    elapsed = ((row.completed_at_ms or row.started_at_ms) - row.started_at_ms) / 1000
    return Outcome(
        row.id,
        row.agent,
        Status.INTERRUPTED if row.status is Status.RUNNING else row.status,
        StopReason(data.get("stopReason", StopReason.STOPPED.value)),
        row.report,
        row.model,
        row.context_mode,
        elapsed,
        row.turns,
        row.tool_calls,
        usage=_usage(data.get("usage", {})),
        failure=failure,
        model_failures=tuple(
            ModelFailure(str(each["model"]), code_of(each["code"]), str(each["message"]))
            for each in data.get("modelFailures", ())
        ),
        compactions=int(data.get("contextCompactions", 0)),
        degradations=int(data.get("contextDegradations", 0)),
        unfinished_tool=data.get("unfinishedTool"),
    )


def _usage(data: Mapping[str, Any]) -> Usage:
    return Usage(
        int(data.get("requests", 0)),
        int(data.get("inputTokens", 0)),
        int(data.get("outputTokens", 0)),
        data.get("costUsd"),
    )
