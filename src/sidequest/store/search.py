"""Finding what was said, and reading it: the store's side of recall (specification 2.12).

Every word of a query must appear, in any case. Text is split into words here and the databases index those
words, so both find the same. A word with signs inside (`src/app.py`) and text of scripts that write without
spaces is found literally: the index gives candidates, the text itself decides.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    ScalarSelect,
    Select,
    and_,
    literal_column,
    or_,
    select,
    text,
)

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.store.database import AnyRow, Database
from sidequest.store.rows import Match, Page
from sidequest.store.tables import messages, search_words, tool_results, tool_words
from sidequest.store.unfinished import is_whole

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage

DEFAULT_MATCHES, MAX_MATCHES = 10, 25
"""Matches of a search, inclusive (specification 2.12)."""
DEFAULT_PAGE_CHARS, MAX_PAGE_CHARS = 8_000, 20_000
"""Characters of a page, inclusive (specification 2.12)."""
EXCERPT_CHARS = 240
MAX_WORD_CHARS = 64
"""Longer words are indexed by their first characters; the text itself decides."""
MAX_INDEXED_CHARS = 200_000
"""Different words of one message that are indexed, in characters: PostgreSQL holds 1 MB of them."""

Lanes = Collection[str | None] | None
"""Whose rows are meant: None in it is the parent, an id that delegation; None instead of it is everybody."""
PARENT: Lanes = (None,)

_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1100-\u11ff\u3005-\u3007\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
"""Thai, Lao, Burmese, Khmer, kana, hangul, Han: one sign is one word to the index."""
_WORD = re.compile(rf"[{_UNSPACED}]|(?:(?![{_UNSPACED}])[^\W_])+")
_PAGE_OF_CANDIDATES = 100


def index_words(said: str, room: int = MAX_INDEXED_CHARS) -> str:
    """Return the different words of a text as the index holds them, separated by spaces.

    The first ones that take at most `room` characters together.
    """
    kept: dict[str, None] = {}
    for word in _WORD.findall(said.casefold()):
        short = word[:MAX_WORD_CHARS]
        if short not in kept:
            room -= len(short) + 1
            if room < 0:
                break
            kept[short] = None
    return " ".join(kept)


@dataclass(frozen=True, slots=True)
class Query:
    """A search as the index and the text are asked."""

    words: tuple[str, ...]
    """Every one must be in the index of a message."""
    literals: tuple[str, ...]
    """Every one must be in the text of a message, whatever the case."""

    @classmethod
    def of(cls, query: str) -> Query:
        """Split what a person or a model wrote; signs around a word do not count."""
        words: dict[str, None] = {}
        literals: dict[str, None] = {}
        for piece in query.casefold().split():
            found = list(_WORD.finditer(piece))
            if not found:
                continue
            words.update(dict.fromkeys(match.group()[:MAX_WORD_CHARS] for match in found))
            literal = piece[found[0].start() : found[-1].end()]
            if [literal] != [match.group() for match in found] or len(literal) > MAX_WORD_CHARS:
                literals[literal] = None
        return cls(tuple(words), tuple(literals))

    def is_in(self, said: str) -> bool:
        """Say whether every literal is in the text."""
        if not self.literals:
            return True
        folded = said.casefold()
        return all(literal in folded for literal in self.literals)

    def appears_in(self, said: str) -> bool:
        """Say whether the query matches a text that is not indexed, for example a title."""
        return set(self.words) <= set(index_words(said).split()) and self.is_in(said)

    def excerpt(self, said: str) -> str:
        """Return the surroundings of the first word that is found, on one line, `EXCERPT_CHARS` at most."""
        places = [
            found.start()
            for word in (*self.literals, *self.words)
            if (found := re.search(re.escape(word), said, re.IGNORECASE))
        ]
        start = max(0, (places[0] if places else 0) - EXCERPT_CHARS // 3)
        cut = said[start : start + EXCERPT_CHARS - 2]
        line = " ".join(cut.split())
        return f"{'…' if start else ''}{line}{'…' if start + len(cut) < len(said) else ''}"


class Search:
    """Searches messages, and reads them and their tool results by id."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def find(
        self, session_id: str | None, query: str, *, limit: int = DEFAULT_MATCHES, lanes: Lanes = PARENT
    ) -> list[Match]:
        """Return the newest messages and tool calls that hold every word of `query`, newest first.

        A message is found by what the user or the assistant said, a call by the name of its tool, its
        arguments and its result together. `limit` is clamped to 1..`MAX_MATCHES`.
        `session_id` None searches all sessions. A query without any letter or digit finds nothing.

        Raises:
            SidequestError: the store failed.
        """
        wanted = min(max(1, limit), MAX_MATCHES)
        parsed = Query.of(query)

        def look(tx: Connection) -> list[Match]:
            said = _said(tx, parsed, session_id, lanes)
            called = _called(tx, parsed, session_id, lanes)
            newest_first = heapq.merge(said, called, key=lambda found: -found[0])
            return [match for _, match in islice(newest_first, wanted)]

        return await self._db.read(look) if parsed.words else []

    async def read(
        self,
        session_id: str,
        row_id: str,
        *,
        offset: int = 0,
        limit: int = DEFAULT_PAGE_CHARS,
        lanes: Lanes = PARENT,
    ) -> Page:
        """Return a page of a message, or of a tool result.

        A result is named `MESSAGE:N`, the N-th call of that response from 1; a response lists the names of
        its results. `offset` and `limit` are characters; `limit` is clamped to 1..`MAX_PAGE_CHARS`.

        Raises:
            SidequestError: `MESSAGE_UNKNOWN` when these lanes of the session have no such row.
        """
        message_id, _, number = row_id.rpartition(":")
        as_result = message_id and number.isdecimal()

        def fetch(tx: Connection) -> str | None:
            whole = _message_text(tx, session_id, row_id, lanes)
            if whole is None and as_result:
                whole = _result_text(tx, session_id, message_id, int(number), lanes)
            return whole

        whole = await self._db.read(fetch)
        if whole is None:
            raise SidequestError(
                ErrorCode.MESSAGE_UNKNOWN,
                f"There is no message or tool result {row_id} here.",
                "Search first and use an id from the matches.",
            )
        start = max(0, offset)
        end = start + min(max(1, limit), MAX_PAGE_CHARS)
        return Page(row_id, whole[start:end], start, len(whole), end if end < len(whole) else None)


def _said(tx: Connection, query: Query, session_id: str | None, lanes: Lanes) -> Iterator[tuple[int, Match]]:
    """Yield the messages whose text matches, newest first, with their row ids."""
    for row in matching(tx, query, session_id, lanes):
        yield row.row_id, _match(row, query.excerpt(row.text))


def _called(
    tx: Connection, query: Query, session_id: str | None, lanes: Lanes
) -> Iterator[tuple[int, Match]]:
    """Yield the calls that match, the newest result first, with the row ids of their messages."""
    from sidequest.store.call_words import call_text, read_call

    result = and_(
        *(tool_results.c[name] == tool_words.c[name] for name in ("session_id", "message_id", "tool_call_id"))
    )
    message = and_(messages.c.session_id == tool_words.c.session_id, messages.c.id == tool_words.c.message_id)
    before: int | None = None
    while True:
        statement = (
            select(
                tool_words.c.row_id.label("word_row_id"),
                tool_words.c.tool_call_id,
                tool_results.c.payload.label("result"),
                messages,
            )
            .join(tool_results, result)
            .join(messages, message)
            .where(tool_words.c.row_id.in_(indexed_calls(tx, query)))
            .order_by(tool_words.c.row_id.desc())
            .limit(_PAGE_OF_CANDIDATES)
        )
        if session_id is not None:
            statement = statement.where(tool_words.c.session_id == session_id)
        if lanes is not None:
            statement = statement.where(in_lanes(lanes))
        if before is not None:
            statement = statement.where(tool_words.c.row_id < before)
        rows = tx.execute(statement).all()
        for row in rows:
            # What is damaged is not found; what is sound is.
            found = read_call(row.payload, row.result, row.tool_call_id)
            if found is None:
                continue
            number, call, part = found
            said = call_text(call, part)
            if query.is_in(said):
                yield row.row_id, _match(row, query.excerpt(said), f"{row.id}:{number}", call.tool_name)
        if len(rows) < _PAGE_OF_CANDIDATES:
            return
        before = rows[-1].word_row_id


def _match(row: AnyRow, excerpt: str, result_id: str | None = None, tool: str | None = None) -> Match:
    return Match(
        row.session_id,
        row.id,
        row.position,
        row.delegation_id,
        row.kind,
        excerpt,
        row.created_at_ms,
        result_id,
        tool,
    )


def matching(tx: Connection, query: Query, session_id: str | None, lanes: Lanes) -> Iterator[AnyRow]:
    """Yield the rows that match, newest first, with id, session, lane, position, kind, text and time."""
    before: int | None = None
    while True:
        statement = (
            select(
                messages.c.row_id,
                messages.c.session_id,
                messages.c.id,
                messages.c.delegation_id,
                messages.c.position,
                messages.c.kind,
                messages.c.text,
                messages.c.created_at_ms,
            )
            .where(messages.c.row_id.in_(indexed(tx, query)))
            .order_by(messages.c.row_id.desc())
            .limit(_PAGE_OF_CANDIDATES)
        )
        mine = messages.c.session_id
        statement = statement.where(is_whole(mine) if session_id is None else mine == session_id)
        if lanes is not None:
            statement = statement.where(in_lanes(lanes))
        if before is not None:
            statement = statement.where(messages.c.row_id < before)
        rows = tx.execute(statement).all()
        yield from (row for row in rows if query.is_in(row.text))
        if len(rows) < _PAGE_OF_CANDIDATES:
            return
        before = rows[-1].row_id


def indexed(tx: Connection, query: Query) -> ScalarSelect[int]:
    """Return the row ids of messages that the index gives for `query`, as a subquery."""
    return _in_index(tx, query, "search_index", search_words.c.message_row_id)


def indexed_calls(tx: Connection, query: Query) -> ScalarSelect[int]:
    """Return the row ids of `tool_words` that the index gives for `query`, as a subquery."""
    return _in_index(tx, query, "tool_index", tool_words.c.row_id)


def _in_index(tx: Connection, query: Query, index: str, key: Column[int]) -> ScalarSelect[int]:
    # Words hold no quotes.
    if tx.dialect.name == "sqlite":
        asked = " ".join(f'"{word}"' for word in query.words)
        rows: Select[int] = select(literal_column("rowid")).select_from(text(index))
        return rows.where(text(f"{index} MATCH :asked").bindparams(asked=asked)).scalar_subquery()
    asked = " & ".join(f"'{word}'" for word in query.words)
    matches = text(f"{key.table.name}.lexemes @@ CAST(:asked AS tsquery)").bindparams(asked=asked)
    return select(key).where(matches).scalar_subquery()


def in_lanes(lanes: Collection[str | None]) -> ColumnElement[bool]:
    """Return the condition that a message belongs to one of `lanes`."""
    delegations = [lane for lane in lanes if lane is not None]
    condition = messages.c.delegation_id.in_(delegations)
    return or_(condition, messages.c.delegation_id.is_(None)) if None in lanes else condition


def _row(tx: Connection, session_id: str, message_id: str, lanes: Lanes) -> ModelMessage | None:
    from sidequest.store import payload

    statement = select(messages.c.payload).where(
        messages.c.session_id == session_id, messages.c.id == message_id
    )
    if lanes is not None:
        statement = statement.where(in_lanes(lanes))
    stored = tx.execute(statement).scalar_one_or_none()
    return None if stored is None else payload.load_row(stored, message_id)


def _message_text(tx: Connection, session_id: str, message_id: str, lanes: Lanes) -> str | None:
    from sidequest.store import payload

    message = _row(tx, session_id, message_id, lanes)
    if message is None:
        return None
    said = payload.spoken_text(message)
    calls = [
        f"[called {call.tool_name} with {call.args_as_json_str()}; its result is {message_id}:{number}]"
        for number, call in enumerate(payload.distinct_calls(message).values(), start=1)
    ]
    carried = tx.execute(
        select(tool_results.c.tool_name, tool_results.c.message_id)
        .where(tool_results.c.session_id == session_id, tool_results.c.carrier_id == message_id)
        .order_by(tool_results.c.place)
    )
    results = [f"[carried a result of {name}, called in {caller}]" for name, caller in carried]
    return "\n".join(piece for piece in (said, *calls, *results) if piece)


def _result_text(tx: Connection, session_id: str, message_id: str, number: int, lanes: Lanes) -> str | None:
    from sidequest.store import payload

    message = _row(tx, session_id, message_id, lanes)
    calls = list(payload.distinct_calls(message)) if message is not None else []
    if not 1 <= number <= len(calls):
        return None
    stored = tx.execute(
        select(tool_results.c.payload).where(
            tool_results.c.session_id == session_id,
            tool_results.c.message_id == message_id,
            tool_results.c.tool_call_id == calls[number - 1],
        )
    ).scalar_one_or_none()
    if stored is None:
        return "[no result was stored: the call was interrupted, or is still running]"
    (part,) = payload.load_results([stored])
    return payload.result_text(part)
