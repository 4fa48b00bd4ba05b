"""`sidequest delegations list`: what was delegated, session by session. Never loads pydantic-ai."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.text import Text

from sidequest.surfaces.cli.errors import Exit
from sidequest.surfaces.cli.jsonlines import print_json
from sidequest.surfaces.cli.plain import TONES
from sidequest.surfaces.cli.screen import Screen, fitted, line_width, pad, put, widest
from sidequest.surfaces.cli.sessions import heading
from sidequest.surfaces.stored_rows import delegation_dict, in_use, status_of, work_of
from sidequest.surfaces.storing import existing_store, now_ms
from sidequest.surfaces.text import SHOWN_ID_CHARS, ago, one_line, short_id

if TYPE_CHECKING:
    from sidequest.store import DelegationRow, SessionRow, Store

_NAME_COLUMNS = 24
_STATUS_COLUMNS = len("interrupted")


@dataclass(frozen=True, slots=True)
class _Group:
    """The delegations of one session, in the order of their start."""

    session: SessionRow
    rows: Sequence[DelegationRow]


def list_delegations(session: str | None, store: str | None, *, limit: int, as_json: bool) -> int:
    """Print delegations and return the exit code.

    Those of `session` (an id or its beginning), or of all sessions, the one used last first; `limit` at
    most, the newest ones of the last session that is shown.

    Raises:
        SidequestError: `SESSION_UNKNOWN`, or the store cannot be opened.
    """

    async def read() -> tuple[list[_Group], bool, frozenset[str]]:
        async with existing_store(store) as opened:
            groups, more = await _groups(opened, session, limit)
            held = await in_use(opened, [row for group in groups for row in group.rows])
            return groups, more, held

    groups, more, held = asyncio.run(read())
    if as_json:
        rows = [delegation_dict(row, held) for group in groups for row in group.rows]
        print_json({"delegations": rows, "more": more})
        return Exit.DONE
    screen = Screen.of_process()
    for number, group in enumerate(groups):
        if number:
            put(screen.out)
        put(screen.out, fitted(heading(group.session), line_width(screen.out)))
        _put_rows(screen, group.rows, held)
    if more:
        put(screen.err, f"there are more: --limit {2 * limit}", "dim")
    elif not groups:
        put(screen.err, "no delegations are stored" + (" in this session" if session else " yet"), "dim")
    return Exit.DONE


async def _groups(store: Store, session: str | None, limit: int) -> tuple[list[_Group], bool]:
    """Return the groups that are shown, and whether there is more."""
    if session is not None:
        sessions = [await store.sessions.get(session)]
    else:
        sessions = await store.sessions.list(limit=sys.maxsize)
    groups: list[_Group] = []
    left = limit
    for found in sessions:
        if not found.delegations:
            continue
        if not left:
            return groups, True
        rows = await store.delegations.list(found.id)
        groups.append(_Group(found, rows[-left:]))
        if len(rows) > left:
            return groups, True
        left -= len(rows)
    return groups, False


def _put_rows(screen: Screen, rows: Sequence[DelegationRow], held: frozenset[str]) -> None:
    width, now = line_width(screen.out), now_ms()
    names = min(_NAME_COLUMNS, widest([_name(row) for row in rows]))
    for row in rows:
        status = status_of(row, held)
        line = Text(f"  {short_id(row.id)}", "cyan").append(f"  {pad(_name(row), names)}", "bold default")
        line.append(f"  {pad(status.value, _STATUS_COLUMNS)}", f"not bold {TONES.get(status, '')}".strip())
        put(screen.out, fitted(line.append(f"  {one_line(row.label)}", "not bold default"), width))
        facts = [f"{ago(row.started_at_ms, now):<10}", work_of(row), row.model]
        if row.resumed_from:
            facts.append(f"went on with {short_id(row.resumed_from)}")
        indent = " " * (SHOWN_ID_CHARS + 4)
        put(screen.out, fitted(Text(indent + "  ".join(facts), "dim"), width))


def _name(row: DelegationRow) -> str:
    return f"#{row.number} {row.agent}"
