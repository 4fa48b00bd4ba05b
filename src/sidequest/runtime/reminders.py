"""What a session's agent is told when its window fills, and what it may ask for (specification 2.9)."""

from __future__ import annotations

from dataclasses import dataclass, field

from sidequest.core.budget import ContextBudget

LAST_REMINDER_TOKENS = 2_000
"""Remaining tokens at which the second reminder comes, inclusive."""
NEW_CONTEXT_DESCRIPTION = (
    "Start a new context window: at the next step the conversation so far is replaced by a summary. "
    "Files, commands that run and delegations are left alone. Use it between two pieces of work that do not "
    "need each other's details."
)
NEW_CONTEXT_REPLY = "The conversation will be summarised before your next step. Go on with the work."


def reminder_text(remaining: int, *, last: bool) -> str:
    """Return the reminder; `remaining` is tokens until the history is summarised."""
    if last:
        return (
            f"Context: about {remaining} tokens are left, and the next request will be summarised. Write "
            "down now, in files or in your answer, what must survive."
        )
    return (
        f"Context: about {remaining} tokens are left before this conversation is summarised. Finish what you "
        "are at, write what must last into files, read narrowly, or call new_context at a good point."
    )


@dataclass
class WindowState:
    """What belongs to a window and not to a run: it lives as long as the conversation."""

    compact_requested: bool = False
    """The model called new_context."""
    recall: bool = False
    """Whether summaries name the tool that reads what they replaced."""
    remind: bool = False
    """Whether reminders are given, and the loss of history is told; a delegate's report tells it instead."""
    _given: set[bool] = field(default_factory=set)

    def take_request(self) -> bool:
        """Return whether a compaction was asked for, and forget it: it is tried once."""
        asked, self.compact_requested = self.compact_requested, False
        return asked

    def renewed(self) -> None:
        """A compaction was installed: a new window has begun."""
        self._given.clear()

    def reminder(self, tokens: int, budget: ContextBudget) -> str | None:
        """Return what to say about a request of `tokens`, each thing once per window; None for nothing.

        The first comes at `budget.reminder` remaining tokens, in a small window at a third of it: otherwise
        it would come with the first request. Worked number: a `hard_limit` of 111,616 reminds at 16,742.
        """
        if not self.remind:
            return None
        remaining = budget.hard_limit - tokens
        if remaining <= min(LAST_REMINDER_TOKENS, budget.hard_limit // 6):
            return self._once(remaining, last=True)
        if remaining <= min(budget.reminder, budget.hard_limit // 3):
            return self._once(remaining, last=False)
        return None

    def _once(self, remaining: int, *, last: bool) -> str | None:
        if last in self._given:
            return None
        self._given.update({last, False})
        return reminder_text(remaining, last=last)
