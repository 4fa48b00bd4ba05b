"""What the delegation tools say to a parent model: descriptions, heartbeats, framed reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sidequest.core.enclosures import MAX_ENCLOSED_CHARS, MAX_ENCLOSURES
from sidequest.core.fair import level
from sidequest.core.frames import framed, neutralised, one_line
from sidequest.core.outcome import DEGRADED_NOTE, REPORT_LIMIT_CHARS, Outcome, report_text, whole_report
from sidequest.core.tokens import CHARS_PER_TOKEN, estimate_text
from sidequest.runtime.delegations import MAX_RUNNING
from sidequest.runtime.records import DelegationRecord
from sidequest.subagents.definition import SUMMARY_LIMIT_CHARS, SubagentDefinition

MIN_BLOCK_CHARS = 600
"""A report with its heading and frame is never cut below this."""
BLOCK_FRAME_CHARS = 400
"""What heading, metadata and frame of a report take at most."""
_LEAST_BODY_CHARS = MIN_BLOCK_CHARS - BLOCK_FRAME_CHARS
MIN_BLOCK_TOKENS = 240
"""What a report takes that is cut as far as it may be, in tokens, in a script of one token a character."""
NOTE_RESERVE_CHARS = 160
NOTE_RESERVE_TOKENS = NOTE_RESERVE_CHARS // CHARS_PER_TOKEN
"""Kept free for the note about what did not fit."""
MAX_WAIT_CHARS = 50_000
"""Longest text of one TaskWait or one delivery, in characters, inclusive (specification 3.4)."""
CUT_MARKER = (
    "\n\n[… {cut} characters are left out here: TaskWait with this delegationId and fromCharacter {place} "
    "reads on …]\n\n"
)
REST_MARKER = "\n\n[… {left} more characters: fromCharacter {place} reads on …]"
_LEAST_REST_CHARS = 200
_GAP_TOKENS = 1
"""What parts two blocks."""
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
    "timeout stops nothing, you get what is finished and a line about the rest. Reports share the room that "
    "your context has; of one that was cut, fromCharacter with its id alone reads the rest."
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
        parts.append(_some(progress.turns, "turn"))
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
        f"{_some(outcome.turns, 'turn')}, {_some(outcome.tool_calls, 'tool call')}, "
        f"model {one_line(outcome.model, _MODEL_CHARS)}]"
    )


def _heading(record: DelegationRecord) -> str:
    return f"## {record.agent} ({record.id}) - {record.status}"


def report_block(record: DelegationRecord, limit: int | None = None) -> str:
    """Return heading, metadata and report of a settled delegation, about `limit` characters at most.

    None bounds the report alone, to 12,000 characters. A report that is cut says how to read the rest.

    A report is data: a tag in it that would close the frame, or open another, is made harmless.
    """
    outcome = record.outcome
    if outcome is None:
        return _heading(record)
    room, head = REPORT_LIMIT_CHARS, f"{_heading(record)}\n{metadata_line(outcome)}\n"
    if limit is not None:
        least = _LEAST_BODY_CHARS + (len(DEGRADED_NOTE) if outcome.degraded else 0)
        room = max(least, min(room, limit - len(head) - len(_framed(record, ""))))
    body = report_text(outcome, room, CUT_MARKER) or f"({outcome.status} without a report)"
    return head + _framed(record, body)


def _framed(record: DelegationRecord, text: str) -> str:
    return framed(_TAG, record.agent, neutralised(text), key="agent")


def rest_block(record: DelegationRecord, start: int, tokens: int) -> str:
    """Return what stands in a report from character `start` on, the first being 0, in about `tokens` tokens.

    At most 12,000 characters, and never less than fits into `MIN_BLOCK_TOKENS`. It says which characters of
    how many these are, and where to read on; pieces that are read one after the other leave nothing out.
    """
    if record.outcome is None:
        return _heading(record)
    whole = whole_report(record.outcome)
    start = min(max(0, start), len(whole))
    room, tokens = REPORT_LIMIT_CHARS, max(tokens, MIN_BLOCK_TOKENS)
    while True:
        end = min(len(whole), start + room)
        more = REST_MARKER.format(left=len(whole) - end, place=end) if end < len(whole) else ""
        text = f"{_heading(record)}\n[characters {start} to {end} of {len(whole)}]\n" + _framed(
            record, whole[start:end] + more
        )
        size = estimate_text(text)
        if size <= tokens or room <= _LEAST_REST_CHARS:
            return text
        room = max(_LEAST_REST_CHARS, min(room * tokens // size, room * 9 // 10))


def hand_over(
    notes: Sequence[str],
    records: Sequence[DelegationRecord],
    tokens: int,
    *,
    to_come: int = 0,
    now: float = 0.0,
) -> tuple[str, list[DelegationRecord]]:
    """Return one text with `notes` and a block of each of `records`, and the settled ones that are in it.

    The text takes at most `tokens` tokens and `MAX_WAIT_CHARS` characters, both inclusive. The settled ones
    share that, small ones leaving what they do not need to the others, with `to_come` more that will want a
    part later. None is cut below `MIN_BLOCK_TOKENS`: those for which that leaves no place, the last ones, are
    counted in a note. The first is always there: a text without a report would be asked for again and again.
    `now`, in clock seconds, is for the lines about those that run.
    """
    running = {r.id: f"{_heading(r)}\n{heartbeat(r, now)}" for r in records if r.outcome is None}
    said = [note for note in notes if note]
    ended = [record for record in records if record.outcome is not None]
    fixed = "\n\n".join([*said, *running.values()])
    room = max(0, tokens - estimate_text(fixed) - NOTE_RESERVE_TOKENS)
    room = room * len(ended) // max(1, len(ended) + to_come)
    chars = max(0, MAX_WAIT_CHARS - len(fixed) - NOTE_RESERVE_CHARS)
    whole = [report_block(record) for record in ended]
    sizes = [estimate_text(block) + _GAP_TOKENS for block in whole]
    count = _fitting([min(size, MIN_BLOCK_TOKENS) for size in sizes], room, chars // MIN_BLOCK_CHARS)
    included = ended[:count]
    share = level(sizes[:count], room)
    length = level([len(block) + 2 for block in whole[:count]], chars)
    blocks = {record.id: _block_within(record, length - 2, share - _GAP_TOKENS) for record in included}
    shown = [text for record in records if (text := running.get(record.id) or blocks.get(record.id))]
    text = "\n\n".join([*said, *shown])
    if count < len(ended):
        text += f"\n\n[{len(ended) - count} more did not fit now; call TaskWait again for the rest.]"
    return text, included


def _fitting(sizes: Sequence[int], room: int, most: int) -> int:
    """Return how many of `sizes` fit into `room`, in order: `most` at most, and always the first."""
    used = 0
    for count, size in enumerate(sizes):
        used += size
        if count and (used > room or count >= most):
            return count
    return len(sizes)


def _block_within(record: DelegationRecord, chars: int, tokens: int) -> str:
    """Return the block of a settled delegation in both limits, but in no less than the least of a block."""
    limit = min(chars, REPORT_LIMIT_CHARS + BLOCK_FRAME_CHARS)
    while True:
        block = report_block(record, limit)
        size = estimate_text(block)
        if (size <= tokens and len(block) <= chars) or limit <= _LEAST_BODY_CHARS:
            return block
        limit = max(_LEAST_BODY_CHARS, min(limit * max(0, tokens) // size, limit * 9 // 10))


def _some(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
