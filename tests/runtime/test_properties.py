"""Whatever a provider does, a delegation ends in exactly one honest outcome and nothing too large leaves.

Random scripts: results of every size, summaries that fail, are empty, cut or too long, rejections with and
without numbers, answers that are cut, and windows of many sizes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    UserPromptPart,
)

from sidequest.core.compaction import Overflow
from sidequest.core.events import ContextCompacted, ContextDegraded, TurnStarted
from sidequest.core.outcome import DEGRADED_NOTE, REPORT_LIMIT_CHARS, Outcome, Status, report_text
from sidequest.core.transcript import validate
from sidequest.runtime.guard import Measured
from tests.core.builders import repeatable
from tests.support.delegating import Bench
from tests.support.scripted_model import SHORT_SUMMARY, Asked, ScriptedModel, calling, saying

BRIEF = "Find the BRIEF-MARK in everything."
TEXTS: dict[str, Callable[[int], str]] = {
    "prose": lambda size: ("plain words of a result " * (size // 24 + 1))[:size],
    "line": lambda size: "x=1;" * (size // 4),
    "chinese": lambda size: "世界" * (size // 2),
    "emoji": lambda size: "🙂" * (size // 4),
}


@dataclass
class World:
    """A provider and a tool that misbehave as `answers`, `summaries` and `results` say, in turn."""

    answers: list[tuple[str, int]]
    summaries: list[str]
    results: list[tuple[str, int]]
    brief: str = BRIEF
    bench: Bench = field(default_factory=Bench)
    measured: list[Measured] = field(default_factory=list)
    _results_given: int = 0
    _summaries_given: int = 0

    def __post_init__(self) -> None:
        self.model = ScriptedModel(self.answer, repeat=True, summary=self.summary)

    def fetch(self, key: str) -> str:
        """Fetch what is stored under a key."""
        kind, size = self.results[self._results_given % len(self.results)]
        self._results_given += 1
        return TEXTS[kind](size)

    def answer(self, asked: Asked) -> Any:
        """The next answer of the model; a report when the script is over."""
        index = len(self.model.asked) - 1
        if index >= len(self.answers):
            return "The end."
        kind, number = self.answers[index]
        match kind:
            case "call":
                calls = [("fetch", {"key": f"{index}-{n}"}) for n in range(number % 3 + 1)]
                return calling(*calls, text="Looking." if number % 2 else "")
            case "think":
                parts = [ThinkingPart("hm " * number, signature="s"), ToolCallPart("fetch", {"key": "k"})]
                return ModelResponse(parts=parts)
            case "cut":
                return calling(("fetch", {"key": "half"}), text="Part." * (number % 2), finish="length")
            case "text-cut":
                return saying("Half a report", finish="length")
            case "empty":
                return ModelResponse(parts=[])
            case "overflow":
                stated = (
                    f"maximum context length is {number} tokens" if number % 2 else "context length exceeded"
                )
                body = {"error": {"message": stated, "code": "context_length_exceeded"}}
                return ModelHTTPError(400, "m", body)
            case "down":
                return ModelHTTPError(503, "m", {"error": {"message": "try later"}})
            case "refused":
                return ModelHTTPError(401, "m", {"error": {"message": "invalid api key"}})
            case _:
                return RuntimeError("a broken client")

    def summary(self, asked: Asked) -> Any:
        """The next summary; the last kind again and again."""
        kind = self.summaries[min(self._summaries_given, len(self.summaries) - 1)]
        self._summaries_given += 1
        match kind:
            case "good":
                return SHORT_SUMMARY
            case "empty":
                return " "
            case "cut":
                return saying("## Goal\nHalf", finish="length")
            case "huge":
                return "words of a summary " * 5_000
            case "broken":
                return RuntimeError("a broken client")
            case _:
                return ModelHTTPError(500, "m", {"error": {"message": "down"}})

    def run(self, **options: Any) -> Outcome:
        """Run a delegation in this world to its end; it may not take more than 20 seconds."""
        run = self.bench.run_of(self.model, self.brief, tools=[self.fetch], **options)
        tell = run.attempts.guard.on_measured

        def told(measured: Measured) -> None:
            self.measured.append(measured)
            if tell is not None:
                tell(measured)

        run.attempts.guard.on_measured = told

        async def bounded() -> Outcome:
            async with asyncio.timeout(60):
                return await run.run()

        return asyncio.run(bounded())


ANSWERS = st.lists(
    st.tuples(
        st.sampled_from(
            ["call"] * 6
            + ["think", "cut", "text-cut", "empty", "overflow", "overflow", "down", "refused", "crash"]
        ),
        st.integers(600, 9_000),
    ),
    max_size=14,
)
CALLS = st.lists(st.tuples(st.just("call"), st.integers(0, 9)), min_size=3, max_size=14)
SUMMARIES = st.lists(
    st.sampled_from(["good"] * 8 + ["empty", "cut", "huge", "broken", "down"]), min_size=1, max_size=4
)
RESULTS = st.lists(st.tuples(st.sampled_from(sorted(TEXTS)), st.integers(0, 16_000)), min_size=1, max_size=5)
WINDOWS = st.sampled_from([1_000, 4_096, 8_000, 16_000, 32_000])
BRIEFS = st.integers(0, 400).map(lambda words: BRIEF + " more" * words)


@st.composite
def histories(draw: st.DrawFn) -> list[ModelMessage]:
    """What a run may go on from: nothing, or turns of any size."""
    messages: list[ModelMessage] = []
    for size in draw(st.lists(st.integers(1, 12_000), max_size=3)):
        messages += [
            ModelRequest(parts=[UserPromptPart("An earlier question.")]),
            ModelResponse(parts=[TextPart(TEXTS["prose"](size))]),
        ]
    return messages


def hold(world: World, outcome: Outcome) -> None:
    """Check what must be true of every run."""
    sent = [m for m in world.measured if not isinstance(m.outcome, Overflow)]
    for asked in world.model.asked:
        validate(asked.messages)
        assert asked.marked_texts("brief") == [world.brief]
    for measured in sent:
        assert measured.tokens < measured.budget.hard_limit
    for asked in world.model.summaries:
        assert asked.tokens <= world.measured[0].budget.window
    assert outcome.status is not Status.RUNNING
    assert (outcome.failure is None) == (outcome.status is Status.COMPLETED)
    assert outcome.status in {Status.COMPLETED, Status.PARTIAL, Status.FAILED}
    if outcome.status in {Status.COMPLETED, Status.PARTIAL}:
        assert outcome.report.strip()


@given(
    answers=ANSWERS, summaries=SUMMARIES, results=RESULTS, brief=BRIEFS, window=WINDOWS, history=histories()
)
@repeatable(50)
def test_any_provider_ends_in_one_honest_outcome(
    answers: Any, summaries: Any, results: Any, brief: str, window: int, history: list[ModelMessage]
) -> None:
    world = World(answers, summaries, results, brief)
    outcome = world.run(window=window, max_tokens=window // 4, history=history)
    hold(world, outcome)
    assert len(world.bench.of(TurnStarted)) == len(world.model.asked)
    assert outcome.turns <= len(world.model.asked)


@given(calls=CALLS, summaries=SUMMARIES, results=RESULTS, brief=BRIEFS, window=WINDOWS)
@repeatable(30)
def test_a_loss_of_history_is_told_in_the_first_lines(
    calls: Any, summaries: Any, results: Any, brief: str, window: int
) -> None:
    world = World(calls, summaries, results, brief)
    outcome = world.run(window=window, max_tokens=window // 4)
    hold(world, outcome)
    text = report_text(outcome)
    assert (outcome.degraded) == bool(world.bench.of(ContextDegraded))
    assert outcome.compactions == len(world.bench.of(ContextCompacted))
    assert text.startswith(DEGRADED_NOTE) == outcome.degraded
    assert len(text) <= REPORT_LIMIT_CHARS


@given(
    calls=CALLS,
    summaries=SUMMARIES,
    results=RESULTS,
    window=WINDOWS,
    turns=st.integers(1, 6),
    cap=st.integers(1, 5_000),
)
@repeatable(30)
def test_no_limit_is_exceeded_and_usage_is_the_sum_of_what_was_answered(
    calls: Any, summaries: Any, results: Any, window: int, turns: int, cap: int
) -> None:
    world = World(calls, summaries, results)
    outcome = world.run(window=window, max_tokens=window // 4, max_turns=turns, cap=cap)
    hold(world, outcome)
    assert outcome.turns <= turns
    assert all(asked.settings["max_tokens"] <= cap for asked in world.model.asked)
    if set(summaries) <= {"good", "empty", "cut", "huge"}:
        answered = [*world.model.asked, *world.model.summaries]
        assert outcome.usage.requests == len(answered)
        assert outcome.usage.input_tokens == sum(asked.tokens for asked in answered)
