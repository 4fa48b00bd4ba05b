"""`sidequest sessions list`, `rename`, `delete`, `fork` and `verify`: the sessions there are, kept in order.

Listing never loads pydantic-ai.
"""

from __future__ import annotations

import asyncio
import sys
import uuid
from typing import TYPE_CHECKING

from rich.text import Text

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.surfaces.cli.errors import Exit
from sidequest.surfaces.cli.jsonlines import print_json
from sidequest.surfaces.cli.screen import Screen, fitted, line_width, put
from sidequest.surfaces.paths import Shortener
from sidequest.surfaces.stored_rows import session_dict, size_of, title_of
from sidequest.surfaces.storing import existing_store, now_ms
from sidequest.surfaces.text import SHOWN_ID_CHARS, ago, one_line, printable, short_id, some

if TYPE_CHECKING:
    from sidequest.store import Problem, SessionRow, Store

_INDENT = " " * (SHOWN_ID_CHARS + 2)


def list_sessions(search: str, store: str | None, *, limit: int, as_json: bool) -> int:
    """Print the sessions, the one used last first, and return the exit code.

    `search` keeps those whose title, or one of whose messages, holds all of its words. `store` None is the
    user's own.

    Raises:
        SidequestError: the store cannot be opened.
    """

    async def find() -> list[SessionRow]:
        async with existing_store(store) as opened:
            return await opened.sessions.list(search, limit=limit + 1)

    rows = asyncio.run(find())
    if as_json:
        print_json({"sessions": [session_dict(row) for row in rows[:limit]], "more": len(rows) > limit})
        return Exit.DONE
    screen = Screen.of_process()
    width, places, now = line_width(screen.out), Shortener.of_process(), now_ms()
    for row in rows[:limit]:
        put(screen.out, fitted(heading(row), width))
        put(screen.out, fitted(_facts(row, places, now), width))
    if len(rows) > limit:
        put(screen.err, f"there are more: --limit {2 * limit}", "dim")
    elif not rows:
        said = "no title and no message says that" if search.strip() else "no sessions are stored yet"
        put(screen.err, said, "dim")
    return Exit.DONE


def heading(row: SessionRow) -> Text:
    """Return a session as a heading: its id and its title."""
    return Text(short_id(row.id), "cyan").append(f"  {title_of(row)}", "bold default")


def _facts(row: SessionRow, places: Shortener, now: int) -> Text:
    facts = [f"{ago(row.updated_at_ms, now):<10}", size_of(row), places.folder(row.root)]
    if row.forked_from:
        facts.append(f"fork of {short_id(row.forked_from)}")
    return Text(_INDENT + printable("  ".join(facts)), "dim")


def rename_session(session: str, title: str, store: str | None) -> int:
    """Give a session another title and return the exit code.

    Raises:
        SidequestError: `USAGE` for an empty title, `SESSION_UNKNOWN`.
    """
    wanted = one_line(title)
    if not wanted:
        raise SidequestError(ErrorCode.USAGE, "The title is empty.", "Write what it is to be called.")

    async def rename() -> SessionRow:
        async with existing_store(store) as opened:
            row = await opened.sessions.get(session)
            await opened.sessions.rename(row.id, wanted)
            return await opened.sessions.get(row.id)

    put(Screen.of_process().out, heading(asyncio.run(rename())))
    return Exit.DONE


def delete_session(session: str, store: str | None, *, yes: bool) -> int:
    """Remove a session for good and return the exit code: 1 when the person says no.

    Raises:
        SidequestError: `SESSION_UNKNOWN`; `AGENT_BUSY` when a process works on it; `USAGE` when nobody can
            be asked and `yes` is not given.
    """
    row = asyncio.run(_get(session, store))
    if not yes and not _agreed(row):
        print("nothing was deleted", file=sys.stderr)
        return Exit.FAILED

    async def delete() -> None:
        async with existing_store(store) as opened:
            await opened.leases.free_of_the_dead(row.id)
            await opened.sessions.delete(row.id, now_ms=now_ms())

    asyncio.run(delete())
    put(Screen.of_process().out, Text("deleted ").append_text(heading(row)))
    return Exit.DONE


async def _get(session: str, store: str | None) -> SessionRow:
    async with existing_store(store) as opened:
        return await opened.sessions.get(session)


def _agreed(row: SessionRow) -> bool:
    """Ask the person at the terminal."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise SidequestError(
            ErrorCode.USAGE, "There is nobody to ask whether it may be deleted.", "Add --yes to delete it."
        )
    question = (
        f"Delete {short_id(row.id)}  {title_of(row)} ({size_of(row)})? It cannot be brought back. [y/N] "
    )
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def fork_session(session: str, store: str | None, *, through: str | None, as_json: bool) -> int:
    """Copy a session, print the whole id of the copy and return the exit code.

    `through` is the id of the newest message that comes along, or its beginning; None copies all of it.

    Raises:
        SidequestError: `SESSION_UNKNOWN`, `MESSAGE_UNKNOWN`.
    """

    async def fork() -> SessionRow:
        async with existing_store(store) as opened:
            row = await opened.sessions.get(session)
            anchor = None if through is None else await _message_id(opened, row, through)
            return await opened.sessions.fork(row.id, uuid.uuid4().hex, anchor, at_ms=now_ms())

    row = asyncio.run(fork())
    if as_json:
        print_json(session_dict(row))
    else:
        put(Screen.of_process().out, row.id)
    return Exit.DONE


async def _message_id(store: Store, row: SessionRow, prefix: str) -> str:
    """Return the only id of a message of the parent that begins so; the store says no to any other."""
    known = [message.id for message in await store.transcript.load(row.id, damaged_too=True)]
    found = [message_id for message_id in known if message_id.startswith(prefix)]
    if prefix in known or len(found) != 1:
        if len(found) > 1 and prefix not in known:
            raise SidequestError(
                ErrorCode.MESSAGE_UNKNOWN,
                f"{len(found)} messages of session {short_id(row.id)} begin with {prefix}.",
                "Write more of the id.",
            )
        return prefix
    return found[0]


def verify_sessions(session: str | None, store: str | None, *, as_json: bool) -> int:
    """Check what is stored, print what does not hold, and return the exit code: 1 when there is anything.

    Raises:
        SidequestError: `SESSION_UNKNOWN`, or the store cannot be opened at all.
    """

    async def check() -> tuple[str, list[Problem]]:
        async with existing_store(store) as opened:
            return opened.name, await opened.verify(session)

    name, problems = asyncio.run(check())
    code = Exit.FAILED if problems else Exit.DONE
    if as_json:
        print_json({"ok": not problems, "store": name, "problems": [_problem_dict(p) for p in problems]})
        return code
    out = Screen.of_process().out
    for problem in problems:
        where = f"{short_id(problem.session_id)}  " if problem.session_id else ""
        put(
            out,
            Text(f"{where}{problem.kind}: ", "red").append(
                one_line(f"{problem.where} {problem.message}"), "default"
            ),
        )
    checked = f"session {session}" if session else name
    put(out, f"{some(len(problems), 'problem')} in {checked}" if problems else f"no problems in {checked}")
    return code


def _problem_dict(problem: Problem) -> dict[str, str | None]:
    return {
        "sessionId": problem.session_id,
        "kind": problem.kind,
        "where": problem.where,
        "message": problem.message,
    }
