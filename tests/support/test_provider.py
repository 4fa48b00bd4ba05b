"""The loopback provider against the real SDK clients, in three wire formats, streamed and not."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import AsyncIterable, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from pydantic_ai import Agent, AgentRunResult, BinaryContent, UsageLimits
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelRateLimitError,
    ModelTimeoutError,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    TextPartDelta,
    ThinkingPart,
    ToolCallPart,
    ToolCallPartDelta,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model

from tests.support.counting import count_request, tokens_of
from tests.support.gate import Gate
from tests.support.neutral import (
    Answer,
    Drop,
    Hang,
    InStreamError,
    Reject,
    Reply,
    Seen,
    SeenMessage,
    ToolResult,
    Usage,
    WireFormat,
)
from tests.support.provider import LoopbackProvider

FORMATS: tuple[WireFormat, ...] = ("openai-chat", "openai-responses", "anthropic")


@pytest.fixture(params=FORMATS)
def wire(request: pytest.FixtureRequest) -> WireFormat:
    param: WireFormat = request.param
    return param


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def streamed(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def model_of(provider: LoopbackProvider, wire: WireFormat, **options: Any) -> Model:
    makers: dict[WireFormat, Callable[..., Model]] = {
        "openai-chat": provider.chat_model,
        "openai-responses": provider.responses_model,
        "anthropic": provider.anthropic_model,
    }
    return makers[wire](**options)


def agent_of(provider: LoopbackProvider, wire: WireFormat, **options: Any) -> Agent:
    agent = Agent(model_of(provider, wire, **options), instructions="Be brief.")

    @agent.tool_plain
    def lookup(key: str) -> str:
        """Look a key up."""
        return f"value of {key}"

    return agent


async def ask(
    agent: Agent,
    prompt: str = "hi",
    *,
    streamed: bool = False,
    events: list[Any] | None = None,
    **options: Any,
) -> AgentRunResult[str]:
    async def read(_: object, stream: AsyncIterable[Any]) -> None:
        async for event in stream:
            if events is not None:
                events.append(event)

    if streamed:
        options["event_stream_handler"] = read
    return await agent.run(prompt, usage_limits=UsageLimits(request_limit=5), **options)


class TestReplies:
    def test_text_arrives(self, wire: WireFormat, streamed: bool) -> None:
        async def case() -> None:
            async with LoopbackProvider(["It is 世界, said the oracle."]) as provider:
                result = await ask(agent_of(provider, wire), "What is it?", streamed=streamed)
            assert result.output == "It is 世界, said the oracle."
            (seen,) = provider.requests
            assert (seen.format, seen.model, seen.stream) == (wire, "test-model", streamed)
            assert (seen.system, seen.user_texts) == ("Be brief.", ("What is it?",))
            assert seen.tool_names == ("lookup",)
            assert seen.tool_schemas["lookup"]["required"] == ["key"]
            assert seen.api_key == "test-key"

        asyncio.run(case())

    def test_tool_result_is_in_the_next_request(self, wire: WireFormat, streamed: bool) -> None:
        async def case() -> None:
            script: list[Answer | str] = [Reply(tool_calls=[("lookup", {"key": "a"})]), "done"]
            async with LoopbackProvider(script) as provider:
                result = await ask(agent_of(provider, wire), streamed=streamed)
            assert result.output == "done"
            _, second = provider.requests
            (call,) = second.tool_calls
            assert (call.name, call.args) == ("lookup", {"key": "a"})
            assert second.tool_results == (ToolResult(call.id, "value of a"),)
            assert [message.role for message in second.messages] == ["user", "assistant", "tool"]

        asyncio.run(case())

    def test_two_calls_in_one_message_run_together(self, wire: WireFormat, streamed: bool) -> None:
        async def case() -> None:
            calls = [("lookup", {"key": "a"}), ("lookup", {"key": "b"})]
            async with LoopbackProvider([Reply("both", tool_calls=calls), "done"]) as provider:
                await ask(agent_of(provider, wire), streamed=streamed)
            _, assistant, tool = provider.requests[1].messages
            assert assistant.text == "both"
            assert [call.args["key"] for call in assistant.tool_calls] == ["a", "b"]
            assert [result.text for result in tool.tool_results] == ["value of a", "value of b"]

        asyncio.run(case())

    def test_usage_reaches_the_run(self, wire: WireFormat, streamed: bool) -> None:
        async def case() -> None:
            script = [Reply("x" * 40, usage=Usage(700, 30, cached=200)), Reply("x" * 40, cached_tokens=10)]
            async with LoopbackProvider(script) as provider:
                agent = agent_of(provider, wire)
                given = (await ask(agent, streamed=streamed)).usage
                counted = (await ask(agent, streamed=streamed)).usage
            assert (given.input_tokens, given.output_tokens, given.cache_read_tokens) == (700, 30, 200)
            tokens = provider.requests[1].tokens
            assert (counted.input_tokens, counted.output_tokens, counted.cache_read_tokens) == (
                tokens,
                10,
                10,
            )

        asyncio.run(case())

    def test_finish_reasons(self, wire: WireFormat, streamed: bool) -> None:
        async def case() -> list[str | None]:
            replies = [Reply("a"), Reply("half", finish="length"), Reply("b", finish="content_filter")]
            async with LoopbackProvider(replies) as provider:
                agent = agent_of(provider, wire)
                results = [await ask(agent, streamed=streamed) for _ in replies]
            return [result.response.finish_reason for result in results]

        assert asyncio.run(case()) == ["stop", "length", "content_filter"]

    def test_thinking_arrives(self, wire: WireFormat, streamed: bool) -> None:
        async def case() -> None:
            async with LoopbackProvider([Reply("yes", thinking="Let me weigh this.")]) as provider:
                result = await ask(agent_of(provider, wire), streamed=streamed)
            thought, _ = result.response.parts
            assert isinstance(thought, ThinkingPart)
            assert thought.content == "Let me weigh this."

        asyncio.run(case())

    def test_a_stream_comes_in_pieces(self, wire: WireFormat) -> None:
        async def case() -> None:
            events: list[Any] = []
            call = Reply("A sentence of some length.", tool_calls=[("lookup", {"key": "a long key"})])
            async with LoopbackProvider([call, "done"]) as provider:
                await ask(agent_of(provider, wire), streamed=True, events=events)
            deltas = [event.delta for event in events if isinstance(event, PartDeltaEvent)]
            assert sum(isinstance(delta, TextPartDelta) for delta in deltas) >= 3
            assert sum(isinstance(delta, ToolCallPartDelta) for delta in deltas) >= 3

        asyncio.run(case())


class TestRequests:
    def test_the_cap_is_recorded_under_its_wire_name(self, wire: WireFormat) -> None:
        async def case() -> Seen:
            async with LoopbackProvider(["ok"]) as provider:
                await ask(agent_of(provider, wire), model_settings={"max_tokens": 321})
            return provider.requests[0]

        names = {
            "openai-chat": "max_completion_tokens",
            "openai-responses": "max_output_tokens",
            "anthropic": "max_tokens",
        }
        seen = asyncio.run(case())
        assert (seen.max_tokens, seen.max_tokens_field) == (321, names[wire])

    def test_one_history_looks_the_same_in_every_format(self) -> None:
        async def case() -> list[tuple[SeenMessage, ...]]:
            async with LoopbackProvider(lambda seen: "ok") as provider:
                for wire in FORMATS:
                    await ask(agent_of(provider, wire), "and now?", message_history=history())
            assert all(seen.raw and seen.json["model"] == "test-model" for seen in provider.requests)
            return [seen.messages for seen in provider.requests]

        chat, responses, anthropic = asyncio.run(case())
        assert chat == responses == anthropic
        assert [message.role for message in chat] == ["user", "assistant", "tool", "user"]

    def test_everything_in_a_request_is_counted(self, wire: WireFormat) -> None:
        async def case() -> Seen:
            prompt = ["世界", BinaryContent(b"\x89PNG", media_type="image/png")]
            async with LoopbackProvider(["ok"]) as provider:
                await ask(agent_of(provider, wire), prompt, message_history=history())  # type: ignore[arg-type]
            return provider.requests[0]

        seen = asyncio.run(case())
        call, tool = seen.tool_calls[0], seen.tools[0]
        texts = ["Be brief.", tool.wire, "first", call.name, call.arguments, "value of a", "世界"]
        assert seen.tokens == tokens_of(texts, images=1)
        assert '"required":["key"]' in tool.wire
        assert tokens_of(["hello", "世界"]) == 3

    def test_connections_are_kept_alive(self, wire: WireFormat, streamed: bool) -> None:
        async def case() -> int:
            async with LoopbackProvider(lambda seen: "ok") as provider:
                agent = agent_of(provider, wire)
                for _ in range(3):
                    await ask(agent, streamed=streamed)
                return provider.open_connections

        assert asyncio.run(case()) == 1

    def test_models_are_listed(self) -> None:
        async def case() -> tuple[list[str], list[str]]:
            async with LoopbackProvider(models=("m1", "m2")) as provider:
                openai = await provider.chat_model().client.models.list()
                anthropic = await provider.anthropic_model().client.models.list()  # type: ignore[union-attr]
            return [model.id for model in openai.data], [model.id for model in anthropic.data]

        assert asyncio.run(case()) == (["m1", "m2"], ["m1", "m2"])


def history() -> list[ModelMessage]:
    call = ToolCallPart("lookup", {"key": "a"}, tool_call_id="call_a")
    result = ToolReturnPart("lookup", "value of a", tool_call_id="call_a")
    first = ModelRequest([UserPromptPart("first")], instructions="Be brief.")
    return [first, ModelResponse([call]), ModelRequest([result], instructions="Be brief.")]


OVERFLOWS = {
    "openai-chat": "maximum context length is {window} tokens. However, your messages resulted in {tokens}",
    "openai-responses": "Your input exceeds the context window of this model. Please adjust your input",
    "anthropic": "prompt is too long: {tokens} tokens > {window} maximum",
}
SUMS = {
    "openai-chat": "you requested {total} tokens ({tokens} in the messages, {output} in the completion)",
    "openai-responses": "you requested {output} output tokens and your prompt contains at least {tokens}",
    "anthropic": "exceed context limit: {tokens} + {output} > {window}",
}


class TestWindow:
    def test_input_over_the_window_is_refused(self, wire: WireFormat, streamed: bool) -> None:
        async def case() -> None:
            async with LoopbackProvider(["never"], window=1_000) as provider:
                with pytest.raises(ModelHTTPError) as caught:
                    await ask(agent_of(provider, wire), "word " * 1_000, streamed=streamed)
            (rejection,) = provider.rejections
            assert isinstance(caught.value, ModelContextWindowExceededError)
            assert caught.value.status_code == 400
            words = OVERFLOWS[wire].format(window=1_000, tokens=rejection.seen.tokens)
            assert words in json.dumps(caught.value.body)
            assert provider.requests == [rejection.seen]

        asyncio.run(case())

    def test_equality_is_over_and_one_less_is_not(self, wire: WireFormat) -> None:
        async def tokens(window: int | None) -> int:
            async with LoopbackProvider(["ok"], window=window) as provider:
                await ask(agent_of(provider, wire))
            return provider.requests[0].tokens

        size = asyncio.run(tokens(None))
        assert asyncio.run(tokens(size + 1)) == size
        with pytest.raises(ModelHTTPError):
            asyncio.run(tokens(size))

    def test_input_plus_output_over_the_window_is_refused_on_request(self, wire: WireFormat) -> None:
        async def case() -> None:
            async with LoopbackProvider(["never"], window=1_000, enforce_sum=True) as provider:
                with pytest.raises(ModelHTTPError) as caught:
                    await ask(agent_of(provider, wire), model_settings={"max_tokens": 990})
            tokens = provider.requests[0].tokens
            words = SUMS[wire].format(window=1_000, tokens=tokens, output=990, total=tokens + 990)
            assert words in json.dumps(caught.value.body)

        asyncio.run(case())

    def test_another_wording_can_be_given(self, wire: WireFormat) -> None:
        async def case() -> None:
            silent = LoopbackProvider(["never"], window=10, overflow=lambda seen, window: Reject(413))
            async with silent as provider:
                with pytest.raises(ModelHTTPError) as caught:
                    await ask(agent_of(provider, wire))
            assert (caught.value.status_code, caught.value.body or None) == (413, None)

        asyncio.run(case())

    def test_silent_truncation_keeps_the_end_and_reports_half(self, wire: WireFormat, streamed: bool) -> None:
        async def case() -> None:
            shown: list[Seen] = []

            def model(seen: Seen) -> str:
                shown.append(seen)
                return "sure"

            async with LoopbackProvider(model, window=400, truncate_silently=True) as provider:
                result = await ask(agent_of(provider, wire), "word " * 1_000 + "end", streamed=streamed)
            assert result.usage.input_tokens == 202
            assert (shown[0].truncated, shown[0].system, shown[0].tokens) == (True, "", 202)
            assert shown[0].messages[0].text.endswith("word end")
            assert count_request(replace(shown[0], tools=())) <= 202 < provider.requests[0].tokens

        asyncio.run(case())


class TestRefusals:
    def test_rate_limit_carries_retry_after(self, wire: WireFormat, streamed: bool) -> None:
        async def case() -> None:
            waits = iter([7.0, None])
            async with LoopbackProvider(["ok"], rate=lambda seen: next(waits)) as provider:
                agent = agent_of(provider, wire)
                with pytest.raises(ModelHTTPError) as caught:
                    await ask(agent, streamed=streamed)
                await ask(agent, streamed=streamed)
            assert isinstance(caught.value, ModelRateLimitError)
            assert caught.value.status_code == 429
            assert (caught.value.headers or {})["retry-after"] == "7"
            assert [exchange.outcome for exchange in provider.exchanges] == ["answered", "answered"]

        asyncio.run(case())

    @pytest.mark.parametrize("body", [{"error": {"message": "no"}}, "plain words", b"bytes", None])
    def test_any_error_body_surfaces(self, wire: WireFormat, body: Any) -> None:
        async def case() -> None:
            async with LoopbackProvider([Reject(503, body, {"x-note": "kept"})]) as provider:
                with pytest.raises(ModelHTTPError) as caught:
                    await ask(agent_of(provider, wire))
            assert caught.value.status_code == 503
            assert (caught.value.headers or {})["x-note"] == "kept"
            assert provider.failures == []

        asyncio.run(case())

    @pytest.mark.parametrize("drop", [1, 2], ids=["result without call", "call without result"])
    def test_a_broken_history_is_refused(self, wire: WireFormat, drop: int) -> None:
        async def case() -> ModelHTTPError:
            broken = [message for at, message in enumerate(history()) if at != drop]
            prompt = ModelRequest([UserPromptPart("go on")])
            async with LoopbackProvider(["never"]) as provider:
                with pytest.raises(ModelHTTPError) as caught:
                    await send(model_of(provider, wire), [*broken, prompt])
            return caught.value

        error = asyncio.run(case())
        assert error.status_code == 400
        assert "call_a" in json.dumps(error.body)

    def test_a_doubled_history_is_refused(self, wire: WireFormat) -> None:
        async def case() -> None:
            async with LoopbackProvider(["never"]) as provider:
                with pytest.raises(ModelHTTPError, match="single result"):
                    await send(model_of(provider, wire), [*history(), *history()])

        asyncio.run(case())


async def send(model: Model, messages: list[ModelMessage]) -> ModelResponse:
    """One bare request: an agent would repair the history first."""
    from pydantic_ai.models import ModelRequestParameters

    return await model.request(messages, None, ModelRequestParameters())


class TestBrokenAnswers:
    @pytest.mark.parametrize("after", [None, Reply("Half of")], ids=["at once", "after text"])
    def test_an_error_inside_the_stream_surfaces(self, wire: WireFormat, after: Reply | None) -> None:
        async def case() -> None:
            code = "overloaded_error" if wire == "anthropic" else "server_error"
            async with LoopbackProvider([InStreamError("went wrong", code, after=after)]) as provider:
                with pytest.raises(ModelAPIError, match="went wrong"):
                    await ask(agent_of(provider, wire), streamed=True)
            assert provider.exchanges[0].outcome == "answered"

        asyncio.run(case())

    @pytest.mark.parametrize("event", ["failed", "error"])
    def test_responses_reports_overflow_inside_the_stream(self, event: Any) -> None:
        async def case() -> None:
            text = "Your input exceeds the context window of this model."
            error = InStreamError(text, "context_length_exceeded", after=Reply(), event=event)
            async with LoopbackProvider([error]) as provider:
                with pytest.raises(ModelContextWindowExceededError):
                    await ask(agent_of(provider, "openai-responses"), streamed=True)

        asyncio.run(case())

    @pytest.mark.parametrize("after", [None, Reply("Half of it.")], ids=["no headers", "half an answer"])
    def test_a_cut_connection_surfaces(self, wire: WireFormat, streamed: bool, after: Reply | None) -> None:
        async def case() -> None:
            async with LoopbackProvider([Drop(after)]) as provider:
                with pytest.raises(ModelConnectionError) as caught:
                    await ask(agent_of(provider, wire), streamed=streamed)
            assert not isinstance(caught.value, ModelTimeoutError)
            assert provider.exchanges[0].outcome == "cut"

        asyncio.run(case())

    def test_broken_arguments_arrive_as_sent(self) -> None:
        async def case() -> list[str]:
            cut = Reply(tool_calls=[("lookup", '{"key": "a')], finish="length")
            async with LoopbackProvider([cut, "never"]) as provider:
                response = await send(provider.chat_model(), [ModelRequest([UserPromptPart("hi")])])
            return [str(part.args) for part in response.parts if isinstance(part, ToolCallPart)]

        assert asyncio.run(case()) == ['{"key": "a']


HELD = pytest.mark.parametrize(
    ("streamed", "mid_stream"),
    [(False, False), (True, False), (True, True)],
    ids=["whole", "before the stream", "in the stream"],
)


class TestHolding:
    @HELD
    def test_a_gate_holds_the_answer(self, wire: WireFormat, streamed: bool, mid_stream: bool) -> None:
        async def case() -> None:
            gate = asyncio.Event()
            async with LoopbackProvider([Hang(gate, Reply("at last"), mid_stream)]) as provider:
                run = asyncio.create_task(ask(agent_of(provider, wire), streamed=streamed))
                await provider.arrived(1)
                await asyncio.sleep(0.005)
                assert not run.done()
                gate.set()
                assert (await run).output == "at last"

        asyncio.run(case())

    @HELD
    def test_cancelling_a_held_request_ends_it(
        self, wire: WireFormat, streamed: bool, mid_stream: bool
    ) -> None:
        async def case() -> None:
            script: list[Answer | str] = [Hang(60, Reply("never"), mid_stream), "next"]
            async with LoopbackProvider(script) as provider:
                agent = agent_of(provider, wire)
                run = asyncio.create_task(ask(agent, streamed=streamed))
                await provider.arrived(1)
                await asyncio.sleep(0.005)
                run.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await run
                assert (await ask(agent)).output == "next"
                assert [exchange.outcome for exchange in provider.exchanges] == ["abandoned", "answered"]

        asyncio.run(case())

    def test_closing_the_provider_ends_a_held_request(self, wire: WireFormat) -> None:
        async def case() -> None:
            async with LoopbackProvider([Hang(60)]) as provider:
                run = asyncio.create_task(ask(agent_of(provider, wire)))
                await provider.arrived(1)
            with pytest.raises(ModelConnectionError):
                await run

        asyncio.run(case())


class TestScripts:
    def test_running_out_is_a_failure(self, wire: WireFormat) -> None:
        async def case() -> None:
            async with LoopbackProvider(["one"]) as provider:
                agent = agent_of(provider, wire)
                await ask(agent)
                with pytest.raises(ModelHTTPError, match="ran out") as caught:
                    await ask(agent)
            assert caught.value.status_code == 500
            assert provider.failures == [
                f"Request 1 ({wire}): LookupError('the script ran out, it has 1 answers')"
            ]

        asyncio.run(case())

    @pytest.mark.parametrize("answer", [None, Reply(tool_calls=[("lookup", {"key": {1, 2}})])])
    def test_an_answer_that_cannot_be_sent_is_a_failure(self, wire: WireFormat, answer: Any) -> None:
        async def case() -> None:
            async with LoopbackProvider(lambda seen: answer) as provider:
                with pytest.raises(ModelAPIError):
                    await ask(agent_of(provider, wire))
            assert "TypeError" in provider.failures[0]

        asyncio.run(case())

    def test_an_asynchronous_function_decides(self) -> None:
        async def model(seen: Seen) -> Reply:
            await asyncio.sleep(0)
            return Reply(f"{seen.index}: {seen.user_texts[-1]}")

        async def case() -> list[str]:
            async with LoopbackProvider(model) as provider:
                agent = agent_of(provider, "openai-chat")
                return [(await ask(agent, text)).output for text in ("a", "b")]

        assert asyncio.run(case()) == ["0: a", "1: b"]

    def test_an_unknown_endpoint_is_a_failure(self) -> None:
        with LoopbackProvider().run_in_thread() as provider:
            status, _ = post(provider, "/v1/embeddings", {})
        assert status == 404
        assert provider.failures == ["No such endpoint: POST /v1/embeddings"]


class TestThread:
    @pytest.fixture
    def provider(self) -> Iterator[LoopbackProvider]:
        with LoopbackProvider(lambda seen: "from a thread").run_in_thread() as provider:
            yield provider

    def test_a_blocking_client_is_served(self, provider: LoopbackProvider) -> None:
        body = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}
        status, answer = post(provider, "/v1/messages", body)
        assert (status, answer["content"]) == (200, [{"type": "text", "text": "from a thread"}])
        assert provider.environment["ANTHROPIC_BASE_URL"] == provider.url

    def test_models_work_in_any_event_loop(self, provider: LoopbackProvider, wire: WireFormat) -> None:
        agent = agent_of(provider, wire)
        for _ in range(2):
            assert asyncio.run(ask(agent, streamed=True)).output == "from a thread"

    def test_a_gate_opens_from_another_thread(self) -> None:
        gate = Gate()

        async def case(provider: LoopbackProvider) -> str:
            run = asyncio.create_task(ask(agent_of(provider, "openai-chat")))
            await asyncio.to_thread(provider.arrived_blocking, 1)
            gate.open()
            return (await run).output

        with LoopbackProvider([Hang(gate, Reply("opened"))]).run_in_thread() as provider:
            assert asyncio.run(case(provider)) == "opened"


def post(provider: LoopbackProvider, path: str, body: dict[str, Any]) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(provider.url.removeprefix("http://"), timeout=5)
    connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    answer = connection.getresponse()
    status, content = answer.status, json.loads(answer.read())
    connection.close()
    return status, content
