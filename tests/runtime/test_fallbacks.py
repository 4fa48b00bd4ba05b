"""Fallback models (specification 3.10 and 7, F1 to F12), over real SDK clients, a provider for each model."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any, ClassVar

import pytest
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.events import ModelSwitched, RetryScheduled
from sidequest.core.outcome import Outcome, Status, report_text
from sidequest.models.bindings import ModelEntry
from sidequest.models.registry import ModelRegistry
from sidequest.runtime.knowledge import Knowledge
from sidequest.runtime.model_choice import RegistryModels
from sidequest.subagents.definition import ModelPin, SubagentDefinition, Thinking
from tests.support.acts import call
from tests.support.chain import APIS, Chain, Link, run_chain
from tests.support.delegating import Bench
from tests.support.error_bodies import error, overflow
from tests.support.gate import Gate
from tests.support.neutral import Answer, Drop, Hang, Reply, Seen, Usage
from tests.support.provider import LoopbackProvider

TASK = "Do the task."
CHUNK = ("plain words of a result " * 125)[:3_000]


def refusing(status: int, said: str = "No.") -> Any:
    """An answer of every wire format: an HTTP error."""
    return lambda seen: error(seen.format, status, said)


def unavailable(**fields: Any) -> Link:
    """A model that its provider does not know."""
    return Link([refusing(404, "The model does not exist.")], **fields)


async def edit(path: str) -> str:
    """Edit a file."""
    EDITED.append(path)
    return f"edited {path}"


EDITED: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_edited() -> None:
    EDITED.clear()


@pytest.mark.parametrize("count", [0, 1, 2, 3])
@pytest.mark.parametrize("shift", range(3))
def test_F1_unavailable_models_are_passed_over_in_order(count: int, shift: int) -> None:
    apis = APIS[shift:] + APIS
    links = [unavailable(api=apis[n]) for n in range(count)]
    chain = run_chain(*links, Link(["Done."], api=apis[count]), Link(["never"]))
    keys = [f"test/{n}" for n in range(1, count + 2)]
    assert chain.order == keys
    assert (chain.outcome.status, chain.outcome.report, chain.outcome.model) == (
        Status.COMPLETED,
        "Done.",
        keys[-1],
    )
    assert chain.failures == [(key, "MODEL_NOT_CONFIGURED") for key in keys[:-1]]
    assert [(e.after, e.model) for e in chain.bench.of(ModelSwitched)] == list(pairwise(keys))
    assert [seen.api_key for seen in chain.requests] == [f"key-of-{key}" for key in keys]
    assert all(seen.user_texts == (TASK,) for seen in chain.requests)


@pytest.mark.parametrize("api", APIS)
def test_F2_work_that_is_done_is_carried_and_not_done_again(api: str) -> None:
    first = Reply(tool_calls=[("edit", {"path": "a.py"})], usage=Usage(100, 10))
    chain = run_chain(
        Link([first, refusing(404)], api=api),
        Link([refusing(401)], api="responses_model"),
        Link([Reply("Edited a.py.", usage=Usage(200, 20))], api="anthropic_model"),
        tools=[edit],
    )
    assert chain.outcome.status is Status.COMPLETED
    assert EDITED == ["a.py"]
    _, *later = chain.requests
    assert [[r.text for r in seen.tool_results] for seen in later] == [["edited a.py"]] * 3
    assert all(seen.user_texts.count(TASK) == 1 for seen in later)
    assert (chain.outcome.turns, chain.outcome.tool_calls) == (2, 1)
    usage = chain.outcome.usage
    assert (usage.requests, usage.input_tokens, usage.output_tokens) == (2, 300, 30)


def test_F3_when_all_are_unavailable_it_fails_without_starting_over() -> None:
    statuses = [404, 404, 401, 403]
    links = [Link([refusing(status, f"reason {n}")]) for n, status in enumerate(statuses, 1)]
    chain = run_chain(*links)
    assert chain.order == ["test/1", "test/2", "test/3", "test/4"]
    assert chain.outcome.status is Status.FAILED
    assert chain.outcome.failure is not None
    assert chain.outcome.failure.code is ErrorCode.PROVIDER_UNAUTHORIZED
    assert "reason 4" in chain.outcome.failure.message
    text = report_text(chain.outcome)
    for number in range(1, 5):
        assert f"Model test/{number} failed" in text
        assert f"reason {number}" in text


@pytest.mark.parametrize("api", APIS)
def test_F4_each_status_keeps_its_code(api: str) -> None:
    links = [Link([refusing(status)], api=api) for status in (401, 403, 404)]
    chain = run_chain(*links, Link(["Done."], api=api))
    unauthorized = "PROVIDER_UNAUTHORIZED"
    assert [code for _, code in chain.failures] == [unauthorized, unauthorized, "MODEL_NOT_CONFIGURED"]


class TestF5Retries:
    @pytest.mark.parametrize("api", APIS)
    def test_rate_limits_and_errors_exhaust_their_retries_per_model(self, api: str) -> None:
        chain = run_chain(
            Link([refusing(429)] * 11, api=api), Link([refusing(503)] * 11, api=api), Link(["Done."], api=api)
        )
        assert chain.outcome.status is Status.COMPLETED
        assert chain.order == ["test/1"] * 11 + ["test/2"] * 11 + ["test/3"]
        assert chain.failures == [("test/1", "PROVIDER_RATE_LIMITED"), ("test/2", "PROVIDER_ERROR")]
        assert chain.pauses[:10] == [2, 4, 8, 16, 30, 30, 30, 30, 30, 30]
        assert chain.pauses[11:21] == [1, 2, 4, 8, 8, 8, 8, 8, 8, 8]
        assert len(chain.bench.of(RetryScheduled)) == 20

    def test_both_budgets_may_be_used_by_one_model(self) -> None:
        chain = run_chain(Link([refusing(429), refusing(503)] * 10 + ["Done."]))
        assert chain.outcome.status is Status.COMPLETED
        assert len(chain.order) == 21

    def test_an_answer_gives_the_budgets_back(self) -> None:
        busy = [refusing(503)] * 10
        work = [*busy, call("edit", path="a"), *busy, call("edit", path="b"), *busy, "Done."]
        chain = run_chain(Link(work), tools=[edit])
        assert (chain.outcome.status, EDITED) == (Status.COMPLETED, ["a", "b"])

    def test_the_next_model_has_budgets_of_its_own(self) -> None:
        ten = [refusing(503)] * 10
        chain = run_chain(Link([*ten, refusing(404)]), Link([*ten, "Done."]))
        assert chain.outcome.status is Status.COMPLETED
        assert chain.failures == [("test/1", "MODEL_NOT_CONFIGURED")]


class TestF6WhatIsPassedOver:
    def test_a_model_that_is_not_configured_is_recorded(self) -> None:
        missing = SidequestError(ErrorCode.MODEL_NOT_CONFIGURED, "No such pin.", "Configure it.")
        chain = run_chain(unavailable(), Link(unresolved=missing), Link(["Done."]))
        assert chain.failures == [("test/1", "MODEL_NOT_CONFIGURED"), ("test/2", "MODEL_NOT_CONFIGURED")]
        assert "No such pin." in chain.failure_of("test/2").message
        assert chain.order == ["test/1", "test/3"]

    def test_a_model_that_was_tried_is_passed_over_silently(self) -> None:
        again = [
            unavailable(key="test/1"),
            Link([refusing(401)], key="test/2"),
            Link(["never"], key="test/2"),
        ]
        chain = run_chain(unavailable(), *again, Link(["Done."], key="test/3"))
        assert chain.order == ["test/1", "test/2", "test/3"]
        assert [model for model, _ in chain.failures] == ["test/1", "test/2"]


class TestF7WithoutAlternatives:
    def test_none_is_looked_at_when_the_first_model_answers(self) -> None:
        chain = run_chain(Link(["Done."]), Link(["never"]))
        assert (chain.resolved, chain.failures) == ([], [])

    def test_none_configured_fails_with_the_providers_error(self) -> None:
        chain = run_chain(unavailable())
        assert chain.outcome.failure is not None
        assert chain.outcome.failure.code is ErrorCode.MODEL_NOT_CONFIGURED
        assert chain.failures == []


class TestF8Stop:
    @staticmethod
    def when(reached: Callable[[Chain], object]) -> Any:
        """Stop the delegation as soon as `reached` holds."""

        async def stop(chain: Chain, job: asyncio.Task[Outcome]) -> None:
            while not reached(chain):  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0)
            chain.run.request_stop()
            job.cancel()

        return stop

    def test_while_the_first_model_works_no_other_is_asked(self) -> None:
        chain = run_chain(
            Link([Hang(Gate(), Drop())]), Link(["never"]), then=self.when(lambda chain: chain.order)
        )
        assert chain.outcome.status is Status.STOPPED
        assert (chain.order, chain.failures) == (["test/1"], [])

    def test_while_a_retry_is_waited_for_no_other_is_asked(self) -> None:
        retrying = self.when(lambda chain: chain.bench.of(RetryScheduled))
        chain = run_chain(Link([refusing(503)] * 11), Link(["never"]), then=retrying)
        assert chain.outcome.status is Status.STOPPED
        assert chain.order == ["test/1"]

    def test_at_the_moment_of_the_switch_the_next_is_not_asked(self) -> None:
        def stop(event: Any, chain: Chain) -> None:
            if isinstance(event, ModelSwitched):
                chain.run.request_stop()
                task = asyncio.current_task()
                assert task is not None
                task.cancel()

        chain = run_chain(unavailable(), Link(["never"]), Link(["never"]), on_event=stop)
        assert chain.outcome.status is Status.STOPPED
        assert chain.order == ["test/1"]
        assert chain.failures == [("test/1", "MODEL_NOT_CONFIGURED")]

    def test_while_the_next_model_works_the_chain_ends(self) -> None:
        second = self.when(lambda chain: len(chain.order) == 2)
        chain = run_chain(unavailable(), Link([Hang(Gate(), Drop())]), Link(["never"]), then=second)
        assert chain.outcome.status is Status.STOPPED
        assert chain.order == ["test/1", "test/2"]


class TestF9Thinking:
    """A level of the alternative's own, else the definition's, else the session's; clamped to each model."""

    @staticmethod
    def told(
        *,
        pin: Thinking | None = None,
        own: Thinking | None = None,
        definition: Thinking | None = None,
        session: Any = None,
        cap: int | None = None,
        alternative: str = "claude-haiku-4-5",
    ) -> tuple[Any, Any]:
        """Fall back once, through the registry, and return what both models were told about thinking."""

        async def case() -> tuple[Seen, Seen]:
            async with LoopbackProvider([refusing(404)]) as first, LoopbackProvider(["Done."]) as second:
                entries = {
                    "session/gpt-4o": ModelEntry(base_url=first.openai_url, thinking=session),
                    "lab/gpt-5": ModelEntry(base_url=first.openai_url, api="openai-responses"),
                    "other/claude-haiku-4-5": ModelEntry(
                        base_url=second.url, api="anthropic", max_tokens=40_000
                    ),
                    "other/gpt-4o": ModelEntry(base_url=second.openai_url),
                }
                registry = ModelRegistry(entries, {})
                models = RegistryModels(registry, registry.resolve("session/gpt-4o"))
                worker = SubagentDefinition(
                    "worker",
                    "Works.",
                    "You work.",
                    model=ModelPin("lab/gpt-5", pin),
                    fallback_models=(ModelPin(f"other/{alternative}", own),),
                    thinking=definition,
                    max_tokens=cap,
                )
                choice = models.choose(worker, None)
                run = Bench().run_of(choice.model.model, TASK, alternatives=choice.alternatives, cap=cap)
                run.attempts.model = choice.model
                assert (await run.run()).status is Status.COMPLETED
                await models.close()
                return first.requests[0], second.requests[0]

        asked, answered = asyncio.run(case())
        budget = answered.json.get("thinking", {}).get("budget_tokens")
        return asked.json.get("reasoning", {}).get("effort"), budget

    def test_nothing_is_sent_when_nobody_says_anything(self) -> None:
        assert self.told() == (None, None)

    def test_the_definitions_level_holds_for_both(self) -> None:
        assert self.told(definition=Thinking.HIGH) == ("high", 16_384)

    def test_the_alternatives_own_level_beats_the_definitions(self) -> None:
        assert self.told(definition=Thinking.HIGH, own=Thinking.LOW) == ("high", 2_048)

    def test_the_level_of_a_pin_is_not_carried_to_the_alternative(self) -> None:
        assert self.told(pin=Thinking.LOW, definition=Thinking.HIGH) == ("low", 16_384)
        assert self.told(pin=Thinking.LOW) == ("low", None)

    def test_the_sessions_level_holds_when_the_definition_has_none(self) -> None:
        assert self.told(session="low") == ("low", 2_048)
        assert self.told(session="low", definition=Thinking.HIGH) == ("high", 16_384)

    def test_omit_stays_omitted(self) -> None:
        assert self.told(definition=Thinking.OMIT, session="high") == (None, None)
        assert self.told(definition=Thinking.HIGH, own=Thinking.OMIT) == ("high", None)

    def test_each_model_clamps_what_it_cannot_do(self) -> None:
        assert self.told(definition=Thinking.MAX) == ("high", 32_768)
        assert self.told(definition=Thinking.HIGH, alternative="gpt-4o") == ("high", None)

    def test_an_output_cap_lowers_what_would_not_fit_it(self) -> None:
        assert self.told(definition=Thinking.HIGH, cap=4_000) == ("high", 2_048)

    def test_settings_of_one_alternative_do_not_reach_the_next(self) -> None:
        chain = run_chain(
            Link([refusing(404)], name="gpt-5", settings={"thinking": "high"}),
            Link([refusing(404)], name="gpt-5", settings={"thinking": "low"}),
            Link(["Done."], name="gpt-5"),
        )
        assert [seen.json.get("reasoning_effort") for seen in chain.requests] == ["high", "low", None]


class TestF10OtherFailures:
    def test_a_tool_that_breaks_is_no_reason_for_another_model(self) -> None:
        async def broken(path: str) -> str:
            """Break."""
            raise RuntimeError("disk is full")

        chain = run_chain(Link([call("broken", path="a")]), Link(["never"]), tools=[broken])
        assert chain.outcome.failure is not None
        assert chain.outcome.failure.code is ErrorCode.INTERNAL
        assert (chain.resolved, chain.failures) == ([], [])

    def test_an_answer_without_text_is_no_reason_either(self) -> None:
        chain = run_chain(Link([Reply("")] * 3), Link(["never"]))
        assert chain.outcome.failure is not None
        assert chain.outcome.failure.code is ErrorCode.SUBAGENT_NO_REPORT
        assert chain.resolved == []


def fetching(*keys: str) -> list[Reply]:
    return [call("fetch", key=key) for key in keys]


async def fetch(key: str) -> str:
    """Fetch what is stored under a key."""
    return f"{key}: {CHUNK}"


class TestF11TooSmall:
    @pytest.mark.parametrize("api", APIS)
    def test_an_alternative_that_cannot_hold_what_is_carried_is_not_asked(self, api: str) -> None:
        too_large = refusing(413, "Request Entity Too Large")
        chain = run_chain(
            Link([*fetching(*"abcd"), too_large, too_large], api=api),
            Link(["never"], window=4_096, max_tokens=1_024),
            tools=[fetch],
        )
        assert chain.failures == [("test/1", "CONTEXT_TOO_LARGE"), ("test/2", "SUBAGENT_CONTEXT_OVERFLOW")]
        assert chain.providers[1].requests == []
        assert chain.outcome.failure is not None
        assert chain.outcome.failure.code is ErrorCode.SUBAGENT_CONTEXT_OVERFLOW
        skipped = chain.failure_of("test/2").message
        assert "2,048" in skipped, "the limit"
        assert re.search(r"skipped: [2-9],\d{3} tokens", skipped), "and the size"

    def test_the_one_after_it_may_be_large_enough(self) -> None:
        too_large = refusing(413, "Request Entity Too Large")
        chain = run_chain(
            Link([*fetching(*"abcd"), too_large, too_large]),
            Link(["never"], window=4_096, max_tokens=1_024),
            Link(["Done."], window=64_000),
            tools=[fetch],
        )
        assert chain.outcome.status is Status.COMPLETED
        assert [model for model, _ in chain.failures] == ["test/1", "test/2"]

    @pytest.mark.parametrize(("cap", "status"), [(None, Status.FAILED), (4_000, Status.COMPLETED)])
    def test_the_cap_of_the_definition_leaves_the_alternative_more_room(
        self, cap: int | None, status: Status
    ) -> None:
        """Window 100,000 and 25,000 of output leave 75,000; with a cap of 4,000 they leave 83,616."""
        carried = [
            ModelRequest(parts=[UserPromptPart("Earlier.")]),
            ModelResponse(parts=[TextPart("words of work " * 22_500)]),
        ]
        chain = run_chain(
            Link([refusing(404)], window=200_000),
            Link(["Done."], window=100_000, max_tokens=25_000),
            history=carried,
            cap=cap,
        )
        assert chain.outcome.status is status

    def test_a_window_that_was_learned_counts(self) -> None:
        knowledge = Knowledge()
        knowledge.of("test/2").learn_window(4_096)
        chain = run_chain(
            Link([*fetching(*"abcd"), refusing(404)]),
            Link(["never"], window=128_000),
            tools=[fetch],
            knowledge=knowledge,
        )
        assert chain.failures[-1] == ("test/2", "SUBAGENT_CONTEXT_OVERFLOW")
        assert chain.providers[1].requests == []

    def test_a_dense_tokenizer_that_was_learned_counts(self) -> None:
        knowledge = Knowledge()
        known = knowledge.of("test/2")
        known.calibration = known.calibration.observe(1_000, 2_500)
        links = Link([*fetching(*"abcd"), refusing(404)]), Link(["Done."], window=12_000, max_tokens=1_024)
        assert run_chain(*links, tools=[fetch]).outcome.status is Status.COMPLETED
        chain = run_chain(*links, tools=[fetch], knowledge=knowledge)
        assert chain.failures[-1] == ("test/2", "SUBAGENT_CONTEXT_OVERFLOW")


class TestF12LargerWindow:
    SMALL: ClassVar = {"window": 4_096, "max_tokens": 1_024}

    @pytest.mark.parametrize("api", APIS)
    def test_a_brief_that_the_first_model_cannot_hold_goes_to_the_second(self, api: str) -> None:
        brief = "words of the brief " * 500
        chain = run_chain(Link(api=api, **self.SMALL), Link(["Done."], window=64_000, api=api), task=brief)
        assert chain.outcome.status is Status.COMPLETED
        assert chain.providers[0].requests == []
        assert chain.failures == [("test/1", "SUBAGENT_CONTEXT_OVERFLOW")]
        assert chain.providers[1].requests[0].user_texts == (brief,)

    @pytest.mark.parametrize("api", APIS)
    def test_what_one_provider_refuses_even_when_compacted_goes_to_the_next(self, api: str) -> None:
        refused: list[Seen] = []

        def window_full(seen: Seen) -> Answer:
            refused.append(seen)
            return overflow(seen, 2_000)

        chain = run_chain(
            Link([*fetching(*"abc"), *[window_full] * 3], api=api, window=128_000),
            Link(["Done."], api=api, window=128_000),
            tools=[fetch],
        )
        assert chain.outcome.status is Status.COMPLETED
        assert chain.failures == [("test/1", "CONTEXT_TOO_LARGE")]
        work, summary, reduced = refused
        assert summary.tool_names == ()
        assert reduced.tokens < work.tokens
        assert chain.providers[1].requests[0].messages == reduced.messages


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 422])
def test_a_failure_that_waiting_does_not_cure_permits_the_fallback_at_once(status: int, stream: bool) -> None:
    chain = run_chain(Link([refusing(status)]), Link(["Done."]), stream=stream)
    assert chain.outcome.status is Status.COMPLETED
    assert chain.order == ["test/1", "test/2"]
    assert chain.times == [0.0, 0.0]
