"""What crosses the boundary of the store: frozen values, one class for each kind of row.

Ids are text that the caller chose and that is unique in its session. Times are whole milliseconds since the
epoch, by the caller's clock. Texts come back as they were stored, with known secrets masked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from sidequest.core.outcome import Status

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ToolReturnPart

Json: TypeAlias = Mapping[str, Any]


def _nothing() -> Json:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class NewSession:
    """A session to be created."""

    id: str
    created_at_ms: int
    title: str = ""
    root: str | None = None
    """The folder it works in, None when it has none."""
    model: str | None = None
    """Key of the parent's model, None for the default of the day."""


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session as it is listed."""

    id: str
    title: str
    root: str | None
    model: str | None
    created_at_ms: int
    updated_at_ms: int
    """When something was last stored in it."""
    messages: int
    """Rows of the parent, delegates' rows left out."""
    delegations: int
    forked_from: str | None = None
    forked_through: str | None = None
    """Newest message of the other session that came along; None when that was empty."""
    spent_usd: float = 0.0
    """What its agent and all of its delegations have spent, in US dollars, as far as prices are known."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who works on a session: one process; `id` tells two sessions of one process apart."""

    id: str
    host: str
    pid: int


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write a session until `expires_at_ms`, exclusive; it is renewed before."""

    session_id: str
    holder: Holder
    since_ms: int
    expires_at_ms: int


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to be appended."""

    id: str
    message: ModelMessage
    created_at_ms: int
    delegation_id: str | None = None
    """None for the parent's own."""
    agent: str | None = None
    """Id of the subagent that said it, None for the parent."""


@dataclass(frozen=True, slots=True)
class StoredResult:
    """What a tool gave, stored the moment it was done."""

    tool_call_id: str
    part: ToolReturnPart
    created_at_ms: int
    carrier_id: str | None
    """The request that took it to the model; None when that was not stored before the process ended."""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A row of the transcript, its tool results joined."""

    id: str
    position: int
    """Place in its lane: 1, 2, 3, ... without gaps, for the parent and for each delegation by itself."""
    message: ModelMessage
    """A request has the results it carried, where they stood."""
    created_at_ms: int
    tokens: int
    """Estimated size with its results, in tokens, at the time it was stored."""
    delegation_id: str | None = None
    agent: str | None = None
    results: tuple[StoredResult, ...] = ()
    """Of a response: what its calls gave so far, in the order of the calls."""
    damaged: bool = False
    """Whether it or a result of it cannot be read: words stand for the message then, a result is left out."""


@dataclass(frozen=True, slots=True)
class NewestPart:
    """The newest messages of a chain."""

    messages: list[ModelMessage]
    """A valid history."""
    whole: bool
    """Whether nothing older is stored."""


@dataclass(frozen=True, slots=True)
class NewDelegation:
    """A delegation that starts."""

    id: str
    agent: str
    task: str
    """The instruction of this run."""
    brief: str
    """The whole text the delegate was given."""
    model: str
    """Key of the model it starts with."""
    context_mode: str
    started_at_ms: int
    label: str = ""
    definition: Json = field(default_factory=_nothing)
    """The definition as it was, so that a resume knows its rights even when the file has changed."""
    resumed_from: str | None = None
    """The delegation whose work it goes on with, None for a new chain."""
    parent_message_id: str | None = None
    """The response whose call started it; None when nothing of the parent did."""
    parent_tool_call_id: str | None = None


@dataclass(frozen=True, slots=True)
class DelegationProgress:
    """How far a delegation is; each value is what it is now, not what was added."""

    turns: int
    tool_calls: int
    tokens: int
    """Size of its newest request, in tokens."""
    model: str
    """Key of the model that runs."""
    last_tool: str | None = None


@dataclass(frozen=True, slots=True)
class DelegationRow:
    """A delegation as it is stored."""

    id: str
    session_id: str
    number: int
    """Order of their start in the session: 1, 2, 3, ... without gaps."""
    chain_id: str
    """Id of the first delegation of its chain."""
    resumed_from: str | None
    agent: str
    label: str
    task: str
    brief: str
    model: str
    """Key of the model that ran last."""
    context_mode: str
    definition: Json
    parent_message_id: str | None
    parent_tool_call_id: str | None
    started_after: int
    """Newest position in the parent's lane when it started: that of the response whose call started it."""
    status: Status
    turns: int
    tool_calls: int
    tokens: int
    last_tool: str | None
    report: str
    """The raw report; of an interrupted one the last text it had written; empty while it runs."""
    outcome: Json | None
    """What `outcome_as_dict` gave at the end; None while it runs and when the process died."""
    delivered: bool
    delivered_by: str | None
    """The message that gave the parent its report; None also when the parent did not ask for it."""
    started_at_ms: int
    completed_at_ms: int | None


@dataclass(frozen=True, slots=True)
class Chain:
    """A delegation and everything that went on with its work, in the order of their start."""

    delegations: tuple[DelegationRow, ...]

    @property
    def id(self) -> str:
        """Id of the first delegation."""
        return self.delegations[0].id

    @property
    def ids(self) -> tuple[str, ...]:
        """All ids, oldest first."""
        return tuple(row.id for row in self.delegations)

    @property
    def agent(self) -> str:
        """Id of the subagent; one for the whole chain."""
        return self.delegations[0].agent

    @property
    def original_task(self) -> str:
        """The brief that the chain began with."""
        return self.delegations[0].brief

    @property
    def latest(self) -> DelegationRow:
        """The run that was started last: its status, its model and its definition are the chain's."""
        return self.delegations[-1]


@dataclass(frozen=True, slots=True)
class NewCheckpoint:
    """A compaction of the parent (specification 2.11)."""

    id: str
    summary: str
    through_message_id: str
    """The newest row that the summary covers."""
    tokens_before: int
    created_at_ms: int
    tokens_after: int | None = None
    first_kept_message_id: str | None = None
    retained_tail: Sequence[ModelMessage] = ()
    """Messages that stay behind the summary, for example the instruction being worked on."""
    usage: Json | None = None
    details: Json = field(default_factory=_nothing)
    model: str | None = None
    """Key of the model that wrote the summary."""


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """A stored compaction."""

    id: str
    generation: int
    """1 for the first of a session, then one more each."""
    summary: str
    through_message_id: str
    through_position: int
    """Its place in the parent's lane: rows after it are what the model still sees."""
    tokens_before: int
    tokens_after: int | None
    first_kept_message_id: str | None
    retained_tail: tuple[ModelMessage, ...]
    usage: Json | None
    details: Json
    model: str | None
    created_at_ms: int


@dataclass(frozen=True, slots=True)
class EventRow:
    """An event as it was told to the surfaces."""

    number: int
    at_ms: int
    type: str
    delegation_id: str | None
    data: Json
    """What `event_as_dict` gave."""


@dataclass(frozen=True, slots=True)
class Match:
    """A message that a search found."""

    session_id: str
    message_id: str
    position: int
    delegation_id: str | None
    kind: str
    """`request` or `response`."""
    excerpt: str
    created_at_ms: int
    result_id: str | None = None
    """Name of the tool result, `MESSAGE:N`, when a call of the message was found and not its text."""
    tool: str | None = None
    """Name of the tool of that call."""


@dataclass(frozen=True, slots=True)
class Page:
    """A slice of a message or of a tool result, for reading."""

    id: str
    text: str
    offset: int
    """In characters, from 0."""
    total_chars: int
    next_offset: int | None
    """Where to read on; None when this was the end."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A decision that a person made for the rest of a session."""

    rule: str
    allowed: bool
    created_at_ms: int


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that `verify` found not to hold."""

    session_id: str | None
    """None when it is about the database as a whole."""
    kind: str
    """A stable word, for example `positions` or `payload`."""
    where: str
    """The row it is about."""
    message: str


@dataclass(frozen=True, slots=True)
class Truncated:
    """What a truncation removed."""

    messages: int
    checkpoints: int
    delegations: tuple[str, ...] = ()
    """Ids of the delegations that had been started after the cut."""
