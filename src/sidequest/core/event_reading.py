"""Reads events back from the plain values that `event_as_dict` made of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any

from sidequest.core import events
from sidequest.core.errors import Failure, code_of
from sidequest.core.events import Event, Numbered
from sidequest.core.outcome import ModelFailure, Outcome, Status, StopReason, Usage
from sidequest.core.shares import Shares

_KINDS: dict[str, type[Event]] = {
    kind.type: kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, Event)
}


def event_from_dict(data: Mapping[str, Any]) -> Numbered | None:
    """Return the event that `data` was made of; None for a kind that this version does not know.

    Fields that an older version did not write take their defaults.

    Raises:
        TypeError: a field without a default is missing.
    """
    kind = _KINDS.get(str(data.get("type")))
    if kind is None or kind is Event:
        return None
    given = {_snake(name): value for name, value in data.items()}
    values = {item.name: given[item.name] for item in fields(kind) if item.name in given}
    if isinstance(values.get("shares"), Mapping):
        values["shares"] = Shares(**{f.name: values["shares"].get(f.name, 0) for f in fields(Shares)})
    if isinstance(values.get("outcome"), Mapping):
        values["outcome"] = outcome_from_dict(values["outcome"])
    return Numbered(int(data["number"]), int(data["atMs"]), kind(**values))


@cache
def _snake(name: str) -> str:
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()


def outcome_from_dict(data: Mapping[str, Any]) -> Outcome:
    """Return the outcome that `outcome_as_dict` wrote down."""
    usage = data.get("usage") or {}
    error = data.get("error")
    return Outcome(
        delegation_id=data["delegationId"],
        agent=data["agent"],
        status=Status(data["status"]),
        stop_reason=StopReason(data["stopReason"]),
        report=data.get("report", ""),
        model=data["model"],
        context_mode=data["contextMode"],
        elapsed_s=data.get("elapsedMs", 0) / 1000,
        turns=data.get("turns", 0),
        tool_calls=data.get("toolCalls", 0),
        usage=Usage(
            usage.get("requests", 0),
            usage.get("inputTokens", 0),
            usage.get("outputTokens", 0),
            usage.get("costUsd"),
        ),
        failure=None
        if error is None
        else Failure(
            code_of(error["code"]),
            error["message"],
            bool(error.get("retriable")),
            error.get("details", {}),
        ),
        model_failures=tuple(
            ModelFailure(item["model"], code_of(item["code"]), item["message"])
            for item in data.get("modelFailures", ())
        ),
        compactions=data.get("contextCompactions", 0),
        degradations=data.get("contextDegradations", 0),
        unfinished_tool=data.get("unfinishedTool"),
    )
