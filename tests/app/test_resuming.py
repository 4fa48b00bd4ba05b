"""What can be resumed is the same for who has the session open and for who reads its rows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sidequest.core.errors import SidequestError
from sidequest.core.outcome import Status
from sidequest.surfaces.app.application import Application
from sidequest.surfaces.app.resuming import resumable_now, resumable_rows
from tests.app.conftest import Opened
from tests.app.test_live import QUESTION, answered, done

pytestmark = pytest.mark.anyio


async def usable(application: Application, key: str) -> list[int]:
    """Return the numbers of the delegations that can be resumed; both ways of looking agree."""
    rows = await application.store.delegations.list(key)
    by_rows = resumable_rows(rows)
    now = resumable_now(application.live.get(key), frozenset(), working=False)
    assert now == by_rows
    return [row.number for row in rows if row.id in by_rows]


async def test_the_newest_of_two_chains_of_each_subagent(opened: Opened) -> None:
    async with opened() as application:
        key = await answered(application)
        assert await usable(application, key) == [1]
        for _ in range(2):
            await application.live.prompt(key, QUESTION)
            await done(await application.live.open(key))
        assert await usable(application, key) == [2, 3]
        rows = await application.store.delegations.list(key)
        await done(await application.live.resume(key, rows[1].id, "Look once more."))
        assert await usable(application, key) == [3, 4]


async def test_nothing_while_the_session_works(opened: Opened) -> None:
    async with opened() as application:
        key = await answered(application)
        live = await application.live.prompt(key, QUESTION)
        assert resumable_now(live, frozenset({"d1"}), working=False) == frozenset()
        await application.live.stop(key)


async def test_nothing_that_was_stopped_and_a_person_is_told_why(opened: Opened) -> None:
    async with opened() as application:
        key = await answered(application)
        live = await application.live.open(key)
        (row,) = await application.store.delegations.list(key)
        record = live.session.delegations.records.get(row.id)
        assert record is not None and record.outcome is not None
        record.outcome = replace(record.outcome, status=Status.STOPPED)
        with pytest.raises(SidequestError, match="what was stopped is not resumed"):
            await application.live.resume(key, row.id, "Go on.")
        assert not live.busy
