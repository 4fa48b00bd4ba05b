"""Without tools: answer from the text in front of the engine, by quoting the lines that fit the question."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sidequest.models.offline.entries import AssistantText, Reply, Request, ToolUse, UserText
from sidequest.models.offline.knowledge import Knowledge, gather
from sidequest.models.offline.lines import shown
from sidequest.models.offline.ranking import match_terms, rank
from sidequest.models.offline.report import report
from sidequest.models.offline.subjects import asks_for_work, is_greeting
from sidequest.models.offline.voice import CONFIGURE, SIGNED, cannot_make, greeting
from sidequest.models.offline.words import Query, query_of

_MAX_QUOTED = 12


def quote(request: Request) -> Reply:
    """Report what was already found, else quote lines of the conversation, else say what cannot be done."""
    known = gather(request.entries)
    if known.found or known.asked:
        return Reply(report(known, rank(known), request.max_chars))
    if is_greeting(known.brief) or not known.brief.strip():
        return Reply(greeting())
    if asks_for_work(known.brief):
        return Reply(cannot_make())
    query = query_of(_question_in(known))
    lines = list(_best_lines(request, query))
    if not lines:
        return Reply(
            f"Nothing in this conversation answers that, and no search tool was offered. {SIGNED} {CONFIGURE}"
        )
    return Reply("\n".join(["From the text of this conversation:", "", *lines, "", SIGNED]))


def _question_in(known: Knowledge) -> str:
    """Return the question of a message that also carries the text it asks about."""
    sentences = re.findall(r"[^.?!\n]+\?", known.brief)
    if sentences:
        return str(sentences[-1]).strip()
    return known.brief.strip().splitlines()[-1] if len(known.brief) > 400 else known.brief


def _best_lines(request: Request, query: Query) -> Iterator[str]:
    weights = {term.text: term.weight for term in query.terms}
    scored: list[tuple[float, int, str]] = []
    for at, line in enumerate(dict.fromkeys(_lines(request))):
        if line.strip() and line.strip() not in query.question and query.question not in line:
            found = match_terms(line, query.terms)
            scored.append((sum(weights[name] * grade for name, grade in found.items()), at, line))
    best = max((score for score, _, _ in scored), default=0.0)
    chosen = sorted(
        (item for item in scored if item[0] > max(1.0, 0.4 * best)), key=lambda item: (-item[0], item[1])
    )
    yield from (f"> {shown(line)}" for _, _, line in chosen[:_MAX_QUOTED])


def _lines(request: Request) -> Sequence[str]:
    texts = [
        entry.text if isinstance(entry, UserText | AssistantText) else entry.result or ""
        for entry in request.entries
        if isinstance(entry, UserText | AssistantText | ToolUse)
    ]
    return [line for text in texts for line in text.splitlines()]
