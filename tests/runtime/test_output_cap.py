"""The output cap of a definition, from its document to the wire and to the report (decision record 0210)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sidequest.core.errors import ErrorCode
from sidequest.core.outcome import Status, StopReason, report_text
from sidequest.models.bindings import ModelBinding, ModelEntry
from sidequest.models.registry import ModelRegistry
from sidequest.runtime.model_choice import RegistryModels
from sidequest.runtime.session import Session, SessionOptions
from sidequest.subagents.catalog import Catalog
from sidequest.subagents.definition import SubagentDefinition
from sidequest.subagents.parse import parse_definition
from tests.support.acts import Acts, call
from tests.support.chain import APIS, Link, run_chain
from tests.support.error_bodies import error
from tests.support.neutral import Reply, Seen
from tests.support.provider import LoopbackProvider

FIELDS = {
    "chat_model": "max_completion_tokens",
    "responses_model": "max_output_tokens",
    "anthropic_model": "max_tokens",
}
ALL_FIELDS = {"max_tokens", *FIELDS.values()}


def definition(max_tokens: str | None, name: str = "worker") -> SubagentDefinition:
    """A definition as a person writes it."""
    cap = f"maxTokens: {max_tokens}\n" if max_tokens is not None else ""
    parsed = parse_definition(
        f"---\nname: {name}\ndescription: Works.\ntools: Read\n{cap}---\nYou work.\n", path=f"{name}.md"
    )
    assert parsed.definition is not None
    return parsed.definition


def opened(own: ModelBinding, *definitions: SubagentDefinition) -> Session:
    """A session on a model of its own, with these subagents."""
    return Session(
        SessionOptions(root=Path(__file__).parent, project_instructions=False),
        Catalog.from_definitions(definitions),
        RegistryModels(ModelRegistry(env={}, bindings=[own]), own),
    )


def sent(seen: Seen) -> dict[str, int]:
    """Every output field of a request, by its name on the wire."""
    return {name: seen.json[name] for name in ALL_FIELDS if name in seen.json}


class TestOnTheWire:
    @pytest.mark.parametrize("api", APIS)
    @pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
    def test_it_travels_under_the_name_of_the_format(self, api: str, stream: bool) -> None:
        chain = run_chain(Link(["Done."], api=api, max_tokens=32_000), cap=900, stream=stream)
        assert sent(chain.requests[0]) == {FIELDS[api]: 900}

    def test_servers_that_imitate_openai_get_the_name_they_know(self) -> None:
        """Ollama accepts `max_completion_tokens` and ignores it (ollama#7125)."""

        async def case() -> dict[str, int]:
            async with LoopbackProvider(["Done."]) as provider:
                entry = ModelEntry(base_url=provider.openai_url, max_tokens=32_000)
                own = ModelRegistry({"lab/qwen": entry}, {}).resolve("lab/qwen")
                async with opened(own, definition("900")) as session:
                    await session.delegate("worker", "Work.")
                return sent(provider.requests[0])

        assert asyncio.run(case()) == {"max_tokens": 900}

    @pytest.mark.parametrize("api", APIS)
    @pytest.mark.parametrize(
        ("cap", "model", "asked"),
        [
            (64_000, 8_192, 8_192),
            (8_192, 8_192, 8_192),
            (900, 8_192, 900),
            (None, 8_192, 8_192),
            (0, 8_192, 8_192),
        ],
    )
    def test_it_is_stricter_than_the_model_and_never_looser(
        self, api: str, cap: int | None, model: int, asked: int
    ) -> None:
        chain = run_chain(Link(["Done."], api=api, max_tokens=model), cap=cap)
        assert sent(chain.requests[0]) == {FIELDS[api]: asked}

    @pytest.mark.parametrize("api", ["chat_model", "responses_model"])
    def test_without_any_limit_no_field_is_sent(self, api: str) -> None:
        assert sent(run_chain(Link(["Done."], api=api)).requests[0]) == {}

    def test_a_cap_on_a_model_of_unknown_limit_is_sent_as_it_is(self) -> None:
        assert sent(run_chain(Link(["Done."]), cap=700).requests[0]) == {"max_completion_tokens": 700}

    @pytest.mark.parametrize("api", APIS)
    def test_it_binds_each_response_and_not_the_run(self, api: str) -> None:
        chain = run_chain(Link([*READS, "Done."], api=api), tools=[fetch], cap=900)
        assert [sent(seen) for seen in chain.requests] == [{FIELDS[api]: 900}] * 4

    @pytest.mark.parametrize("api", APIS)
    def test_it_binds_summaries_too(self, api: str) -> None:
        script = Acts(*READS, "Done.")
        chain = run_chain(Link(script, api=api, window=4_096), tools=[fetch], cap=500)
        assert chain.outcome.compactions == 1
        assert [sent(seen) for seen in script.summarised] == [{FIELDS[api]: 500}]

    def test_it_binds_the_model_that_a_run_falls_back_to(self) -> None:
        gone = lambda seen: error(seen.format, 404, "gone")  # noqa: E731
        apis = [*APIS]
        links = [Link([gone], api=api, max_tokens=32_000) for api in apis]
        chain = run_chain(*links, Link(["Done."], max_tokens=300), cap=900)
        assert [sent(seen) for seen in chain.requests] == [
            {"max_completion_tokens": 900},
            {"max_output_tokens": 900},
            {"max_tokens": 900},
            {"max_completion_tokens": 300},
        ]


class TestOnlyThatDelegate:
    """One session, one model, two definitions: only the requests of the capped one carry its cap."""

    @staticmethod
    def script(seen: Seen) -> Reply:
        if "Task" not in seen.tool_names:
            return Reply("Read it.")
        if not seen.tool_results:
            tasks = [("Task", {"agent": name, "task": f"Task of {name}."}) for name in ("capped", "free")]
            return Reply(tool_calls=tasks)
        return Reply("All done.") if len(seen.tool_results) > 2 else call("TaskWait")

    @pytest.mark.parametrize("api", APIS)
    def test_the_session_and_a_sibling_keep_the_models_limit(self, api: str) -> None:
        async def case() -> list[Seen]:
            async with LoopbackProvider(self.script) as provider:
                model = getattr(provider, api)()
                own = ModelBinding("test/m", "test", "m", "test", max_tokens=6_000, factory=lambda: model)
                async with opened(own, definition("900", "capped"), definition(None, "free")) as session:
                    result = await session.prompt("Delegate.")
                assert (result.ok, result.text) == (True, "All done.")
                return provider.requests

        requests = asyncio.run(case())
        by_task = {text: sent(seen) for seen in requests for text in seen.user_texts}
        assert by_task["Task of capped."] == {FIELDS[api]: 900}
        assert by_task["Task of free."] == {FIELDS[api]: 6_000}
        sessions = [sent(seen) for seen in requests if "Task" in seen.tool_names]
        assert sessions == [{FIELDS[api]: 6_000}] * len(sessions)

    @pytest.mark.parametrize(
        ("written", "asked"),
        [
            (None, 6_000),
            ("none", 6_000),
            ("0", 6_000),
            ("1", 1),
            ("900", 900),
            ("6001", 6_000),
            ("200001", 6_000),
            ("-5", 6_000),
            ("1.5", 6_000),
            ("abc", 6_000),
        ],
    )
    def test_what_a_document_may_say(self, written: str | None, asked: int) -> None:
        async def case() -> dict[str, int]:
            async with LoopbackProvider(["Done."]) as provider:
                model = provider.anthropic_model()
                own = ModelBinding("test/m", "test", "m", "test", max_tokens=6_000, factory=lambda: model)
                async with opened(own, definition(written)) as session:
                    await session.delegate("worker", "Work.")
                return sent(provider.requests[0])

        assert asyncio.run(case()) == {"max_tokens": asked}


async def fetch(key: str) -> str:
    """Fetch what is stored under a key."""
    RAN.append(key)
    return f"{key}: " + ("plain words of a result " * 125)[:2_800]


RAN: list[str] = []
READS = [call("fetch", key=key) for key in "abc"]


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RAN.clear()


class TestACutReport:
    @pytest.mark.parametrize("api", APIS)
    @pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
    def test_it_is_partial_and_keeps_its_text(self, api: str, stream: bool) -> None:
        outcome = run_chain(
            Link([Reply("The first half of", finish="length")], api=api), cap=900, stream=stream
        ).outcome
        assert (outcome.status, outcome.stop_reason) == (Status.PARTIAL, StopReason.LENGTH)
        assert outcome.report == "The first half of"
        assert outcome.failure is not None
        assert outcome.failure.code is ErrorCode.SUBAGENT_OUTPUT_TRUNCATED
        assert report_text(outcome).endswith("The first half of")
        assert "cut by the output cap" in report_text(outcome).splitlines()[0]

    def test_no_other_model_is_asked(self) -> None:
        chain = run_chain(Link([Reply("Half", finish="length")]), Link(["never"]), cap=900)
        assert (chain.outcome.model, chain.resolved) == ("test/1", [])

    @pytest.mark.parametrize("api", APIS)
    def test_a_cut_before_any_text_is_a_failure_of_the_cap_and_no_empty_report(self, api: str) -> None:
        outcome = run_chain(Link([Reply(finish="length")] * 3, api=api), cap=5).outcome
        assert outcome.status is Status.FAILED
        assert outcome.failure is not None
        assert outcome.failure.code is ErrorCode.SUBAGENT_OUTPUT_TRUNCATED

    def test_reasoning_that_used_the_cap_up_is_one_too(self) -> None:
        outcome = run_chain(
            Link([Reply(thinking="hm", finish="length")] * 3, api="anthropic_model"), cap=5
        ).outcome
        assert outcome.failure is not None
        assert outcome.failure.code is ErrorCode.SUBAGENT_OUTPUT_TRUNCATED

    def test_a_cut_text_before_a_complete_report_does_not_make_it_partial(self) -> None:
        cut = Reply("Looking at", [("fetch", {"key": "a"})], finish="length")
        outcome = run_chain(Link([cut, call("fetch", key="a"), "Done."]), tools=[fetch], cap=900).outcome
        assert (outcome.status, outcome.report) == (Status.COMPLETED, "Done.")


CUTS: list[Any] = [
    ("valid-looking", {"key": "a"}),
    ("empty", {}),
    ("broken", '{"key": "a'),
]


class TestACutToolCall:
    @staticmethod
    def cut(arguments: Any) -> Reply:
        return Reply("I look.", [("fetch", arguments)], finish="length")

    @pytest.mark.parametrize("api", APIS)
    @pytest.mark.parametrize("arguments", [row[1] for row in CUTS], ids=[row[0] for row in CUTS])
    @pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
    def test_it_is_never_executed_and_the_model_is_told(self, api: str, arguments: Any, stream: bool) -> None:
        chain = run_chain(
            Link([self.cut(arguments), "Done."], api=api), tools=[fetch], cap=900, stream=stream
        )
        assert RAN == []
        assert chain.outcome.status is Status.COMPLETED
        _, again = chain.requests
        assert (again.tool_calls, again.tool_results) == ((), ())
        told = again.user_texts[-1]
        assert "900 tokens" in told
        assert "fetch" in told
        assert "not executed" in told

    @pytest.mark.parametrize("api", APIS)
    def test_of_several_calls_none_is_executed(self, api: str) -> None:
        both = Reply(tool_calls=[("fetch", {"key": "a"}), ("fetch", {"key": "b"})], finish="length")
        chain = run_chain(Link([both, "Done."], api=api), tools=[fetch], cap=900)
        assert RAN == []
        assert chain.outcome.status is Status.COMPLETED

    @pytest.mark.parametrize("api", APIS)
    def test_a_second_cut_in_a_row_ends_the_run_with_what_it_said(self, api: str) -> None:
        chain = run_chain(Link([self.cut({"key": "a"})] * 2, api=api), tools=[fetch], cap=900)
        assert RAN == []
        assert chain.outcome.status is Status.FAILED
        assert chain.outcome.failure is not None
        assert chain.outcome.failure.code is ErrorCode.SUBAGENT_OUTPUT_TRUNCATED
        assert "I look." in report_text(chain.outcome)

    def test_a_call_that_comes_through_in_between_starts_the_count_anew(self) -> None:
        fine = call("fetch", key="b")
        cut = self.cut({"key": "a"})
        chain = run_chain(Link([cut, fine, cut, fine, "Done."]), tools=[fetch], cap=900)
        assert (chain.outcome.status, RAN) == (Status.COMPLETED, ["b", "b"])

    def test_arguments_that_do_not_parse_are_not_executed_whatever_the_finish_says(self) -> None:
        """Some servers say `tool_calls` although the cap cut the call (overflow-messages 4)."""
        cut = Reply(tool_calls=[("fetch", '{"key": "a')], finish="tool_calls")
        chain = run_chain(Link([cut, "Done."]), tools=[fetch], cap=900)
        assert (chain.outcome.status, RAN) == (Status.COMPLETED, [])
