"""Secrets that a session knows or meets are not stored, also not in two halves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from pydantic_ai.models.function import AgentInfo, FunctionModel

from sidequest import Session
from sidequest.models.bindings import ModelEntry
from sidequest.models.registry import ModelRegistry
from sidequest.store import Store
from tests.support.scripted_model import ScriptedModel, calling
from tests.support.sessions import helper, session

KEY = "sk-very-secret-key-1234567"


async def stored_bytes(url: Path) -> bytes:
    return b"".join(path.read_bytes() for path in url.parent.glob(f"{url.name}*"))


async def told_texts(store: Store, session_id: str) -> str:
    rows = await store.events.after(session_id)
    return "".join(row.data["text"] for row in rows if row.type == "text")


def test_the_keys_of_the_configured_models_are_masked_when_python_attaches_a_session(tmp_path: Path) -> None:
    async def run() -> None:
        entry = ModelEntry(base_url="http://127.0.0.1:1/v1", api_key=SecretStr(KEY))
        registry = ModelRegistry(entries={"work/qwen": entry}, env={})
        async with await Store.open(str(tmp_path / "store.db"), env={}) as store:
            async with Session.open(tmp_path, registry=registry, model="offline/extractive") as opened:
                await opened.attach(store)
                await opened.prompt(f"Is {KEY} the key?")
            (row,) = await store.sessions.list()
            assert row.title == "Is [masked] the key?"
        assert KEY[:10].encode() not in await stored_bytes(tmp_path / "store.db")

    asyncio.run(run())


@pytest.mark.parametrize("at_once", [1, 6])
def test_a_streamed_secret_is_stored_in_no_pieces_and_nothing_of_the_text_is_lost(
    tmp_path: Path, at_once: int
) -> None:
    said = f"Token: {KEY}, not sk-very-secret-ke"

    async def stream(messages: Any, info: AgentInfo) -> AsyncIterator[str]:
        for start in range(0, len(said), at_once):
            yield said[start : start + at_once]

    async def run() -> None:
        model = FunctionModel(stream_function=stream)
        async with (
            await Store.open(str(tmp_path / "store.db"), env={"A_TOKEN": KEY}) as store,
            session(tmp_path, model, stream=True) as opened,
        ):
            await opened.attach(store)
            assert (await opened.prompt("Which?")).text == said
            told = await told_texts(store, opened.id)
        assert told == "Token: [masked], not sk-very-secret-ke"

    asyncio.run(run())


@pytest.mark.parametrize("before", range(50, 130, 9))
def test_titles_labels_and_summaries_of_calls_are_masked_before_they_are_cut(
    tmp_path: Path, before: int
) -> None:
    text = f"{'x' * before} {KEY}"
    parent = ScriptedModel(
        calling(("Task", {"agent": "helper", "task": text})), "Done.", "Done.", repeat=True
    )
    child = ScriptedModel(calling(("Read", {"path": text})), "Report.", repeat=True)

    async def run() -> None:
        async with (
            await Store.open(str(tmp_path / "store.db"), env={"A_TOKEN": KEY}) as store,
            session(tmp_path, parent, child, definitions=[helper()]) as opened,
        ):
            await opened.attach(store)
            await opened.prompt(text)
        assert b"x sk-" not in await stored_bytes(tmp_path / "store.db")

    asyncio.run(run())
