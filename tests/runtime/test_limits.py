"""Limits: the last turn before one strikes is asked for a report, and money is counted for the whole tree."""

from __future__ import annotations

import asyncio

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from sidequest.core.events import Notice
from sidequest.core.outcome import Status, StopReason
from sidequest.runtime.limits import Account, Limits, LimitWatch
from tests.support.delegating import Bench


async def look() -> str:
    return "looked"


def curious(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Looks again and again, and reports only when no tool may be called."""
    if (info.model_settings or {}).get("tool_choice") == "none":
        return ModelResponse(parts=[TextPart("what I saw so far")])
    return ModelResponse(parts=[ToolCallPart("look", {})])


class Clock:
    def __init__(self, step: float) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


@pytest.mark.parametrize(
    ("limits", "turn", "elapsed", "spent", "expected"),
    [
        (Limits(), 500, 1e6, 1e6, None),
        (Limits(turns=10), 9, 0, 0, None),
        (Limits(turns=10), 10, 0, 0, StopReason.TURN_LIMIT),
        (Limits(seconds=100), 1, 79, 0, None),
        (Limits(seconds=100), 1, 80, 0, StopReason.TIME_LIMIT),
        (Limits(cost_usd=1.0), 1, 0, 0.49, None),
        (Limits(cost_usd=1.0), 1, 0, 0.50, StopReason.COST_LIMIT),
    ],
)
def test_the_last_turn_comes_before_the_limit(
    limits: Limits, turn: int, elapsed: float, spent: float, expected: StopReason | None
) -> None:
    now = [0.0]
    watch = LimitWatch(limits, clock=lambda: now[0])
    watch.start()
    now[0] = elapsed
    watch.spend("m", spent)
    assert watch.coming(turn) is expected


def test_a_delegation_draws_from_the_account_of_the_session() -> None:
    account = Account(limit_usd=1.0)
    first, second = LimitWatch(account=account), LimitWatch(account=account)
    first.spend("m", 0.7)
    second.spend("m", 0.2)
    assert second.coming(1) is StopReason.COST_LIMIT


@pytest.mark.parametrize("limit", [{"max_turns": 4}, {"max_seconds": 60.0}])
def test_a_limit_with_usable_text_is_partial(limit: dict[str, float]) -> None:
    bench = Bench()
    run = bench.run_of(FunctionModel(curious), tools=[look], **limit)  # type: ignore[arg-type]
    run.attempts.recorder.watch.clock = Clock(10)
    outcome = asyncio.run(run.run())
    assert outcome.status is Status.PARTIAL
    assert outcome.stop_reason in {StopReason.TURN_LIMIT, StopReason.TIME_LIMIT}
    assert outcome.report == "what I saw so far"


def test_wall_time_cuts_a_tool_that_never_ends_and_keeps_what_was_said() -> None:
    async def hang() -> str:
        await asyncio.sleep(60)
        return "never"

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[TextPart("half of it"), ToolCallPart("hang", {})])

    outcome = asyncio.run(Bench().outcome(FunctionModel(model), tools=[hang], max_seconds=0.5))
    assert (outcome.status, outcome.stop_reason) == (Status.PARTIAL, StopReason.TIME_LIMIT)
    assert outcome.report == "half of it"
    assert outcome.unfinished_tool == "hang"


def test_an_unknown_price_is_said_and_not_guessed() -> None:
    bench = Bench()
    outcome = asyncio.run(bench.outcome(FunctionModel(curious), tools=[look], max_cost_usd=0.01, max_turns=3))
    assert outcome.usage.cost_usd is None
    assert [type(event) for event in bench.of(Notice)] == [Notice]
    assert "No price is known" in bench.of(Notice)[0].text
