"""Sessions, messages, tool results, delegations, checkpoints, events, grants, settings, search, the view."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

ROW_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Make the first schema in an empty database."""
    _sessions()
    _delegations()
    _messages()
    _tool_results()
    _checkpoints()
    _side_tables()
    if op.get_bind().dialect.name == "sqlite":
        _search_in_sqlite()
        op.execute(VIEW.format(**SQLITE_WORDS))
    else:
        _search_in_postgresql()
        op.execute(VIEW.format(**POSTGRESQL_WORDS))


def _sessions() -> None:
    op.create_table(
        "sessions",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("root", sa.Text),
        sa.Column("model", sa.Text),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.Column("updated_at_ms", sa.BigInteger, nullable=False),
        sa.Column("forked_from", sa.Text),
        sa.Column("forked_through", sa.Text),
        sa.PrimaryKeyConstraint("id", name="pk_sessions"),
    )
    op.create_index("ix_sessions_updated_at_ms", "sessions", ["updated_at_ms"])
    op.create_table(
        "leases",
        sa.Column("session_id", sa.Text, nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("pid", sa.BigInteger, nullable=False),
        sa.Column("since_ms", sa.BigInteger, nullable=False),
        sa.Column("expires_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("session_id", name="pk_leases"),
        _of_session("leases"),
    )


def _delegations() -> None:
    op.create_table(
        "delegations",
        sa.Column("session_id", sa.Text, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("chain_id", sa.Text, nullable=False),
        sa.Column("resumed_from", sa.Text),
        sa.Column("agent", sa.Text, nullable=False),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("task", sa.Text, nullable=False),
        sa.Column("brief", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("context_mode", sa.Text, nullable=False),
        sa.Column("definition", sa.Text, nullable=False),
        sa.Column("parent_message_id", sa.Text),
        sa.Column("parent_tool_call_id", sa.Text),
        sa.Column("started_after", sa.BigInteger, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("turns", sa.Integer, nullable=False),
        sa.Column("tool_calls", sa.Integer, nullable=False),
        sa.Column("tokens", sa.BigInteger, nullable=False),
        sa.Column("last_tool", sa.Text),
        sa.Column("outcome", sa.Text),
        sa.Column("report", sa.Text),
        sa.Column("delivered", sa.Boolean, nullable=False),
        sa.Column("delivered_by", sa.Text),
        sa.Column("started_at_ms", sa.BigInteger, nullable=False),
        sa.Column("updated_at_ms", sa.BigInteger, nullable=False),
        sa.Column("completed_at_ms", sa.BigInteger),
        sa.PrimaryKeyConstraint("session_id", "id", name="pk_delegations"),
        sa.UniqueConstraint("session_id", "number", name="uq_delegations_session_id_number"),
        _of_session("delegations"),
        sa.ForeignKeyConstraint(
            ["session_id", "resumed_from"],
            ["delegations.session_id", "delegations.id"],
            name="fk_delegations_session_id_resumed_from",
            ondelete="CASCADE",
        ),
    )
    op.create_index("ix_delegations_id", "delegations", ["id"])
    op.create_index("ix_delegations_session_id_chain_id", "delegations", ["session_id", "chain_id"])
    op.create_index("ix_delegations_session_id_resumed_from", "delegations", ["session_id", "resumed_from"])


def _messages() -> None:
    op.create_table(
        "messages",
        sa.Column("row_id", ROW_ID, nullable=False),
        sa.Column("session_id", sa.Text, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("delegation_id", sa.Text),
        sa.Column("agent", sa.Text),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("payload", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("tokens", sa.BigInteger, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("row_id", name="pk_messages"),
        sa.UniqueConstraint("session_id", "id", name="uq_messages_session_id_id"),
        _of_session("messages"),
        sa.ForeignKeyConstraint(
            ["session_id", "delegation_id"],
            ["delegations.session_id", "delegations.id"],
            name="fk_messages_session_id_delegation_id",
            ondelete="CASCADE",
        ),
        sa.CheckConstraint("kind IN ('request', 'response')", name="ck_messages_kind"),
    )
    _lane("uq_messages_parent_lane", ["session_id", "position"], "delegation_id IS NULL")
    _lane(
        "uq_messages_delegation_lane",
        ["session_id", "delegation_id", "position"],
        "delegation_id IS NOT NULL",
    )


def _lane(name: str, columns: list[str], where: str) -> None:
    op.create_index(
        name,
        "messages",
        columns,
        unique=True,
        sqlite_where=sa.text(where),
        postgresql_where=sa.text(where),
    )


def _tool_results() -> None:
    op.create_table(
        "tool_results",
        sa.Column("session_id", sa.Text, nullable=False),
        sa.Column("message_id", sa.Text, nullable=False),
        sa.Column("tool_call_id", sa.Text, nullable=False),
        sa.Column("tool_name", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("payload", sa.Text, nullable=False),
        sa.Column("tokens", sa.BigInteger, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.Column("carrier_id", sa.Text),
        sa.Column("place", sa.Integer),
        sa.PrimaryKeyConstraint("session_id", "message_id", "tool_call_id", name="pk_tool_results"),
        sa.ForeignKeyConstraint(
            ["session_id", "message_id"],
            ["messages.session_id", "messages.id"],
            name="fk_tool_results_session_id_message_id",
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["session_id", "carrier_id"],
            ["messages.session_id", "messages.id"],
            name="fk_tool_results_session_id_carrier_id",
        ),
    )
    op.create_index("ix_tool_results_session_id_carrier_id", "tool_results", ["session_id", "carrier_id"])


def _checkpoints() -> None:
    op.create_table(
        "checkpoints",
        sa.Column("session_id", sa.Text, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("summary", sa.Text, nullable=False),
        sa.Column("first_kept_message_id", sa.Text),
        sa.Column("through_message_id", sa.Text, nullable=False),
        sa.Column("tokens_before", sa.BigInteger, nullable=False),
        sa.Column("tokens_after", sa.BigInteger),
        sa.Column("usage", sa.Text),
        sa.Column("retained_tail", sa.Text, nullable=False),
        sa.Column("details", sa.Text, nullable=False),
        sa.Column("model", sa.Text),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("session_id", "id", name="pk_checkpoints"),
        sa.UniqueConstraint("session_id", "generation", name="uq_checkpoints_session_id_generation"),
        _of_session("checkpoints"),
        sa.ForeignKeyConstraint(
            ["session_id", "through_message_id"],
            ["messages.session_id", "messages.id"],
            name="fk_checkpoints_session_id_through_message_id",
            ondelete="CASCADE",
        ),
    )
    op.create_index(
        "ix_checkpoints_session_id_through_message_id", "checkpoints", ["session_id", "through_message_id"]
    )


def _side_tables() -> None:
    op.create_table(
        "events",
        sa.Column("session_id", sa.Text, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("delegation_id", sa.Text),
        sa.Column("payload", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("session_id", "number", name="pk_events"),
        _of_session("events"),
    )
    op.create_table(
        "grants",
        sa.Column("session_id", sa.Text, nullable=False),
        sa.Column("rule", sa.Text, nullable=False),
        sa.Column("allowed", sa.Boolean, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("session_id", "rule", name="pk_grants"),
        _of_session("grants"),
    )
    op.create_table(
        "settings",
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.Column("updated_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("scope", "key", name="pk_settings"),
    )
    op.create_table(
        "search_words",
        sa.Column("message_row_id", ROW_ID, nullable=False, autoincrement=False),
        sa.Column("words", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("message_row_id", name="pk_search_words"),
        sa.ForeignKeyConstraint(
            ["message_row_id"],
            ["messages.row_id"],
            name="fk_search_words_message_row_id",
            ondelete="CASCADE",
        ),
    )


def _of_session(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["session_id"], ["sessions.id"], name=f"fk_{table}_session_id", ondelete="CASCADE"
    )


def _search_in_sqlite() -> None:
    # The words are folded and split by us, so that both databases find the same: nothing is folded again.
    op.execute(
        "CREATE VIRTUAL TABLE search_index USING fts5(words, content='search_words', "
        "content_rowid='message_row_id', tokenize='unicode61 remove_diacritics 0')"
    )
    op.execute(
        "CREATE TRIGGER search_words_inserted AFTER INSERT ON search_words BEGIN "
        "INSERT INTO search_index (rowid, words) VALUES (new.message_row_id, new.words); END"
    )
    op.execute(
        "CREATE TRIGGER search_words_deleted AFTER DELETE ON search_words BEGIN "
        "INSERT INTO search_index (search_index, rowid, words) "
        "VALUES ('delete', old.message_row_id, old.words); END"
    )


def _search_in_postgresql() -> None:
    op.execute(
        "ALTER TABLE search_words ADD COLUMN lexemes tsvector "
        "GENERATED ALWAYS AS (array_to_tsvector(string_to_array(words, ' '))) STORED"
    )
    op.create_index("ix_search_words_lexemes", "search_words", ["lexemes"], postgresql_using="gin")


VIEW = """
CREATE VIEW readable_transcript AS
SELECT s.id AS session_id, s.title, m.delegation_id, m.position, 0 AS part,
       {moment} AS at_utc,
       CASE WHEN m.kind = 'request' THEN 'user' ELSE coalesce(m.agent, 'assistant') END AS who,
       m.text AS text,
       {calls} AS calls,
       m.id AS message_id, m.row_id AS row_id
FROM messages m JOIN sessions s ON s.id = m.session_id
WHERE m.kind = 'response' OR m.text <> ''
UNION ALL
SELECT s.id, s.title, m.delegation_id, m.position, {number},
       {result_moment},
       'tool ' || r.tool_name,
       {content},
       CASE WHEN r.outcome = 'success' THEN NULL ELSE r.outcome END,
       m.id, m.row_id
FROM tool_results r
JOIN messages m ON m.session_id = r.session_id AND m.id = r.message_id
JOIN sessions s ON s.id = r.session_id
"""
"""For people: `SELECT * FROM readable_transcript WHERE session_id = '...' ORDER BY row_id, part`."""

SQLITE_WORDS = {
    "moment": "strftime('%Y-%m-%d %H:%M:%S', m.created_at_ms / 1000, 'unixepoch')",
    "result_moment": "strftime('%Y-%m-%d %H:%M:%S', r.created_at_ms / 1000, 'unixepoch')",
    "calls": (
        "(SELECT group_concat(json_extract(p.value, '$.tool_name'), ', ') "
        "FROM json_each(m.payload, '$.parts') p "
        "WHERE json_extract(p.value, '$.part_kind') = 'tool-call')"
    ),
    "content": "json_extract(r.payload, '$.content')",
    "number": (
        "(SELECT 1 + count(*) FROM tool_results o WHERE o.session_id = r.session_id "
        "AND o.message_id = r.message_id AND (o.created_at_ms, o.tool_call_id) "
        "< (r.created_at_ms, r.tool_call_id))"
    ),
}
POSTGRESQL_WORDS = {
    "moment": "to_char(to_timestamp(m.created_at_ms / 1000) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS')",
    "result_moment": (
        "to_char(to_timestamp(r.created_at_ms / 1000) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS')"
    ),
    "calls": (
        "(SELECT string_agg(p ->> 'tool_name', ', ') "
        "FROM json_array_elements(m.payload::json -> 'parts') p "
        "WHERE p ->> 'part_kind' = 'tool-call')"
    ),
    "content": "r.payload::json ->> 'content'",
    "number": SQLITE_WORDS["number"],
}
