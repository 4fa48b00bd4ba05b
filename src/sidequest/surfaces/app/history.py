"""The part of a conversation that is over: stored rows in, entries out; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sidequest.core.events import Notice, Numbered, RunEnded
from sidequest.surfaces.app.entries import (
    Answer,
    Divider,
    Entry,
    Line,
    Prompt,
    ToolLine,
    Trouble,
    place_of,
)
from sidequest.surfaces.app.turn import is_seen
from sidequest.surfaces.transcripts import Compaction, Said, transcript

if TYPE_CHECKING:
    from sidequest.store import CheckpointRow, DelegationRow, StoredMessage

_FAILED = re.compile(r"\[This turn ended with (?P<code>[A-Z_]+): (?P<text>.*)\]", re.DOTALL)
_UNANSWERED = "TURN_ABORTED"


def history(
    messages: Sequence[StoredMessage],
    delegations: Sequence[DelegationRow] = (),
    checkpoints: Sequence[CheckpointRow] = (),
    events: Iterable[Numbered] = (),
) -> tuple[Entry, ...]:
    """Return what is seen of a lane. Of `events` only notices and failed ends of turns count.

    Messages that only the model was meant to read, such as a delivered report, have no entry: the report
    stands on the card of its delegation.
    """
    entries: list[Entry] = []
    for entry in transcript(messages, delegations, checkpoints):
        if isinstance(entry, Said):
            entries += _said(entry)
        elif isinstance(entry, Compaction):
            key = f"compaction:{entry.generation}"
            entries.append(
                Divider(
                    key, entry.at_ms, entry.tokens_before, entry.tokens_after, entry.degraded, entry.summary
                )
            )
        else:
            entries.append(place_of(entry.id, entry.started_at_ms))
    for numbered in events:
        _insert(entries, numbered)
    return tuple(entries)


def _said(said: Said) -> Iterable[Entry]:
    if said.role in ("user", "task"):
        yield Prompt(said.id, said.at_ms, said.text, said.id)
        return
    if said.role != "assistant":
        return
    if said.failed:
        yield _trouble(said)
        return
    if said.text:
        yield Answer(said.id, said.at_ms, said.text, message_id=said.id, last=not said.calls)
    for number, call in enumerate(said.calls):
        key = f"{said.id}:{number}"
        line = ToolLine(key, said.at_ms, call.id, call.tool, call.summary, call.ended, said.id)
        if is_seen(line):
            yield line


def _trouble(said: Said) -> Entry:
    found = _FAILED.fullmatch(said.text)
    if found is None:
        return Trouble(said.id, said.at_ms, _UNANSWERED, said.text.strip("[]"))
    return Trouble(said.id, said.at_ms, found["code"], found["text"])


def _insert(entries: list[Entry], numbered: Numbered) -> None:
    """Put what an event says behind everything that was there when it was told."""
    event, key, at_ms = numbered.event, f"event:{numbered.number}", numbered.at_ms
    place = next((i for i in range(len(entries), 0, -1) if entries[i - 1].at_ms <= at_ms), 0)
    if isinstance(event, Notice) and event.delegation_id is None:
        entries.insert(place, Line(key, at_ms, event.text))
    elif isinstance(event, RunEnded) and not event.ok:
        spoken = (entry for entry in reversed(entries[:place]) if not isinstance(entry, Line))
        if not isinstance(next(spoken, None), Trouble):
            entries.insert(place, Trouble(key, at_ms, event.code or "INTERNAL", ""))
