"""Telling apart what may stand in the user's role: a brief, a summary, a report, a reminder."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sidequest.models.offline.entries import Entry, UserText
from sidequest.models.offline.words import query_of

_SUMMARY = re.compile(r"(?m)^<(summary|conversation_summary)>$(?s:.*)^</\1>$")
_REPORT_TAG = re.compile(r"report|delegat|subagent|result|notification")
_FRAMED = re.compile(r"<([a-z][\w-]*)(?:\s[^>]*)?>\n?(.*)</\1>", re.DOTALL)
_FRAMEWORK = re.compile(r"<(?:retry_feedback|validation_errors|system|system-reminder)\b")
_GO_ON = re.compile(r"(?i)\W*(?:please )?(?:continue|go on|carry on|proceed)\b[^?]{0,50}")
_REPORT_NOW = re.compile(
    r"(?i)(?=.*\b(?:now|limit|last turn|no tools?|without tools|no more)\b)"
    r".*\b(?:write|give|send|finish|provide|return)\b[^.?]*\b(?:report|answer)\b"
)
REPORT_HEADING = re.compile(r"(?m)^## (.+?) \(([0-9a-fA-F-]{36})\)\s*[-–—]\s*(\w+)[ \t]*$")
"""Heading of a report: agent, id, status (specification 3.4)."""


def is_summary(text: str) -> bool:
    """Say whether a user text is the summary of compacted history."""
    return _SUMMARY.search(text) is not None or ("## Goal" in text and "## Critical Context" in text)


def is_report(text: str) -> bool:
    """Say whether a user text is a report delivered by itself: framed in a tag, or below a heading for it."""
    if is_summary(text):
        return False
    framed = _frame(text)
    return framed is not None and (framed.start() < 300 or REPORT_HEADING.search(text) is not None)


def unframed(text: str) -> str:
    """Return a report without the tags around it and without what stands outside of them."""
    framed = _frame(text)
    return (framed[2] if framed else text).strip()


def _frame(text: str) -> re.Match[str] | None:
    framed = _FRAMED.search(text)
    return framed if framed and _REPORT_TAG.search(framed[1]) else None


def is_reminder(text: str) -> bool:
    """Say whether a user text only asks to go on or to report, and names nothing to look for."""
    if _FRAMEWORK.search(text[:300]):
        return True
    if len(text) > 700 or "?" in text:
        return False
    asks = _GO_ON.fullmatch(text.strip()) or _REPORT_NOW.match(" ".join(text.split()))
    return asks is not None and not query_of(text).strong


def find_brief(entries: Sequence[Entry]) -> tuple[int, str]:
    """Return index and text of the instruction being worked on; index -1 when only a summary states it."""
    goal, reminder = "", (-1, "")
    for index in range(len(entries) - 1, -1, -1):
        entry = entries[index]
        if not isinstance(entry, UserText) or is_report(entry.text):
            continue
        if is_summary(entry.text):
            goal = goal or section_of(entry.text, "Goal")
        elif not is_reminder(entry.text):
            return index, entry.text
        elif reminder[0] < 0:
            reminder = (index, entry.text)
    return (-1, goal) if goal else reminder


def section_of(text: str, name: str) -> str:
    """Return what stands below a heading of a summary, without the blocks that may follow it."""
    found = re.search(
        rf"(?ms)^## {re.escape(name)}[ \t]*\n(.*?)(?=^## |^</summary>|^<read-files>|^<modified-files>|\Z)",
        text,
    )
    return found[1].strip() if found else ""
