"""The delegate's policy: which search or read comes next, and when to report.

One call per turn. Searches come first, identifiers and quotations before words; then slices around the
best lines are read. A call that the conversation, or the summary in front of it, shows as made is not made
again. The number of steps is bounded, so that a run ends whatever happens to its history.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sidequest.models.offline.entries import Call, Reply, Request, Tool
from sidequest.models.offline.knowledge import Knowledge, describe_call, gather
from sidequest.models.offline.lines import shown
from sidequest.models.offline.ranking import Ranked, is_named, rank
from sidequest.models.offline.report import report
from sidequest.models.offline.terms import Term, identifier_parts, spellings, stem
from sidequest.models.offline.words import Aim, Query

SLICE_LINES = 160
"""Most lines of one slice around a hit."""
LINES_BEFORE = 40
MAX_STEPS = 14
"""Most searches and reads for one question."""
MAX_SWEEP_STEPS = 120
"""Most of them when several files are to be read from end to end."""
_MAX_FILES = 60
_WORTH_READING = 0.3
"""A line is read around when it scores at least this share of the best one."""
_SLICES = {Aim.WHERE: 2, Aim.VALUE: 2, Aim.LIST: 1, Aim.EXPLAIN: 5, Aim.SWEEP: 0}

Args = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class _Step:
    kind: str
    args: Args


@dataclass(frozen=True, slots=True)
class _State:
    """What a step is chosen from."""

    known: Knowledge
    query: Query
    ranked: list[Ranked]
    page: int
    """Lines to read at once."""
    has_grep: bool

    @property
    def names_found(self) -> bool:
        return any(hit.exact for hit in self.ranked)


def work(request: Request) -> Reply:
    """Return the next search or read for the brief, or the report when there is nothing left to do."""
    known = gather(request.entries)
    query = _with_values(known)
    state = _State(known, query, rank(known, query), page_lines(request.window), "grep" in request.tools)
    limit = _step_limit(query)
    if known.steps < limit:
        for step in _steps(state):
            call = _call(step, request.tools)
            if call is not None and describe_call(step.kind, call.args) not in known.asked:
                return Reply(_narrate(step, call, state, limit), (call,))
    return Reply(report(known, state.ranked, request.max_chars, query=query))


def page_lines(window: int) -> int:
    """Return how many lines to read at once for a window in tokens: a sixty-fourth of it, 120 to 200.

    Results are bounded to about half of what a request has room for; a page should come back whole.
    Worked number: a window of 8,000 tokens gives 125 lines.
    """
    return min(200, max(120, window // 64))


def _step_limit(query: Query) -> int:
    if query.aim is Aim.SWEEP:
        return MAX_SWEEP_STEPS
    base = 12 if query.aim is Aim.EXPLAIN else 8
    return min(MAX_STEPS, base + 2 * max(0, len(query.strong) - 1) + 4 * query.thorough)


def _narrate(step: _Step, call: Call, state: _State, limit: int) -> str:
    """Say what is done now and quote the best line so far; both survive a loss of history."""
    text = f"Step {state.known.steps + 1} of at most {limit}: {describe_call(step.kind, call.args)}."
    if state.ranked:
        best = state.ranked[0]
        text += f" Best so far:\n- {best.path}:{best.line}: {shown(best.text)}"
    return text


def _call(step: _Step, tools: Mapping[str, Tool]) -> Call | None:
    """Fit a step to the tool as offered: arguments it does not know are left out or worked around."""
    tool = tools.get(step.kind)
    if tool is None:
        return None
    args = dict(step.args)
    if (
        step.kind == "grep"
        and tool.parameters
        and "literal" not in tool.parameters
        and args.pop("literal", None)
    ):
        args["pattern"] = re.escape(str(args["pattern"]))
    if tool.parameters:
        args = {key: value for key, value in args.items() if key in tool.parameters}
    return Call(tool.name, args)


def _steps(state: _State) -> Iterator[_Step]:
    """Yield what may be done, most useful first. Later steps depend on the results of earlier ones."""
    query = state.query
    yield from _named_files(state)
    if query.aim is Aim.SWEEP:
        yield from _sweep(state)
        return
    if not query.searchable:
        yield from _listings(state)
    if query.aim is Aim.EXPLAIN or not any(is_named(hit.path, query) for hit in state.ranked):
        yield from _searches(state)
    if not state.has_grep:
        yield from _sweep(state)
    wanted = _SLICES[query.aim] + min(3, max(0, len(query.strong) - 1)) + 3 * query.thorough
    if query.aim is Aim.LIST and state.names_found:
        wanted = 0
    if _slices_read(state.known) < wanted:
        yield from _slices(state)


def _slices_read(known: Knowledge) -> int:
    """Return how many slices the lines read so far amount to; a file counts once at least."""
    lines = (sum(last - first + 1 for first, last in ranges) for ranges in known.covered.values())
    return sum(-(-count // SLICE_LINES) for count in lines)


def _named_files(state: _State) -> Iterator[_Step]:
    """Open the files the question names; one bare name is looked up first, others are tried as they stand."""
    whole = state.query.aim in {Aim.SWEEP, Aim.LIST}
    for name in state.query.files:
        if "*" in name:
            continue
        looked_up = _paths_named(name, state.known)
        if not looked_up and ("/" in name or len(state.query.files) > 1):
            yield from _pages(name, state, whole=whole)
        if not looked_up and name not in state.known.covered:
            yield _Step("glob", {"pattern": f"**/{name.rsplit('/', 1)[-1]}"})
        for path in looked_up[:3]:
            yield from _pages(path, state, whole=whole)


def _paths_named(name: str, known: Knowledge) -> list[str]:
    return [path for path in known.listed if path == name or path.endswith("/" + name.lstrip("./"))]


def _pages(path: str, state: _State, *, whole: bool) -> Iterator[_Step]:
    """Yield the next page of a file that was not read yet; only the first one unless `whole`."""
    start, end = 1, state.page
    for first, last in state.known.covered.get(path, ()):
        if first > start:
            end = min(first - 1, end)
            break
        start, end = last + 1, last + state.page
    total = state.known.totals.get(path)
    if (total is not None and start > total) or (start > 1 and (total is None or not whole)):
        return
    yield _Step("read", _slice(path, start, end))


def _slice(path: str, start: int, end: int) -> Args:
    """Return the arguments that read lines `start` to `end`, both counted from 1 and inclusive."""
    args: dict[str, object] = {"path": path, "limit": end - start + 1}
    if start > 1:
        args["offset"] = start - 1
    return args


def _sweep(state: _State) -> Iterator[_Step]:
    """List the files asked for and read each from end to end."""
    yield from _listings(state)
    for path in list(state.known.listed)[:_MAX_FILES]:
        yield from _pages(path, state, whole=True)


def _listings(state: _State) -> Iterator[_Step]:
    for pattern in state.query.patterns or (() if state.query.files else ("**/*",)):
        deep = pattern if "/" in pattern else f"**/{pattern}"
        for folder in state.query.folders or (".",):
            yield _Step("glob", {"pattern": deep, **_under(folder)})


def _under(folder: str) -> Args:
    return {} if folder == "." else {"path": folder}


def _searches(state: _State) -> Iterator[_Step]:
    patterns = state.query.patterns
    files: Args = {"glob": patterns[0]} if len(patterns) == 1 else {}
    for folder in (*state.query.folders, "."):
        if folder == "." and state.query.folders and state.names_found:
            return
        scope = {**_under(folder), **files}
        for term in state.query.strong[:5]:
            yield from _name_searches(term, scope, state)
        yield from _word_searches(scope, state)


def _name_searches(term: Term, scope: Args, state: _State) -> Iterator[_Step]:
    """Search a name as it is spelled; when nothing defines it, as it might be spelled elsewhere."""
    exact = {"pattern": term.text, "literal": True, **scope}
    yield _Step("grep", exact)
    if any(hit.definition and hit.exact and term.text in hit.terms for hit in state.ranked):
        return
    if describe_call("grep", exact) in state.known.cut:
        name = re.escape(term.text)
        keywords = "def|class|fn|func|function|struct|type|const"
        yield _Step("grep", {"pattern": rf"({keywords})\s+{name}\b|^\s*{name}\s*[:=]", **scope})
    loose = _any_spelling(term.text)
    if loose:
        yield _Step("grep", {"pattern": loose, "ignore_case": True, **scope})


def _any_spelling(text: str) -> str | None:
    """Return a pattern for every spelling of a name: `hardLimit` gives `hard[_. -]?limit`."""
    parts = identifier_parts(text)
    if len(parts) < 2:
        return re.escape(text) if parts and text != text.lower() else None
    return "[_. -]?".join(map(re.escape, parts))


def _word_searches(scope: Args, state: _State) -> Iterator[_Step]:
    """Search pairs of words, then the single words that no pair found, rarest looking first."""
    explain = state.query.aim is Aim.EXPLAIN
    if state.names_found and not explain:
        return
    plain = [term for term in state.query.searchable if not term.strong]
    compound = [term for term in plain if len(term.needles) > 1]
    for term in compound[: 1 if state.names_found else 3]:
        *heads, tail = re.split(r"[ -]", term.text.lower())
        pattern = "[_. -]?".join(map(re.escape, [*heads, stem(tail)]))
        yield _Step("grep", {"pattern": pattern, "ignore_case": True, **scope})
    found = {word for term in compound if _is_hit(term, state) for word in term.text.lower().split()}
    if state.names_found or (found and not explain):
        return
    single = [term for term in plain if len(term.needles) == 1 and term.text.lower() not in found]
    for term in sorted(single, key=lambda term: -term.weight)[: 4 if state.query.thorough else 3]:
        yield _Step("grep", {"pattern": _word_pattern(term.needles[0]), "ignore_case": True, **scope})


def _word_pattern(needle: str) -> str:
    """Return a pattern for the forms of a word; a short stem must not run on: mode, modes, not model."""
    return re.escape(needle) if len(needle) > 4 else rf"{re.escape(needle)}(s|d|r|es|ed|er|ing)?\b"


def _is_hit(term: Term, state: _State) -> bool:
    return any(term.text in hit.terms for hit in state.ranked)


def _slices(state: _State) -> Iterator[_Step]:
    """Read around the best lines that no read has shown yet; lines already read are left out."""
    size = min(SLICE_LINES, state.page)
    for hit in state.ranked:
        if hit.score < _WORTH_READING * state.ranked[0].score:
            return
        if state.known.is_covered(hit.place) or hit.line < 1:
            continue
        start = max(1, hit.line - LINES_BEFORE)
        end = start + size - 1
        for first, last in state.known.covered.get(hit.path, ()):
            if last < hit.line:
                start = max(start, last + 1)
            elif first > hit.line:
                end = min(end, first - 1)
        yield _Step("read", _slice(hit.path, start, end))


def _with_values(known: Knowledge) -> Query:
    """Follow a value that is only another name: `LIMIT = DEFAULT_LIMIT` makes DEFAULT_LIMIT a term too."""
    query = known.query
    if query.aim is not Aim.VALUE:
        return query
    for _ in range(2):
        names: list[Term] = []
        for hit in rank(known, query)[:3]:
            value = hit.definition.value.strip().rstrip(",;") if hit.definition else ""
            if re.fullmatch(r"[A-Za-z_][\w.]*", value) and ("_" in value or value.isupper()):
                name = value.rsplit(".", 1)[-1]
                names.append(Term(name, 3.0, spellings(name), strong=True))
        extended = query.with_terms(names)
        if extended == query:
            break
        query = extended
    return query
