"""`sidequest sessions show` and `delegations show`: one of them with all there is to read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.text import Text

from sidequest.surfaces.cli.errors import Exit
from sidequest.surfaces.cli.jsonlines import print_json
from sidequest.surfaces.cli.plain import TONES
from sidequest.surfaces.cli.screen import Screen, put, put_labelled
from sidequest.surfaces.cli.sessions import heading
from sidequest.surfaces.paths import Shortener
from sidequest.surfaces.stored_rows import (
    delegation_dict,
    in_use,
    session_dict,
    size_of,
    status_of,
    work_of,
)
from sidequest.surfaces.storing import existing_store, is_held
from sidequest.surfaces.text import count, moment, one_line, printable, short_id, some

if TYPE_CHECKING:
    from sidequest.store import CheckpointRow, DelegationRow, Lease, SessionRow, Store, StoredMessage

_LABEL_COLUMNS = 14
_SHOWN_DAMAGED = 5


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session with everything a person may see of it."""

    row: SessionRow
    messages: Sequence[StoredMessage]
    delegations: Sequence[DelegationRow]
    checkpoints: Sequence[CheckpointRow]
    held: frozenset[str]
    lease: Lease | None
    """Who works on it at this moment."""


async def read_session(store: Store, session: str) -> StoredSession:
    """Read a session whole; `session` is an id or its beginning. Words stand for messages that are damaged.

    Raises:
        SidequestError: `SESSION_UNKNOWN`, or the store failed.
    """
    row = await store.sessions.get(session)
    delegations = await store.delegations.list(row.id)
    lease = await store.leases.get(row.id)
    return StoredSession(
        row,
        await store.transcript.load(row.id, damaged_too=True),
        delegations,
        await store.checkpoints.list(row.id, sound_only=True),
        await in_use(store, delegations),
        lease if is_held(lease) else None,
    )


def warn_of_damage(messages: Iterable[StoredMessage], session_id: str) -> None:
    """Say on standard error which messages cannot be read, if any."""
    damaged = [message.id for message in messages if message.damaged]
    if damaged:
        shown = ", ".join(map(short_id, damaged[:_SHOWN_DAMAGED])) + (
            f" and {len(damaged) - _SHOWN_DAMAGED} more" if len(damaged) > _SHOWN_DAMAGED else ""
        )
        said = f"{some(len(damaged), 'message')} cannot be read, or a result of it: {shown}"
        verify = f"`sidequest sessions verify {short_id(session_id)}` says what is damaged"
        put(Screen.of_process().err, f"warning: {said}; {verify}", "yellow")


def show_session(session: str, store: str | None, *, as_json: bool) -> int:
    """Print a session, compacted messages included, and return the exit code.

    Raises:
        SidequestError: `SESSION_UNKNOWN`, or the store failed.
    """
    from sidequest.surfaces.cli.transcript_view import put_transcript
    from sidequest.surfaces.transcripts import entry_dict, transcript

    async def read() -> StoredSession:
        async with existing_store(store) as opened:
            return await read_session(opened, session)

    found = asyncio.run(read())
    warn_of_damage(found.messages, found.row.id)
    entries = transcript(found.messages, found.delegations, found.checkpoints)
    if as_json:
        shown = [entry_dict(entry, found.held) for entry in entries]
        print_json({**session_dict(found.row), "transcript": shown})
        return Exit.DONE
    screen = Screen.of_process()
    put(screen.out, heading(found.row))
    for label, value in session_facts(found):
        put_labelled(screen.out, f"  {label}", value, _LABEL_COLUMNS)
    put_transcript(screen, entries, found.held)
    return Exit.DONE


def session_facts(found: StoredSession) -> Iterator[tuple[str, str]]:
    """Give what is known about a session, as label and value."""
    row = found.row
    yield "id", row.id
    yield "folder", Shortener.of_process().folder(row.root)
    yield "model", row.model or "the default"
    yield "begun", moment(row.created_at_ms)
    yield "last used", moment(row.updated_at_ms)
    yield "holds", size_of(row)
    if row.forked_from:
        through = f" through {short_id(row.forked_through)}" if row.forked_through else ""
        yield "fork of", f"{short_id(row.forked_from)}{through}"
    if found.lease is not None:
        yield "in use", f"by process {found.lease.holder.pid} on {found.lease.holder.host}"


@dataclass(frozen=True, slots=True)
class StoredDelegation:
    """A delegation with its session, its chain, and its messages if they were asked for."""

    row: DelegationRow
    session: SessionRow
    later: DelegationRow | None
    """The delegation that went on with its work, None when none did."""
    held: frozenset[str]
    messages: Sequence[StoredMessage]


def show_delegation(
    delegation: str, store: str | None, *, session: str | None, messages: bool, as_json: bool
) -> int:
    """Print a delegation and return the exit code; with `messages` also everything that it said and did.

    `session` is the id of its session, or its beginning: a fork holds copies with the ids of the originals.
    None means the session that was used last.

    Raises:
        SidequestError: `DELEGATION_UNKNOWN`, `SESSION_UNKNOWN`, or the store failed.
    """

    async def read() -> StoredDelegation:
        async with existing_store(store) as opened:
            owner = None if session is None else (await opened.sessions.get(session)).id
            row = await opened.delegations.find(delegation, owner)
            chain = await opened.delegations.chain(row.session_id, row.id)
            later = next((other for other in chain.delegations if other.resumed_from == row.id), None)
            said = await opened.transcript.load(row.session_id, row.id, damaged_too=True) if messages else []
            held = await in_use(opened, chain.delegations)
            return StoredDelegation(row, await opened.sessions.get(row.session_id), later, held, said)

    found = asyncio.run(read())
    warn_of_damage(found.messages, found.session.id)
    if as_json:
        _print_delegation(found, messages=messages)
        return Exit.DONE
    screen = Screen.of_process()
    row = found.row
    title = Text(short_id(row.id), "cyan").append(f"  #{row.number} {row.agent}", "bold default")
    put(screen.out, title.append(f"  {one_line(row.label)}", "not bold default"))
    for label, value in _facts(found):
        put_labelled(screen.out, f"  {label}", value, _LABEL_COLUMNS)
    _put_part(screen, "task", row.task)
    if row.brief.strip() != row.task.strip():
        _put_part(screen, "brief", row.brief)
    if messages:
        from sidequest.surfaces.cli.transcript_view import put_transcript
        from sidequest.surfaces.transcripts import transcript

        put_transcript(screen, transcript(found.messages), found.held)
    _put_part(screen, "report", row.report)
    return Exit.DONE


def _print_delegation(found: StoredDelegation, *, messages: bool) -> None:
    data = delegation_dict(found.row, found.held, whole=True)
    data["resumedBy"] = found.later.id if found.later else None
    if messages:
        from sidequest.surfaces.transcripts import entry_dict, transcript

        data["transcript"] = [entry_dict(entry, found.held) for entry in transcript(found.messages)]
    print_json(data)


def _facts(found: StoredDelegation) -> Iterator[tuple[str, str | Text]]:
    row = found.row
    status = status_of(row, found.held)
    outcome = row.outcome or {}
    why = outcome.get("stopReason", "")
    said = f"{status.value} ({why})" if why and why != status.value else status.value
    yield "status", Text(said, TONES.get(status, ""))
    yield "id", row.id
    yield "session", f"{short_id(row.session_id)}  {one_line(found.session.title)}"
    yield "model", f"{row.model}, {row.context_mode} context"
    yield "started", moment(row.started_at_ms)
    yield "work", work_of(row)
    if usage := outcome.get("usage"):
        yield "tokens", f"{count(usage['inputTokens'])} in + {count(usage['outputTokens'])} out tokens"
    if outcome.get("contextCompactions"):
        yield "compactions", count(outcome["contextCompactions"])
    if outcome.get("contextDegraded"):
        yield "degraded", Text("yes; the report may be incomplete", "yellow")
    if row.resumed_from:
        yield "went on with", short_id(row.resumed_from)
    if found.later:
        yield "went on in", f"{short_id(found.later.id)}, {status_of(found.later, found.held).value}"
    if error := outcome.get("error"):
        yield "error", Text(f"{error['code']}: {one_line(error['message'])}", "red")


def _put_part(screen: Screen, name: str, text: str) -> None:
    if text.strip():
        put(screen.out)
        put(screen.out, name, "bold")
        put(screen.out, printable(text).strip())
