"""Writes a session down as it happens: messages, tool results, delegations, checkpoints, events.

A run awaits its journal at every step that matters: the prompt is stored before it is sent, an answer before
its tools run, a tool's result the moment it is there. What fails to be stored ends the run: it stops rather
than going on unsaved.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ToolCallPart,
    ToolReturn,
    ToolReturnPart,
)

from sidequest.core.compaction import Compacted, Degraded
from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.events import Numbered
from sidequest.core.outcome import Outcome
from sidequest.core.transcript import delivered_ids, mark_of
from sidequest.store.payload import distinct_calls, interrupted
from sidequest.store.rows import DelegationProgress, Grant, NewCheckpoint, NewDelegation, NewMessage

if TYPE_CHECKING:
    from sidequest.store.store import Store

FALLBACK_SUMMARY = (
    "No summary could be written when the context was full. The brief and the newest messages were kept; the "
    "whole transcript is stored."
)
"""Stands where a summary would, in a checkpoint of a degradation (specification 2.7)."""
NEVER_STORED = frozenset({ErrorCode.STORE_CONFLICT, ErrorCode.DELEGATION_UNKNOWN})
"""Codes of refusals that trying again does not cure: such an end of a delegation is given up."""

_T = TypeVar("_T")


def new_id() -> str:
    """Return an id for a row."""
    return uuid.uuid4().hex


async def to_its_end(work: Coroutine[Any, Any, _T]) -> _T:
    """Await `work` to its end although the caller is cancelled meanwhile; the cancellation is raised then.

    So what is stored and what is remembered of it cannot come apart. A failure of `work` is the cause of the
    cancellation.
    """
    job = asyncio.create_task(work)
    try:
        return await asyncio.shield(job)
    except asyncio.CancelledError as cancelled:
        while not job.done():
            try:
                await asyncio.wait([job])
            except asyncio.CancelledError:
                continue
        failure = None if job.cancelled() else job.exception()
        if failure is not None:
            raise cancelled from failure
        raise


def with_calls_closed(
    messages: Sequence[ModelMessage], results: Mapping[str, ToolReturnPart]
) -> list[ModelMessage] | None:
    """Return a history that broke off while tools ran with a result for each call, or None for any other.

    What was done keeps its result, as it is in the request or in `results`; the rest is told to be
    interrupted, in the words that a reader of the store gets. So a model that goes on does nothing twice.
    """
    request = messages[-1] if messages else None
    answer = messages[-2] if len(messages) > 1 else None
    if not isinstance(answer, ModelResponse) or not isinstance(request, ModelRequest):
        return None
    if request.state != "interrupted":
        return None
    given = {**results, **{p.tool_call_id: p for p in request.parts if isinstance(p, ToolReturnPart)}}
    calls = distinct_calls(answer)
    parts = [given.get(call_id) or interrupted(answer, call) for call_id, call in calls.items()]
    return [*messages[:-1], ModelRequest(parts=list(parts), timestamp=request.timestamp)]


@dataclass
class Journal:
    """The journal of one session; `lane` gives the one of a run."""

    store: Store
    session_id: str
    now_ms: Callable[[], int]
    unsaved: SidequestError | None = field(default=None, init=False)
    """Why a delegation could not store a step; whoever begins a turn sets it to None."""
    on_unsaved: Callable[[], None] = field(default=lambda: None, init=False)
    """Called when such a delegation has ended: the turn that it worked for must not go on."""
    _events: list[Numbered] = field(default_factory=list, init=False)
    _ended: list[tuple[Outcome, int]] = field(default_factory=list, init=False)
    """Ends of delegations that are not stored yet, with their times."""
    _given: list[str] = field(default_factory=list, init=False)
    """Delegations whose report somebody else than the parent was given, which is not stored yet."""
    _whole: list[tuple[str, str]] = field(default_factory=list, init=False)
    """Paths and texts of tool results that were cut, whole, which are not stored yet."""
    _granted: list[str] = field(default_factory=list, init=False)
    """What a person has allowed for the session, which is not stored yet."""
    _spent_usd: float = field(default=0.0, init=False)
    """What was spent and is not stored yet."""
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    def event(self, numbered: Numbered) -> None:
        """Take an event; it is stored ahead of the next step of any run, in order."""
        self._events.append(numbered)

    def whole(self, path: str, text: str) -> None:
        """Take a tool result that was cut; it is stored ahead of the message that names `path`."""
        self._whole.append((path, text))

    def granted(self, rules: Iterable[str]) -> None:
        """Take what a person allowed for the session; it is stored ahead of the next step of any run."""
        self._granted += rules

    def spent(self, cost_usd: float) -> None:
        """Take what an answer cost; it is stored ahead of the answer."""
        self._spent_usd += cost_usd

    async def flush(self) -> None:
        """Store everything that was taken: costs, grants, whole results, ends of delegations, events.

        Raises:
            SidequestError: the store failed; what is not stored stays and is tried again.
        """
        due = (self._events, self._ended, self._given, self._whole, self._granted, self._spent_usd)
        if any(due):
            await to_its_end(self._flush())

    async def _flush(self) -> None:
        async with self._writing:
            if cost := self._spent_usd:
                self._spent_usd = 0.0
                try:
                    await self.store.sessions.spend(self.session_id, cost)
                except SidequestError:
                    self._spent_usd += cost
                    raise
            while self._granted:
                grant = Grant(self._granted[0], True, self.now_ms())
                await self.store.grants.put(self.session_id, grant)
                del self._granted[0]
            while self._whole:
                await self.store.whole_results.put(self.session_id, *self._whole[0], self.now_ms())
                del self._whole[0]
            while self._ended:
                outcome, at_ms = self._ended[0]
                try:
                    await self.store.delegations.settle(self.session_id, outcome, at_ms)
                except SidequestError as error:
                    if error.code in NEVER_STORED:
                        del self._ended[0]
                    raise
                del self._ended[0]
            while self._given:
                try:
                    await self.store.delegations.given(self.session_id, self._given[0])
                except SidequestError as error:
                    if error.code in NEVER_STORED:
                        del self._given[0]
                    raise
                del self._given[0]
            pending = tuple(self._events)
            if pending:
                await self.store.events.append(self.session_id, pending)
                del self._events[: len(pending)]

    def lane(self, delegation_id: str | None = None, agent: str | None = None) -> LaneJournal:
        """Return the journal of one run: the parent's own for None, else a delegation's."""
        return LaneJournal(self, delegation_id, agent)

    async def started(self, new: NewDelegation) -> None:
        """Store that a delegation runs, before its first message."""
        await to_its_end(self._store_start(new))

    async def _store_start(self, new: NewDelegation) -> None:
        await self.flush()
        await self.store.delegations.start(self.session_id, new)

    async def settled(self, outcome: Outcome) -> None:
        """Store how a delegation ended, with its report, not yet delivered.

        Raises:
            SidequestError: the store failed; the end is stored by the next `flush` that comes through.
        """
        self._ended.append((outcome, self.now_ms()))
        await self.flush()

    async def taken_back(self, delegation_ids: Sequence[str]) -> None:
        """Store that no model has seen these reports, although a message carried them.

        Raises:
            SidequestError: the store failed.
        """
        await to_its_end(self.store.delegations.take_back(self.session_id, delegation_ids))

    async def given(self, delegation_id: str) -> None:
        """Store that whoever asked for a delegation without the parent was given its report.

        Raises:
            SidequestError: the store failed; it is stored by the next `flush` that comes through.
        """
        self._given.append(delegation_id)
        await self.flush()


@dataclass
class LaneJournal:
    """Writes the messages of one run. A step whose events cannot be stored is not stored either.

    Answers are recognised as the objects they are, requests by their parts: an attempt that is repeated wraps
    the same parts anew, and what a compaction puts in front of the history is no message of the transcript.
    """

    journal: Journal
    delegation_id: str | None = None
    agent: str | None = None
    newest_id: str | None = None
    """Id of the newest stored row of this lane, None when it is empty."""
    answer: ModelResponse | None = field(default=None, init=False)
    """The answer that was stored last, until the next request is."""
    _known: dict[int, object] = field(default_factory=dict, init=False)
    _response_id: str | None = field(default=None, init=False)
    results: dict[str, ToolReturnPart] = field(default_factory=dict, init=False)
    """What the calls of the newest answer gave so far, by call id: a server may give one id to two calls."""

    _pending: NewMessage | None = field(default=None, init=False)
    """What was tried to be stored last, when it is not known to be; it comes again under the same id."""
    _owed: dict[str, Sequence[str]] = field(default_factory=dict, init=False)
    """Of results that could not be stored, the delegations they deliver; their request is stored later."""

    def know(self, messages: Sequence[ModelMessage], newest_id: str | None = None) -> None:
        """Take `messages` as stored: what a run was opened with, or what stands for stored rows."""
        for message in messages:
            self._remember(message)
        self.newest_id = newest_id or self.newest_id

    def _remember(self, message: ModelMessage) -> None:
        known = [message] if isinstance(message, ModelResponse) else message.parts
        self._known.update((id(item), item) for item in known)

    async def sent(self, history: Sequence[ModelMessage]) -> None:
        """Store what `history` ends with and is not stored yet: a prompt, results, a delivery.

        So is what an earlier step could not store, such as the note on how a turn ended.
        """
        await self._saved(self._store_tail(history))

    async def _saved(self, step: Coroutine[Any, Any, None]) -> None:
        try:
            await to_its_end(step)
        except SidequestError as error:
            if self.delegation_id is not None:
                self.journal.unsaved = self.journal.unsaved or error
            raise

    async def _store_tail(self, history: Sequence[ModelMessage]) -> None:
        self.answer = None
        await self.journal.flush()
        for message in self._unstored(history):
            for each in self._in_two(message):
                await self._append(each)

    def _in_two(self, message: ModelMessage) -> Sequence[ModelMessage]:
        """Return a request that grew since storing it was tried as what was tried, and what came after."""
        tried = self._pending.message if self._pending is not None else None
        if not isinstance(tried, ModelRequest) or not isinstance(message, ModelRequest):
            return [message]
        size = len(tried.parts)
        head, rest = message.parts[:size], message.parts[size:]
        begun = ModelRequest(parts=head, timestamp=message.timestamp)
        if not rest or not _same(tried, begun):
            return [message]
        return [begun, ModelRequest(parts=rest, timestamp=message.timestamp)]

    def lacks(self, history: Sequence[ModelMessage]) -> bool:
        """Say whether `history` ends with something that is not stored."""
        return bool(self._unstored(history))

    def _unstored(self, history: Sequence[ModelMessage]) -> list[ModelMessage]:
        fresh: list[ModelMessage] = []
        for message in reversed(history):
            if isinstance(message, ModelResponse):
                if id(message) in self._known:
                    break
                if message.parts:
                    fresh.append(message)
                continue
            parts = [p for p in message.parts if id(p) not in self._known and mark_of(p) != "summary"]
            if parts:
                fresh.append(ModelRequest(parts=parts, timestamp=message.timestamp))
        return fresh[::-1]

    async def said(self, response: ModelResponse, progress: DelegationProgress | None = None) -> None:
        """Store an answer, before anything of it is done, and how far its delegation is."""
        await self._saved(self._store_answer(response, progress))

    async def _store_answer(self, response: ModelResponse, progress: DelegationProgress | None) -> None:
        journal = self.journal
        await journal.flush()
        if self.delegation_id is not None and progress is not None:
            # First: a delegation that says it did nothing is not offered for resuming.
            await journal.store.delegations.progress(
                journal.session_id, self.delegation_id, progress, journal.now_ms()
            )
        self.results.clear()
        self._response_id = await self._append(response)
        self.answer = response

    async def done(self, call: ToolCallPart, value: Any) -> None:
        """Store what a tool gave, the moment it is there."""
        content, metadata = (
            (value.return_value, value.metadata) if isinstance(value, ToolReturn) else (value, None)
        )
        part = ToolReturnPart(call.tool_name, content, tool_call_id=call.tool_call_id, metadata=metadata)
        await self.result(part, metadata.get("delivered", ()) if isinstance(metadata, dict) else ())

    async def result(self, part: ToolReturnPart, delivers: Sequence[str] = ()) -> None:
        """Store the result of a call, a failure too; `delivers` are delegations whose reports it holds."""
        await self._saved(self._store_result(part, delivers))

    async def _store_result(self, part: ToolReturnPart, delivers: Sequence[str]) -> None:
        if self._response_id is None or part.tool_call_id in self.results:
            return
        self.results[part.tool_call_id] = part
        self._owed[part.tool_call_id] = delivers
        journal = self.journal
        await journal.flush()
        await journal.store.transcript.record_result(
            journal.session_id, self._response_id, part, journal.now_ms(), delivers=delivers
        )
        del self._owed[part.tool_call_id]

    async def checkpoint(self, outcome: Compacted | Degraded, model: str) -> None:
        """Store a compaction of the parent, before it is installed (specification 2.11).

        A delegation's compaction is in memory only: nothing is stored for it.
        """
        if self.delegation_id is None and self.newest_id is not None:
            await to_its_end(self._store_checkpoint(outcome, self.newest_id, model))
        # What it replaces never comes back; an instruction that it cut is not what the person wrote.
        self._known = {}
        self.know(outcome.messages)

    async def _store_checkpoint(self, outcome: Compacted | Degraded, through_id: str, model: str) -> None:
        compacted = isinstance(outcome, Compacted)
        await self.journal.store.checkpoints.append(
            self.journal.session_id,
            NewCheckpoint(
                id=new_id(),
                summary=outcome.summary if isinstance(outcome, Compacted) else FALLBACK_SUMMARY,
                through_message_id=through_id,
                tokens_before=outcome.tokens_before,
                tokens_after=outcome.tokens_after,
                created_at_ms=self.journal.now_ms(),
                retained_tail=outcome.messages[1:] if compacted else outcome.messages,
                details={"strategy": "summary"}
                if compacted
                else {"fallback": "retained_tail", "failureReason": getattr(outcome, "reason", "")},
                model=model,
            ),
        )

    async def _append(self, message: ModelMessage) -> str:
        delivers = delivered_ids(message) if isinstance(message, ModelRequest) else []
        carried = [p.tool_call_id for p in message.parts if isinstance(p, ToolReturnPart)]
        delivers += [item for call_id in carried for item in self._owed.get(call_id, ())]
        new = self._pending if self._pending is not None and _same(self._pending.message, message) else None
        if new is None:
            new = NewMessage(new_id(), message, self.journal.now_ms(), self.delegation_id, self.agent)
        # Until it is known to be stored: an answer that was lost leaves open whether it is.
        self._pending = new
        store, session_id = self.journal.store, self.journal.session_id
        if delivers:
            await store.delegations.deliver(session_id, new, delivers)
        else:
            await store.transcript.append(session_id, [new])
        self._pending = None
        for call_id in carried:
            self._owed.pop(call_id, None)
        self._remember(message)
        self.newest_id = new.id
        return new.id


def _same(one: ModelMessage, other: ModelMessage) -> bool:
    """Say whether two messages are the same answer, or requests of the same parts."""
    if isinstance(one, ModelResponse) or isinstance(other, ModelResponse):
        return one is other
    return len(one.parts) == len(other.parts) and all(
        a is b for a, b in zip(one.parts, other.parts, strict=True)
    )
