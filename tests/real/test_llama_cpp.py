"""A real llama.cpp server: real tokenizer, usage and refusals. What the model says is never looked at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelAPIError
from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.settings import ModelSettings

from sidequest.core.errors import ErrorCode
from sidequest.core.events import ContextCompacted, ContextDegraded, TurnStarted
from sidequest.core.outcome import Outcome, Status, StopReason
from sidequest.core.provider_errors import Kind, classify, facts_from_exception
from sidequest.models.bindings import ModelEntry
from sidequest.models.local_servers import ServerAddress, discover
from sidequest.models.registry import ModelRegistry
from sidequest.runtime.knowledge import Knowledge
from tests.real.server import WINDOW, LlamaServer
from tests.real.texts import KINDS, pair
from tests.real.worded import WordedModel, fetches, reports
from tests.support.delegating import Bench

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(300)]
KEY = "llamacpp/smollm2"
BELIEVED = 128_000
ANSWER_TOKENS = 4
BRIEF = "Fetch the entries and report what they say."


def fetch(key: str) -> str:
    """Fetch an entry."""
    return (f"entry {key}: the quick brown fox jumps over the lazy dog. " * 30)[:1_600]


@asynccontextmanager
async def believed(server: LlamaServer) -> AsyncIterator[OpenAIChatModel]:
    """The server's model as somebody set it up who believes in a window of 128,000 tokens."""
    entry = ModelEntry(base_url=f"{server.url}/v1", context_window=BELIEVED)
    model = ModelRegistry({KEY: entry}, env={}).resolve(KEY).build()
    assert isinstance(model, OpenAIChatModel)
    try:
        yield model
    finally:
        await model.client.close()


async def delegated(
    model: Model,
    bench: Bench,
    knowledge: Knowledge,
    task: str = BRIEF,
    settings: ModelSettings | None = None,
    **options: Any,
) -> Outcome:
    """Run one delegation of a session that knows `knowledge`."""
    run = bench.run_of(model, task, key=KEY, **{"window": BELIEVED, "max_tokens": ANSWER_TOKENS, **options})
    plan = replace(run.plan, model=replace(run.plan.model, settings=settings))
    return await replace(run, plan=plan, knowledge=knowledge).run()


def words(count: int) -> list[ModelMessage]:
    return [ModelRequest(parts=[UserPromptPart("word " * count)])]


def test_discovery_finds_the_window_that_is_served(server: LlamaServer) -> None:
    (found,) = asyncio.run(discover([ServerAddress("llamacpp", server.url)], timeout_s=5))
    (model,) = found.models
    assert (model.window, model.max_window, model.loaded, model.assumed) == (WINDOW, 8_192, True, False)
    binding = ModelRegistry(env={}, servers=[found]).resolve(f"llamacpp/{model.name}")
    assert (binding.window, binding.window_source) == (WINDOW, "server")
    assert binding.base_url == f"{server.url}/v1"


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_an_input_over_the_window_is_refused_with_both_numbers(server: LlamaServer, streamed: bool) -> None:
    async def refusal() -> ModelAPIError:
        parameters = ModelRequestParameters()
        async with believed(server) as model:
            with pytest.raises(ModelAPIError) as refused:
                if streamed:
                    async with model.request_stream(words(3_000), None, parameters):
                        pass
                else:
                    await model.request(words(3_000), None, parameters)
        return refused.value

    error = asyncio.run(refusal())
    body: Any = getattr(error, "body", None)
    assert (getattr(error, "status_code", None), body["type"]) == (400, "exceed_context_size_error")
    assert body["n_ctx"] == WINDOW < 3_000 <= body["n_prompt_tokens"]
    meaning = classify(facts_from_exception(error))
    assert (meaning.kind, meaning.code) == (Kind.INPUT, ErrorCode.CONTEXT_TOO_LARGE)
    assert (meaning.input_tokens, meaning.limit_tokens) == (body["n_prompt_tokens"], WINDOW)
    assert not meaning.retriable


def test_a_streamed_answer_reports_the_prompt_that_a_whole_one_reports(server: LlamaServer) -> None:
    async def usages() -> tuple[int, int]:
        parameters, short = ModelRequestParameters(), ModelSettings(max_tokens=1)
        async with believed(server) as model:
            whole = await model.request(words(40), short, parameters)
            async with model.request_stream(words(40), short, parameters) as stream:
                async for _ in stream:
                    pass
            return whole.usage.input_tokens, stream.get().usage.input_tokens

    whole, streamed = asyncio.run(usages())
    assert 40 < whole == streamed


def test_a_window_believed_too_large_costs_one_refusal_and_no_second(server: LlamaServer) -> None:
    bench, knowledge = Bench(), Knowledge()

    async def case() -> tuple[Outcome, WordedModel]:
        async with believed(server) as real:
            model = WordedModel(real, fetches(6))
            return await delegated(model, bench, knowledge, tools=[fetch]), model

    outcome, model = asyncio.run(case())
    (refused,) = model.refusals
    position = model.log.index(refused)
    assert (refused.kind, refused.limit_tokens) == (Kind.INPUT, WINDOW)
    assert knowledge.of(KEY).window == WINDOW
    shrunk = bench.of(ContextCompacted) + bench.of(ContextDegraded)
    assert shrunk and all(event.tokens_after < event.tokens_before for event in shrunk)
    summary, retried = model.counted[position:]
    assert retried < model.counted[position - 1] < (refused.input_tokens or 0)
    assert summary < WINDOW, "what asks for the summary fits the window that was learned"
    limits = [turn.hard_limit for turn in bench.of(TurnStarted)]
    assert limits == [111_616] * (position + 1) + [WINDOW // 2]
    # One of the six calls was said in place of the summary, which therefore was empty.
    assert (outcome.status, outcome.tool_calls, outcome.degraded) == (Status.COMPLETED, 5, True)
    assert outcome.usage.input_tokens == sum(model.counted)


def test_what_one_delegation_learned_spares_the_next_a_refusal(server: LlamaServer) -> None:
    knowledge = Knowledge()

    async def case() -> tuple[WordedModel, WordedModel]:
        async with believed(server) as real:
            first, second = WordedModel(real, reports), WordedModel(real, reports)
            for model in (first, second):
                await delegated(model, Bench(), knowledge, history=words(3_000))
            return first, second

    first, second = asyncio.run(case())
    assert [refused.limit_tokens for refused in first.refusals] == [WINDOW]
    assert second.refusals == []
    assert max(first.counted + second.counted) < WINDOW // 2


def sizes(server: LlamaServer, *texts: str) -> list[tuple[int, int]]:
    """Delegate each text in one session; return our calibrated estimate and the real count of each."""
    bench, knowledge = Bench(), Knowledge()

    async def case() -> list[int]:
        async with believed(server) as real:
            model = WordedModel(real, reports)
            for text in texts:
                await delegated(model, bench, knowledge, text, max_tokens=1)
            return model.counted

    counted = asyncio.run(case())
    return list(zip([turn.tokens for turn in bench.of(TurnStarted)], counted, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_one_report_is_enough_to_estimate_the_next_text_of_its_kind(server: LlamaServer, kind: str) -> None:
    (plain, real), (calibrated, next_real) = sizes(server, *pair(kind))
    assert real <= 3 * plain
    assert 0.9 * next_real <= calibrated


def test_a_frugal_text_lets_the_estimate_of_a_dense_one_fall_by_a_tenth_at_most(server: LlamaServer) -> None:
    dense, _ = pair("korean")
    frugal, _ = pair("english")
    _, (repeated, real), _, (later, real_later) = sizes(server, dense, dense, frugal, dense)
    assert repeated >= real == real_later
    assert 0.9 * real <= later < repeated


def test_an_output_cap_stops_the_answer_on_the_server(server: LlamaServer) -> None:
    async def case() -> Outcome:
        async with believed(server) as model:
            endless: ModelSettings = {"extra_body": {"ignore_eos": True}}
            return await delegated(model, Bench(), Knowledge(), settings=endless, max_tokens=None, cap=12)

    outcome = asyncio.run(case())
    assert outcome.usage.output_tokens == 12
    assert (outcome.status, outcome.stop_reason) == (Status.PARTIAL, StopReason.LENGTH)
    assert outcome.failure is not None
    assert outcome.failure.code is ErrorCode.SUBAGENT_OUTPUT_TRUNCATED
    assert outcome.report
