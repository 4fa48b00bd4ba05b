"""`sidequest agents list`, `show` and `check`: the definitions there are, and what became of each file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from rich.text import Text

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.subagents.catalog import Catalog, Entry, EntryState
from sidequest.subagents.definition import Scope, normalise_name
from sidequest.subagents.diagnostics import Diagnostic, Severity
from sidequest.subagents.parse import MAX_DOCUMENT_BYTES, parse_definition
from sidequest.subagents.sources import standard_sources
from sidequest.surfaces.assemble import Parts, Place, assemble
from sidequest.surfaces.cli.errors import Exit
from sidequest.surfaces.cli.jsonlines import print_json
from sidequest.surfaces.cli.screen import Screen, fitted, line_width, pad, put, put_labelled, widest
from sidequest.surfaces.definitions import (
    STATES,
    as_dict,
    diagnostic_dict,
    facts,
    group_of,
    why,
)
from sidequest.surfaces.paths import Shortener
from sidequest.surfaces.planned_model import ModelPlanner
from sidequest.surfaces.text import one_line, printable, some

_STATE_STYLES = {
    EntryState.ACTIVE: "green",
    EntryState.INVALID: "red",
    EntryState.BLOCKED: "yellow",
}
_SEVERITY_STYLES = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}
_NAME_COLUMNS = 24
_MODEL_COLUMNS = 32
_FACT_COLUMNS = 14


class _Desk:
    """What the three commands work with: the parts, the planner, and where to print."""

    def __init__(self, place: Place) -> None:
        self.parts: Parts = assemble(place)
        self.catalog = self.parts.catalog
        self.planner = ModelPlanner.of(self.parts.registry)
        self.paths = Shortener(self.parts.root, Path.home())

    def as_dict(self, entry: Entry) -> dict[str, object]:
        plan = self.planner.plan(entry.definition) if entry.definition else None
        return as_dict(entry, plan, self.catalog)

    def put_facts(self, screen: Screen, entry: Entry) -> None:
        plan = self.planner.plan(entry.definition) if entry.definition else None
        for label, value in facts(entry, plan, self.catalog, self.paths):
            style = _STATE_STYLES.get(entry.state, "yellow") if label == "state" else ""
            put_labelled(screen.out, f"  {label}", Text(printable(value), style), _FACT_COLUMNS)
        for found in entry.diagnostics:
            place = f"  line {found.line}" if found.line is not None else "  file"
            said = Text("").append(found.severity.value, _SEVERITY_STYLES[found.severity])
            said.append(f": {one_line(found.message)}")
            put_labelled(screen.out, place, said, _FACT_COLUMNS)


def list_agents(place: Place, *, as_json: bool) -> int:
    """Print every definition under its group and return the exit code.

    Raises:
        SidequestError: the folder or the settings cannot be used.
    """
    desk = _Desk(place)
    catalog = desk.catalog
    if as_json:
        print_json(
            {
                "agents": [desk.as_dict(entry) for entry in catalog.entries],
                "remarks": [diagnostic_dict(found) for found in catalog.remarks],
                "trusted": desk.parts.trusted,
                "notice": desk.parts.trust_notice(),
            }
        )
        return Exit.DONE
    screen = Screen.of_process()
    for number, (group, entries) in enumerate(
        groupby(catalog.entries, key=lambda entry: group_of(entry, desk.paths))
    ):
        if number:
            put(screen.out)
        put(screen.out, group, "bold")
        _put_rows(screen, desk, list(entries))
    _put_remarks(screen, desk, catalog.remarks)
    if desk.planner.problem:
        put(screen.out)
        put(screen.out, f"default missing: {one_line(desk.planner.problem)}", "yellow")
    if notice := desk.parts.trust_notice():
        put(screen.out)
        put(screen.out, notice, "yellow")
    return Exit.DONE


def _put_rows(screen: Screen, desk: _Desk, entries: list[Entry]) -> None:
    width = line_width(screen.out)
    names = _columns((entry.name or "?" for entry in desk.catalog.entries), _NAME_COLUMNS)
    states = widest([STATES[entry.state] for entry in desk.catalog.entries])
    plans = {d.path: desk.planner.plan(d) for e in desk.catalog.entries if (d := e.definition)}
    models = _columns((plan.label for plan in plans.values()), _MODEL_COLUMNS)
    for entry in entries:
        line = Text("  ").append(pad(entry.name or "?", names), "bold")
        style = _STATE_STYLES.get(entry.state, "dim")
        line.append("  ").append(pad(STATES[entry.state], states), style)
        if entry.definition is not None:
            plan = plans[entry.definition.path]
            line.append(f"  {pad(plan.label, models)}", "" if plan.binding else "yellow")
            line.append(f"  {entry.definition.tools_label}", "dim")
        put(screen.out, fitted(line, width))
        about = why(entry, desk.paths) or (entry.definition.summary() if entry.definition else "")
        put(screen.out, fitted(Text(f"  {'':<{names}}  {one_line(about)}", "dim"), width))


def _columns(texts: Iterable[str], most: int) -> int:
    return min(most, widest(list(texts)))


def _put_remarks(screen: Screen, desk: _Desk, remarks: Sequence[Diagnostic]) -> None:
    if remarks:
        put(screen.out)
    for found in remarks:
        line = Text(desk.paths.short(found.path)).append(f": {one_line(found.message)}")
        line.stylize(_SEVERITY_STYLES[found.severity])
        put(screen.out, line)


def show_agent(name: str, place: Place, *, as_json: bool) -> int:
    """Print one definition with its prompt and return the exit code: 1 when its file does not load.

    Of several files that claim the name it is the active one, else the one of highest precedence.

    Raises:
        SidequestError: `SUBAGENT_UNKNOWN`.
    """
    desk = _Desk(place)
    found = _claiming(desk.catalog, name)
    entry = next((entry for entry in found if entry.state is EntryState.ACTIVE), found[0])
    code = Exit.DONE if entry.definition is not None else Exit.FAILED
    body = entry.definition.body if entry.definition else None
    if as_json:
        print_json({**desk.as_dict(entry), "body": body})
        return code
    screen = Screen.of_process()
    title = Text(entry.name, "bold").append(f"  {desk.paths.short(entry.path)}", "dim")
    put(screen.out, title)
    if entry.definition is not None:
        put(screen.out, f"  {one_line(entry.definition.description)}")
    put(screen.out)
    desk.put_facts(screen, entry)
    if body is not None:
        put(screen.out)
        put(screen.out, body)
    return code


def _claiming(catalog: Catalog, name: str) -> list[Entry]:
    """Return the entries that claim a name, in any spelling.

    Raises:
        SidequestError: `SUBAGENT_UNKNOWN`, naming the known ones.
    """
    wanted = normalise_name(name)
    found = [entry for entry in catalog.entries if wanted and entry.name == wanted]
    if not found:
        active = catalog.require(name)
        found = [entry for entry in catalog.entries if entry.definition is active]
    return found


def check_agents(subjects: tuple[str, ...], place: Place, *, as_json: bool) -> int:
    """Print what each file was understood as and return the exit code: 1 when one has an error.

    `subjects` are files, folders and names; none means every file but the builtins.

    Raises:
        SidequestError: a file or folder is not there, or a name is not known.
    """
    folders = tuple(Path(subject) for subject in subjects if Path(subject).expanduser().is_dir())
    desk = _Desk(Place(place.cwd, (*place.agents_dirs, *_unread(folders, place))))
    entries = list(_chosen(subjects, desk))
    broken = [entry for entry in entries if _has_error(entry)]
    code = Exit.FAILED if broken else Exit.DONE
    if as_json:
        print_json(
            {
                "ok": not broken,
                "files": [desk.as_dict(entry) for entry in entries],
                "remarks": [diagnostic_dict(found) for found in desk.catalog.remarks],
            }
        )
        return code
    screen = Screen.of_process()
    for entry in entries:
        title = Text(desk.paths.short(entry.path), "bold").append(f"  {entry.name}", "dim")
        put(screen.out, title)
        desk.put_facts(screen, entry)
        put(screen.out)
    if not subjects:
        _put_remarks(screen, desk, desk.catalog.remarks)
    put(screen.out, _verdict(entries, broken), "red" if broken else "green")
    return code


def _verdict(entries: list[Entry], broken: list[Entry]) -> str:
    if not entries:
        return "no definition files found; a builtin is checked by its name"
    said = f"{len(broken)} with errors" if broken else "no errors"
    return f"{some(len(entries), 'file')} checked, {said}"


def _unread(folders: tuple[Path, ...], place: Place) -> list[Path]:
    """Return those folders that are not read anyway, so that naming them raises nobody's precedence."""
    sources = standard_sources(Path.home(), place.cwd.expanduser())
    known = {_real(source.folder) for source in sources}
    return [folder for folder in folders if _real(folder) not in known]


def _real(path: Path) -> Path:
    """Return `path` with its links resolved as far as that goes; a loop of links stays as it is."""
    return Path(os.path.realpath(path.expanduser()))


def _chosen(subjects: tuple[str, ...], desk: _Desk) -> Iterable[Entry]:
    if not subjects:
        return [entry for entry in desk.catalog.entries if entry.scope is not Scope.BUILTIN]
    found = [entry for subject in subjects for entry in _matching(subject, desk)]
    return list({id(entry): entry for entry in found}.values())


def _matching(subject: str, desk: _Desk) -> list[Entry]:
    path = Path(subject).expanduser()
    if path.is_dir():
        return [entry for entry in desk.catalog.entries if _folder_of(entry) == _real(path)]
    if path.is_file() or path.is_symlink():
        known = [e for e in desk.catalog.entries if _file_of(e) == _real(path)]
        return known or [_alone(path)]
    if "/" in subject or subject.lower().endswith(".md"):
        raise SidequestError(
            ErrorCode.USAGE, f"{subject} is not there.", "Name a file, a folder or a subagent that exists."
        )
    return _claiming(desk.catalog, subject)


def _file_of(entry: Entry) -> Path | None:
    return _real(Path(entry.path)) if entry.path and entry.scope is not Scope.BUILTIN else None


def _folder_of(entry: Entry) -> Path | None:
    file = _file_of(entry)
    return file.parent if file else None


def _alone(path: Path) -> Entry:
    """Read a file that lies in no folder of definitions."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_DOCUMENT_BYTES + 1)
    except OSError as error:
        raise SidequestError(
            ErrorCode.USAGE, f"{path} cannot be read: {error.strerror}.", "Check its permissions."
        ) from error
    parsed = parse_definition(data, path=str(path), scope=Scope.NAMED)
    state = EntryState.ACTIVE if parsed.definition else EntryState.INVALID
    return Entry(parsed.name, Scope.NAMED, str(path), state, parsed.definition, parsed.diagnostics)


def _has_error(entry: Entry) -> bool:
    return entry.state is EntryState.INVALID or any(
        found.severity is Severity.ERROR for found in entry.diagnostics
    )
