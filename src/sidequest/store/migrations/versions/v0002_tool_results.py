"""Tool results can be searched and are kept whole, and a session knows what it has spent."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

ROW_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Add two tables and a column, and index the results that are there."""
    op.add_column("sessions", sa.Column("spent_usd", sa.Double, nullable=False, server_default="0"))
    op.create_table(
        "whole_results",
        sa.Column("session_id", sa.Text, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("session_id", "path", name="pk_whole_results"),
        sa.ForeignKeyConstraint(
            ["session_id"], ["sessions.id"], name="fk_whole_results_session_id", ondelete="CASCADE"
        ),
    )
    op.create_table(
        "tool_words",
        sa.Column("row_id", ROW_ID, nullable=False),
        sa.Column("session_id", sa.Text, nullable=False),
        sa.Column("message_id", sa.Text, nullable=False),
        sa.Column("tool_call_id", sa.Text, nullable=False),
        sa.Column("words", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("row_id", name="pk_tool_words"),
        sa.UniqueConstraint(
            "session_id",
            "message_id",
            "tool_call_id",
            name="uq_tool_words_session_id_message_id_tool_call_id",
        ),
        sa.ForeignKeyConstraint(
            ["session_id", "message_id", "tool_call_id"],
            ["tool_results.session_id", "tool_results.message_id", "tool_results.tool_call_id"],
            name="fk_tool_words_session_id_message_id_tool_call_id",
            ondelete="CASCADE",
        ),
    )
    if op.get_bind().dialect.name == "sqlite":
        _search_in_sqlite()
    else:
        _search_in_postgresql()
    _index_what_is_there(op.get_bind())


def _search_in_sqlite() -> None:
    op.execute(
        "CREATE VIRTUAL TABLE tool_index USING fts5(words, content='tool_words', "
        "content_rowid='row_id', tokenize='unicode61 remove_diacritics 0')"
    )
    op.execute(
        "CREATE TRIGGER tool_words_inserted AFTER INSERT ON tool_words BEGIN "
        "INSERT INTO tool_index (rowid, words) VALUES (new.row_id, new.words); END"
    )
    op.execute(
        "CREATE TRIGGER tool_words_deleted AFTER DELETE ON tool_words BEGIN "
        "INSERT INTO tool_index (tool_index, rowid, words) VALUES ('delete', old.row_id, old.words); END"
    )


def _search_in_postgresql() -> None:
    op.execute(
        "ALTER TABLE tool_words ADD COLUMN lexemes tsvector "
        "GENERATED ALWAYS AS (array_to_tsvector(string_to_array(words, ' '))) STORED"
    )
    op.create_index("ix_tool_words_lexemes", "tool_words", ["lexemes"], postgresql_using="gin")


def _index_what_is_there(connection: sa.Connection) -> None:
    """Index by the rules of today, which `sessions verify` compares with; an index is nothing but derived."""
    joined = "FROM tool_results r JOIN messages m ON m.session_id = r.session_id AND m.id = r.message_id "
    order = "ORDER BY m.row_id, r.created_at_ms, r.tool_call_id"
    keys = connection.execute(
        sa.text(f"SELECT r.session_id, r.message_id, r.tool_call_id {joined}{order}")
    ).all()
    if not keys:
        return
    from sidequest.store.call_words import words_of_row

    one = sa.text(
        f"SELECT m.payload AS message, r.payload AS result {joined} WHERE r.session_id = :session_id "
        "AND r.message_id = :message_id AND r.tool_call_id = :tool_call_id"
    )
    insert = sa.text(
        "INSERT INTO tool_words (session_id, message_id, tool_call_id, words) "
        "VALUES (:session_id, :message_id, :tool_call_id, :words)"
    )
    for found in keys:
        key = dict(found._mapping)
        row = connection.execute(one, key).one()
        words = words_of_row(row.message, row.result, found.tool_call_id)
        if words is not None:
            connection.execute(insert, key | {"words": words})
