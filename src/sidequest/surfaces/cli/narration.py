"""Events as single lines, the same for a terminal and a pipe: what happened, to whom, how bad it is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from sidequest.core.errors import ErrorCode
from sidequest.core.events import (
    ContextCompacted,
    ContextDegraded,
    ModelSwitched,
    Notice,
    Numbered,
    RetryScheduled,
    RunEnded,
    ToolEnded,
    ToolStarted,
)
from sidequest.surfaces.text import count, one_line, printable
from sidequest.surfaces.view_state import DelegationView, ViewState

_CUT_ID = re.compile(r"[0-9a-f][0-9a-f-]{7,35}…")

_BARE = str.maketrans("", "", '[]"')


class Tone(StrEnum):
    """How a line is shown; the value is the Rich style."""

    PLAIN = ""
    QUIET = "dim"
    GOOD = "green"
    WARN = "yellow"
    BAD = "red"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of progress, or a paragraph that the parent wrote."""

    text: str
    tone: Tone = Tone.PLAIN
    who: str = ""
    """The delegation it is about, as `#1 explorer`; empty means the parent or the session."""
    is_tool: bool = False


def name_of(view: DelegationView | None) -> str:
    """Return how a delegation is called in lines: `#1 explorer`; empty for the parent."""
    return f"#{view.number} {view.agent}" if view else ""


def narrate(before: ViewState, numbered: Numbered, after: ViewState) -> Iterator[Line]:
    """Give the lines that one event adds; `before` and `after` are the view around it.

    Starts and ends of delegations are not among them, because each view shows these in its own way. A tool
    of a delegation is, so that a log is complete; a live view leaves those out.
    """
    event = numbered.event
    if before.text.strip() and not after.text and not isinstance(event, RetryScheduled):
        yield Line(printable(before.text).strip())
    if isinstance(event, Notice):
        yield Line(one_line(event.text), Tone.QUIET)
        return
    who = name_of(after.find(event.delegation_id))
    names = {view.id: name_of(view) for view in after.delegations}
    match event:
        case ToolStarted(tool=tool, summary=summary):
            yield Line(f"{tool}  {readable_call(summary, names)}".rstrip(), Tone.PLAIN, who, is_tool=True)
        case ToolEnded(tool=tool, ok=False, reason=reason):
            said = f"{tool} failed: {one_line(reason, 160)}" if reason else f"{tool} failed"
            yield Line(said, Tone.WARN, who, is_tool=True)
        case ContextCompacted():
            sizes = f"{count(event.tokens_before)} -> {count(event.tokens_after)} tokens"
            yield Line(f"context compacted  {sizes} (limit {count(event.hard_limit)})", Tone.QUIET, who)
        case ContextDegraded():
            sizes = f"{count(event.tokens_before)} -> {count(event.tokens_after)} tokens"
            yield Line(f"context degraded  {sizes}: {one_line(event.reason)}", Tone.WARN, who)
        case ModelSwitched():
            said = f"{event.after} failed ({event.code}); going on with {event.model}"
            yield Line(f"{said}: {one_line(event.message, 160)}", Tone.WARN, who)
        case RetryScheduled():
            # What it was is said once; the attempts after it say only that they failed, too.
            why = f"{one_line(event.message, 160)} " if event.attempt == 1 and event.message else ""
            said = f"{event.code}: {why}Attempt {event.attempt} failed, next in {event.delay_s:.0f}s"
            yield Line(said, Tone.WARN, who)
        case RunEnded(ok=False, code=ErrorCode.TURN_ABORTED.value):
            yield Line("stopped", Tone.WARN)
        case RunEnded(ok=False, code=code):
            yield Line(f"the run ended with {code}", Tone.BAD)
        case _:
            return


def readable_call(summary: str, names: Mapping[str, str]) -> str:
    """Return a call's arguments with `#1 explorer` where they name a delegation by its id.

    `names` are such names by their ids.
    """
    for delegation_id, name in names.items():
        summary = summary.replace(delegation_id, name)
    summary = _CUT_ID.sub("…", summary)
    if summary.startswith(("[", '"')) and "#" in summary:
        summary = ", ".join(part.strip() for part in summary.translate(_BARE).split(","))
    return one_line(summary)
