"""What the delegation tools say to a parent model: descriptions, heartbeats, framed reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sidequest.core.enclosures import MAX_ENCLOSED_CHARS, MAX_ENCLOSURES
from sidequest.core.frames import framed, neutralised, one_line
from sidequest.core.outcome import REPORT_LIMIT_CHARS, Outcome, Status, bound_text, report_text
from sidequest.core.tokens import CHARS_PER_TOKEN
from sidequest.runtime.delegations import MAX_RUNNING
from sidequest.runtime.records import DelegationRecord
from sidequest.subagents.definition import SUMMARY_LIMIT_CHARS, SubagentDefinition

MIN_BLOCK_CHARS = 600
"""A report is never cut below this."""
BLOCK_FRAME_CHARS = 400
"""What heading, metadata and frame of a report take."""
NOTE_RESERVE_CHARS = 160
"""Kept free for the note about what did not fit."""
MAX_WAIT_CHARS = 50_000
"""Longest text of one TaskWait or one delivery, in characters, inclusive (specification 3.4)."""
MAX_ROSTER_CHARS = 24_000
"""What the descriptions of all subagents share, in characters."""
MIN_SUMMARY_CHARS = 80
_TOOLS_CHARS = 200
_MODEL_CHARS = 80
_LABEL_CHARS = 80
_TAG = "delegation-report"

TASK_WAIT_DESCRIPTION = (
    "Wait for delegations and read their reports. Without delegationIds it waits for all that run. Mode all "
    "waits for each, mode any for minCompleted of them. timeoutSeconds is 600 unless you say otherwise; a "
    "timeout stops nothing, you get what is finished and a line about the rest."
)
TASK_LIST_DESCRIPTION = "List this session's delegations with their status, oldest first."
TASK_STOP_DESCRIPTION = (
    "Stop delegations and wait until they have ended; without delegationIds all that run. Their unfinished "
    "work is lost."
)


def task_description(
    definitions: Sequence[SubagentDefinition], shown_model: Callable[[SubagentDefinition], str]
) -> str:
    """Return the description of Task with the roster: one line per subagent (specification 3.3).

    What files say stands on that line, bounded. Many subagents share `MAX_ROSTER_CHARS` for their
    descriptions, none of which is cut below `MIN_SUMMARY_CHARS`.
    """
    room = max(MIN_SUMMARY_CHARS, min(SUMMARY_LIMIT_CHARS, MAX_ROSTER_CHARS // max(1, len(definitions))))
    roster = "\n".join(
        f"- {d.name} (tools: {one_line(d.tools_label, _TOOLS_CHARS)}; "
        f"model: {one_line(shown_model(d), _MODEL_CHARS)}): {one_line(d.summary(room), room)}"
        for d in definitions
    )
    return f"""\
Delegate one self-contained task to a subagent that works in a context of its own, and get an id back at \
once. Use it for searches over many files, reviews, test runs, and independent pieces of work. Do not use it \
for what one or two tool calls of your own would do.
The task text is the only instruction the subagent gets: name paths, what to find or change, and what to \
report. Delegations run in the background; several Task calls in one message run together, at most \
{MAX_RUNNING} at a time. Read the reports with TaskWait. With resume, an id of a settled delegation, the \
subagent goes on with what it already knows; then leave model and context out. Give model only to choose \
another configured model (provider/model). Context fork hands the subagent this conversation; the default, \
independent, hands it nothing but the task, and the attachments and snippets you give: at most \
{MAX_ENCLOSURES}, with {MAX_ENCLOSED_CHARS:,} characters together. For larger files name the path in the task.

Subagents:
{roster}"""


def started_text(record: DelegationRecord) -> str:
    """Return what Task answers at once."""
    return (
        f"Delegation {record.id} started: {record.agent}, "
        f"{one_line(record.label, _LABEL_CHARS)!r}, on {one_line(record.model, _MODEL_CHARS)}. "
        "It runs in the background. Call TaskWait to read its report, TaskStop to end it."
    )


def heartbeat(record: DelegationRecord, now: float) -> str:
    """Return one line about a delegation: who, status, seconds, and counters where there are any."""
    seconds = record.outcome.elapsed_s if record.outcome else now - record.started
    progress = record.run.progress
    parts = [f"{record.agent} ({record.id}): {record.status}", f"{max(1, round(seconds))} s"]
    if progress.turns:
        parts.append(f"{progress.turns} turns")
    if progress.tool_calls:
        parts.append(f"{progress.tool_calls} tool calls")
    if record.outcome is None and progress.last_tool:
        parts.append(f"last tool {one_line(progress.last_tool, _LABEL_CHARS)}")
    if record.outcome and record.outcome.failure:
        parts.append(record.outcome.failure.code.value)
    return ", ".join(parts)


def metadata_line(outcome: Outcome) -> str:
    """Return the compact metadata a parent gets with a report (specification 5.4, 8.25)."""
    return (
        f"[context {outcome.context_mode}, stop reason {outcome.stop_reason}, {outcome.elapsed_s:.1f} s, "
        f"{outcome.turns} turns, {outcome.tool_calls} tool calls, "
        f"model {one_line(outcome.model, _MODEL_CHARS)}]"
    )


def delivery_limit(hard_limit: int) -> int:
    """Return the most characters of a delivery to a parent whose `hard_limit` is that many tokens.

    A third of what a request has room for, so that reports are read and not summarised away or cut on
    arrival. Worked number: a `hard_limit` of 9,000 tokens gives 12,000 characters; from 37,500 on 50,000.
    """
    return max(MIN_BLOCK_CHARS, min(MAX_WAIT_CHARS, hard_limit * CHARS_PER_TOKEN // 3))


def report_block(record: DelegationRecord, limit: int | None = None) -> str:
    """Return heading, metadata and report of a settled delegation, about `limit` characters at most.

    None bounds the report alone, to 12,000 characters.

    A report is data: a tag in it that would close the frame, or open another, is made harmless.
    """
    outcome = record.outcome
    if outcome is None:
        return f"## {record.agent} ({record.id}) - {Status.RUNNING}"
    room = REPORT_LIMIT_CHARS
    if limit is not None:
        room = max(MIN_BLOCK_CHARS, min(room, limit - BLOCK_FRAME_CHARS))
    body = neutralised(report_text(outcome, room)) or f"({outcome.status} without a report)"
    return (
        f"## {record.agent} ({record.id}) - {outcome.status}\n{metadata_line(outcome)}\n"
        f"{framed(_TAG, record.agent, body, key='agent')}"
    )


def join_blocks(
    notes: Sequence[str], blocks: Sequence[tuple[DelegationRecord, str]], limit: int = MAX_WAIT_CHARS
) -> tuple[str, list[DelegationRecord]]:
    """Join notes and blocks within `limit` characters, and return which delegations are in the text.

    A block that does not fit is passed over, a later and smaller one may fit; a note counts what is missing
    (specification 3.4). The first is always there, cut when it has to be: a text without a report would be
    asked for again and again.
    """
    text = "\n\n".join(note for note in notes if note)
    included: list[DelegationRecord] = []
    omitted = 0
    for record, block in blocks:
        candidate = f"{text}\n\n{block}" if text else block
        if len(candidate) > limit - NOTE_RESERVE_CHARS:
            if record is not blocks[0][0]:
                omitted += 1
                continue
            room = max(MIN_BLOCK_CHARS, limit - NOTE_RESERVE_CHARS - len(text) - 2)
            candidate = f"{text}\n\n{bound_text(block, room)}" if text else bound_text(block, room)
        text = candidate
        included.append(record)
    if omitted:
        text += f"\n\n[{omitted} more did not fit in {limit} characters; call TaskWait again for the rest.]"
    return text, included
