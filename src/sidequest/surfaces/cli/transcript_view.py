"""A conversation on the screen: messages under a line that says who and when, tool calls one line each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from sidequest.surfaces.cli.narration import readable_call
from sidequest.surfaces.cli.plain import TONES, sign_of
from sidequest.surfaces.cli.screen import Screen, fitted, line_width, put, put_labelled
from sidequest.surfaces.stored_rows import status_of, work_of
from sidequest.surfaces.text import count, moment, one_line, printable, short_id
from sidequest.surfaces.transcripts import Call, Compaction, Entry, Said

if TYPE_CHECKING:
    from sidequest.store import DelegationRow

_INDENT = "    "
_ROLE_STYLES = {"user": "bold green", "task": "bold green", "assistant": "bold cyan"}


def put_transcript(screen: Screen, entries: Sequence[Entry], held: frozenset[str]) -> None:
    """Print entries with an empty line between them; `held` are the sessions that a process works on."""
    names = {e.id: name_of(e) for e in entries if not isinstance(e, Said | Compaction)}
    for entry in entries:
        put(screen.out)
        if isinstance(entry, Said):
            _put_said(screen, entry, names)
        elif isinstance(entry, Compaction):
            put(screen.out, compaction_line(entry), "yellow" if entry.degraded else "cyan")
        else:
            put_delegation(screen, entry, held)


def name_of(row: DelegationRow) -> str:
    """Return how a delegation is called: `#1 explorer`."""
    return f"#{row.number} {row.agent}"


def compaction_line(entry: Compaction) -> str:
    """Return the row that stands between messages: `-- compacted: 12,345 -> 2,100 tokens --`."""
    after = "?" if entry.tokens_after is None else count(entry.tokens_after)
    sizes = f"{count(entry.tokens_before)} -> {after} tokens"
    if entry.degraded:
        return f"-- reduced without a summary: {sizes} --"
    return f"-- compacted: {sizes} --"


def call_line(call: Call, names: Mapping[str, str]) -> str:
    """Return a call in one line, delegations by their names; how it ended is said unless all went well."""
    ended = "" if call.ended == "success" else f"  ({call.ended})"
    return f"{one_line(call.tool)}  {readable_call(call.summary, names)}".rstrip() + ended


def _put_said(screen: Screen, said: Said, names: Mapping[str, str]) -> None:
    head = Text(said.role, _ROLE_STYLES.get(said.role, "bold"))
    put(screen.out, head.append(f"  {moment(said.at_ms)}  {short_id(said.id)}", "not bold dim default"))
    if said.text:
        put(screen.out, said.text, "yellow" if said.failed else "")
    for delegation_id in said.delivered:
        put(screen.out, f"the report of {names.get(delegation_id, short_id(delegation_id))}", "dim")
    for call in said.calls:
        line = Text(
            f"{screen.glyphs.bullet} {call_line(call, names)}", "dim" if call.ended == "success" else "yellow"
        )
        put(screen.out, fitted(line, line_width(screen.out)))


def put_delegation(screen: Screen, row: DelegationRow, held: frozenset[str]) -> None:
    """Print a delegation as a block: what it was asked, how it ended, its whole report."""
    width, status = line_width(screen.out), status_of(row, held)
    tone = TONES.get(status, "")
    title = Text().append(f"{sign_of(status, screen.glyphs)} ", tone).append(name_of(row), "bold")
    title.append(f"  {short_id(row.id)}", "dim").append(f"  {one_line(row.label)}")
    put(screen.out, fitted(title, width))
    facts = Text(_INDENT).append(status.value, tone)
    facts.append("".join(f"   {fact}" for fact in _facts(row)), "dim")
    put(screen.out, fitted(facts, width))
    if error := (row.outcome or {}).get("error"):
        put(screen.out, f"{_INDENT}{error['code']}: {one_line(error['message'])}", tone)
    for line in printable(row.report).strip().splitlines():
        put_labelled(screen.out, f"{_INDENT}{screen.glyphs.bar} ", line, len(_INDENT) + 2, "default")


def _facts(row: DelegationRow) -> Iterator[str]:
    yield work_of(row)
    yield row.model
    if row.resumed_from:
        yield f"went on with {short_id(row.resumed_from)}"
