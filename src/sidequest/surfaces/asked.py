"""What a permission question is about, in plain lines: the command, or the change of a file.

Everything that could hide a part of it is written out: a person allows what they see.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sidequest.core.permissions import EDIT_TOOLS, Action, granted_folder, grants_of
from sidequest.surfaces.text import one_line
from sidequest.surfaces.visible import shown_lines, visible, visible_command

if TYPE_CHECKING:
    from sidequest.core.confirmation import Confirmation
    from sidequest.runtime.permissions import Question

MAX_DIFF_BYTES = 1 << 20
"""Largest file whose change is computed."""


def granted_for_session(action: Action) -> str:
    """Return what would be allowed for the rest of the session with this action, empty for nothing."""
    granted = sorted(grants_of(action))
    if not granted:
        return ""
    if action.command is not None:
        return f"commands of {', '.join(one_line(grant.partition(':')[2]) for grant in granted)}"
    where = "inside this folder" if action.inside else f"in {visible(granted_folder(action) or '')}"
    return f"{one_line(action.tool)} {one_line(where)}"


def shown_path(path: str, root: Path) -> str:
    """Return a path as it is shown: relative to `root` when it is inside."""
    base = Path(os.path.realpath(root))
    return visible(str(Path(path).relative_to(base)) if Path(path).is_relative_to(base) else path)


def content_lines(question: Question, root: Path) -> Iterator[str]:
    """Give the command, the change, or the other arguments of what is asked for."""
    action, given = question.action, question.arguments
    if question.confirmation is not None:
        yield from confirmation_lines(question.confirmation)
    elif action.command is not None:
        command = shown_lines(visible_command(action.command).split("\n"))
        yield from (f"{sign} {line}" for sign, line in _prompted(command))
    elif action.tool in EDIT_TOOLS:
        yield from change_lines(action, given, root)
    else:
        # What is left out or starts at the beginning says nothing.
        plain = {"offset": 0, "limit": None}
        rest = {k: v for k, v in given.items() if k != "path" and (k not in plain or v != plain[k])}
        if rest:
            yield from shown_lines([visible(json.dumps(rest, ensure_ascii=False, default=str))])


def confirmation_lines(asked: Confirmation) -> Iterator[str]:
    """Give the task of a subagent that is to be started, and what it could do."""
    yield from task_lines(asked)
    yield from (f"it can {one_line(capability.text)}" for capability in asked.capabilities)


def task_lines(asked: Confirmation) -> Iterator[str]:
    """Give the task of a subagent that is to be started, all of it."""
    yield from shown_lines(visible(asked.task).split("\n"))


def _prompted(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    yield from ((">" if number else "$", line) for number, line in enumerate(lines))


def change_lines(action: Action, given: dict[str, Any], root: Path) -> Iterator[str]:
    """Give a unified diff of what Edit or Write would do to the file as it is now."""
    name = shown_path(action.path or "", root)
    before = _text_of(action.path)
    if action.tool == "Write":
        if before is None:
            yield "the file as it is now cannot be shown; all of it would be replaced"
        old, new = before or "", str(given.get("content", ""))
    else:
        piece, put_there = str(given.get("old_text", "")), str(given.get("new_text", ""))
        whole = before if before is not None and piece and before.count(piece) == 1 else None
        if whole is None:
            yield "the text to replace is not in the file exactly once, so this would fail as it is"
        old, new = (piece, put_there) if whole is None else (whole, whole.replace(piece, put_there, 1))
    was, becomes = visible(old).split("\n"), visible(new).split("\n")
    if was[-1] == "" and becomes[-1] == "":  # the end of the last line, on both sides
        was, becomes = was[:-1], becomes[:-1]
    elif was == [""] and becomes[-1]:
        was = []
    lines = difflib.unified_diff(was, becomes, name, name, n=2, lineterm="")
    found = list(shown_lines(list(lines), ("", "+", "-")))
    yield from found or ["no visible change"]


def _text_of(path: str | None) -> str | None:
    """Return what a file says, empty when there is none, None when it is not to be shown."""
    if path is None or not Path(path).exists():
        return ""
    file = Path(path)
    try:
        if not file.is_file() or file.stat().st_size > MAX_DIFF_BYTES:
            return None
        return file.read_bytes().decode("utf-8", "replace")
    except OSError:
        return None
