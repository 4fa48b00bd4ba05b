"""The catalog for pages and API: list, read, create, change, remove, switch, trust, preview.

A new definition becomes `~/.agents/subagents/<id>.md`. Only files of that folder are ever written. All of it
is plain file work, so call it in a thread from code that must not wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.subagents.catalog import EntryState, builtin_entries
from sidequest.subagents.definition import Scope, SubagentDefinition, normalise_name
from sidequest.subagents.trust import TrustFile, fingerprint, project_files
from sidequest.surfaces.app.agent_desk import Desk, budget_of, loading
from sidequest.surfaces.app.agent_drafts import (
    Draft,
    FieldProblem,
    cap_of,
    definition_of,
    id_of,
    problems_of,
    shown_while_incomplete,
)
from sidequest.surfaces.app.agent_files import (
    changed_file,
    new_file,
    read_file,
    remove_file,
    same_mark,
    save_file,
    size_problem,
)
from sidequest.surfaces.app.agent_shapes import (
    Agent,
    AgentFile,
    AgentList,
    Group,
    GroupKind,
    Preview,
    Remark,
    Trust,
)
from sidequest.surfaces.text import one_line

if TYPE_CHECKING:
    from sidequest.surfaces.app.application import Application

OWN_PROJECT_FOLDER = ".agents"
"""Below a project; folders of definitions elsewhere belong to other programs."""
_KINDS: tuple[GroupKind, ...] = ("builtin", "mine", "project", "foreign", "named")


class DraftRefused(SidequestError):
    """A draft that cannot be saved; `problems` has a message for each field, in the order of the form."""

    def __init__(self, problems: Sequence[FieldProblem]) -> None:
        details: dict[str, Any] = {problem.field: problem.message for problem in problems}
        super().__init__(
            ErrorCode.SUBAGENT_INVALID,
            f"The subagent cannot be saved: {problems[0].message}",
            "Correct the fields that are named.",
            **details,
        )
        self.problems = problems


@dataclass(frozen=True)
class Agents:
    """The catalog of an application. Keeps nothing: every call reads the files anew."""

    application: Application

    def every(self) -> AgentList:
        """Return every definition in groups: builtins, mine, project, folders of other programs, named.

        Raises:
            SidequestError: `SETTINGS_INVALID`; so do all methods here.
        """
        desk = Desk(self.application)
        groups: dict[tuple[GroupKind, str | None], list[Agent]] = {("mine", desk.short(desk.folder)): []}
        trusted: dict[tuple[GroupKind, str | None], bool] = {}
        for entry in desk.catalog.entries:
            key = desk.group(entry)
            groups.setdefault(key, []).append(desk.agent(entry))
            trusted[key] = entry.state is not EntryState.UNTRUSTED
        ordered = sorted(groups, key=lambda key: _KINDS.index(key[0]))
        return AgentList(
            groups=tuple(
                Group(kind=key[0], folder=key[1], trusted=trusted.get(key, True), agents=tuple(groups[key]))
                for key in ordered
            ),
            remarks=tuple(map(Remark.of, desk.catalog.remarks)),
            trust=self.trust(),
        )

    def read(self, name: str, *, scope: str | None = None, path: str | None = None) -> AgentFile:
        """Return one definition with its prompt, its text and its mark.

        `scope` and `path` tell files of one name apart; without them it is the active one, else the one of
        highest precedence.

        Raises:
            SidequestError: `SUBAGENT_UNKNOWN`.
        """
        desk = Desk(self.application)
        return desk.file(desk.find(name, scope, path))

    def presets(self) -> tuple[AgentFile, ...]:
        """Return the builtins as they are in this package, switched off or not, to begin a new one from."""
        desk = Desk(self.application)
        return tuple(desk.file(entry) for entry in builtin_entries())

    def create(self, draft: Draft) -> AgentFile:
        """Store a new definition of the user's own and return it.

        Raises:
            SidequestError: `DraftRefused` with a message for each field; `STORE_CONFLICT` when a file of its
                name appeared meanwhile; `USAGE` when it cannot be written.
        """
        desk = Desk(self.application)
        problems = problems_of(draft, None, desk.refuse_new)
        if problems:
            raise DraftRefused(problems)
        path = desk.path_of(id_of(draft, None))
        data = new_file(definition_of(draft, None, str(path)))
        _refuse_large(data)
        save_file(path, data, expected=None)
        return self.read(id_of(draft, None), path=str(path))

    def update(
        self,
        name: str,
        draft: Draft,
        *,
        mark: str | None = None,
        scope: str | None = None,
        path: str | None = None,
    ) -> AgentFile:
        """Change a definition of the user's own: only what the draft holds, and only those lines.

        `mark` is what `read` gave; None writes over whatever is there. A new name renames the file.

        Raises:
            SidequestError: `STORE_CONFLICT` when the file changed since it was read; else as `create`.
        """
        desk = Desk(self.application)
        entry = desk.find_own(name, scope, path)
        old = Path(str(entry.path))
        original = read_file(old)
        same_mark(original, mark, old)
        before = loading(entry)
        whole = draft.over(before)
        problems = problems_of(whole, before, lambda new: desk.refuse_rename(new, entry))
        if problems:
            raise DraftRefused(problems)
        wanted = id_of(whole, before)
        new = old if wanted == before.name else desk.path_of(wanted)
        data = changed_file(original, definition_of(whole, before, str(old)), new)
        _refuse_large(data)
        save_file(new, data, expected=original if new == old else None)
        if new != old:
            remove_file(old)
            desk.switches.rename(entry.key, f"{Scope.USER.value}:{wanted}")
        return self.read(wanted, path=str(new))

    def remove(
        self, name: str, *, mark: str | None = None, scope: str | None = None, path: str | None = None
    ) -> None:
        """Delete a file of the user's own, and forget that it was switched off.

        Raises:
            SidequestError: as `update`.
        """
        desk = Desk(self.application)
        entry = desk.find_own(name, scope, path)
        file = Path(str(entry.path))
        same_mark(read_file(file), mark, file)
        remove_file(file)
        if not any(other.key == entry.key and other is not entry for other in desk.catalog.entries):
            desk.switches.rename(entry.key, None)

    def switch(self, name: str, *, on: bool, scope: str | None = None, path: str | None = None) -> AgentFile:
        """Switch a definition on or off, here and in the terminal; a builtin too.

        Raises:
            SidequestError: `SUBAGENT_UNKNOWN`; `USAGE` when it cannot be stored.
        """
        desk = Desk(self.application)
        entry = desk.find(name, scope, path)
        desk.switches.switch(entry.key, on=on)
        return self.read(entry.name, scope=entry.scope.value, path=entry.path)

    def trust(self) -> Trust:
        """Return whether the folder of the application is trusted, and what that is about."""
        root, file = self.application.root, TrustFile.of(self.application.env)
        return Trust(
            folder=str(root),
            trusted=file.trusts(root),
            changed=file.changed(root),
            files=tuple(str(path.relative_to(root)) for path in project_files(root)),
            mark=fingerprint(root),
        )

    def set_trust(self, *, trusted: bool, mark: str | None = None) -> Trust:
        """Trust the folder as it is now, or no longer; `mark` is that of what the person looked at.

        Raises:
            SidequestError: `STORE_CONFLICT` when a file changed since then.
        """
        root, file = self.application.root, TrustFile.of(self.application.env)
        if not trusted:
            file.forget(root)
        elif mark is not None and mark != fingerprint(root):
            raise SidequestError(
                ErrorCode.STORE_CONFLICT,
                "The files of this folder changed since they were shown.",
                "Look at them again, then trust the folder.",
            )
        else:
            file.trust(root)
        return self.trust()

    def preview(self, draft: Draft, *, name: str | None = None, path: str | None = None) -> Preview:
        """Return the file a draft would become, what is wrong with it, and the budget that results.

        `name` and `path` are those of the file that is changed; None: a new one.

        Raises:
            SidequestError: `SUBAGENT_UNKNOWN`.
        """
        desk = Desk(self.application)
        entry = desk.find_own(name, None, path) if name is not None else None
        before = loading(entry) if entry else None
        whole = draft.over(before)
        refuse = desk.refuse_new if entry is None else lambda new: desk.refuse_rename(new, entry)
        problems = problems_of(whole, before, refuse)
        wanted = id_of(whole, before)
        file = (
            Path(str(entry.path))
            if entry and before and wanted == before.name
            else desk.path_of(wanted or "…")
        )
        shown = shown_while_incomplete(whole)
        if not id_of(shown, before):
            shown = shown.model_copy(update={"name": "x"})
        definition = definition_of(shown, before, str(file))
        if entry is None:
            data = new_file(definition) if not problems else _sketch(definition, whole)
        else:
            data = changed_file(read_file(Path(str(entry.path))), definition, file)
        large = size_problem(data)
        if large and all(problem.field != "body" for problem in problems):
            problems.append(FieldProblem(field="body", message=large))
        plan = desk.planner.plan(definition)
        return Preview(
            name=wanted,
            place=desk.short(file),
            text=data.decode("utf-8", "replace"),
            bytes=len(data),
            problems=tuple(problems),
            runs_on=plan.binding.key if plan.binding else None,
            model_note=plan.note,
            budget=budget_of(plan, cap_of(whole), whole.body),
        )


def _refuse_large(data: bytes) -> None:
    if large := size_problem(data):
        raise DraftRefused([FieldProblem(field="body", message=large)])


def _sketch(definition: SubagentDefinition, draft: Draft) -> bytes:
    """Return the file of an incomplete draft: a name that gives no id yet is shown as it stands."""
    data = new_file(definition)
    if not normalise_name(draft.name):
        data = data.replace(
            b"name: x\n", f"name: {one_line(draft.name) or '…'}\n".encode("utf-8", "replace"), 1
        )
    return data
