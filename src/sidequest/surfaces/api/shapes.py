"""What the API takes and gives for sessions, delegations, events and questions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from sidequest.core.permissions import Mode
from sidequest.surfaces.app.listing import Activity
from sidequest.surfaces.app.shapes import Given, Shape

MAX_NUMBER = 2**53 - 1
"""Largest number that every reader of JSON keeps exact."""
MAX_TEXT_CHARS = 1_000_000


Text = Annotated[str, Field(min_length=1, max_length=MAX_TEXT_CHARS)]


class NewSession(Given):
    """A session to begin."""

    root: str | None = Field(None, max_length=4096, description="Folder to work in; null: the server's.")
    model: str | None = Field(None, max_length=500, description="Model key; null: the default.")
    permission_mode: Mode | None = Field(None, description="null: that of the settings.")
    title: str = Field("", max_length=1000, description="Empty: the first prompt names it.")


class SessionChange(Given):
    """What is to be another way in a session; what is left out or null stays."""

    title: str | None = Field(None, min_length=1, max_length=1000)
    model: str | None = Field(None, min_length=1, max_length=500, description="Key of a model.")
    permission_mode: Mode | None = Field(None, description="Holds for as long as this server runs.")


class ForkPoint(Given):
    """Where a copy of a session ends."""

    through: str | None = Field(None, description="Id of the newest message to copy; null: all of them.")


class Focus(Given):
    """What a compaction should be careful about."""

    focus: str | None = Field(None, max_length=MAX_TEXT_CHARS)


class Prompt(Given):
    """A message to the session's own agent."""

    text: Text


class Instruction(Given):
    """What a resumed delegation should do next."""

    instruction: Text


class Session(Shape):
    """A session as it is listed."""

    id: str
    title: str
    root: str | None
    model: str | None
    permission_mode: Mode | None = Field(
        description="What was chosen, or counts in a session that is open; null: that of the settings."
    )
    created_at_ms: int
    updated_at_ms: int
    messages: int = Field(description="Rows of the session's own agent.")
    delegations: int
    forked_from: str | None
    forked_through: str | None
    activity: Activity


class SessionList(Shape):
    """One page of the sessions, the one used last first."""

    sessions: list[Session]
    more: bool = Field(description="Whether there are further ones behind these.")


class Accepted(Shape):
    """Work that was begun; the events tell how it goes."""

    session_id: str
    after: int = Field(description="Ask for the events after this number to see all of this work.")


class Compacted(Shape):
    """What a compaction did; sizes in tokens."""

    tokens_before: int
    tokens_after: int
    summary: str


class DelegationBrief(Shape):
    """A delegation as it is listed."""

    id: str
    session_id: str
    number: int = Field(description="Order of their start in the session, from 1.")
    chain_id: str
    resumed_from: str | None
    agent: str
    label: str
    task: str
    model: str
    context_mode: str
    status: str
    turns: int
    tool_calls: int
    tokens: int
    last_tool: str | None
    delivered: bool
    started_at_ms: int
    completed_at_ms: int | None


class Delegation(DelegationBrief):
    """A delegation with what it was given and what came of it."""

    brief: str
    definition: dict[str, Any] = Field(description="The definition as it was.")
    outcome: dict[str, Any] | None = Field(description="null while it runs and when its process died.")
    report: str


class DelegationList(Shape):
    """The delegations of a session, in the order of their start."""

    delegations: list[DelegationBrief]


class Call(Shape):
    """A tool call."""

    tool: str
    summary: str
    ended: str


class MessageEntry(Shape):
    """Something that was said."""

    type: Literal["message"]
    id: str
    position: int
    at_ms: int
    role: str
    text: str
    calls: list[Call]
    delivers: list[str] = Field(description="Delegations whose reports it hands over.")
    failed: bool


class CompactionEntry(Shape):
    """A compaction of the session's own context; sizes in tokens."""

    type: Literal["compaction"]
    generation: int
    at_ms: int
    tokens_before: int
    tokens_after: int | None
    degraded: bool
    summary: str


class DelegationEntry(Delegation):
    """A delegation at its place in the conversation."""

    type: Literal["delegation"]


Entry = Annotated[MessageEntry | CompactionEntry | DelegationEntry, Field(discriminator="type")]


class Transcript(Shape):
    """A part of the conversation, oldest entry first."""

    entries: list[Entry]
    before: int | None = Field(description="Give this as `before` for what was said earlier; null: nothing.")


class Event(Shape):
    """Something that happened; what else it has depends on its type."""

    model_config = ConfigDict(extra="allow")

    number: int
    at_ms: int
    type: str
    delegation_id: str | None


class EventList(Shape):
    """Events in order, without gaps."""

    events: list[Event]
    newest: int = Field(description="Number of the last one here: ask for what is after it.")
    more: bool = Field(description="Whether there are already further ones.")


class Question(Shape):
    """A tool call that waits for a person."""

    id: str
    session_id: str
    asker: list[str] = Field(description="Who asks, from the session's own agent down.")
    delegation_id: str | None = Field(description="The delegation that asks; null: the session's own agent.")
    delegation_number: int | None = Field(description="Its number in the session; null: as above.")
    tool: str
    path: str | None
    command: str | None
    inside: bool = Field(description="Whether the path is in the workspace.")
    arguments: dict[str, Any]
    reason: str


class QuestionList(Shape):
    """Everything that waits in the sessions of this server, oldest first in each."""

    questions: list[Question]


class Decision(Given):
    """What a person decided."""

    decision: Literal["allow", "allow_session", "deny"]
    note: str = Field("", max_length=10_000, description="What the agent is told with a denial.")
