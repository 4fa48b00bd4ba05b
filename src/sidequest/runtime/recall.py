"""The tool recall: search and read what a compaction took out of the context (specification 2.12)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.tools import Tool
from pydantic_ai.toolsets import FunctionToolset

from sidequest.core.errors import SidequestError

if TYPE_CHECKING:
    from sidequest.store.store import Store

MAX_OUTPUT_CHARS = 16_384
"""Longest answer of a search, in characters, inclusive (specification 2.12)."""
RECALL_DESCRIPTION = (
    "Search and read earlier messages and tool results of this conversation, also those that were summarised "
    "away. With query: messages, and calls with arguments and result, that contain every word, newest first, "
    "with their ids. With messageId: that message or result (MESSAGE:N) in full, from offset, limit "
    "characters."
)


class Recall:
    """Reads one lane of a stored session: the parent's for None, else that of a chain of delegations."""

    def __init__(self, store: Store, session_id: str, delegation_ids: Sequence[str] | None = None) -> None:
        self._store = store
        self._session_id = session_id
        self._lanes: Sequence[str | None] = [None] if delegation_ids is None else list(delegation_ids)

    def toolset(self) -> FunctionToolset[Any]:
        """Return the tool."""
        return FunctionToolset([Tool(self.recall, name="recall", description=RECALL_DESCRIPTION)])

    async def recall(
        self,
        query: str | None = None,
        messageId: str | None = None,  # noqa: N803 - the names are the tool's contract
        offset: int = 0,
        limit: int | None = None,
    ) -> str:
        """Recall.

        Args:
            query: Words that must all appear.
            messageId: Read this message or result instead of searching.
            offset: Characters to skip when reading.
            limit: Most matches (10, at most 25) or, when reading, most characters (8000, at most 20000).
        """
        try:
            if messageId:
                return await self._read(messageId, offset, limit or 8_000)
            if query and query.strip():
                return await self._find(query, limit or 10)
        except SidequestError as error:
            raise ToolFailed(f"{error.cause} {error.remedy}".strip()) from error
        raise ToolFailed("Give query to search or messageId to read.")

    async def _find(self, query: str, limit: int) -> str:
        matches = await self._store.search.find(self._session_id, query, limit=limit, lanes=self._lanes)
        if not matches:
            return "No earlier message or tool result contains all of these words. Try fewer or other words."
        lines = [
            f"{match.result_id} (result of {match.tool}): {match.excerpt}"
            if match.result_id
            else f"{match.message_id} ({match.kind}): {match.excerpt}"
            for match in matches
        ]
        text = "\n".join(lines)
        return text if len(text) <= MAX_OUTPUT_CHARS else text[: MAX_OUTPUT_CHARS - 1] + "…"

    async def _read(self, message_id: str, offset: int, limit: int) -> str:
        page = await self._store.search.read(
            self._session_id, message_id, offset=offset, limit=limit, lanes=self._lanes
        )
        more = (
            f"\n[… read on with offset={page.next_offset} of {page.total_chars} …]"
            if page.next_offset
            else ""
        )
        return page.text + more
