"""recall: what a compaction took away can be searched and read, each lane by itself."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart

from sidequest.runtime.recall import MAX_OUTPUT_CHARS, Recall
from sidequest.store.rows import NewMessage, NewSession
from sidequest.store.store import Store


async def stored(folder: Path) -> Store:
    """A session with one question and its answer."""
    store = await Store.open(str(folder / "s.db"), env={})
    await store.sessions.create(NewSession("s", 1))
    question = ModelRequest(parts=[UserPromptPart("Where is the lantern kept?")])
    answer = ModelResponse(parts=[TextPart("The lantern hangs in the boat house. " * 400)])
    await store.transcript.append("s", [NewMessage("m1", question, 2), NewMessage("m2", answer, 3)])
    return store


def test_a_search_names_messages_and_reading_gives_them_in_pages(tmp_path: Path) -> None:
    async def case() -> None:
        async with await stored(tmp_path) as store:
            recall = Recall(store, "s").recall
            found = await recall("lantern boat")
            assert re.match(r"m2 \(response\): .*boat house", found)
            first = await recall(messageId="m2")
            assert first.startswith("The lantern hangs")
            (offset,) = map(int, re.findall(r"offset=(\d+)", first))
            rest = await recall(messageId="m2", offset=offset)
            assert first.split("\n[…")[0] + rest == await recall(messageId="m2", limit=20_000)
            assert len(await recall("lantern", limit=25)) <= MAX_OUTPUT_CHARS

    asyncio.run(case())


def test_nothing_found_and_nothing_asked_are_said(tmp_path: Path) -> None:
    async def case() -> None:
        async with await stored(tmp_path) as store:
            recall = Recall(store, "s").recall
            assert "No earlier message" in await recall("submarine")
            with pytest.raises(ToolFailed, match="query"):
                await recall()
            with pytest.raises(ToolFailed, match="no message"):
                await recall(messageId="nope")

    asyncio.run(case())


def test_a_delegate_reads_its_own_chain_and_not_the_parent(tmp_path: Path) -> None:
    async def case() -> None:
        async with await stored(tmp_path) as store:
            assert "No earlier message" in await Recall(store, "s", ["d1"]).recall("lantern")

    asyncio.run(case())
