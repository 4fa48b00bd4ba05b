"""What one call on the catalog works with: the files as they are now, and which one of them is meant."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.tokens import estimate_text
from sidequest.subagents.catalog import Catalog, Entry, EntryState
from sidequest.subagents.definition import Scope, SubagentDefinition, normalise_name
from sidequest.subagents.sources import MAX_DOCUMENTS_PER_FOLDER, USER_FOLDER
from sidequest.subagents.switches import SwitchFile
from sidequest.surfaces.app.agent_files import mark_of, read_file
from sidequest.surfaces.app.agent_shapes import Agent, AgentFile, Budget, GroupKind
from sidequest.surfaces.paths import Shortener
from sidequest.surfaces.planned_model import ModelPlanner, PlannedModel
from sidequest.surfaces.text import one_line

if TYPE_CHECKING:
    from sidequest.surfaces.app.application import Application
    from sidequest.surfaces.assemble import Parts

OWN_PROJECT_FOLDER = ".agents"
"""Below a project; folders of definitions elsewhere belong to other programs."""


class Desk:
    """What one call works with: the catalog as it is now, the planner, and where the user's files lie."""

    def __init__(self, application: Application) -> None:
        self._parts: Parts = application.parts()
        self.catalog: Catalog = self._parts.catalog
        self.planner = ModelPlanner.of(self._parts.registry)
        self._place = Shortener(self._parts.root, Path.home())
        self.switches = SwitchFile.of(application.env)
        self._off = self.switches.disabled()
        self.folder = Path.home() / USER_FOLDER

    def short(self, path: Path) -> str:
        """Return a path as a person writes it here."""
        return self._place.short(str(path))

    def path_of(self, name: str) -> Path:
        """Return the file that a definition of the user's own with this id is stored in."""
        return self.folder / f"{name}.md"

    def agent(self, entry: Entry) -> Agent:
        """Return an entry as a list shows it."""
        plan = self.planner.plan(entry.definition) if entry.definition else None
        # The state says less: what is not trusted or is shadowed may be switched off besides.
        enabled = entry.state is not EntryState.DISABLED and entry.key not in self._off
        return Agent.of(entry, plan, self.catalog, self._place, enabled=enabled)

    def file(self, entry: Entry) -> AgentFile:
        """Return an entry with its prompt, its text and its mark."""
        own = entry.definition
        plan = self.planner.plan(own) if own else None
        data = _text_of(entry)
        return AgentFile(
            **self.agent(entry).model_dump(by_alias=False),
            body=own.body if own else None,
            text=data.decode("utf-8", "replace"),
            mark=mark_of(data),
            budget=budget_of(plan, own.max_tokens, own.body) if plan and own else None,
        )

    def group(self, entry: Entry) -> tuple[GroupKind, str | None]:
        """Return the group an entry is listed in: its kind and its folder."""
        if entry.scope is Scope.BUILTIN or entry.path is None:
            return "builtin", None
        folder = Path(entry.path).parent
        if entry.scope is Scope.USER:
            return "mine", self.short(folder)
        if entry.scope is Scope.NAMED:
            return "named", self.short(folder)
        below = folder.relative_to(self._parts.root).parts if folder.is_relative_to(self._parts.root) else ()
        return "project" if below[:1] == (OWN_PROJECT_FOLDER,) else "foreign", self.short(folder)

    def find(self, name: str, scope: str | None, path: str | None) -> Entry:
        """Return the entry that is meant: the active one of those that fit, else the first.

        A `path` says enough by itself: a file that does not load may have no name.

        Raises:
            SidequestError: `SUBAGENT_UNKNOWN`.
        """
        wanted = normalise_name(name)
        found = [
            entry
            for entry in self.catalog.entries
            if (entry.name == wanted or (path is not None and entry.path == path))
            and scope in (None, entry.scope.value)
            and path in (None, entry.path)
        ]
        if not found:
            active = self.catalog.require(name)
            where = f" in {scope or path}" if scope or path else ""
            raise SidequestError(
                ErrorCode.SUBAGENT_UNKNOWN,
                f"There is no subagent named {one_line(name, 80)}{where}.",
                f"{active.name} is one of scope {active.scope.value}.",
            )
        return next((entry for entry in found if entry.state is EntryState.ACTIVE), found[0])

    def find_own(self, name: str, scope: str | None, path: str | None) -> Entry:
        """Return the entry that is meant among the user's own files.

        Raises:
            SidequestError: `SUBAGENT_UNKNOWN`; `USAGE` when it is not the user's own.
        """
        entry = self.find(name, scope or (None if path else self._own_scope(name)), path)
        if entry.scope is not Scope.USER:
            raise SidequestError(
                ErrorCode.USAGE,
                f"{entry.name} is a {entry.scope.value} definition, and only your own are changed here.",
                "Copy it as your own: one of the same name comes before it.",
            )
        return entry

    def _own_scope(self, name: str) -> str | None:
        own = any(e.scope is Scope.USER and e.name == normalise_name(name) for e in self.catalog.entries)
        return Scope.USER.value if own else None

    def refuse_new(self, name: str) -> str | None:
        """Return why a new file cannot have the id `name`, or None."""
        if refusal := self._refuse_taken(name, None):
            return refusal
        own = [entry for entry in self.catalog.entries if entry.scope is Scope.USER]
        if len(own) >= MAX_DOCUMENTS_PER_FOLDER:
            return (
                f"You have {len(own)} subagents of your own, and at most {MAX_DOCUMENTS_PER_FOLDER} are read."
            )
        return None

    def refuse_rename(self, name: str, entry: Entry) -> str | None:
        """Return why the file of `entry` cannot have the id `name`, or None."""
        return None if name == entry.name else self._refuse_taken(name, entry)

    def _refuse_taken(self, name: str, but: Entry | None) -> str | None:
        for entry in self.catalog.entries:
            if entry.scope is Scope.USER and entry.name == name and entry is not but:
                return f"You have a subagent named {name} already, in {self._place.short(entry.path)}."
        if self.path_of(name).exists():
            return f"There is a file {self.short(self.path_of(name))} already."
        return None


def loading(entry: Entry) -> SubagentDefinition:
    """Return the definition of an entry.

    Raises:
        SidequestError: `SUBAGENT_INVALID` when its file does not load.
    """
    if entry.definition is None:
        raise SidequestError(
            ErrorCode.SUBAGENT_INVALID,
            f"{entry.path} does not load, so its fields cannot be changed here.",
            "Correct it in a text editor: its diagnostics say where.",
        )
    return entry.definition


def _text_of(entry: Entry) -> bytes:
    if entry.scope is Scope.BUILTIN and entry.path is not None:
        from importlib.resources import files

        return (files("sidequest.subagents") / entry.path).read_bytes()
    if entry.path is None or (entry.state is EntryState.OVER_CAP and entry.definition is None):
        return b""
    # A link that leads out of its folder was not followed, so its text is not shown either.
    return read_file(Path(entry.path)) if entry.definition is not None or entry.scope is Scope.USER else b""


def budget_of(plan: PlannedModel, cap: int | None, body: str) -> Budget | None:
    """Return the budget on the planned model, with an output cap in tokens; None when no model can run."""
    if plan.binding is None:
        return None
    return Budget.of(plan.binding, plan.binding.budget(cap), estimate_text(body))
