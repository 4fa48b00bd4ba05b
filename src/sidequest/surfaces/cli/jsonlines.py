"""Results and events as JSON on standard output, one object a line, and nothing else."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from sidequest.core.errors import Failure
from sidequest.core.events import Numbered, event_as_dict, outcome_as_dict
from sidequest.core.outcome import Outcome, Status, Usage, report_text

if TYPE_CHECKING:
    from sidequest.runtime.session import TurnResult


def print_json(data: Mapping[str, Any]) -> None:
    """Write one object as one line and flush it, so that a reader sees it at once."""
    print(json.dumps(data, ensure_ascii=False, separators=(",", ":")), flush=True)


class JsonView:
    """Prints every event."""

    def __enter__(self) -> JsonView:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def pause(self) -> None:
        """Do nothing: nothing moves here."""

    def resume(self) -> None:
        """Do nothing."""

    def __call__(self, numbered: Numbered) -> None:
        """Take an event."""
        print_json(event_as_dict(numbered))

    def say(self, text: str) -> None:
        """Print nothing on standard output; the remark goes to standard error."""
        print(text, file=sys.stderr)


def outcome_result(outcome: Outcome) -> dict[str, Any]:
    """Return the last object of `delegate --json`; `ok` is true when there is usable text.

    `report` is what a parent agent would read. Counters that are 0 are given, as `run` gives them.
    """
    ok = outcome.status in (Status.COMPLETED, Status.PARTIAL)
    counters = {"contextCompactions": 0, "contextDegraded": False, "modelFailures": []}
    return {
        "type": "result",
        "ok": ok,
        **counters,
        **outcome_as_dict(outcome),
        "report": report_text(outcome),
    }


def turn_result(result: TurnResult) -> dict[str, Any]:
    """Return the last object of `run --json`; `usage.total` holds parent and delegations together."""
    data: dict[str, Any] = {
        "type": "result",
        "ok": result.ok,
        "text": result.text,
        "stopReason": result.stop_reason.value,
        "model": result.model,
        "elapsedMs": round(result.elapsed_s * 1000),
        "turns": result.turns,
        "usage": {**_usage(result.usage), "total": _usage(result.total_usage)},
        "contextCompactions": result.compactions,
        "contextDegraded": result.degradations > 0,
        "modelFailures": [
            {"agent": o.agent, "model": f.model, "code": f.code.value, "message": f.message}
            for o in result.delegations
            for f in o.model_failures
        ],
        "delegations": [outcome_as_dict(outcome) for outcome in result.delegations],
    }
    if result.failure is not None:
        data["error"] = failure_as_dict(result.failure)
    return data


def failure_as_dict(failure: Failure) -> dict[str, Any]:
    """Return a failure as the `error` of a result."""
    return {
        "code": failure.code.value,
        "message": failure.message,
        "retriable": failure.retriable,
        "details": dict(failure.details),
    }


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "requests": usage.requests,
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "costUsd": usage.cost_usd,
    }
