"""ContextGuard alone on a plain pydantic-ai agent: no request of it outgrows the window."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from pydantic import BaseModel, create_model
from pydantic_ai import Agent, NativeOutput, PromptedOutput, ToolOutput
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import UnexpectedModelBehavior, UserError
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.native_tools import WebSearchTool
from pydantic_ai.tools import ToolDefinition

from sidequest.core.budget import ContextBudget
from sidequest.core.compaction import Compacted, Degraded, Overflow, Unchanged
from sidequest.core.errors import ErrorCode
from sidequest.core.outcome import Usage
from sidequest.core.summary import SummaryReply, SummaryRequest
from sidequest.core.tokens import estimate, estimate_text
from sidequest.core.transcript import TranscriptError, mark_of, marked, validate
from sidequest.runtime.guard import ContextGuard, ContextOverflow, Measured
from sidequest.runtime.overhead import OverheadMeter
from sidequest.runtime.reminders import WindowState
from tests.support.neutral import Reply
from tests.support.provider import LoopbackProvider
from tests.support.scripted_model import Asked, ScriptedModel, calling

CHUNK = ("plain words of a result " * 125)[:2_800]


Answer: type[BaseModel] = create_model(
    "Answer", **{f"a_rather_long_name_of_field_{n}": (str, ...) for n in range(60)}
)


def fetch(key: str) -> str:
    """Fetch what is stored under a key."""
    return f"{key}: {CHUNK}"


def fetching(*keys: str) -> list[ModelResponse]:
    return [calling(("fetch", {"key": key})) for key in keys]


@dataclass
class Guarded:
    """An agent in a window of 4,096 with 1,024 output tokens: requests stay below 2,048."""

    model: Any
    options: dict[str, Any] = field(default_factory=dict)
    instructions: str = "Be brief."
    others: tuple[AbstractCapability[Any], ...] = ()
    measured: list[Measured] = field(default_factory=list)

    def __post_init__(self) -> None:
        options = {"window": 4_096, "max_tokens": 1_024, "on_measured": self.measured.append, **self.options}
        self.guard: ContextGuard[None] = ContextGuard(**options)
        self.agent = Agent(
            self.model,
            instructions=self.instructions,
            tools=[fetch],
            capabilities=[*self.others, self.guard],
        )

    def run(self, prompt: Any = "Read them all.", **options: Any) -> list[ModelMessage]:
        """Run the agent and return its history."""
        return asyncio.run(self.agent.run(prompt, **options)).all_messages()


class TestHistory:
    def test_what_fits_is_left_alone(self) -> None:
        guarded = Guarded(ScriptedModel(*fetching("a"), "Done."))
        assert len(guarded.run()) == 4
        assert [type(m.outcome) for m in guarded.measured] == [Unchanged, Unchanged]
        assert guarded.guard.totals.compactions == 0

    def test_a_compaction_rewrites_the_history_for_good(self) -> None:
        model = ScriptedModel(*fetching("a", "b", "c", "d"), "Done.")
        guarded = Guarded(model)
        messages = guarded.run()
        assert guarded.guard.totals.compactions == len(model.summaries) == 1
        first = messages[0].parts[0]
        assert mark_of(first) == "summary"
        assert model.asked[-1].user_texts[1] == "Read them all."
        kinds = [type(part).__name__ for message in messages for part in message.parts]
        assert kinds == ["UserPromptPart", "UserPromptPart", "ToolCallPart", "ToolReturnPart", "TextPart"]

    def test_D10_the_loop_gets_a_copy_and_no_message_is_doubled(self) -> None:
        model = ScriptedModel(*fetching(*"abcdefgh"), "Done.")
        messages = Guarded(model).run()
        assert len(model.summaries) >= 2
        for asked in model.asked:
            assert asked.text.count("Read them all.") == 1
            assert len({id(message) for message in asked.messages}) == len(asked.messages)
        calls = [p.tool_call_id for m in messages for p in m.parts if isinstance(p, ToolCallPart)]
        assert len(calls) == len(set(calls))

    def test_a_second_run_goes_on_from_the_compacted_history(self) -> None:
        model = ScriptedModel(*fetching("a", "b", "c"), "Done.", "Twice done.")
        guarded = Guarded(model)
        guarded.run("Now read.", message_history=guarded.run())
        assert len(model.summaries) == 1
        assert model.asked[-1].user_texts[1:] == ["Read them all.", "Now read."]

    def test_a_failed_summary_keeps_the_newest_prompt_and_rounds(self) -> None:
        guarded = Guarded(ScriptedModel(*fetching("a", "b", "c"), "Done.", summary=RuntimeError("down")))
        messages = guarded.run()
        assert guarded.guard.totals.degradations == 1
        assert isinstance(messages[0].parts[0], UserPromptPart)
        (degraded,) = [m.outcome for m in guarded.measured if isinstance(m.outcome, Degraded)]
        assert "down" in degraded.reason

    def test_streamed_runs_are_guarded_too(self) -> None:
        async def drain(ctx: object, events: AsyncIterable[Any]) -> None:
            async for _ in events:
                pass

        replies = [Reply(tool_calls=[("fetch", {"key": key})]) for key in "abc"]

        async def case() -> int:
            script = [*replies, "## Goal\nGo on.", "Done."]
            async with LoopbackProvider(script, window=4_096) as provider:
                guarded = Guarded(provider.chat_model())
                await guarded.agent.run("Read them all.", event_stream_handler=drain)
                assert provider.failures == []
                assert [seen.stream for seen in provider.requests] == [True, True, True, False, True]
            return guarded.guard.totals.compactions

        assert asyncio.run(case()) == 1


class TestMeasuring:
    def test_instructions_and_schemas_are_counted(self) -> None:
        plain = Guarded(ScriptedModel("Done."))
        long = Guarded(ScriptedModel("Done."), instructions="Follow this rule. " * 50)
        plain.run()
        long.run()
        (first,), (second,) = plain.measured, long.measured
        assert first.overhead.instructions == estimate_text("Be brief.")
        assert second.overhead.instructions == estimate_text(("Follow this rule. " * 50).strip())
        assert first.overhead.tools == second.overhead.tools > 20
        assert second.tokens - first.tokens == second.overhead.total - first.overhead.total

    def test_a_structured_output_is_counted_in_the_form_in_which_it_is_sent(self) -> None:
        counted = {}
        for kind in (str, Answer, ToolOutput(Answer), PromptedOutput(Answer), NativeOutput(Answer)):
            guarded = Guarded(ScriptedModel("{}", repeat=True), {"window": 64_000})
            with suppress(UnexpectedModelBehavior, UserError):
                guarded.run(output_type=kind)
            counted[type(kind).__name__] = guarded.measured[0].overhead.tools
        # pydantic-ai takes the titles out.
        schema = len(Answer.model_fields) * len(next(iter(Answer.model_fields))) // 4
        plain = counted.pop("type")
        assert len(counted) == 4
        for tokens in counted.values():
            assert 2 * schema < tokens - plain == pytest.approx(max(counted.values()) - plain, abs=100)

    def test_the_template_of_a_prompted_output_is_counted(self) -> None:
        sizes = []
        for words in (1, 400):
            guarded = Guarded(ScriptedModel("{}", repeat=True), {"window": 64_000})
            with suppress(UnexpectedModelBehavior):
                guarded.run(output_type=PromptedOutput(Answer, template="Answer like this. " * words))
            sizes.append(guarded.measured[0].overhead.total)
        assert sizes[1] - sizes[0] == pytest.approx(399 * 18 / 4, abs=2)

    def test_every_kind_of_tool_is_counted(self) -> None:
        def overhead(**facts: Any) -> int:
            tool = ToolDefinition(name="t", description="Do it.", **facts)
            meter = OverheadMeter()
            parameters = ModelRequestParameters(function_tools=[tool])
            return meter.measure(parameters, ScriptedModel()).total

        plain = overhead()
        assert plain > 0
        assert overhead(kind="external") == overhead(kind="unapproved") == plain
        returned = {"type": "object", "description": "words " * 100}
        assert overhead(return_schema=returned, include_return_schema=True) > plain + 100
        assert overhead(return_schema=returned) == plain
        search = ModelRequestParameters(native_tools=[WebSearchTool()])
        assert OverheadMeter().measure(search, ScriptedModel()).total > 0

    def test_a_tool_whose_description_or_schema_changes_is_counted_anew(self) -> None:
        meter = OverheadMeter()
        schema: dict[str, Any] = {"type": "object"}

        def counted(description: str) -> int:
            tool = ToolDefinition(name="t", parameters_json_schema=schema, description=description)
            return meter.measure(ModelRequestParameters(function_tools=[tool]), ScriptedModel()).total

        short = counted("Do it.")
        assert counted("Do it. " * 100) > short + 100
        schema["description"] = "words " * 100
        assert counted("Do it.") > short + 100

    def test_a_function_tool_and_an_output_tool_of_one_name_both_count(self) -> None:
        tool, output = (
            ToolDefinition(name="t"),
            ToolDefinition(name="t", description="words " * 100, kind="output"),
        )
        both = ModelRequestParameters(function_tools=[tool], output_tools=[output], output_mode="tool")
        one = ModelRequestParameters(output_tools=[output], output_mode="tool")
        meter = OverheadMeter()
        sizes = [meter.measure(parameters, ScriptedModel()).total for parameters in (both, one)]
        assert sizes[0] > sizes[1] > 150

    def test_a_text_file_in_a_prompt_is_counted_as_its_text(self) -> None:
        guarded = Guarded(ScriptedModel("Done."), {"window": 64_000})
        text = "some words of text " * 2_000
        guarded.run(["Read it.", BinaryContent(text.encode(), media_type="text/plain")])
        assert guarded.measured[0].tokens > estimate_text(text)

    def test_a_system_prompt_stays_in_front_through_a_compaction(self) -> None:
        model = ScriptedModel(*fetching("a", "b", "c"), "Done.")
        guard: ContextGuard[None] = ContextGuard(window=4_096, max_tokens=1_024)
        agent = Agent(model, system_prompt="Be kind.", tools=[fetch], capabilities=[guard])
        messages = asyncio.run(agent.run("Read them all.")).all_messages()
        assert guard.totals.compactions == 1
        assert isinstance(messages[0].parts[0], SystemPromptPart)
        assert all(isinstance(asked.messages[0].parts[0], SystemPromptPart) for asked in model.asked)

    def test_long_instructions_compact_earlier(self) -> None:
        steps = [*fetching("a", "b"), "Done."]
        short, long = (
            Guarded(ScriptedModel(*steps), instructions="Follow this rule. " * times) for times in (1, 150)
        )
        short.run()
        long.run()
        assert [g.guard.totals.compactions for g in (short, long)] == [0, 1]

    def test_each_request_is_told_before_it_leaves_with_the_size_that_leaves(self) -> None:
        model = ScriptedModel(*fetching("a", "b", "c"), "Done.")
        guarded = Guarded(model)
        guarded.run()
        assert [type(m.outcome) for m in guarded.measured] == [Unchanged, Unchanged, Unchanged, Compacted]
        sizes = [
            estimate(asked.messages, m.overhead.total)
            for asked, m in zip(model.asked, guarded.measured, strict=True)
        ]
        assert [m.tokens for m in guarded.measured] == sizes
        assert all(m.tokens < m.budget.hard_limit == 2_048 for m in guarded.measured)

    def test_the_window_is_the_models_own_unless_it_is_given(self) -> None:
        model = ScriptedModel("Done.", repeat=True)
        limits = []
        for window in (None, 64_000):
            guarded = Guarded(model, {"window": window, "max_tokens": 16_000})
            guarded.run()
            limits.append(guarded.measured[0].budget.hard_limit)
        assert limits == [96_000 + 15_616, 47_616]

    def test_what_other_capabilities_add_is_counted_sent_and_never_kept(self) -> None:
        @dataclass
        class Reminder(AbstractCapability[None]):
            async def before_model_request(self, ctx: Any, request_context: Any) -> Any:
                notice = ModelRequest(parts=[marked("REMEMBER THIS " * 20, "notice")])
                return replace(request_context, messages=[*request_context.messages, notice])

        model = ScriptedModel(*fetching("a", "b", "c"), "Done.")
        guarded = Guarded(model, others=(Reminder(),))
        messages = guarded.run()
        assert guarded.guard.totals.compactions == 1
        assert all(asked.user_texts[-1].startswith("REMEMBER THIS") for asked in model.asked)
        assert "REMEMBER" not in model.summaries[0].text
        assert not any(mark_of(part) == "notice" for message in messages for part in message.parts)
        assert all(
            m.tokens > estimate(a.messages[:-1], m.overhead.total)
            for a, m in zip(model.asked, guarded.measured, strict=True)
        )


class TestReminder:
    def test_what_the_model_taught_counts_for_the_reminder_too(self) -> None:
        """With three tokens for each of ours; a limit of 4,000 is reached by some of these prompts."""
        limit, factor = ContextBudget.of(8_000, 1_000).hard_limit, 3.0
        sizes = []
        for words in range(1_000, 1_066, 3):
            model = ScriptedModel("ok")
            state = WindowState(remind=True)
            guard: ContextGuard[None] = ContextGuard(
                window=8_000, max_tokens=1_000, factor=lambda: factor, window_state=state
            )
            asyncio.run(Agent(model, capabilities=[guard]).run("word " * words))
            sizes.append(model.asked[0].tokens * factor)
        assert max(sizes) < limit


class TestOverflow:
    def test_instructions_that_fill_the_window_stop_the_request_and_say_so(self) -> None:
        model = ScriptedModel("Never.")
        guarded = Guarded(model, instructions="Follow this rule. " * 600)
        with pytest.raises(ContextOverflow, match="instructions and tool schemas alone") as caught:
            guarded.run()
        assert caught.value.code is ErrorCode.CONTEXT_TOO_LARGE
        assert "larger context window" in caught.value.remedy
        assert caught.value.failure.details["hardLimit"] == 2_048
        assert model.asked == []
        assert isinstance(guarded.measured[-1].outcome, Overflow)

    def test_a_summary_that_was_paid_for_is_counted_although_it_did_not_help(self) -> None:

        async def empty(request: SummaryRequest) -> SummaryReply:
            return SummaryReply("", usage=Usage(1, 900, 0))

        guarded = Guarded(ScriptedModel("Never."), {"summarise": empty, "window": 64_000})
        with pytest.raises(ContextOverflow):
            guarded.run("x " * 100_000)
        assert guarded.guard.totals.summary_usage == Usage(1, 900, 0)


class TestOutputLimit:
    @pytest.mark.parametrize(
        ("api", "name"),
        [
            ("chat_model", "max_completion_tokens"),
            ("responses_model", "max_output_tokens"),
            ("anthropic_model", "max_tokens"),
        ],
    )
    def test_the_stricter_of_cap_model_and_caller_is_on_the_wire(self, api: str, name: str) -> None:
        cases = [
            ({"max_tokens": 8_000}, {}, 8_000),
            ({"max_tokens": 8_000, "cap": 700}, {}, 700),
            ({"max_tokens": 8_000, "cap": 700}, {"max_tokens": 300}, 300),
            ({"max_tokens": None, "cap": 700}, {}, 700),
        ]

        async def sent(options: Any, settings: Any) -> tuple[str | None, int | None]:
            async with LoopbackProvider(["ok"]) as provider:
                guarded = Guarded(getattr(provider, api)(), {"window": 64_000, **options})
                await guarded.agent.run("Hi.", model_settings=settings)
            return provider.requests[0].max_tokens_field, provider.requests[0].max_tokens

        for options, settings, expected in cases:
            assert asyncio.run(sent(options, settings)) == (name, expected)

    def test_it_may_be_left_off(self) -> None:
        async def case() -> int | None:
            async with LoopbackProvider(["ok"]) as provider:
                guarded = Guarded(provider.chat_model(), {"send_output_limit": False, "cap": 700})
                await guarded.agent.run("Hi.", model_settings={"max_tokens": 300})
            return provider.requests[0].max_tokens

        assert asyncio.run(case()) is None

    def test_it_leaves_room_for_the_input_and_a_reserve(self) -> None:
        """Specification 1.5: 64,000 less 39,000 of input and 4,096 is less than the 40,000 asked for."""
        model = ScriptedModel("ok")
        guarded = Guarded(model, {"window": 64_000, "max_tokens": 40_000})
        guarded.run("words " * 26_000)
        (measured,) = guarded.measured
        assert measured.tokens > 39_000
        assert model.asked[0].settings["max_tokens"] == 64_000 - measured.tokens - 4_096

    def test_input_and_output_never_exceed_the_window_together(self) -> None:
        async def case() -> None:
            async with LoopbackProvider(lambda seen: "ok", window=16_000, enforce_sum=True) as provider:
                guarded = Guarded(provider.chat_model(), {"window": 16_000, "max_tokens": 16_000})
                for words in (10, 1_000, 5_000):
                    await guarded.agent.run("word " * words)
            assert provider.rejections == []

        asyncio.run(case())


class TestRepair:
    """A history that a provider would refuse is repaired before it leaves."""

    @staticmethod
    def broken(*messages: ModelMessage) -> AbstractCapability[Any]:
        @dataclass
        class Breaks(AbstractCapability[None]):
            async def before_model_request(self, ctx: Any, request_context: Any) -> Any:
                return replace(request_context, messages=list(messages))

        return Breaks()

    PROMPT = ModelRequest(parts=[UserPromptPart("Hi.")])
    CALL = ModelResponse(parts=[ToolCallPart("fetch", {"key": "a"}, tool_call_id="c1")])
    RESULT = ModelRequest(parts=[ToolReturnPart("fetch", "found", tool_call_id="c1")])
    MORE = ModelRequest(parts=[UserPromptPart("More.")])

    @pytest.mark.parametrize(
        "messages",
        [
            (PROMPT, RESULT, MORE),
            (PROMPT, CALL, MORE),
            (PROMPT, CALL, ModelResponse(parts=[TextPart("Hm.")]), MORE),
        ],
        ids=["result without call", "call without result", "call followed by text"],
    )
    def test_calls_and_results_pair_up_on_the_wire(self, messages: tuple[ModelMessage, ...]) -> None:
        async def case() -> None:
            async with LoopbackProvider(["ok"]) as provider:
                guarded = Guarded(provider.anthropic_model(), others=(self.broken(*messages),))
                await guarded.agent.run("Hi.")
            assert provider.rejections == []

        asyncio.run(case())

    def test_what_cannot_be_repaired_does_not_leave(self) -> None:
        model = ScriptedModel("Never.")
        answer_only = ModelResponse(parts=[TextPart("Hm.")])
        with pytest.raises(TranscriptError, match="begin with a request"):
            Guarded(model, others=(self.broken(answer_only, self.MORE),)).run()
        assert model.asked == []

    def test_a_history_that_the_caller_gives_is_sent_in_a_valid_form(self) -> None:
        model = ScriptedModel("ok")
        Guarded(model).run("And?", message_history=[self.PROMPT, self.RESULT, self.MORE])
        validate(model.asked[0].messages)


class TestParallelRuns:
    def test_two_runs_of_one_agent_measure_their_own_histories(self) -> None:
        counted = {"Long.": 0, "Short.": 0}

        def work(asked: Asked) -> Any:
            name = "Long." if "Long." in asked.user_texts else "Short."
            counted[name] += 1
            return "Done." if counted[name] > (7 if name == "Long." else 1) else fetching("a")[0]

        model = ScriptedModel(work, repeat=True)
        guarded = Guarded(model)

        async def case() -> list[list[ModelMessage]]:
            results = await asyncio.gather(guarded.agent.run("Long."), guarded.agent.run("Short."))
            return [result.all_messages() for result in results]

        long, short = asyncio.run(case())
        assert mark_of(long[0].parts[0]) == "summary"
        assert len(short) == 4
        assert not {id(m) for m in long} & {id(m) for m in short}
        assert guarded.guard.totals.compactions >= 2, "the totals are those of all runs"

    def test_a_forced_compaction_is_for_the_next_run_alone(self) -> None:
        history = [
            ModelRequest(parts=[UserPromptPart("Before.")]),
            ModelResponse(parts=[TextPart("words of an answer " * 60)]),
        ]
        model = ScriptedModel("ok", repeat=True)
        guarded = Guarded(model)
        guarded.guard.force_next = True
        guarded.run(message_history=history)
        guarded.run(message_history=history)
        assert [type(m.outcome) for m in guarded.measured] == [Compacted, Unchanged]

    def test_results_are_bounded_by_the_window_of_their_run(self) -> None:
        def huge(key: str) -> str:
            """Fetch what is stored under a key."""
            return "words of a huge result " * 5_000

        sizes = []
        for window in (4_096, 32_000):
            model = ScriptedModel(calling(("huge", {"key": "a"})), "Done.")
            guard: ContextGuard[None] = ContextGuard(window=window)
            asyncio.run(Agent(model, tools=[huge], capabilities=[guard]).run("Go."))
            sizes.append(estimate_text(model.asked[-1].results[0]))
        assert sizes[0] <= 1_024
        assert 7_000 < sizes[1] <= 8_000


@pytest.mark.parametrize("small", [1, 3])
def test_small_calls_between_rounds_that_never_fit_do_not_go_on_for_ever(small: int) -> None:
    def works(asked: Asked) -> ModelResponse:
        if len(asked.results) < small:
            return calling(("noop", {}))
        return calling(*(("fetch", {"key": f"k{number}"}) for number in range(10)))

    def noop() -> str:
        """Do nothing."""
        return "nothing"

    model = ScriptedModel(works, summary="", repeat=True)
    guard: ContextGuard[Any] = ContextGuard(window=8_000)
    with pytest.raises(ContextOverflow):
        asyncio.run(
            Agent(model, tools=[noop, fetch], capabilities=[guard]).run("Find it.", usage_limits=None)
        )
    assert len(model.asked) < 60
