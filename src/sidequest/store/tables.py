"""The tables as they are today; `migrations` says how a database gets there.

One schema for both databases. What differs is search, and lives in the migrations: SQLite has the virtual
tables `search_index` over `search_words` and `tool_index` over `tool_words`, PostgreSQL has a column
`lexemes` in both.

Rows of the parent and rows of each delegation are *lanes* of one table: `delegation_id` is NULL in the
parent's lane, and `position` counts from 1 without gaps inside a lane. So a lane is kept, cut or copied
without renumbering another, and a delegate's row cannot get into the parent's history by a wrong filter.

A column of text has one of the types of `columns`: they say what is masked. `search_words.words` is made of
text that was masked.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    UniqueConstraint,
)

from sidequest.store.columns import Content, Messages, Record, Structure

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_ROW_ID = BigInteger().with_variant(Integer, "sqlite")
"""SQLite makes a row id only of a column that is declared INTEGER."""

sessions = Table(
    "sessions",
    metadata,
    Column("id", Structure, primary_key=True),
    Column("title", Content, nullable=False),
    Column("root", Structure),
    Column("model", Structure),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("updated_at_ms", BigInteger, nullable=False, index=True),
    Column("forked_from", Structure),
    Column("forked_through", Structure),
    Column("spent_usd", Double, nullable=False, server_default="0"),
)
"""`spent_usd` is what its agent and all of its delegations have spent, as far as prices are known."""

leases = Table(
    "leases",
    metadata,
    Column("session_id", Structure, ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True),
    Column("holder", Structure, nullable=False),
    Column("host", Structure, nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("since_ms", BigInteger, nullable=False),
    Column("expires_at_ms", BigInteger, nullable=False),
)

delegations = Table(
    "delegations",
    metadata,
    Column("session_id", Structure, ForeignKey("sessions.id", ondelete="CASCADE")),
    Column("id", Structure, index=True),
    Column("number", Integer, nullable=False),
    Column("chain_id", Structure, nullable=False),
    Column("resumed_from", Structure),
    Column("agent", Structure, nullable=False),
    Column("label", Content, nullable=False),
    Column("task", Content, nullable=False),
    Column("brief", Content, nullable=False),
    Column("model", Structure, nullable=False),
    Column("context_mode", Structure, nullable=False),
    Column("definition", Record, nullable=False),
    Column("parent_message_id", Structure),
    Column("parent_tool_call_id", Structure),
    Column("started_after", BigInteger, nullable=False),
    Column("status", Structure, nullable=False),
    Column("turns", Integer, nullable=False),
    Column("tool_calls", Integer, nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Column("last_tool", Structure),
    Column("outcome", Record),
    Column("report", Content),
    Column("delivered", Boolean, nullable=False),
    Column("delivered_by", Structure),
    Column("started_at_ms", BigInteger, nullable=False),
    Column("updated_at_ms", BigInteger, nullable=False),
    Column("completed_at_ms", BigInteger),
    PrimaryKeyConstraint("session_id", "id"),
    ForeignKeyConstraint(
        ["session_id", "resumed_from"], ["delegations.session_id", "delegations.id"], ondelete="CASCADE"
    ),
    UniqueConstraint("session_id", "number"),
    Index(None, "session_id", "resumed_from"),
    Index(None, "session_id", "chain_id"),
)
"""`number` is the order of their start, from 1. `started_after` is the position in the parent's lane behind
which the delegation began."""

messages = Table(
    "messages",
    metadata,
    Column("row_id", _ROW_ID, primary_key=True),
    Column("session_id", Structure, ForeignKey("sessions.id", ondelete="CASCADE"), nullable=False),
    Column("id", Structure, nullable=False),
    Column("delegation_id", Structure),
    Column("agent", Structure),
    Column("position", BigInteger, nullable=False),
    Column("kind", Structure, nullable=False),
    Column("payload", Messages, nullable=False),
    Column("text", Content, nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    UniqueConstraint("session_id", "id"),
    ForeignKeyConstraint(
        ["session_id", "delegation_id"], ["delegations.session_id", "delegations.id"], ondelete="CASCADE"
    ),
    CheckConstraint("kind IN ('request', 'response')", name="kind"),
)
Index(
    "uq_messages_parent_lane",
    messages.c.session_id,
    messages.c.position,
    unique=True,
    sqlite_where=messages.c.delegation_id.is_(None),
    postgresql_where=messages.c.delegation_id.is_(None),
)
Index(
    "uq_messages_delegation_lane",
    messages.c.session_id,
    messages.c.delegation_id,
    messages.c.position,
    unique=True,
    sqlite_where=messages.c.delegation_id.is_not(None),
    postgresql_where=messages.c.delegation_id.is_not(None),
)

tool_results = Table(
    "tool_results",
    metadata,
    Column("session_id", Structure),
    Column("message_id", Structure),
    Column("tool_call_id", Structure),
    Column("tool_name", Structure, nullable=False),
    Column("outcome", Structure, nullable=False),
    Column("payload", Messages, nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("carrier_id", Structure),
    Column("place", Integer),
    PrimaryKeyConstraint("session_id", "message_id", "tool_call_id"),
    ForeignKeyConstraint(
        ["session_id", "message_id"], ["messages.session_id", "messages.id"], ondelete="CASCADE"
    ),
    ForeignKeyConstraint(["session_id", "carrier_id"], ["messages.session_id", "messages.id"]),
    Index(None, "session_id", "carrier_id"),
)
"""`message_id` is the response that made the call. `carrier_id` is the request that took the result to the
model and `place` its index among that request's parts; both are NULL until that request is appended."""

search_words = Table(
    "search_words",
    metadata,
    Column(
        "message_row_id",
        _ROW_ID,
        ForeignKey("messages.row_id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("words", Structure, nullable=False),
)

tool_words = Table(
    "tool_words",
    metadata,
    Column("row_id", _ROW_ID, primary_key=True),
    Column("session_id", Structure, nullable=False),
    Column("message_id", Structure, nullable=False),
    Column("tool_call_id", Structure, nullable=False),
    Column("words", Structure, nullable=False),
    UniqueConstraint("session_id", "message_id", "tool_call_id"),
    ForeignKeyConstraint(
        ["session_id", "message_id", "tool_call_id"],
        ["tool_results.session_id", "tool_results.message_id", "tool_results.tool_call_id"],
        ondelete="CASCADE",
    ),
)
"""What a call is found by: the words of tool name, arguments and result, for each row of `tool_results`."""

whole_results = Table(
    "whole_results",
    metadata,
    Column("session_id", Structure, ForeignKey("sessions.id", ondelete="CASCADE")),
    Column("path", Structure),
    Column("text", Content, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    PrimaryKeyConstraint("session_id", "path"),
)
"""Tool results that were too large for a context, whole; `path` is the file that the cut result names."""

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("session_id", Structure, ForeignKey("sessions.id", ondelete="CASCADE")),
    Column("id", Structure),
    Column("generation", Integer, nullable=False),
    Column("summary", Content, nullable=False),
    Column("first_kept_message_id", Structure),
    Column("through_message_id", Structure, nullable=False),
    Column("tokens_before", BigInteger, nullable=False),
    Column("tokens_after", BigInteger),
    Column("usage", Record),
    Column("retained_tail", Messages, nullable=False),
    Column("details", Record, nullable=False),
    Column("model", Structure),
    Column("created_at_ms", BigInteger, nullable=False),
    PrimaryKeyConstraint("session_id", "id"),
    UniqueConstraint("session_id", "generation"),
    ForeignKeyConstraint(
        ["session_id", "through_message_id"], ["messages.session_id", "messages.id"], ondelete="CASCADE"
    ),
    Index(None, "session_id", "through_message_id"),
)

events = Table(
    "events",
    metadata,
    Column("session_id", Structure, ForeignKey("sessions.id", ondelete="CASCADE")),
    Column("number", BigInteger),
    Column("at_ms", BigInteger, nullable=False),
    Column("type", Structure, nullable=False),
    Column("delegation_id", Structure),
    Column("payload", Record, nullable=False),
    PrimaryKeyConstraint("session_id", "number"),
)

grants = Table(
    "grants",
    metadata,
    Column("session_id", Structure, ForeignKey("sessions.id", ondelete="CASCADE")),
    Column("rule", Content),
    Column("allowed", Boolean, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    PrimaryKeyConstraint("session_id", "rule"),
)

settings = Table(
    "settings",
    metadata,
    Column("scope", Structure),
    Column("key", Structure),
    Column("value", Record, nullable=False),
    Column("updated_at_ms", BigInteger, nullable=False),
    PrimaryKeyConstraint("scope", "key"),
)
