"""Reads the files that are put with a task, each by the rules of a Read of whoever puts them there."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from sidequest.core.enclosures import MAX_ENCLOSED_CHARS, Attachment, check_number, too_large
from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.permissions import Verdict
from sidequest.runtime.opening import CAN_OPEN_BELOW, opened_resolved
from sidequest.runtime.permissions import PermissionGate, denial

MAX_CHAR_BYTES = 4
"""Most bytes of one character in UTF-8."""


async def read_attachments(
    paths: Sequence[str], gate: PermissionGate, *, consented: bool = False
) -> tuple[Attachment, ...]:
    """Return the texts of `paths`; relative ones start in the workspace of `gate`.

    Every path is decided upon before any is read. `consented` says that a person named them: what would be
    asked is then allowed, and deny rules hold all the same.

    Raises:
        SidequestError: `TOOL_DENIED` for a path that may not be read; `SUBAGENT_INVALID` for one that is
            not there, no text in UTF-8, or too large. Nothing was read into anything then.
    """
    check_number(len(paths))
    found: list[tuple[str, str]] = []
    for path in dict.fromkeys(paths):
        action = gate.rights.action("Read", {"path": path})
        decision = gate.decision(action)
        if decision.verdict is Verdict.ASK and not consented:
            decision = await gate.asked(action, {"path": path}, decision)
        if decision.verdict is Verdict.DENY:
            raise SidequestError(
                ErrorCode.TOOL_DENIED,
                denial(action, decision),
                "Nothing was started. Leave it out, and say so if it is missed.",
            )
        if action.path is None or not Path(action.path).is_absolute():
            raise _unreadable(path, "there is no such file")
        found.append((path, action.path))
    return tuple([Attachment(path, await asyncio.to_thread(_text_of, path, real)) for path, real in found])


def _text_of(path: str, real: str) -> str:
    """Return the text of the file that was decided upon: a link put in its way since is not followed."""
    try:
        if CAN_OPEN_BELOW:
            with opened_resolved(os.sep, real, os.O_RDONLY) as descriptor:
                data = _bounded(path, descriptor)
        else:
            descriptor = os.open(real, os.O_RDONLY)
            try:
                data = _bounded(path, descriptor)
            finally:
                os.close(descriptor)
        text = data.decode("utf-8-sig")
    except IsADirectoryError:
        raise _unreadable(path, "it is a folder") from None
    except FileNotFoundError:
        raise _unreadable(path, "there is no such file") from None
    except UnicodeDecodeError:
        raise _unreadable(path, "it is no text in UTF-8") from None
    except (OSError, ValueError) as error:
        raise _unreadable(path, str(error)) from error
    if "\0" in text:
        raise _unreadable(path, "it is no text in UTF-8")
    return text


def _bounded(path: str, descriptor: int) -> bytes:
    size = os.fstat(descriptor).st_size
    if size > MAX_ENCLOSED_CHARS * MAX_CHAR_BYTES:
        raise too_large(f"{path} has {size:,} bytes")
    with open(descriptor, "rb", closefd=False) as file:
        return file.read(MAX_ENCLOSED_CHARS * MAX_CHAR_BYTES + 1)


def _unreadable(path: str, why: str) -> SidequestError:
    return SidequestError(
        ErrorCode.SUBAGENT_INVALID,
        f"{path} cannot be attached: {why}.",
        "Give paths of text files, relative to the working folder.",
    )
