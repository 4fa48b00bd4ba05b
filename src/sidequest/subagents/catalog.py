"""Which subagents there are: every file of every source, who wins a name, and why the others do not.

Precedence is named > user > project (trusted) > foreign > builtin. The first entry of a name wins; a file
that does not load blocks its name instead of letting a lower one through; what is untrusted or disabled
neither wins nor blocks (specification 4.1, definitions-in-the-wild rule 5).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum
from functools import cache
from importlib.resources import files
from pathlib import Path

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.subagents.definition import Scope, SubagentDefinition, normalise_name
from sidequest.subagents.diagnostics import Diagnostic, Severity
from sidequest.subagents.parse import parse_definition
from sidequest.subagents.sources import (
    MAX_DOCUMENTS_PER_FOLDER,
    RawFile,
    Source,
    read_source,
    standard_sources,
)

__all__ = [
    "MAX_DOCUMENTS_PER_FOLDER",
    "MAX_SUBAGENT_DEFINITIONS",
    "Catalog",
    "Entry",
    "EntryState",
    "Scope",
    "Source",
    "builtin_entries",
    "standard_sources",
]

MAX_SUBAGENT_DEFINITIONS = 16
"""Most active subagents, inclusive (specification 4.1)."""
_RANK = {scope: rank for rank, scope in enumerate(Scope)}


class EntryState(StrEnum):
    """What became of a file."""

    ACTIVE = "active"
    SHADOWED = "shadowed"
    """A file of higher precedence has the name."""
    BLOCKED = "blocked"
    """A file of higher precedence claims the name and does not load."""
    UNTRUSTED = "untrusted"
    DISABLED = "disabled"
    """Switched off by the user."""
    INVALID = "invalid"
    OVER_CAP = "over-cap"
    """There are more than `MAX_SUBAGENT_DEFINITIONS`, or too many files in its folder."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One file, or one definition made in code, and what became of it."""

    name: str
    """The id it claims; empty when not even its file name gives one."""
    scope: Scope
    path: str | None
    """The file; `builtin/<name>.md` for a builtin, None for a definition made in code."""
    state: EntryState
    definition: SubagentDefinition | None = None
    """None when the file does not load or was not read."""
    diagnostics: tuple[Diagnostic, ...] = ()
    by: str | None = None
    """For shadowed and blocked: the path, or the scope, of the entry that has the name."""

    @property
    def key(self) -> str:
        """How `disabled` names it: `user:fixer`."""
        return f"{self.scope.value}:{self.name}"


@dataclass(frozen=True, slots=True)
class Catalog:
    """The subagents of a session. Immutable; load it again to see an edited file."""

    entries: tuple[Entry, ...] = ()
    """Every file, highest precedence first."""
    remarks: tuple[Diagnostic, ...] = ()
    """What there is to say about folders and about the catalog as a whole."""

    @classmethod
    def load(
        cls, sources: Iterable[Source] = (), *, builtins: bool = True, disabled: Collection[str] = ()
    ) -> Catalog:
        """Read all sources; never raises because of a file or a folder.

        `disabled` holds entry keys such as `builtin:explorer` (see `Entry.key`): a disabled entry is listed
        and neither active nor in the way of another.
        """
        entries: list[Entry] = []
        remarks: list[Diagnostic] = []
        for source in sources:
            found, said = _load_source(source)
            entries += found
            remarks += said
        entries += builtin_entries() if builtins else ()
        return _settle(entries, remarks, disabled)

    @classmethod
    def from_folder(cls, folder: str | Path, *, builtins: bool = True) -> Catalog:
        """Read the definitions in `folder`, which you name and so trust; they outrank the builtins."""
        return cls.load([Source(Path(folder), Scope.NAMED)], builtins=builtins)

    @classmethod
    def from_definitions(
        cls, definitions: Iterable[SubagentDefinition], *, builtins: bool = False
    ) -> Catalog:
        """Return a catalog of definitions made in code, which outrank the builtins.

        Raises:
            SidequestError: `SUBAGENT_INVALID` when two of them share a name.
        """
        entries: list[Entry] = []
        for definition in definitions:
            if any(entry.name == definition.name for entry in entries):
                raise SidequestError(
                    ErrorCode.SUBAGENT_INVALID,
                    f"Two subagents are named {definition.name}.",
                    "Give each definition its own name.",
                )
            entries.append(
                Entry(definition.name, definition.scope, definition.path, EntryState.ACTIVE, definition)
            )
        return _settle([*entries, *(builtin_entries() if builtins else ())], [], ())

    @property
    def active(self) -> tuple[SubagentDefinition, ...]:
        """The definitions a task can be given to, at most `MAX_SUBAGENT_DEFINITIONS`."""
        return tuple(
            entry.definition
            for entry in self.entries
            if entry.state is EntryState.ACTIVE and entry.definition is not None
        )

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Everything there is to say, files first."""
        return tuple(found for entry in self.entries for found in entry.diagnostics) + self.remarks

    def get(self, name: str) -> SubagentDefinition | None:
        """Return the active definition of that name, in any spelling (`Code Reviewer`), or None."""
        wanted, shown = normalise_name(name), " ".join(name.split()).casefold()
        by_id = next((found for found in self.active if found.name == wanted), None)
        return by_id or next((found for found in self.active if found.shown_name.casefold() == shown), None)

    def require(self, name: str) -> SubagentDefinition:
        """Return the active definition of that name.

        Raises:
            SidequestError: `SUBAGENT_UNKNOWN`, naming the known ones, and why one that exists is not active.
        """
        found = self.get(name)
        if found is not None:
            return found
        known = sorted(definition.name for definition in self.active)
        remedy = f"Use one of: {', '.join(known)}." if known else "No subagent is active in this session."
        close = get_close_matches(normalise_name(name), known, n=1, cutoff=0.6)
        if close:
            remedy = f"Did you mean {close[0]}? {remedy}"
        elif (entry := self._claimed(name)) is not None and entry.state is EntryState.UNTRUSTED:
            remedy = f"The user can look at it and then run `sidequest trust`. {remedy}"
        raise SidequestError(ErrorCode.SUBAGENT_UNKNOWN, self._why_unknown(name), remedy, agent=name[:80])

    def _claimed(self, name: str) -> Entry | None:
        wanted = normalise_name(name)
        return next((entry for entry in self.entries if wanted and entry.name == wanted), None)

    def _why_unknown(self, name: str) -> str:
        entry = self._claimed(name)
        if entry is None:
            return f"There is no subagent named {name[:80]!r}."
        if entry.state is EntryState.INVALID and entry.diagnostics:
            return f"The subagent {entry.name} does not load: {entry.diagnostics[0].message}"
        where = entry.path or entry.scope.value
        return f"The subagent {entry.name} ({where}) is {entry.state.value}, not active."


@cache
def builtin_entries() -> tuple[Entry, ...]:
    """Return the builtins of this package, sorted by name; parsed once per process."""
    folder = files("sidequest.subagents") / "builtin"
    names = sorted(item.name for item in folder.iterdir() if item.name.endswith(".md"))
    return tuple(
        _entry(RawFile(f"builtin/{name}", (folder / name).read_bytes()), Scope.BUILTIN, trusted=True)
        for name in names
    )


def _load_source(source: Source) -> tuple[list[Entry], list[Diagnostic]]:
    found, remarks = read_source(source)
    entries = [_entry(raw, source.scope, trusted=source.trusted) for raw in found]
    if entries and not source.trusted:
        number = "1 definition is" if len(entries) == 1 else f"{len(entries)} definitions are"
        message = f"{number} off until you trust this folder."
        remarks.append(Diagnostic(str(source.folder), None, Severity.NOTE, message))
    return entries, remarks


def _entry(raw: RawFile, scope: Scope, *, trusted: bool) -> Entry:
    parsed = parse_definition(raw.data or b"", path=raw.path, scope=scope)
    if raw.over_cap:
        return Entry(parsed.name, scope, raw.path, EntryState.OVER_CAP)
    said = (raw.problem,) if raw.problem else parsed.diagnostics
    state = EntryState.INVALID if parsed.definition is None else EntryState.ACTIVE
    if not trusted:
        state = EntryState.UNTRUSTED
    return Entry(parsed.name, scope, raw.path, state, parsed.definition, said)


def _settle(entries: Iterable[Entry], remarks: list[Diagnostic], disabled: Collection[str]) -> Catalog:
    """Decide who has each name. The order of entries within one scope is kept."""
    holders: dict[str, Entry] = {}
    settled: list[Entry] = []
    for entry in sorted(entries, key=lambda entry: _RANK[entry.scope]):
        if entry.state is not EntryState.UNTRUSTED and entry.key in disabled:
            entry = replace(entry, state=EntryState.DISABLED)
        elif entry.state in (EntryState.ACTIVE, EntryState.INVALID):
            entry = _claim(entry, holders)
        settled.append(entry)
    over = [entry.name for entry in settled if entry.state is EntryState.OVER_CAP and entry.definition]
    if over:
        message = f"At most {MAX_SUBAGENT_DEFINITIONS} subagents are active; left out: {', '.join(over)}."
        remarks = [*remarks, Diagnostic("catalog", None, Severity.WARNING, message)]
    return Catalog(tuple(settled), tuple(remarks))


def _claim(entry: Entry, holders: dict[str, Entry]) -> Entry:
    holder = holders.get(entry.name)
    if holder is not None and entry.state is EntryState.ACTIVE:
        lost = EntryState.BLOCKED if holder.state is EntryState.INVALID else EntryState.SHADOWED
        return replace(entry, state=lost, by=holder.path or holder.scope.value)
    if holder is None:
        active = sum(held.state is EntryState.ACTIVE for held in holders.values())
        if entry.state is EntryState.ACTIVE and active >= MAX_SUBAGENT_DEFINITIONS:
            entry = replace(entry, state=EntryState.OVER_CAP)
        holders[entry.name] = entry
    return entry
