"""`offline/extractive` as a pydantic-ai model: window, output limit, usage, streaming, determinism."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path

import pytest
from pydantic_ai import Agent, AgentRunResultEvent
from pydantic_ai.exceptions import ModelContextWindowExceededError, ModelHTTPError
from pydantic_ai.messages import (
    BinaryContent,
    CompactionPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPartDelta,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition

from sidequest.core.budget import ContextBudget
from sidequest.models.bindings import OFFLINE_KEY
from sidequest.models.extractive import ExtractiveModel
from tests.models.offline_bench import Workspace, calls_of, user

NO_TOOLS = ModelRequestParameters()
READ = ModelRequestParameters(
    function_tools=[
        ToolDefinition(
            name=name, parameters_json_schema={"type": "object", "properties": {"path": {}, "limit": {}}}
        )
        for name in ("Read", "Grep")
    ]
)
GREP = ModelRequestParameters(
    function_tools=[ToolDefinition(name="grep", parameters_json_schema={"properties": {"pattern": {}}})]
)


def ask(model: ExtractiveModel, *messages: ModelMessage, **settings: int | str) -> ModelResponse:
    """Make one request without tools."""
    return asyncio.run(model.request(list(messages), settings or None, NO_TOOLS))  # type: ignore[arg-type]


def test_it_says_what_it_is() -> None:
    model = ExtractiveModel(window=8_000, max_tokens=500)
    assert (model.key, model.system, model.model_name) == (OFFLINE_KEY, "offline", "extractive")
    assert model.context_window == 8_000
    assert ContextBudget.for_model(model, max_tokens=model.max_tokens).hard_limit == 4_000


def test_a_request_below_the_window_is_answered_and_one_at_the_window_is_refused() -> None:
    model = ExtractiveModel(window=100)
    assert ask(model, user("x" * 396)).usage.input_tokens == 99
    with pytest.raises(ModelHTTPError) as caught:
        ask(model, user("x" * 397))
    assert isinstance(caught.value, ModelContextWindowExceededError)
    assert caught.value.status_code == 400
    assert caught.value.body == {
        "error": {
            "message": "This model's maximum context length is 100 tokens. "
            "However, your messages resulted in 100 tokens.",
            "type": "invalid_request_error",
            "code": "context_length_exceeded",
        }
    }


def test_instructions_and_tool_schemas_count() -> None:
    model = ExtractiveModel()
    bare = asyncio.run(model.count_tokens([user("hello")], None, NO_TOOLS)).input_tokens
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    tool = ToolDefinition(name="Read", description="d" * 400, parameters_json_schema=schema)
    tooled = ModelRequestParameters(function_tools=[tool])
    assert asyncio.run(model.count_tokens([user("hello")], None, tooled)).input_tokens > bare + 100
    instructed = ModelRequest(parts=[UserPromptPart("hello")], instructions="i" * 400)
    assert asyncio.run(model.count_tokens([instructed], None, NO_TOOLS)).input_tokens == bare + 100


def test_an_answer_over_the_output_limit_is_cut_and_says_so() -> None:
    response = ask(ExtractiveModel(), user("hello"), max_tokens=5)
    assert response.finish_reason == "length"
    assert len(response.text or "") == 20
    assert response.usage.output_tokens == 5


def test_a_request_cannot_raise_the_output_limit() -> None:
    assert ask(ExtractiveModel(max_tokens=5), user("hello"), max_tokens=5_000).usage.output_tokens == 5


def test_a_report_is_made_to_fit_its_output_limit(tmp_path: Path) -> None:
    lines = "".join(f"FACT_LINE {number} of a long list\n" for number in range(400))
    workspace = Workspace(tmp_path, grep_lines=1_000).write({"a.txt": lines})
    agent = workspace.agent(ExtractiveModel(window=200_000, max_tokens=400))
    result = asyncio.run(agent.run("List all FACT_LINE lines"))
    assert result.response.finish_reason == "stop"
    assert "Found 400 matching lines in 1 file." in result.output
    assert "more matching lines are not shown" in result.output


def test_usage_counts_what_was_sent_and_what_was_written() -> None:
    response = ask(ExtractiveModel(), user("hello"))
    assert response.usage.input_tokens == 2
    assert response.usage.output_tokens == math.ceil(len(response.text or "") / 4)
    assert (response.finish_reason, response.provider_name) == ("stop", "offline")


def test_a_tool_call_ends_with_its_own_reason() -> None:
    response = asyncio.run(ExtractiveModel().request([user("Where is x_y?")], None, READ))
    assert response.finish_reason == "tool_call"
    assert response.usage.output_tokens > 0


def test_the_same_request_gets_the_same_answer_ids_included() -> None:
    request = [user("Where is x_y?")]
    model = ExtractiveModel()
    first, second = (asyncio.run(model.request(request, None, READ)) for _ in range(2))
    assert first.parts == second.parts


def test_call_ids_differ_between_runs_and_turns(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path).write()
    runs = [asyncio.run(workspace.agent().run("How does the retry wait?")) for _ in range(2)]
    ids = [call.tool_call_id for run in runs for call in calls_of(run.all_messages())]
    assert len(set(ids)) == len(ids)
    assert runs[0].output == runs[1].output


def test_streaming_gives_the_same_as_not_streaming_in_words(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path).write()
    deltas: list[str] = []

    async def streamed() -> str:
        output = ""
        async with workspace.agent().run_stream_events("How does the retry wait?") as events:
            async for event in events:
                if isinstance(event, PartStartEvent):
                    deltas.append(getattr(event.part, "content", ""))
                elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                    deltas.append(event.delta.content_delta)
                elif isinstance(event, AgentRunResultEvent):
                    output = event.result.output
                    usage.append(event.result.usage.output_tokens)
        return output

    usage: list[int] = []
    whole = asyncio.run(workspace.agent().run("How does the retry wait?"))
    assert asyncio.run(streamed()) == whole.output
    assert "".join(deltas).endswith(whole.output)
    assert max(len(delta.split()) for delta in deltas) == 1
    assert usage == [whole.usage.output_tokens]


def test_a_stream_reports_why_it_ended() -> None:
    async def run() -> ModelResponse:
        async with ExtractiveModel().request_stream([user("hello")], {"max_tokens": 5}, NO_TOOLS) as stream:
            async for _ in stream:
                pass
            return stream.get()

    response = asyncio.run(run())
    assert (response.finish_reason, response.state, len(response.text or "")) == ("length", "complete", 20)


def test_a_delay_waits_once_a_turn_and_none_does_not_wait() -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    ask(ExtractiveModel(sleep=sleep), user("hello"))
    assert waited == []
    ask(ExtractiveModel(delay_s=0.4, sleep=sleep), user("hello"))
    assert waited == [0.4]


def test_without_tools_it_quotes_the_text_in_front_of_it() -> None:
    text = "The bridge opened in 1932.\nIt carries eight lanes.\nThe toll is four coins.\n\nWhat is the toll?"
    answer = ask(ExtractiveModel(), user(text)).text or ""
    assert "> The toll is four coins." in answer
    assert "bridge opened" not in answer


def test_without_tools_and_without_a_matching_text_it_says_so() -> None:
    answer = ask(ExtractiveModel(), user("What is the height of the tower?")).text or ""
    assert "no search tool was offered" in answer


def test_asked_for_a_report_without_tools_it_reports_what_it_had_found(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path).write()
    history = asyncio.run(workspace.agent().run("Where is MAX_TRIES set?")).all_messages()[:3]
    notice = user("This is your last turn: the turn limit is reached. Write your report now.")
    response = asyncio.run(ExtractiveModel().request([*history, notice], {"tool_choice": "none"}, READ))
    assert "- src/retry.py:3: MAX_TRIES = 4" in (response.text or "")


def test_a_summary_part_of_the_framework_is_read_like_a_summary() -> None:
    summary = "## Goal\nWhere is x_y?\n\n## Critical Context\n- src/a.py:3: x_y = 1"
    messages = [ModelRequest(parts=[CompactionPart(summary), UserPromptPart("Where is x_y?")])]
    assert "- src/a.py:3: x_y = 1" in (ask(ExtractiveModel(), *messages).text or "")


def test_media_and_refused_calls_count_and_are_understood() -> None:
    image = ModelRequest(
        parts=[UserPromptPart(["What is x_y?", BinaryContent(b"\x00" * 9, media_type="image/png")])]
    )
    refused = ToolReturnPart("Grep", "Not allowed.", "c1", outcome="denied")
    call = ModelResponse(parts=[ToolCallPart("Grep", {"pattern": "x_y", "literal": True}, "c1")])
    response = asyncio.run(
        ExtractiveModel().request([image, call, ModelRequest(parts=[refused])], None, READ)
    )
    assert response.usage.input_tokens > 1_200
    assert [part.args for part in calls_of([response])] != [{"pattern": "x_y"}]


def test_arguments_a_tool_does_not_know_are_not_sent() -> None:
    response = asyncio.run(ExtractiveModel().request([user("Where is `x.y`?")], None, GREP))
    assert [part.args for part in calls_of([response])] == [{"pattern": r"x\.y"}]


def test_an_agent_with_other_tools_only_does_not_call_them() -> None:
    agent = Agent(ExtractiveModel())

    @agent.tool_plain
    def Bash(command: str) -> str:
        raise AssertionError("must not be called")

    assert "no search tool was offered" in asyncio.run(agent.run("Where is x_y defined?")).output
