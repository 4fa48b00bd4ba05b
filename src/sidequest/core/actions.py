"""A tool call as far as rights are concerned, and what a person who allows it for a session allows."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePath

from sidequest.core.commands import granted_commands

EDIT_TOOLS = frozenset({"Edit", "Write"})
READ_TOOLS = frozenset({"Read", "Glob", "Grep", "recall", "TaskWait", "TaskList", "TaskStop", "new_context"})
SEARCH_TOOLS = frozenset({"Glob", "Grep"})
"""Tools whose path is a folder."""
PROTECTED = ".git"
"""The one name that Edit and Write never change, nor anything below it: what git keeps is changed by git."""


@dataclass(frozen=True, slots=True)
class Action:
    """One tool call, as far as rights are concerned."""

    tool: str
    path: str | None = None
    """What it reads or writes, absolute and with links resolved; None when it names no path."""
    names: tuple[str, ...] = field(default=(), kw_only=True)
    """Every name that `path` goes by: as it was written, and for each link on its way; all absolute."""
    command: str | None = None
    """The text of a shell command, or None."""
    inside: bool = True
    """Whether `path` is in the workspace or the scratch folder."""
    protected: bool = field(default=False, kw_only=True)
    """Whether one of its names has `.git` in it, below the workspace or the scratch folder."""


def granted_folder(action: Action) -> str | None:
    """Return the folder outside that a grant of `action` is about, None when its path is not resolved.

    It is the folder of a file; a search names its folder itself.
    """
    path = PurePath(action.path or "")
    if not path.is_absolute():
        return None
    return str(path if action.tool in SEARCH_TOOLS else path.parent)


def grants_of(action: Action) -> frozenset[str]:
    """Return what "allow for this session" remembers and a later action must find; empty is never remembered.

    Inside the workspace it is the tool, outside the tool in one folder: that of the file, no folder below it.
    Of a command it is the first words of all of its parts, split also inside quotes. A command with a
    substitution, a redirection, a wrapper (`sudo`, `xargs`, `sh`, `python`) or an assignment in front could
    do anything, so it is allowed this once.
    """
    if action.tool == "Task":  # confirmed for one definition, which is remembered elsewhere
        return frozenset()
    if action.command is None and action.inside:
        return frozenset({action.tool})
    if action.command is None:
        folder = granted_folder(action)
        return frozenset({f"{action.tool}:{folder}"} if folder else ())
    return frozenset(f"{action.tool}:{name}" for name in granted_commands(action.command))
