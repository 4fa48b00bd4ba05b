"""Delegations over HTTP."""

from __future__ import annotations

import pytest

from tests.api.conftest import QUESTION, Api, ApiFactory
from tests.app.test_live import until

pytestmark = pytest.mark.anyio


async def first_of(it: Api, key: str) -> str:
    """Return the id of the first delegation of a session."""
    return (await it.get(f"/sessions/{key}/delegations"))["delegations"][0]["id"]


async def test_a_delegation_is_listed_and_read_with_brief_report_and_facts(api: ApiFactory) -> None:
    async with api() as it:
        key = await it.begin()
        await it.ask(key)
        (listed,) = (await it.get(f"/sessions/{key}/delegations"))["delegations"]
        assert (listed["number"], listed["status"], listed["sessionId"]) == (1, "completed", key)
        assert "report" not in listed
        whole = await it.get(f"/sessions/{key}/delegations/{listed['id']}")
        assert QUESTION in whole["brief"]
        assert "harbour.py:1" in whole["report"]
        assert (whole["outcome"]["turns"], whole["definition"]["name"]) == (whole["turns"], whole["agent"])


async def test_one_that_is_not_there_or_of_another_session_is_not_found(api: ApiFactory) -> None:
    async with api() as it:
        key, other = await it.begin(), await it.begin()
        await it.ask(key)
        delegation = await first_of(it, key)
        for path in (f"{key}/delegations/nobody", f"{other}/delegations/{delegation}"):
            assert (await it.get(f"/sessions/{path}", 404))["code"] == "DELEGATION_UNKNOWN"
            assert (await it.post(f"/sessions/{path}/stop", status=404))["code"] == "DELEGATION_UNKNOWN"
            body = {"instruction": "Go on."}
            assert (await it.post(f"/sessions/{path}/resume", body, 404))["code"] == "DELEGATION_UNKNOWN"


async def test_a_resume_goes_on_in_the_same_chain_and_its_events_follow(api: ApiFactory) -> None:
    async with api() as it:
        key = await it.begin()
        await it.ask(key)
        first = await first_of(it, key)
        accepted = await it.post(
            f"/sessions/{key}/delegations/{first}/resume", {"instruction": "Look once more."}, 202
        )
        await it.done(key)
        old, new = (await it.get(f"/sessions/{key}/delegations"))["delegations"]
        assert (new["resumedFrom"], new["chainId"], new["status"]) == (first, old["chainId"], "completed")
        events = (await it.get(f"/sessions/{key}/events?after={accepted['after']}"))["events"]
        assert [event["delegationId"] for event in events if event["type"] == "delegation_started"] == [
            new["id"]
        ]


async def test_a_resume_says_what_is_missing(api: ApiFactory) -> None:
    async with api() as it:
        key = await it.begin()
        await it.ask(key)
        path = f"/sessions/{key}/delegations/{await first_of(it, key)}/resume"
        assert (await it.post(path, {"instruction": " "}, 422))["code"] == "USAGE"


async def test_what_cannot_be_gone_on_with_is_refused_before_it_is_accepted(api: ApiFactory) -> None:
    async with api() as it:
        key = await it.begin()
        for _ in range(3):
            await it.ask(key)
        path = f"/sessions/{key}/delegations/{await first_of(it, key)}/resume"
        problem = await it.post(path, {"instruction": "Go on."}, 422)
        assert problem["code"] == "SUBAGENT_INVALID"
        assert problem["title"] == ("explorer has newer work: of each subagent the newest 2 can be resumed.")
        assert "resume left out" not in problem["remedy"]


async def test_a_stop_of_what_has_ended_changes_nothing(api: ApiFactory) -> None:
    async with api() as it:
        key = await it.begin()
        await it.ask(key)
        path = f"/sessions/{key}/delegations/{await first_of(it, key)}"
        before = await it.get(path)
        await it.post(f"{path}/stop", status=204)
        assert await it.get(path) == before


async def test_a_delegation_that_runs_is_stopped(api: ApiFactory) -> None:
    async with api() as it:
        key = await it.begin()
        await it.post(f"/sessions/{key}/prompts", {"text": QUESTION}, 202)
        live = it.application.live.get(key)
        assert live is not None
        await until(lambda: bool(live.session.delegations.records.running()))
        (record,) = live.session.delegations.records.running()
        await it.post(f"/sessions/{key}/delegations/{record.id}/stop", status=204)
        assert (await it.get(f"/sessions/{key}/delegations/{record.id}"))["status"] == "stopped"
        await it.done(key)
