"""One gate per model: after a 429 nobody asks again too early, and then few at a time. Virtual time."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.function import FunctionModel

from sidequest.core.provider_errors import Meaning, classify, facts_from_exception
from sidequest.runtime.gate import DEFAULT_PAUSE_S, UNLIMITED_FROM, GatedModel, ModelGate, gate_for
from tests.support.chain import Link, run_chain
from tests.support.error_bodies import rate_limited
from tests.support.neutral import Seen
from tests.support.virtual_time import now, run_virtual

PROMPT: list[Any] = [ModelRequest(parts=[UserPromptPart("hello")])]


def gated(case: Coroutine[Any, Any, None]) -> None:
    run_virtual(case)


def new_gate() -> ModelGate:
    return ModelGate(now)


async def entered(gate: ModelGate) -> float:
    """Enter and return when that was."""
    await gate.enter()
    return now()


async def enter_all(gate: ModelGate, count: int) -> list[asyncio.Task[float]]:
    """Let `count` requests come, and give those that may pass the time to do so."""
    coming = [asyncio.create_task(entered(gate)) for _ in range(count)]
    await asyncio.sleep(0)
    return coming


async def passed(coming: list[asyncio.Task[float]]) -> int:
    """Return how many have entered by now."""
    for _ in range(3):
        await asyncio.sleep(0)
    return sum(task.done() for task in coming)


async def leave_alone(coming: list[asyncio.Task[float]]) -> None:
    for task in coming:
        task.cancel()
    await asyncio.gather(*coming, return_exceptions=True)


class TestModelGate:
    def test_before_any_rate_limit_everybody_passes_at_once(self) -> None:
        async def case() -> None:
            assert await passed(await enter_all(new_gate(), 200)) == 200
            assert now() == 0.0

        gated(case())

    @pytest.mark.parametrize(
        ("asked", "waited"), [(7.5, 7.5), (None, DEFAULT_PAUSE_S), (0.0, 0.0), (-3.0, 0.0)]
    )
    def test_after_a_rate_limit_nobody_passes_before_the_time_that_was_asked_for(
        self, asked: float | None, waited: float
    ) -> None:
        async def case() -> None:
            gate = new_gate()
            await gate.enter()
            gate.rate_limited(asked)
            gate.leave(answered=False)
            assert await entered(gate) == waited

        gated(case())

    def test_a_shorter_wait_does_not_cut_a_longer_one_short(self) -> None:
        async def case() -> None:
            gate = new_gate()
            gate.rate_limited(30)
            gate.rate_limited(1)
            assert await entered(gate) == 30.0

        gated(case())

    def test_a_rate_limit_that_comes_while_others_wait_prolongs_their_wait(self) -> None:
        async def case() -> None:
            gate = new_gate()
            gate.rate_limited(5)
            coming = await enter_all(gate, 1)
            gate.rate_limited(20)
            assert await coming[0] == 20.0

        gated(case())

    def test_each_rate_limit_halves_what_may_be_under_way_and_each_answer_adds_one(self) -> None:
        async def case() -> None:
            gate = new_gate()
            for _ in range(8):
                await gate.enter()
            gate.rate_limited(0)
            for _ in range(8):
                gate.leave(answered=False)
            coming = await enter_all(gate, 20)
            assert await passed(coming) == 4
            gate.leave(answered=True)
            assert await passed(coming) == 6, "one has left, and one more may be under way"
            gate.leave(answered=False)
            assert await passed(coming) == 7
            await leave_alone(coming)

        gated(case())

    def test_one_may_always_be_under_way(self) -> None:
        async def case() -> None:
            gate = new_gate()
            for _ in range(5):
                gate.rate_limited(0)
            coming = await enter_all(gate, 3)
            assert await passed(coming) == 1
            await leave_alone(coming)

        gated(case())

    def test_it_stops_counting_when_all_goes_well(self) -> None:
        async def case() -> None:
            gate = new_gate()
            gate.rate_limited(0)
            for _ in range(UNLIMITED_FROM):
                await gate.enter()
                gate.leave(answered=True)
            assert await passed(await enter_all(gate, 500)) == 500

        gated(case())

    def test_one_that_is_cancelled_while_it_waits_takes_no_place(self) -> None:
        async def case() -> None:
            gate = new_gate()
            gate.rate_limited(0)
            await gate.enter()
            waiting = await enter_all(gate, 3)
            await leave_alone(waiting[:2])
            gate.leave(answered=False)
            assert await passed(waiting[2:]) == 1

        gated(case())


def refused(status: int, said: str = "No.", **headers: str) -> ModelHTTPError:
    return ModelHTTPError(status, "m", {"error": {"message": said}}, headers=headers)


def meaning_of(error: Exception) -> Meaning:
    return classify(facts_from_exception(error))


class Provider:
    """Answers in order; an exception is raised. `times` are those of arrival."""

    def __init__(self, *answers: Any, takes: float = 0.0) -> None:
        self.times: list[float] = []
        self._answers = list(answers)
        self._takes = takes

    def through(self, gate: ModelGate) -> GatedModel:
        return GatedModel(FunctionModel(self._answer, stream_function=self._stream), gate, meaning_of)

    async def _next(self) -> str:
        self.times.append(now())
        await asyncio.sleep(self._takes)
        answer = self._answers.pop(0) if self._answers else "Done."
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    async def _answer(self, messages: Any, info: Any) -> ModelResponse:
        return ModelResponse(parts=[TextPart(await self._next())])

    async def _stream(self, messages: Any, info: Any) -> Any:
        yield await self._next()
        await asyncio.sleep(self._takes)
        yield " And more."


async def ask(model: GatedModel) -> None:
    await model.request(PROMPT, None, ModelRequestParameters())


async def ask_streamed(model: GatedModel) -> None:
    async with model.request_stream(PROMPT, None, ModelRequestParameters()) as stream:
        async for _ in stream:
            pass


WAYS = pytest.mark.parametrize("way", [ask, ask_streamed])


class TestGatedModel:
    @WAYS
    def test_a_429_makes_all_who_share_the_gate_wait(self, way: Any) -> None:
        async def case() -> None:
            gate, provider = new_gate(), Provider(refused(429, **{"retry-after": "9"}))
            one, other = provider.through(gate), provider.through(gate)
            with pytest.raises(ModelHTTPError):
                await way(one)
            await way(other)
            assert provider.times == [0.0, 9.0]

        gated(case())

    @pytest.mark.parametrize(
        "error",
        [
            refused(503),
            refused(400, "prompt is too long: 9 tokens > 8 maximum"),
            refused(429, "tokens per min (TPM): Limit 30000, Requested 342389"),
            refused(429, "insufficient_quota"),
        ],
        ids=["server", "overflow", "over the whole quota", "account is empty"],
    )
    def test_what_waiting_does_not_cure_makes_nobody_wait(self, error: Exception) -> None:
        async def case() -> None:
            gate, provider = new_gate(), Provider(error)
            with pytest.raises(ModelHTTPError):
                await ask(provider.through(gate))
            await ask(provider.through(gate))
            assert provider.times == [0.0, 0.0]

        gated(case())

    def test_a_rate_limit_under_another_status_makes_them_wait_too(self) -> None:
        async def case() -> None:
            gate, provider = new_gate(), Provider(refused(413, "Limit 6000, Requested 500 tokens per minute"))
            with pytest.raises(ModelHTTPError):
                await ask(provider.through(gate))
            await ask(provider.through(gate))
            assert provider.times == [0.0, DEFAULT_PAUSE_S]

        gated(case())

    @WAYS
    def test_a_request_that_is_cancelled_gives_its_place_back(self, way: Any) -> None:
        async def case() -> None:
            gate, provider = new_gate(), Provider(takes=60)
            gate.rate_limited(0)
            job = asyncio.create_task(way(provider.through(gate)))
            await asyncio.sleep(1)
            job.cancel()
            with pytest.raises(asyncio.CancelledError):
                await job
            assert await entered(gate) == 1.0

        gated(case())

    def test_a_stream_is_under_way_until_it_ends(self) -> None:
        async def case() -> None:
            gate, provider = new_gate(), Provider(takes=10)
            gate.rate_limited(0)
            jobs = [asyncio.create_task(ask_streamed(provider.through(gate))) for _ in range(2)]
            await asyncio.gather(*jobs)
            assert provider.times == [0.0, 20.0]

        gated(case())


class TestOnePerModel:
    def test_the_same_key_is_the_same_gate_and_another_key_another(self) -> None:
        async def case() -> None:
            assert gate_for("a/x", now, asyncio.sleep) is gate_for("a/x", now, asyncio.sleep)
            assert gate_for("a/x", now, asyncio.sleep) is not gate_for("a/y", now, asyncio.sleep)

        gated(case())

    def test_another_event_loop_has_gates_of_its_own(self) -> None:
        async def closed_for_ever() -> None:
            gate_for("a/x", now, asyncio.sleep).rate_limited(math.inf)

        async def open_here() -> None:
            assert await entered(gate_for("a/x", now, asyncio.sleep)) == 0.0

        gated(closed_for_ever())
        gated(open_here())

    def test_a_fallback_does_not_wait_for_the_model_before_it(self) -> None:
        def exhausted(seen: Seen) -> Any:
            return rate_limited(seen, 100)

        chain = run_chain(Link([exhausted] * 11), Link(["Done."]))
        assert chain.times[-1] == chain.times[-2] == 1_000.0
