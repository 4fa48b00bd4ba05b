"""The lean client: the bytes on the wire are those of the SDK's own client, for every kind of message."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryFeedbackPart,
    RetryInfo,
    SystemPromptPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from sidequest.core.provider_errors import Kind, classify, facts_from_exception
from sidequest.models.wire import lean
from tests.support.error_bodies import rate_limited
from tests.support.neutral import Reject, Reply, Seen
from tests.support.provider import LoopbackProvider

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360606060000000050001a5f64540"
)
TOOLS = [
    ToolDefinition(
        name="Read",
        description="Read a file.",
        parameters_json_schema={
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            },
            "required": ["path"],
        },
    )
]
CALL = ToolCallPart("Read", {"path": "ä/日本.txt", "limit": None}, tool_call_id="call_1")
SECOND = ToolCallPart("Read", '{"path": "b.txt"}', tool_call_id="call_2")


def _prompt(*parts: Any) -> ModelRequest:
    return ModelRequest(parts=list(parts))


HISTORIES: dict[str, list[ModelMessage]] = {
    "text": [_prompt(UserPromptPart("Hello, ünïcode 👋"))],
    "system": [_prompt(SystemPromptPart("Be brief."), UserPromptPart("Hello"))],
    "marked": [
        _prompt(UserPromptPart([TextContent("The brief", metadata={"sidequest": "brief"}), "and more"]))
    ],
    "image": [_prompt(UserPromptPart(["Look:", BinaryContent(PIXEL, media_type="image/png")]))],
    "call": [
        _prompt(UserPromptPart("Read")),
        ModelResponse(parts=[TextPart("I read."), CALL]),
        _prompt(ToolReturnPart("Read", "text\nof the file", tool_call_id="call_1")),
    ],
    "parallel": [
        _prompt(UserPromptPart("Read both")),
        ModelResponse(parts=[CALL, SECOND]),
        _prompt(
            ToolReturnPart("Read", {"lines": [1, 2.5, None, True]}, tool_call_id="call_1"),
            ToolReturnPart("Read", "not there", tool_call_id="call_2", outcome="failed"),
        ),
    ],
    "thinking": [
        _prompt(UserPromptPart("Think")),
        ModelResponse(parts=[ThinkingPart("hm"), TextPart("Thought.")]),
        _prompt(UserPromptPart("Go on")),
    ],
    "feedback": [
        _prompt(UserPromptPart("Answer")),
        ModelResponse(parts=[TextPart("x")]),
        _prompt(RetryFeedbackPart("Answer in full sentences.", retry=RetryInfo(cause="no_output"))),
    ],
}
SETTINGS: dict[str, ModelSettings] = {
    "plain": {},
    "rich": {
        "max_tokens": 50,
        "temperature": 0.5,
        "parallel_tool_calls": False,
        "extra_headers": {"x-extra": "yes"},
        "extra_body": {"user": "me"},
        "tool_choice": "none",
    },
}


def _model(provider: LoopbackProvider, api: str, *, lean_client: bool) -> Any:
    model: Any = getattr(provider, api)()
    if lean_client:
        lean(model.client)
    return model


async def _send(
    model: Model, messages: list[ModelMessage], settings: ModelSettings, *, stream: bool
) -> ModelResponse:
    parameters = ModelRequestParameters(function_tools=TOOLS, allow_text_output=True)
    prepared = model.prepare_messages(messages, parameters)
    if not stream:
        return await model.request(prepared, settings, parameters)
    async with model.request_stream(prepared, settings, parameters) as response:
        async for _ in response:
            pass
    return response.get()


def _answer(seen: Seen) -> Reply:
    return Reply("Fine.", tool_calls=[("Read", {"path": "x"})])


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", ["chat_model", "responses_model"])
def test_the_body_is_identical_to_the_stock_clients(api: str, stream: bool) -> None:
    async def run() -> None:
        async with LoopbackProvider(_answer, pairing=False) as provider:
            stock, ours = _model(provider, api, lean_client=False), _model(provider, api, lean_client=True)
            for name, messages in HISTORIES.items():
                for kind, settings in SETTINGS.items():
                    first = await _send(stock, messages, settings, stream=stream)
                    second = await _send(ours, messages, settings, stream=stream)
                    left, right = provider.requests[-2:]
                    assert left.raw == right.raw, (name, kind)
                    assert left.headers.get("authorization") == right.headers.get("authorization")
                    assert left.headers.get("x-extra") == right.headers.get("x-extra")
                    assert [type(p) for p in first.parts] == [type(p) for p in second.parts]
                    assert first.usage == second.usage

    asyncio.run(run())


def test_error_classes_stay_those_of_the_sdk() -> None:
    async def run() -> None:
        async with LoopbackProvider(lambda seen: rate_limited(seen, retry_after=7)) as provider:
            model = _model(provider, "chat_model", lean_client=True)
            with pytest.raises(ModelHTTPError) as caught:
                await _send(model, HISTORIES["text"], {}, stream=False)
        assert caught.value.status_code == 429
        assert type(caught.value.__cause__).__name__ == "RateLimitError"

    asyncio.run(run())


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "prompt is too long: 9000 tokens > 8000 maximum"}},
        {"choices": None, "base_resp": {"status_code": 1039, "status_msg": "token limit"}},
    ],
)
def test_an_error_inside_an_answer_of_200_is_an_error(body: dict[str, Any]) -> None:
    async def run() -> None:
        async with LoopbackProvider(lambda seen: Reject(200, body)) as provider:
            model = _model(provider, "chat_model", lean_client=True)
            with pytest.raises(ModelHTTPError) as caught:
                await _send(model, HISTORIES["text"], {}, stream=False)
        assert classify(facts_from_exception(caught.value)).kind is Kind.INPUT

    asyncio.run(run())
