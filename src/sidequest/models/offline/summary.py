"""The summariser: a conversation in, a structured summary out (specification 2.5).

It keeps the goal, what was already searched and read, and the lines that matter for the goal with their
places. `knowledge` reads the Progress and Critical Context sections back, so a delegate that goes on from
a summary neither repeats a step nor loses a fact.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sidequest.models.offline.entries import AssistantText, Entry, UserText, parse_serialised
from sidequest.models.offline.knowledge import GOAL_CHARS, STEP, Knowledge, gather
from sidequest.models.offline.lines import SHOWN_LINE_CHARS, is_fact, shown
from sidequest.models.offline.ranking import block_of, match_terms, rank
from sidequest.models.offline.recognise import is_reminder, is_report, is_summary
from sidequest.models.offline.words import Aim

MAX_FACTS = 40
"""Most quoted lines; twice as many when the goal asks for a list."""
MAX_CHARS = 8_000
_SHARE_OF_INPUT = 0.4
_SHARE_OF_WINDOW = 1 / 6
_MIN_CHARS = 700
_MAX_DONE = 60
_MAX_PENDING = 60
_MAX_REQUESTS = 6
_MAX_OTHER_FACTS = 12
"""Most lines that only look like facts and share no word with the goal."""

_CONVERSATION = re.compile(r"<conversation>\n?(.*)\n?</conversation>(.*)", re.DOTALL)
_PREVIOUS = re.compile(r"<previous-summary>\n?(.*?)\n?</previous-summary>", re.DOTALL)
_RULE = re.compile(r"(?i)\b(?:must|never|always|do not|don't|only|at most|at least|prefer|without)\b")


def is_summary_request(text: str) -> bool:
    """Say whether a user text asks for a summary of a conversation."""
    return _CONVERSATION.search(text) is not None


def summarise(prompt: str, *, max_chars: int, window: int) -> str:
    """Write the summary that `prompt` asks for, in at most `max_chars` characters.

    It also stays below two fifths of the conversation and a sixth of the `window` (in tokens, at four
    characters each), the smallest of the three, but is allowed 700 characters. Worked number: a
    conversation of 24,000 characters, a window of 8,000 and a cap of 8,000 characters give 5,333.
    """
    found = _CONVERSATION.search(prompt)
    conversation, rest = (found[1], found[2]) if found else (prompt, "")
    previous = _PREVIOUS.search(rest)
    entries = parse_serialised(conversation)
    carried: tuple[Entry, ...] = (UserText(f"<summary>\n{previous[1]}\n</summary>"),) if previous else ()
    known = gather((*carried, *entries))
    known.loose += _said(known, entries)
    size = len(conversation) + (len(previous[1]) if previous else 0)
    limit = min(
        max_chars, MAX_CHARS, max(_MIN_CHARS, int(min(size * _SHARE_OF_INPUT, window * 4 * _SHARE_OF_WINDOW)))
    )
    return _write(known, entries, limit)


def _write(known: Knowledge, entries: Sequence[Entry], limit: int) -> str:
    goal = known.brief.strip() or "(not stated)"
    goal = goal if len(goal) <= min(GOAL_CHARS, limit // 3) else goal[: min(GOAL_CHARS, limit // 3)] + "…"
    pending = _bounded(every := list(_pending(known)), limit // 3)
    # A listing whose unread files cannot all be kept is not called done: it is made again.
    relist = len(pending) < len(every)
    done = [line for line in _done(known, entries) if not (relist and line.startswith("- [x] Glob "))]
    above = [
        "## Goal",
        goal,
        "",
        "## Constraints & Preferences",
        *_listed(_rules(known, entries)),
        "",
        "## Progress",
        "### Done",
        *(_bounded(done, limit // 3) or ["(none)"]),
        "### In Progress",
        *(pending or ["(none)"]),
        "### Blocked",
        *_listed(known.blocked[-3:]),
        "",
        "## Key Decisions",
        *_listed(_decisions(known)),
        "",
        "## Next Steps",
        f"1. {_next(known)}",
        "",
        "## Critical Context",
    ]
    room = limit - sum(len(line) + 1 for line in above)
    facts = _bounded(list(_facts(known)), max(room, 0))
    return "\n".join([*above, *(facts or ["(none)"])])


def _listed(items: Sequence[str]) -> list[str]:
    return [f"- {shown(item)}" for item in items] or ["(none)"]


def _bounded(lines: Sequence[str], room: int) -> list[str]:
    kept: list[str] = []
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        kept.append(line)
    return kept


def _rules(known: Knowledge, entries: Sequence[Entry]) -> list[str]:
    """Return sentences of the user that state a rule, and those an earlier summary carried."""
    said = [
        sentence.strip()
        for entry in entries
        if isinstance(entry, UserText) and not is_summary(entry.text) and not is_report(entry.text)
        for sentence in re.split(r"(?<=[.!?])\s+|\n", entry.text)
        if _RULE.search(sentence) and 12 < len(sentence) < 200 and sentence.strip() not in known.brief
    ]
    carried = [note for note in known.notes if not note.startswith("**")]
    return list(dict.fromkeys([*carried, *said]))[-6:]


def _decisions(known: Knowledge) -> list[str]:
    return list(dict.fromkeys(note for note in known.notes if note.startswith("**")))[-6:]


def _said(known: Knowledge, entries: Sequence[Entry]) -> list[str]:
    """Return the lines that people and the assistant wrote, but for the goal and the engine's own steps."""
    return [
        line
        for entry in entries
        if isinstance(entry, UserText | AssistantText) and entry.text != known.brief
        if not (is_summary(entry.text) or is_report(entry.text) or STEP.match(entry.text))
        for line in entry.text.splitlines()
        if line.strip()
    ]


def _done(known: Knowledge, entries: Sequence[Entry]) -> Iterator[str]:
    """Yield what is finished: earlier requests, delegations and searches first, then the files read."""
    for entry in [e for e in entries if isinstance(e, UserText) and e.text != known.brief][-_MAX_REQUESTS:]:
        if not (is_summary(entry.text) or is_report(entry.text) or is_reminder(entry.text)):
            yield f"- [x] Earlier request: {shown(' '.join(entry.text.split()))}"
    for task in known.delegated.values():
        if task.settled:
            yield f"- [x] Task {task.agent} ({task.id}): {task.label} - {task.status}"
    calls = [(call, outcome) for call, outcome in known.asked.items() if not call.startswith("Read ")]
    for call, outcome in calls[-_MAX_DONE:]:
        yield f"- [x] {call}: {outcome}{', cut' if call in known.cut else ''}"
    for path, ranges in list(known.covered.items())[-_MAX_DONE:]:
        if ranges:
            total = f" of {known.totals[path]}" if path in known.totals else ""
            yield f"- [x] Read {path} lines {', '.join(f'{a}-{b}' for a, b in ranges)}{total}"


def _pending(known: Knowledge) -> Iterator[str]:
    if known.steps:
        yield f"- [ ] Step {known.steps} is done"
    for task in known.delegated.values():
        if not task.settled:
            yield f"- [ ] Task {task.agent} ({task.id}): {task.label} - {task.status}"
    if known.query.aim is Aim.SWEEP:
        unread = [path for path in known.listed if not known.is_read(path)]
        yield from (f"- [ ] Read {path}" for path in unread[:_MAX_PENDING])


def _next(known: Knowledge) -> str:
    if any(not task.settled for task in known.delegated.values()):
        return "Wait for the delegations under In Progress, then answer the goal from their reports."
    if known.query.aim is Aim.SWEEP:
        return "Read what is listed under In Progress, then report the facts below."
    return "Go on with the goal from the facts below without repeating what is done, then report."


def _facts(known: Knowledge) -> Iterator[str]:
    """Yield quoted lines, best first: those that share words with the goal, then what looks like a fact."""
    many = known.query.aim in {Aim.LIST, Aim.SWEEP}
    ranked = rank(known)
    block = block_of(known, ranked) if many else []
    ranked = [*block, *(hit for hit in ranked if hit not in block)][: MAX_FACTS * (2 if many else 1)]
    yield from (_quote(hit.path, hit.line, hit.text) for hit in ranked)
    loose = [shown(line) for line in dict.fromkeys(known.loose) if match_terms(line, known.query.terms)]
    yield from (f"- {line}" for line in loose[-MAX_FACTS // 2 :])
    taken = {hit.place for hit in ranked}
    others = [
        _quote(path, number, text)
        for (path, number), text in known.found.items()
        if (path, number) not in taken and ((path, number) in known.kept or is_fact(text))
    ]
    others += [
        f"- {shown(line)}"
        for line in dict.fromkeys(known.loose)
        if is_fact(line) and shown(line) not in loose
    ]
    yield from others[: max(0, min(_MAX_OTHER_FACTS, MAX_FACTS - len(ranked)))]


def _quote(path: str, number: int, text: str) -> str:
    """Quote with the indentation, which tells the members of a block."""
    return f"- {path}:{number}: {text.rstrip()[:SHOWN_LINE_CHARS]}"
