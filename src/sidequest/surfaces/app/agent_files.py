"""Definition files on the disk: read, checked against what a person saw, written whole, removed."""

from __future__ import annotations

import hashlib
from pathlib import Path

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.subagents.definition import SubagentDefinition
from sidequest.subagents.parse import MAX_DOCUMENT_BYTES, parse_definition
from sidequest.subagents.rewrite import differing_keys, rewrite
from sidequest.subagents.user_files import write_whole
from sidequest.subagents.write import render
from sidequest.surfaces.text import count

_MOST_BYTES = 1 << 20


def mark_of(data: bytes) -> str:
    """Return a short text that changes when the file does."""
    return hashlib.sha256(data).hexdigest()[:32]


def read_file(path: Path) -> bytes:
    """Return the bytes of a file, of a very large one the beginning.

    Raises:
        SidequestError: `STORE_CONFLICT` when it is gone, `USAGE` when it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES)
    except FileNotFoundError as error:
        raise _changed(path, "is gone") from error
    except OSError as error:
        raise _not_done(path, "read", error) from error


def same_mark(data: bytes, mark: str | None, path: Path) -> None:
    """Check that a file still is what somebody saw; `mark` None checks nothing.

    Raises:
        SidequestError: `STORE_CONFLICT`.
    """
    if mark is not None and mark != mark_of(data):
        raise _changed(path, "changed since it was read here")


def new_file(definition: SubagentDefinition) -> bytes:
    """Return the file of a new definition.

    Raises:
        SidequestError: `SUBAGENT_INVALID` when it would be read as something else.
    """
    data = render(definition).encode()
    again = parse_definition(data[:MAX_DOCUMENT_BYTES], path=str(definition.path), scope=definition.scope)
    if again.definition is None or (
        len(data) <= MAX_DOCUMENT_BYTES and differing_keys(again.definition, definition)
    ):
        raise SidequestError(
            ErrorCode.SUBAGENT_INVALID,
            "The subagent would be read otherwise than it was written here.",
            "Use simpler words in its name, tools and models.",
        )
    return data


def changed_file(original: bytes, definition: SubagentDefinition, path: Path) -> bytes:
    """Return `original` changed to say what `definition` does, to be stored at `path`.

    Raises:
        SidequestError: `SUBAGENT_INVALID` when that cannot be done without losing something.
    """
    return rewrite(original, definition, path=str(path))


def size_problem(data: bytes) -> str | None:
    """Return why a file is too large, or None."""
    if len(data) <= MAX_DOCUMENT_BYTES:
        return None
    return f"The file would have {count(len(data))} bytes, and at most {count(MAX_DOCUMENT_BYTES)} are read."


def save_file(path: Path, data: bytes, *, expected: bytes | None) -> None:
    """Write a file whole; `expected` is what must stand there now, None that nothing does.

    Raises:
        SidequestError: `STORE_CONFLICT` when something else stands there, `USAGE` when it cannot be written.
    """
    if expected is None and path.exists():
        raise _changed(path, "appeared meanwhile")
    if expected is not None and read_file(path) != expected:
        raise _changed(path, "changed since it was read here")
    try:
        write_whole(path, data)
    except OSError as error:
        raise _not_done(path, "written", error) from error


def remove_file(path: Path) -> None:
    """Remove a file; one that is gone is no failure.

    Raises:
        SidequestError: `USAGE`.
    """
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise _not_done(path, "removed", error) from error


def _changed(path: Path, what: str) -> SidequestError:
    return SidequestError(
        ErrorCode.STORE_CONFLICT,
        f"{path} {what}, so nothing was written.",
        "Look at the file as it is now, then make your change again.",
        path=str(path),
    )


def _not_done(path: Path, what: str, error: OSError) -> SidequestError:
    return SidequestError(
        ErrorCode.USAGE,
        f"{path} cannot be {what}: {error.strerror}.",
        "Check the folder and its permissions.",
    )
