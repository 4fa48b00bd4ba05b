"""What a conversation already shows: searches made, lines seen, files read, delegations started.

The engine keeps nothing between requests, so this is built anew from the messages each time. After a
compaction it comes from the summary, which `notes` writes in a form that is read back here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sidequest.models.offline.entries import AssistantText, Entry, ToolUse, UserText, tool_kind
from sidequest.models.offline.lines import Reading, cited_lines, read_file, read_paths, read_search
from sidequest.models.offline.recognise import (
    REPORT_HEADING,
    find_brief,
    is_report,
    is_summary,
    section_of,
    unframed,
)
from sidequest.models.offline.words import Query, query_of

UUID = re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE)
STEP = re.compile(r"\bStep (\d+) (?:of at most \d+|is done)")
"""How the engine numbers its steps, while it works and in a summary."""
SEARCH_KINDS = ("grep", "glob", "read")
LOST_HISTORY = "older working history was discarded"
"""Part of the note that a report carries whose delegation lost history (specification 3.9)."""
GOAL_CHARS = 1_200
"""How much of a goal a summary keeps, in characters."""

Place = tuple[str, int]
"""A path and a line number counted from 1."""

_DONE_READ = re.compile(r"- \[x\] Read (.+) lines ([\d, -]+)(?: of (\d+))?$")
_DONE_OTHER = re.compile(r"- \[x\] ((?:Grep|Glob) .+): (\S.*)$")
_OPEN_READ = re.compile(r"- \[ \] Read (\S.*)$")
_BLOCKED_CALL = re.compile(r"- ((?:Grep|Glob|Read) .+?): (.+)")
_TASK = re.compile(r"- \[[x ]\] Task (\S+) \(([0-9a-fA-F-]{36})\): (.*) - (\w+)$")


@dataclass(slots=True)
class Delegated:
    """A delegation the conversation mentions."""

    id: str
    agent: str
    label: str
    """What it was asked, in a few words."""
    status: str = "running"
    report: str = ""

    @property
    def settled(self) -> bool:
        """Whether nothing more is to come from it."""
        return self.status != "running"


@dataclass(slots=True)
class Knowledge:
    """Facts gathered from a conversation; built by `gather`."""

    brief: str = ""
    """The instruction being worked on: the newest user text that is not a summary, report or reminder."""
    query: Query = field(default_factory=lambda: query_of(""))
    found: dict[Place, str] = field(default_factory=dict)
    """Every line seen, by place."""
    kept: set[Place] = field(default_factory=set)
    """Lines that an earlier summary thought worth keeping."""
    asked: dict[str, str] = field(default_factory=dict)
    """Calls made, as `describe_call` words them, with their outcome in a few words."""
    covered: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """Line ranges of files that were read, inclusive, merged and sorted."""
    totals: dict[str, int] = field(default_factory=dict)
    """Lines of a file, when a read said so."""
    listed: dict[str, None] = field(default_factory=dict)
    """Paths that a Glob returned or a summary still had to read, in order."""
    loose: list[str] = field(default_factory=list)
    """Lines worth a look that belong to no file: output of other tools, free notes of a summary."""
    cut: set[str] = field(default_factory=set)
    """Searches whose result was not shown whole."""
    blocked: list[str] = field(default_factory=list)
    """Calls that failed, with the reason."""
    delegated: dict[str, Delegated] = field(default_factory=dict)
    turn: list[str] = field(default_factory=list)
    """Delegations that belong to the instruction being worked on, in the order they were started."""
    counted: int = 0
    """Searches, listings and reads that can be seen to have been made for the brief."""
    declared: int = 0
    """The highest step number the engine wrote; it survives when the steps themselves were dropped."""
    waits: int = 0
    """Times the current turn waited for delegations."""
    refused: list[str] = field(default_factory=list)
    """Answers of Task calls of the current turn that started nothing."""
    notes: list[str] = field(default_factory=list)
    """Constraints and decisions carried by an earlier summary."""

    @property
    def steps(self) -> int:
        """Searches, listings and reads made for the brief, those that are no longer in view included."""
        return max(self.counted, self.declared)

    def is_covered(self, place: Place) -> bool:
        """Say whether the line was part of a read."""
        return any(first <= place[1] <= last for first, last in self.covered.get(place[0], ()))

    def is_read(self, path: str) -> bool:
        """Say whether a file was read from its first line to its last."""
        ranges = self.covered.get(path, ())
        return len(ranges) == 1 and ranges[0][0] == 1 and ranges[0][1] >= self.totals.get(path, 1)

    def cover(self, path: str, numbers: Iterable[int]) -> None:
        """Record lines as read."""
        if runs := _runs(sorted(numbers)):
            self.covered[path] = merge_ranges([*self.covered.get(path, ()), *runs])


def merge_ranges(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return inclusive ranges sorted, with neighbours joined: (1, 4) and (5, 9) become (1, 9)."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    return merge_ranges((number, number) for number in numbers)


def describe_call(name: str, args: Mapping[str, object]) -> str:
    """Word a search, listing or read; two calls that would give the same are worded the same."""
    kind = tool_kind(name)
    use = ToolUse(name, args)
    if kind == "read":
        first = (use.int_arg("offset") or 0) + 1
        limit = use.int_arg("limit")
        return f"Read {use.text_arg('path')} lines {first}-{first + limit - 1 if limit else 'end'}"
    parts = [kind.capitalize(), f'"{use.text_arg("pattern")}"']
    flags = [label for key, label in (("literal", "literal"), ("ignore_case", "any case")) if args.get(key)]
    if flags:
        parts.append(f"({', '.join(flags)})")
    if use.text_arg("glob"):
        parts.append(f"in files {use.text_arg('glob')}")
    if use.text_arg("path", ".") not in {".", ""}:
        parts.append(f"under {use.text_arg('path')}")
    return " ".join(parts)


def gather(entries: Sequence[Entry]) -> Knowledge:
    """Read a whole conversation, oldest first, for the instruction it is about."""
    index, brief = find_brief(entries)
    known = Knowledge(brief=brief, query=query_of(brief))
    for at, entry in enumerate(entries):
        current = at > index
        match entry:
            case UserText(text) if is_summary(text):
                _absorb_summary(known, text)
            case UserText(text) if is_report(text):
                _absorb_reports(known, text, current=current)
            case AssistantText(text):
                _absorb_citations(known, text)
                if current:
                    _absorb_steps(known, text)
            case ToolUse():
                _absorb_use(known, entry, current=current)
            case _:
                pass
    return known


def _absorb_use(known: Knowledge, use: ToolUse, *, current: bool) -> None:
    if use.kind in SEARCH_KINDS:
        call = describe_call(use.name, use.args)
        if current:
            known.counted += 1
        if use.failed or use.result is None:
            known.asked[call] = "failed" if use.failed else "no result"
            known.blocked.append(f"{call}: {_first_line(use.result or 'no result')}")
            return
        _absorb_search(known, use, call, use.result)
    elif use.kind == "task":
        _absorb_task(known, use, current=current)
    elif use.kind == "taskwait":
        known.waits += current
        _absorb_reports(known, use.result or "", current=current, unknown=_ids(use))
    elif use.kind not in {"tasklist", "taskstop"}:
        known.loose += [line for line in (use.result or "").splitlines() if line.strip()]


def _absorb_search(known: Knowledge, use: ToolUse, call: str, result: str) -> None:
    if use.kind == "glob":
        paths = read_paths(result)
        known.listed.update(dict.fromkeys(paths))
        known.asked[call] = f"{len(paths)} paths"
        return
    path = use.text_arg("path")
    reading: Reading = read_search(result) if use.kind == "grep" else read_file(result, path)
    known.found.update(reading.lines)
    if use.kind == "grep":
        known.asked[call] = f"{reading.matches} lines"
        if reading.cut:
            known.cut.add(call)
        return
    known.asked[call] = f"{len(reading.lines)} lines"
    known.cover(path, (number for _, number in reading.lines))
    if reading.total is not None:
        known.totals[path] = reading.total


def _absorb_task(known: Knowledge, use: ToolUse, *, current: bool) -> None:
    started = UUID.search(use.result or "")
    if started:
        label = use.text_arg("description") or _first_line(use.text_arg("task"))
        key = started[0].lower()
        known.delegated.setdefault(key, Delegated(key, use.text_arg("agent"), label[:120]))
        _take_part(known, key, current=current)
    elif current:
        known.refused.append(_first_line(use.result or "The call gave no result."))


def _take_part(known: Knowledge, key: str, *, current: bool) -> None:
    if current and key not in known.turn:
        known.turn.append(key)


def _ids(use: ToolUse) -> list[str]:
    ids = use.args.get("delegationIds")
    return [str(item).lower() for item in ids] if isinstance(ids, list) else []


def _absorb_reports(known: Knowledge, text: str, *, current: bool, unknown: Sequence[str] = ()) -> None:
    """Read `## agent (id) - status` blocks; asked ids that the text calls unknown are closed."""
    blocks = list(REPORT_HEADING.finditer(text))
    for position, block in enumerate(blocks):
        end = blocks[position + 1].start() if position + 1 < len(blocks) else len(text)
        entry = known.delegated.setdefault(block[2].lower(), Delegated(block[2].lower(), block[1], ""))
        entry.status = block[3].lower()
        _take_report(known, entry, unframed(text[block.end() : end]), current=current)
    if not blocks and is_report(text):
        one = UUID.search(text)
        key = one[0].lower() if one else "delivered"
        entry = known.delegated.setdefault(key, Delegated(key, "the subagent", ""))
        entry.status = "completed"
        _take_report(known, entry, unframed(text), current=current)
    for key in unknown:
        if key in known.delegated and re.search(
            rf"(?i)(?:unknown|no delegation)[^\n]*{re.escape(key)}", text
        ):
            known.delegated[key].status = "unknown"


def _take_report(known: Knowledge, entry: Delegated, report: str, *, current: bool) -> None:
    entry.report = report
    _take_part(known, entry.id, current=current)
    _absorb_citations(known, report)
    known.notes += [line for line in report.splitlines() if LOST_HISTORY in line and line not in known.notes]


def _absorb_steps(known: Knowledge, text: str) -> None:
    known.declared = max([known.declared, *(int(number) for number in STEP.findall(text))])


def _absorb_citations(known: Knowledge, text: str) -> None:
    for path, number, quotation in cited_lines(text):
        known.found.setdefault((path, number), quotation)


def _absorb_summary(known: Knowledge, text: str) -> None:
    same_goal = _same(section_of(text, "Goal"), known.brief)
    for line in section_of(text, "Progress").splitlines():
        _absorb_progress(known, line.strip(), same_goal=same_goal)
    for call, reason in _BLOCKED_CALL.findall(section_of(text, "Progress")):
        known.asked.setdefault(call, "failed")
        known.blocked.append(f"{call}: {reason}")
    if same_goal:
        _absorb_steps(known, text)
    facts = section_of(text, "Critical Context") or text
    for path, number, quotation in cited_lines(facts):
        known.found.setdefault((path, number), quotation)
        known.kept.add((path, number))
    cited = {f"- {path}:{number}: {quotation}" for path, number, quotation in cited_lines(facts)}
    if facts is not text:
        known.loose += [
            line[2:]
            for line in facts.splitlines()
            if line.startswith("- ") and line not in cited and line != "- (none)"
        ]
    for name in ("Constraints & Preferences", "Key Decisions"):
        known.notes += [
            line[2:]
            for line in section_of(text, name).splitlines()
            if line.startswith("- ") and line != "- (none)"
        ]


def _absorb_progress(known: Knowledge, line: str, *, same_goal: bool) -> None:
    if read := _DONE_READ.fullmatch(line):
        ranges = [
            tuple(map(int, pair.split("-"))) for pair in read[2].replace(" ", "").split(",") if "-" in pair
        ]
        known.covered[read[1]] = merge_ranges(
            [*known.covered.get(read[1], []), *((r[0], r[-1]) for r in ranges)]
        )
        known.listed.setdefault(read[1])
        known.counted += same_goal
        if read[3]:
            known.totals[read[1]] = int(read[3])
    elif pending := _OPEN_READ.fullmatch(line):
        known.listed.setdefault(pending[1])
    elif task := _TASK.fullmatch(line):
        key = task[2].lower()
        known.delegated.setdefault(key, Delegated(key, task[1], task[3], task[4]))
        _take_part(known, key, current=same_goal)
    elif call := _DONE_OTHER.fullmatch(line):
        known.asked[call[1]] = call[2].removesuffix(", cut")
        known.counted += same_goal
        if call[2].endswith(", cut"):
            known.cut.add(call[1])


def _same(goal: str, brief: str) -> bool:
    left, right = (" ".join(text.split())[:200] for text in (goal, brief))
    return bool(left) and (right.startswith(left[:190]) or not right)


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0][:160] if text.strip() else ""
