"""The delegate's report: quoted lines with their places, and an honest word about what was not found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from sidequest.models.offline.knowledge import Knowledge
from sidequest.models.offline.lines import explains, shown
from sidequest.models.offline.ranking import Ranked, block_of
from sidequest.models.offline.words import Aim, Query

ENGINE_LINE = "Offline extractive engine: the lines are quoted from the files, not interpreted."
_BEST_LINES = 12
_PER_FILE = 5
_MAX_LISTED = 250
_SHARE_OF_BEST = {Aim.WHERE: 0.4, Aim.VALUE: 0.4}
"""A line is quoted when it scores at least this share of the best one; 0.25 for other aims."""
_FOLLOWING = 2
"""Lines quoted after each of the three best ones, when they were read."""


def report(known: Knowledge, ranked: list[Ranked], max_chars: int, *, query: Query | None = None) -> str:
    """Write the report for a brief from what was found; at most about `max_chars` characters.

    Quotations are dropped from the end, and counted, when they do not fit. A text that states only that
    nothing was found says what was looked for.
    """
    query = query or known.query
    searched = _searched(known)
    missing = [term.text for term in query.strong if not any(term.text in hit.terms for hit in ranked)]
    if not ranked and known.listed and not query.searchable:
        return "\n".join(_files(known, max_chars))
    if not ranked:
        return "\n".join([_nothing(query, known), *searched])
    listing = query.aim in {Aim.LIST, Aim.SWEEP}
    block = block_of(known, ranked) if listing else []
    chosen = (block or _listed(query, ranked)) if listing else _best(query, ranked)
    cut = bool(known.cut) and not block
    head = [_listing(chosen, cut=cut) if listing else _opening(query, ranked)]
    if missing:
        head.append(f"Not found: {', '.join(f'`{text}`' for text in missing)}.")
    tail = [*searched, *_unread(query, known), ENGINE_LINE]
    room = max_chars - sum(len(line) + 1 for line in (*head, *tail)) - 60
    lines = chosen[:_MAX_LISTED] if listing else _with_following(chosen, known)
    quoted = list(_fitting(lines, max(room, 300)))
    left_out = len(chosen) - len(quoted)
    more = [f"({left_out} more matching lines are not shown.)"] if listing and left_out > 0 else []
    return "\n".join([*head, "", *quoted, *more, "", *tail])


def _listing(listed: list[Ranked], *, cut: bool) -> str:
    count, files = len(listed), len({hit.path for hit in listed})
    least = " at least" if cut else ""
    return f"Found{least} {count} matching line{'s' * (count != 1)} in {files} file{'s' * (files != 1)}."


def _opening(query: Query, ranked: list[Ranked]) -> str:
    if query.strong and not any(hit.exact for hit in ranked):
        return "No exact match was found. The closest lines:"
    return "Found:"


def _nothing(query: Query, known: Knowledge) -> str:
    looked_for = ", ".join(f"`{term.text}`" for term in query.searchable[:8])
    if not known.asked and not known.covered:
        return "Nothing was searched: the brief names nothing to look for, or no search tool was offered."
    return f"Nothing was found for {looked_for}." if looked_for else "Nothing was found."


def _files(known: Knowledge, max_chars: int) -> list[str]:
    """List the files when nothing else was asked for."""
    paths = [f"- {path}" for path in known.listed]
    kept: list[str] = []
    room = max(max_chars - 120, 200)
    for line in paths:
        room -= len(line) + 1
        if room < 0:
            break
        kept.append(line)
    left = [f"({len(paths) - len(kept)} more are not shown.)"] if len(kept) < len(paths) else []
    return [f"Found {len(paths)} files:", "", *kept, *left, "", ENGINE_LINE]


def _searched(known: Knowledge) -> list[str]:
    calls = [call for call in known.asked if not call.startswith("Read ")]
    lines: list[str] = []
    if calls:
        shown_calls = "; ".join(calls[:8]) + ("; …" if len(calls) > 8 else "")
        lines.append(f"Searched: {shown_calls}.")
    if known.covered:
        paths = list(known.covered)
        lines.append(
            f"Read: {', '.join(paths[:8])}{f' and {len(paths) - 8} more' if len(paths) > 8 else ''}."
        )
    if known.blocked:
        lines.append(f"Failed: {'; '.join(known.blocked[:3])}")
    return lines


def _unread(query: Query, known: Knowledge) -> list[str]:
    """Say which files were to be read and were not, because a limit struck or a read failed."""
    if query.aim is not Aim.SWEEP:
        return []
    wanted = dict.fromkeys([*known.listed, *(name for name in query.files if "*" not in name)])
    missed = [path for path in wanted if path in known.totals or path not in known.covered]
    missed = [
        path for path in missed if not known.is_read(path) and not any(p.endswith("/" + path) for p in wanted)
    ]
    if not missed:
        return []
    more = f" and {len(missed) - 8} more" if len(missed) > 8 else ""
    return [f"Not read to the end: {', '.join(missed[:8])}{more}."]


def _best(query: Query, ranked: list[Ranked]) -> list[Ranked]:
    if query.aim in _SHARE_OF_BEST and any(hit.exact for hit in ranked):
        names = {term.text for term in query.strong}
        ranked = [hit for hit in ranked if not names.isdisjoint(hit.terms)]
    floor = _SHARE_OF_BEST.get(query.aim, 0.25) * ranked[0].score
    chosen: list[Ranked] = []
    per_file: Counter[str] = Counter()
    for hit in ranked:
        if hit.score < floor or len(chosen) == _BEST_LINES:
            break
        if per_file[hit.path] < _PER_FILE:
            chosen.append(hit)
            per_file[hit.path] += 1
    return chosen


def _listed(query: Query, ranked: list[Ranked]) -> list[Ranked]:
    """Return every line that holds what was asked for, by place."""
    exact = [hit for hit in ranked if hit.exact]
    floor = 0.35 * ranked[0].score
    chosen = (exact if query.strong else []) or [hit for hit in ranked if hit.score >= floor]
    return sorted(chosen, key=lambda hit: hit.place)


def _with_following(chosen: list[Ranked], known: Knowledge) -> Iterator[tuple[str, int, str]]:
    """Yield the lines by rank; definitions among the first three with what follows, where it was read."""
    given: set[tuple[str, int]] = set()
    for position, hit in enumerate(chosen):
        if hit.place in given:
            continue
        following = range(1, _FOLLOWING + 1) if position < 3 and hit.definition else ()
        for number in (hit.line, *(hit.line + step for step in following)):
            text = known.found.get((hit.path, number))
            if text is None or (number > hit.line and not (text.strip() and explains(text, hit.text))):
                break
            if (hit.path, number) not in given:
                given.add((hit.path, number))
                yield hit.path, number, text


def _fitting(lines: Iterable[Ranked] | Iterable[tuple[str, int, str]], room: int) -> Iterator[str]:
    for item in lines:
        path, number, text = (item.path, item.line, item.text) if isinstance(item, Ranked) else item
        line = f"- {path}:{number}: {shown(text)}"
        room -= len(line) + 1
        if room < 0:
            return
        yield line
