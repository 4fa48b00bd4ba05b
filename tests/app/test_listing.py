"""The list of sessions says what happens in each."""

from __future__ import annotations

import asyncio

import pytest

from sidequest.core.permissions import Action
from sidequest.surfaces.app.listing import Activity, list_sessions
from tests.app.conftest import Opened

pytestmark = pytest.mark.anyio


async def test_each_session_says_what_happens_in_it(opened: Opened) -> None:
    async with opened() as application, opened() as other:
        idle, working, asking = [await application.live.create(title=name) for name in ("a", "b", "c")]
        elsewhere = await other.live.create(title="d")
        await application.live.prompt(working.id, "Where is BERTH_LIMIT defined?")
        questions = asking.session.rights.questions
        asked = asyncio.create_task(questions.ask(("parent",), Action("Bash", command="ls"), {}, "a command"))
        await asyncio.sleep(0)
        listing = await list_sessions(application)
        assert {listed.row.id: listed.activity for listed in listing.sessions} == {
            idle.id: Activity.IDLE,
            working.id: Activity.WORKING,
            asking.id: Activity.ASKING,
            elsewhere.id: Activity.ELSEWHERE,
        }
        questions.deny_all()
        await asked


async def test_a_page_says_whether_there_are_more(opened: Opened) -> None:
    async with opened() as application:
        for name in ("one", "two", "three"):
            await application.live.create(title=name)
        first = await list_sessions(application, limit=2)
        assert (len(first.sessions), first.more) == (2, True)
        every = await list_sessions(application, limit=3)
        assert (len(every.sessions), every.more) == (3, False)
        found = await list_sessions(application, "two")
        assert [listed.row.title for listed in found.sessions] == ["two"]
