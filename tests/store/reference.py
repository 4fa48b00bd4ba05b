"""The store as plain dicts: what it should hold after any operations, written as simply as possible."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai.messages import ModelMessage, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart

from sidequest.store.payload import INTERRUPTED

Said = tuple[Any, ...]


@dataclass
class Row:
    """A message: a response has calls, a request carries results in front of its text."""

    id: str
    kind: str
    text: str = ""
    calls: list[str] = field(default_factory=list)
    results: dict[str, str] = field(default_factory=dict)
    """Of a response: what its calls gave, by call id."""
    carries: list[str] = field(default_factory=list)
    """Of a request: ids of the calls whose results it carries."""


@dataclass
class Lane:
    """The rows of the parent or of one delegation."""

    rows: list[Row] = field(default_factory=list)

    def newest_response(self) -> Row | None:
        return next((row for row in reversed(self.rows) if row.kind == "response"), None)

    def carried(self) -> set[str]:
        """Calls of the newest response whose results a request carries."""
        answer = self.newest_response()
        after = self.rows[self.rows.index(answer) + 1 :] if answer else []
        return {call for row in after for call in row.carries}

    def uncarried(self) -> list[str]:
        answer = self.newest_response()
        return [call for call in answer.calls if call not in self.carried()] if answer else []

    def history(self) -> list[Said]:
        """What a provider is told: each call answered once, behind its response."""
        told: list[Said] = []
        for index, row in enumerate(self.rows):
            if row.kind == "response":
                told.append(("response", row.text, tuple(row.calls)))
                rest = self.rows[index + 1 :]
                own = rest[: next((n for n, r in enumerate(rest) if r.kind == "response"), len(rest))]
                carried = {call for r in own for call in r.carries}
                missing = [call for call in row.calls if call not in carried]
                if missing:
                    told.append(("request", tuple((c, row.results.get(c, INTERRUPTED)) for c in missing), ""))
                answer = row
            else:
                told.append(("request", tuple((c, answer.results[c]) for c in row.carries), row.text))
        return told


@dataclass
class Task:
    """A delegation."""

    after: int
    """The parent's rows when it began."""
    status: str = "running"
    report: str = ""
    delivered_by: str | None = None
    chain: str = ""
    lane: Lane = field(default_factory=Lane)

    def interrupt(self) -> None:
        """End as when the process has died."""
        answer = self.lane.newest_response()
        if answer is not None:
            for call in self.lane.uncarried():
                answer.results.setdefault(call, INTERRUPTED)
        said = [row.text for row in self.lane.rows if row.kind == "response" and row.text]
        self.status, self.report = "interrupted", said[-1] if said else ""


@dataclass
class Conversation:
    """A session."""

    title: str
    parent: Lane = field(default_factory=Lane)
    tasks: dict[str, Task] = field(default_factory=dict)
    checkpoints: list[tuple[str, str]] = field(default_factory=list)
    """Id and id of the anchor, oldest first."""
    events: int = 0

    def lane(self, task: str | None) -> Lane:
        return self.parent if task is None else self.tasks[task].lane

    def lanes(self) -> list[str | None]:
        return [None, *self.tasks]

    def undelivered(self) -> list[str]:
        silent = {"running", "stopped"}
        return [key for key, t in self.tasks.items() if t.status not in silent and t.delivered_by is None]

    def cut(self, rows: int) -> None:
        """Keep so many rows of the parent and what belongs to them."""
        self.parent.rows = self.parent.rows[:rows]
        known = {row.id for row in self.parent.rows}
        self.checkpoints = [(key, anchor) for key, anchor in self.checkpoints if anchor in known]
        self.tasks = {key: task for key, task in self.tasks.items() if task.after <= rows}
        for task in self.tasks.values():
            if task.delivered_by not in known:
                task.delivered_by = None

    def fork(self, rows: int) -> Conversation:
        other = copy.deepcopy(self)
        other.cut(rows)
        other.events = 0
        for task in other.tasks.values():
            if task.status == "running":
                task.interrupt()
        return other

    def found(self, word: str) -> list[str]:
        """Ids of the parent's rows with that word."""
        return [row.id for row in self.parent.rows if word in row.text.split()]


def as_said(message: ModelMessage) -> Said:
    """A message of the real store in the words of this one."""
    texts = [part.content for part in message.parts if isinstance(part, TextPart | UserPromptPart)]
    text = texts[0] if texts else ""
    if message.kind == "response":
        calls = tuple(part.tool_call_id for part in message.parts if isinstance(part, ToolCallPart))
        return ("response", text, calls)
    results = [(p.tool_call_id, p.content) for p in message.parts if isinstance(p, ToolReturnPart)]
    return ("request", tuple(results), text)
