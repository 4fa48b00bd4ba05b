"""What a session may spend: counted over all processes, summaries included, and refused when it is spent."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from pydantic_ai.messages import ModelResponse
from pydantic_ai.usage import RequestUsage

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.outcome import Status, StopReason
from tests.durable.desk import Room, in_a_loop
from tests.durable.test_journal import READ
from tests.support.scripted_model import SHORT_SUMMARY, ScriptedModel, saying
from tests.support.sessions import session


def costing(usd: float, answer: ModelResponse) -> ModelResponse:
    return replace(answer, usage=RequestUsage(input_tokens=10, cost=Decimal(str(usd))))


def spent_all() -> pytest.RaisesExc[SidequestError]:
    return pytest.raises(SidequestError, match="max_cost_usd")


@pytest.mark.parametrize("killed", [False, True])
@in_a_loop
async def test_the_account_goes_on_in_the_next_process(room: Room, killed: bool) -> None:
    model = ScriptedModel(costing(0.75, saying("One.")), costing(0.5, saying("Two.")))
    async with room.desk(model, max_cost_usd=1.0) as desk:
        await desk.prompt("Go.")
        key = desk.id
        if killed:
            await desk.die()
    async with room.desk(model, continues=key, max_cost_usd=1.0) as desk:
        assert desk.session.delegations.account.spent_usd == pytest.approx(0.75)
        await desk.session.prompt("And?")
        assert (await desk.store.sessions.get(key)).spent_usd == pytest.approx(1.25)
    async with room.desk(model, continues=key, max_cost_usd=1.0) as desk:
        with spent_all() as caught:
            await desk.session.prompt("And?")
        assert caught.value.code is ErrorCode.SUBAGENT_COST_LIMIT
        with spent_all():
            await desk.session.compact()
        assert len(model.asked) == 2
    async with room.desk(ScriptedModel("Three."), continues=key, max_cost_usd=2.0) as desk:
        await desk.prompt("And now?")


@in_a_loop
async def test_what_delegates_spend_counts_and_none_is_started_when_all_is_spent(room: Room) -> None:
    child = ScriptedModel(costing(1.5, saying("Found.")))
    async with room.desk(ScriptedModel(), child, max_cost_usd=1.0) as desk:
        await desk.session.delegate("helper", "Look.")
        with spent_all():
            await desk.session.delegate("helper", "Look again.")
        assert len(child.asked) == 1
        assert (await desk.store.sessions.get(desk.id)).spent_usd == pytest.approx(1.5)
        assert len(await desk.delegations()) == 1


@in_a_loop
async def test_a_delegation_that_had_not_asked_anything_when_all_was_spent_asks_nothing(room: Room) -> None:
    child = ScriptedModel()
    async with room.desk(ScriptedModel(), child, max_cost_usd=1.0) as desk:
        started = desk.session.delegations._launch

        def late(*args):  # type: ignore[no-untyped-def]
            desk.session.delegations.account.spend("another", 1.0)
            return started(*args)

        desk.session.delegations._launch = late  # type: ignore[method-assign]
        outcome = await desk.session.delegate("helper", "Look.")
        assert (outcome.status, outcome.stop_reason) == (Status.FAILED, StopReason.COST_LIMIT)
        assert child.asked == []


@in_a_loop
async def test_a_fork_has_an_account_of_its_own(room: Room) -> None:
    async with room.desk(ScriptedModel(costing(1.5, saying("One.")), "Two."), max_cost_usd=1.0) as desk:
        await desk.prompt("Go.")
        async with desk.session.fork() as fork:
            await fork.attach(room.store)  # type: ignore[arg-type]
            assert (await fork.prompt("Go on.")).ok


@in_a_loop
async def test_summaries_are_spent_from_it(room: Room) -> None:
    summary = costing(0.5, saying(SHORT_SUMMARY))
    async with room.desk(ScriptedModel("One. " * 500, "Two.", summary=summary), max_cost_usd=2.0) as desk:
        await desk.prompt("Go.")
        await desk.prompt("Go on.")
        await desk.session.compact()
        assert desk.session.delegations.account.spent_usd == pytest.approx(0.5)
    async with room.desk(ScriptedModel(), continues=desk.id, max_cost_usd=2.0) as desk:
        assert desk.session.delegations.account.spent_usd == pytest.approx(0.5)


@in_a_loop
async def test_summaries_within_a_turn_too_also_those_that_cannot_be_used(room: Room) -> None:
    (room.root / "long.txt").write_text("word " * 1_500)
    read = replace(READ, parts=[replace(READ.parts[0], args={"path": "long.txt"})])  # type: ignore[type-var]
    model = ScriptedModel(read, read, read, "Done.", summary=costing(0.25, saying("Half", "length")))
    async with room.desk(model, window=6_000, max_tokens=1_000) as desk:
        await desk.session.prompt("Go.")
        assert len(model.summaries) >= 1
        spent = desk.session.delegations.account.spent_usd
        assert spent == pytest.approx(0.25 * len(model.summaries))


def test_in_memory_it_is_refused_too(tmp_path) -> None:  # type: ignore[no-untyped-def]
    import asyncio

    async def case() -> None:
        model = ScriptedModel(costing(1.0, saying("One.")))
        async with session(tmp_path, model, max_cost_usd=1.0) as opened:
            await opened.prompt("Go.")
            with spent_all():
                await opened.prompt("Go on.")
            assert len(model.asked) == 1

    asyncio.run(case())
