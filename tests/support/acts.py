"""A script for the loopback provider: work answers in order, and one answer for every summary request."""

from __future__ import annotations

import inspect
from typing import Any

from tests.support.neutral import Answer, Reply, Seen

FOUND = "## Goal\nGo on with the task.\n\n## Critical Context\n- FOUND-SO-FAR"
"""A summary that can be recognised in a later request."""


def is_summary(seen: Seen) -> bool:
    """Say whether `seen` asks for a summary instead of work."""
    return bool(seen.user_texts) and seen.user_texts[-1].startswith("<conversation>")


def call(tool: str, **args: Any) -> Reply:
    """Return an answer that calls one tool."""
    return Reply(tool_calls=[(tool, args)])


class Acts:
    """Answers the work requests with `work` in order; `summary` answers summary requests, however many.

    Each may be a text, an answer, or a function of the request that returns one, awaitable or not.
    """

    def __init__(self, *work: Any, summary: Any = FOUND) -> None:
        self._work = work
        self._summary = summary
        self.worked: list[Seen] = []
        """Work requests that reached the model, in order."""
        self.summarised: list[Seen] = []

    async def __call__(self, seen: Seen) -> Answer | str:
        if is_summary(seen):
            self.summarised.append(seen)
            return await _resolved(self._summary, seen)
        self.worked.append(seen)
        if len(self.worked) > len(self._work):
            raise LookupError(f"only {len(self._work)} work requests were expected")
        return await _resolved(self._work[len(self.worked) - 1], seen)


async def _resolved(answer: Any, seen: Seen) -> Any:
    while callable(answer):
        answer = answer(seen)
        if inspect.isawaitable(answer):
            answer = await answer
    return answer
