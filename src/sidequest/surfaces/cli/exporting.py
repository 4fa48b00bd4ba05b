"""`sidequest sessions export`: a whole session as JSON for programs, or as Markdown for people."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.surfaces.cli.errors import Exit
from sidequest.surfaces.cli.showing import StoredSession, read_session, session_facts, warn_of_damage
from sidequest.surfaces.stored_rows import delegation_dict, session_dict, status_of, title_of, work_of
from sidequest.surfaces.storing import existing_store
from sidequest.surfaces.text import moment, one_line, printable, short_id

if TYPE_CHECKING:
    from sidequest.store import CheckpointRow, Store, StoredMessage
    from sidequest.surfaces.transcripts import Entry

FORMATS = ("json", "md")
FORMAT_VERSION = 1
"""Version of the JSON; it grows when a reader of the one before would misread it."""

_PRIVATE = 0o600
Lanes = Mapping[str, Sequence["StoredMessage"]]
"""The messages of delegations by their ids."""


def export_session(session: str, store: str | None, *, form: str | None, output: Path | None) -> int:
    """Write a session and return the exit code.

    `form` None follows the ending of `output`, else it is JSON. `output` None is standard output; a file
    that is there is replaced. It can be read by its owner alone, like the store.

    Raises:
        SidequestError: `USAGE` for an unknown format or a file that cannot be written; `SESSION_UNKNOWN`.
    """
    chosen = _format(form, output)

    async def read() -> tuple[StoredSession, Lanes]:
        async with existing_store(store) as opened:
            found = await read_session(opened, session)
            ids = [row.id for row in found.delegations] if chosen == "json" else []
            return found, {key: await _lane(opened, found.row.id, key) for key in ids}

    found, lanes = asyncio.run(read())
    warn_of_damage([*found.messages, *chain.from_iterable(lanes.values())], found.row.id)
    text = as_json(found, lanes) if chosen == "json" else as_markdown(found)
    if output is None:
        print(text, end="")
        return Exit.DONE
    try:
        _write_private(output.expanduser(), text)
    except OSError as error:
        raise SidequestError(
            ErrorCode.USAGE, f"{output} cannot be written: {error.strerror}.", "Name another file."
        ) from error
    return Exit.DONE


def _write_private(path: Path, text: str) -> None:
    with open(path, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, _PRIVATE)) as file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # an earlier export may be open to others
            os.fchmod(file.fileno(), _PRIVATE)
        file.write(text)


async def _lane(store: Store, session_id: str, delegation_id: str) -> Sequence[StoredMessage]:
    return await store.transcript.load(session_id, delegation_id, damaged_too=True)


def _format(form: str | None, output: Path | None) -> str:
    ending = output.suffix.lower().removeprefix(".") if output else ""
    chosen = form or ("md" if ending in ("md", "markdown") else "json")
    if chosen not in FORMATS:
        raise SidequestError(
            ErrorCode.USAGE, f"{chosen!r} is no format of an export.", f"Use --format {' or '.join(FORMATS)}."
        )
    return chosen


def as_json(found: StoredSession, lanes: Lanes) -> str:
    """Return everything that is stored of a session as one JSON object, indented.

    Messages are pydantic-ai's own JSON, tool results inside; its `ModelMessagesTypeAdapter` reads them.
    Results that no message took to the model, as after a kill, stand beside the message that called for them.
    """
    import json

    data = {
        "format": "sidequest-session",
        "version": FORMAT_VERSION,
        "session": session_dict(found.row),
        "messages": [_message(message) for message in found.messages],
        "delegations": [
            {
                **delegation_dict(row, found.held, whole=True),
                "messages": [_message(message) for message in lanes.get(row.id, ())],
            }
            for row in found.delegations
        ],
        "checkpoints": [_checkpoint(row) for row in found.checkpoints],
    }
    return json.dumps(data, ensure_ascii=False, indent=2) + "\n"


def _message(stored: StoredMessage) -> dict[str, Any]:
    from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelRequest

    (message,) = ModelMessagesTypeAdapter.dump_python([stored.message], mode="json")
    data = {
        "id": stored.id,
        "position": stored.position,
        "atMs": stored.created_at_ms,
        "tokens": stored.tokens,
        "message": message,
    }
    if stored.damaged:
        data["damaged"] = True
    waiting = [result.part for result in stored.results if result.carrier_id is None]
    if waiting:
        (request,) = ModelMessagesTypeAdapter.dump_python([ModelRequest(parts=waiting)], mode="json")
        data["results"] = request["parts"]
    return data


def _checkpoint(row: CheckpointRow) -> dict[str, Any]:
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    return {
        "id": row.id,
        "generation": row.generation,
        "atMs": row.created_at_ms,
        "throughMessageId": row.through_message_id,
        "tokensBefore": row.tokens_before,
        "tokensAfter": row.tokens_after,
        "summary": row.summary,
        "retainedTail": ModelMessagesTypeAdapter.dump_python(list(row.retained_tail), mode="json"),
        "details": dict(row.details),
        "model": row.model,
    }


def as_markdown(found: StoredSession) -> str:
    """Return a session as it is shown, as Markdown."""
    from sidequest.surfaces.transcripts import transcript

    lines = [f"# {title_of(found.row)}", ""]
    lines += [f"- {label}: {value}" for label, value in session_facts(found)]
    for entry in transcript(found.messages, found.delegations, found.checkpoints):
        lines += ["", *_entry(entry, found)]
    return "\n".join(lines) + "\n"


def _entry(entry: Entry, found: StoredSession) -> Iterator[str]:
    from sidequest.surfaces.cli.transcript_view import call_line, compaction_line, name_of
    from sidequest.surfaces.transcripts import Compaction, Said

    names = {row.id: name_of(row) for row in found.delegations}
    if isinstance(entry, Compaction):
        yield f"*{compaction_line(entry)}*"
    elif isinstance(entry, Said):
        yield f"## {entry.role.capitalize()}, {moment(entry.at_ms)}"
        if entry.text:
            yield ""
            yield printable(entry.text)
        if entry.calls or entry.delivered:
            yield ""
        yield from (f"- the report of {names.get(key, short_id(key))}" for key in entry.delivered)
        yield from (f"- `{call_line(call, names).replace('`', chr(39))}`" for call in entry.calls)
    else:
        yield f"> **{name_of(entry)}** ({short_id(entry.id)}): {one_line(entry.label)}  "
        yield f"> {status_of(entry, found.held).value}, {work_of(entry)}, {entry.model}"
        yield from (f"> {line}".rstrip() for line in ["", *printable(entry.report).strip().splitlines()])
