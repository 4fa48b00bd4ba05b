"""The database commits, and its answer is lost: what is tried again is recognised and not there twice."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.store import Store
from tests.durable.desk import shown
from tests.support.scripted_model import ScriptedModel, calling
from tests.support.sessions import session


def lose_answer(store: Store, number: int) -> list[str]:
    """Let the `number`-th transaction that writes be told to have failed although it is committed."""
    real, hit = store._db._commit, list[str]()
    left = number

    async def commit(work: Any, then: Any) -> Any:
        nonlocal left
        result = await real(work, then)
        left -= 1
        if left == 0:
            hit.append(getattr(work, "__qualname__", "?"))
            raise SidequestError(ErrorCode.STORE_UNREACHABLE, "the answer is lost", "", retriable=True)
        return result

    store._db._commit = commit  # type: ignore[method-assign]
    return hit


def test_a_session_goes_on_whichever_answer_was_lost(empty_store: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x\n")

    async def run(number: int) -> bool:
        model = ScriptedModel(calling(("Read", {"path": "a.txt"})), "Read it.", repeat=True)
        url = str(shutil.copy(empty_store, tmp_path / f"{number}.db"))
        async with await Store.open(url, env={}) as store:
            async with session(tmp_path, model) as opened:
                await opened.attach(store)
                hit = lose_answer(store, number)
                for text in ("one", "two", "three"):
                    result = await opened.prompt(text)
                assert not hit or result.ok
                said = Counter(line for line in shown(await store.transcript.history(opened.id)))
                assert [said[f"user: {text}"] for text in ("one", "two", "three")] == [1, 1, 1]
                assert await store.events.newest_number(opened.id) == opened.log.newest
                assert await store.verify() == []
            return bool(hit)

    number = 1
    while asyncio.run(run(number)) and number < 12:
        number += 1
    assert number == 12
