"""What a run does about each failure, as seen on the wire: every provider shape, every kind.

The delegate has fetched once when the failure comes, so there is history to compact and a result to clip; an
alternative stands by. Words of a remedy are those of `tests.support.remedies`.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from sidequest.core.errors import ErrorCode
from sidequest.core.events import ContextDegraded, Notice
from sidequest.core.outcome import DEGRADED_NOTE, Status, StopReason, report_text
from sidequest.core.provider_errors import Kind, Pattern
from sidequest.runtime.attempts import FEWER_BYTES
from sidequest.runtime.knowledge import Knowledge
from tests.support.acts import call
from tests.support.chain import APIS, Link, run_chain
from tests.support.error_bodies import error
from tests.support.neutral import Answer, Drop, Hang, InStreamError, Reject, Reply, Seen, Usage
from tests.support.remedies import BRIEF, Failing, failing, fetch, remedy

COMPACTED = {"summary", "smaller"}

CASES: dict[str, tuple[int, str, str, set[str]]] = {
    # kind: status, error type, sentence, remedy
    "input, window stated": (
        400,
        "invalid_request_error",
        "prompt is too long: 61000 tokens > 60000 maximum",
        COMPACTED,
    ),
    "input, nothing stated": (
        400,
        "context_length_exceeded",
        "Your input exceeds the context window of this model.",
        COMPACTED,
    ),
    "input of the fixed part": (
        400,
        "invalid_request_error",
        "Prompt is too long · the request is ~61000 tokens (limit 60000) but this conversation is only ~9000",
        {"switched"},
    ),
    "sum that fits with less output": (
        400,
        "invalid_request_error",
        "input length and `max_tokens` exceed context limit: 59000 + 3000 > 60000",
        {"lower"},
    ),
    "sum that leaves no output": (
        400,
        "invalid_request_error",
        "input length and `max_tokens` exceed context limit: 59900 + 3000 > 60000",
        COMPACTED,
    ),
    "output over a stated cap": (
        400,
        "invalid_request_error",
        "max_tokens: 3000 > 2000, which is the maximum allowed number of output tokens for m",
        {"lower"},
    ),
    "output over an unknown cap": (
        400,
        "invalid_request_error",
        "max_tokens exceeds what this deployment allows",
        {"lower"},
    ),
    "rate": (429, "rate_limit_error", "Too many requests.", {"waited 2", "unchanged"}),
    "rate over the whole quota": (
        429,
        "rate_limit_error",
        "tokens per min (TPM): Limit 30000, Requested 342389",
        {"switched"},
    ),
    "bytes": (413, "request_too_large", "Request exceeds the maximum size", {"smaller"}),
    "broken": (
        400,
        "invalid_request_error",
        "`tool_use` ids were found without `tool_result` blocks immediately after: toolu_02.",
        {"unchanged"},  # there is nothing to repair here; see TestRepairs
    ),
    "server": (529, "overloaded_error", "Overloaded", {"waited 1", "unchanged"}),
    "auth": (401, "authentication_error", "invalid x-api-key", {"switched"}),
    "not found": (404, "not_found_error", "model not found: m", {"switched"}),
    "request": (400, "invalid_request_error", "Your credit balance is too low", {"switched"}),
}


def http(status: int, code: str, text: str) -> Any:
    return lambda seen: error(seen.format, status, text, code=code)


def event(status: int, code: str, text: str) -> Answer:
    return InStreamError(text, code)


def event_after_text(status: int, code: str, text: str) -> Answer:
    return InStreamError(text, code, after=Reply("Half an ans"))


SHAPES: dict[str, Callable[[int, str, str], Any]] = {
    "http": http,
    "event": event,
}


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("shape", ["http", "event"])
@pytest.mark.parametrize("case", CASES)
def test_each_shape_of_each_kind_gets_its_remedy(case: str, shape: str, api: str) -> None:
    *said, expected = CASES[case]
    script = Failing(SHAPES[shape](*said))
    chain = failing(script, api, stream=shape != "http")
    assert remedy(script, chain) == expected
    assert chain.outcome.status is Status.COMPLETED
    assert chain.outcome.report.startswith("Done")
    assert all(seen.text.count(BRIEF) == 1 for seen in chain.requests if seen.tool_names)


@pytest.mark.parametrize(("case", "api"), [(case, APIS[n % 3]) for n, case in enumerate(CASES)])
def test_an_error_after_half_an_answer_is_read_alike_and_the_half_is_forgotten(case: str, api: str) -> None:
    *said, expected = CASES[case]
    script = Failing(event_after_text(*said))
    chain = failing(script, api, stream=True)
    assert remedy(script, chain) == expected
    assert all("Half an ans" not in seen.text for seen in chain.requests)


def test_a_failed_response_in_a_200_is_read_like_the_others() -> None:
    """Only Responses has a shape for it; the other SDKs keep nothing of such a body."""
    for case, (*said, expected) in CASES.items():
        script = Failing(event(*said))
        chain = failing(script, "responses_model", stream=False)
        assert remedy(script, chain) == expected, case


class TestNumbers:
    """What the numbers of a sentence do: to the output limit, to the window, to the estimate, to the wait."""

    @pytest.mark.parametrize("api", APIS)
    def test_the_output_is_lowered_to_what_the_window_leaves_beside_the_input(self, api: str) -> None:
        script = Failing(http(*CASES["sum that fits with less output"][:3]))
        failing(script, api)
        assert [seen.max_tokens for seen in (*script.failed, *script.later)] == [3_000, 60_000 - 59_000 - 64]
        assert script.later[0].messages == script.failed[0].messages

    @pytest.mark.parametrize("api", APIS)
    def test_the_output_is_lowered_to_the_cap_that_is_stated_and_else_halved(self, api: str) -> None:
        for case, lowered in (("output over a stated cap", 2_000), ("output over an unknown cap", 1_500)):
            script = Failing(http(*CASES[case][:3]))
            failing(script, api)
            assert [seen.max_tokens for seen in (*script.failed, *script.later)] == [3_000, lowered]
            assert script.later[0].messages == script.failed[0].messages

    def test_a_cap_that_is_refused_three_times_is_given_up(self) -> None:
        script = Failing(http(*CASES["output over an unknown cap"][:3]), times=3)
        chain = failing(script, "chat_model")
        assert [seen.max_tokens for seen in script.failed] == [3_000, 1_500, 750]
        assert (chain.outcome.model, script.summaries) == ("test/2", [])

    def test_a_window_that_is_stated_is_learned(self) -> None:
        knowledge = Knowledge()
        failing(Failing(http(*CASES["input, window stated"][:3])), "chat_model", knowledge=knowledge)
        assert knowledge.of("test/1").window == 60_000
        assert knowledge.of("test/2").window is None

    def test_a_window_that_is_learned_is_told_once_and_named_by_an_overflow(self) -> None:
        chain = failing(Failing(http(*CASES["input, window stated"][:3])), "chat_model", window=128_000)
        (told,) = chain.bench.of(Notice)
        assert told.text.startswith(
            "test/1 accepts 60,000 tokens, as its provider shows, not the 128,000 of settings or catalog"
        )
        knowledge = Knowledge()
        knowledge.of("test/1").learn_window(1_000)
        task = "A long brief. " * 2_000
        failure = run_chain(Link(["Never."], window=32_000), task=task, knowledge=knowledge).outcome.failure
        assert failure is not None
        assert "its provider accepts 1,000 in all, not the 32,000 of settings or catalog" in failure.cause

    def test_a_count_that_is_stated_raises_the_estimate_at_once(self) -> None:
        knowledge = Knowledge()
        script = Failing(
            lambda seen: error(seen.format, 400, f"prompt is too long: {2 * seen.tokens} tokens > 900")
        )
        failing(script, "chat_model", knowledge=knowledge)
        assert knowledge.of("test/1").calibration.factor == pytest.approx(2, rel=0.1)

    def test_an_output_that_is_too_small_to_be_of_use_is_not_asked_for_again_and_again(self) -> None:
        """A sum whose input does not fit the window just learned is compacted, and keeps its output."""
        sentence = "input length and `max_tokens` exceed context limit: 3100 + 3000 > 4096"
        script = Failing(http(400, "invalid_request_error", sentence))
        chain = failing(script, "chat_model", window=128_000)
        assert chain.outcome.compactions + chain.outcome.degradations == 1
        assert (script.later[0].max_tokens or 0) >= 4_096 // 4

    @pytest.mark.parametrize("api", APIS)
    @pytest.mark.parametrize(
        ("headers", "waited"),
        [
            ({"retry-after": "7"}, 7.0),
            ({"retry-after-ms": "1500", "retry-after": "7"}, 1.5),
            ({"retry-after": "0"}, 0.0),
            ({}, 2.0),
        ],
    )
    def test_a_rate_limit_waits_as_it_is_told(self, api: str, headers: dict[str, str], waited: float) -> None:
        script = Failing(lambda seen: error(seen.format, 429, "Too many requests.", headers=headers))
        failing(script, api)
        assert script.later_at[0] - script.failed_at[0] == waited

    def test_a_server_that_says_when_it_is_back_is_believed(self) -> None:
        script = Failing(lambda seen: error(seen.format, 503, "Busy.", headers={"retry-after": "40"}))
        failing(script, "chat_model")
        assert script.later_at[0] - script.failed_at[0] == 40


class TestRepairs:
    """A broken history is repaired and sent once more, and never compacted."""

    def test_ids_that_come_back_are_told_apart(self) -> None:
        """A chain that began on a local server goes on with a provider that wants each id once."""
        rounds: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart("Earlier.")])]
        for key in "ab":
            rounds.append(ModelResponse(parts=[ToolCallPart("fetch", {"key": key}, tool_call_id="call_0")]))
            rounds.append(ModelRequest(parts=[ToolReturnPart("fetch", f"of {key}", tool_call_id="call_0")]))
        for api in APIS:
            chain = run_chain(Link(["Done."], api=api), Link(["never"]), history=rounds)
            assert (chain.outcome.status, chain.outcome.model) == (Status.COMPLETED, "test/1")
            refused, accepted = chain.requests
            assert [r.text for r in accepted.tool_results] == [r.text for r in refused.tool_results]

    def test_reasoning_that_is_refused_is_left_out(self) -> None:
        thought = ThinkingPart("secret thoughts", signature="s", provider_name="anthropic")
        history = [
            ModelRequest(parts=[UserPromptPart("Earlier.")]),
            ModelResponse(parts=[thought, TextPart("Yes.")]),
        ]
        said = "messages.1.content.0: `thinking` or `redacted_thinking` blocks cannot be modified."
        script = Failing(http(400, "invalid_request_error", said), first=True)
        chain = failing(script, "anthropic_model", history=history)
        assert "secret thoughts" in script.failed[0].text
        assert "secret thoughts" not in script.later[0].text
        assert "Yes." in script.later[0].text
        assert chain.outcome.model == "test/1"

    @pytest.mark.parametrize("api", APIS)
    def test_a_second_refusal_goes_to_the_next_model(self, api: str) -> None:
        script = Failing(http(*CASES["broken"][:3]), times=2)
        chain = failing(script, api)
        assert (len(script.failed), script.summaries, chain.outcome.model) == (2, [], "test/2")


class TestBytes:
    """Media go and the largest result is clipped; if neither helps, or there is none, the next model."""

    @staticmethod
    async def look(key: str) -> list[Any]:
        """Look at a picture."""
        return [f"picture {key}", BinaryContent(data=b"\x89PNG" + bytes(60), media_type="image/png")]

    @pytest.mark.parametrize("api", APIS)
    def test_images_become_notes(self, api: str) -> None:
        def refuse_images(seen: Seen) -> Answer:
            if not seen.tool_results:
                return call("look", key="a")
            if any(message.images for message in seen.messages):
                return error(seen.format, 400, "image dimensions exceed max allowed size: 8000 pixels")
            return Reply("Done.")

        chain = run_chain(Link(refuse_images, api=api), Link(["never"]), tools=[self.look])
        assert (chain.outcome.status, chain.outcome.model) == (Status.COMPLETED, "test/1")
        assert "picture a" in chain.requests[-1].text
        assert "left out" in chain.requests[-1].text
        assert report_text(chain.outcome).startswith(DEGRADED_NOTE)

    @pytest.mark.parametrize("api", APIS)
    def test_the_largest_result_is_halved_once(self, api: str) -> None:
        script = Failing(http(*CASES["bytes"][:3]), times=2)
        chain = failing(script, api)
        before, after = (len(seen.tool_results[0].text) for seen in script.failed)
        assert after == before // 2
        assert [told.reason for told in chain.bench.of(ContextDegraded)] == [FEWER_BYTES]
        assert (len(script.failed), script.summaries, chain.outcome.model) == (2, [], "test/2")

    def test_a_request_without_anything_to_drop_is_not_sent_again(self) -> None:
        script = Failing(http(*CASES["bytes"][:3]), first=True)
        chain = failing(script, "chat_model")
        assert (script.later, chain.outcome.model) == ([], "test/2")
        assert not chain.outcome.degraded

    def test_without_an_alternative_the_parent_is_told_sizes_that_are_true(self) -> None:
        chain = run_chain(Link([http(*CASES["bytes"][:3])]), task=BRIEF)
        failure = chain.outcome.failure
        assert failure is not None
        assert failure.code is ErrorCode.SUBAGENT_CONTEXT_OVERFLOW
        assert failure.details["hardLimit"] == 111_616
        assert "alone" not in failure.message


NEAR = 105_000
"""Tokens that are above 80 % of a window of 128,000 and below its limit of 111,616."""


def long_history(tokens: int) -> list[ModelMessage]:
    text = ModelResponse(parts=[TextPart(("plain words of a long talk " * 16_000)[: tokens * 4])])
    return [ModelRequest(parts=[UserPromptPart("Earlier.")]), text]


class TestEmptyBodies:
    """A bare 413 means overflow; a bare 400 does so near the limit, and means nothing far from it."""

    @pytest.mark.parametrize("api", APIS)
    @pytest.mark.parametrize("status", [400, 413])
    def test_near_the_limit_the_request_is_made_smaller(self, api: str, status: int) -> None:
        script = Failing(Reject(status), first=True)
        chain = failing(script, api, window=128_000, history=long_history(NEAR))
        assert "smaller" in remedy(script, chain)
        assert script.later[0].tokens < NEAR / 2
        assert chain.outcome.model == "test/1"

    @pytest.mark.parametrize("api", APIS)
    def test_far_from_the_limit_a_400_is_sent_once_without_the_output_limit(self, api: str) -> None:
        script = Failing(Reject(400))
        chain = failing(script, api, window=128_000)
        # Messages cannot be asked without a limit: pydantic-ai sends its own.
        assert remedy(script, chain) == (set() if api == "anthropic_model" else {"without limit"})
        assert script.later[0].max_tokens != script.failed[0].max_tokens
        assert script.later[0].messages == script.failed[0].messages

    def test_a_second_400_goes_to_the_next_model(self) -> None:
        script = Failing(Reject(400), times=2)
        chain = failing(script, "chat_model", window=128_000)
        assert (len(script.failed), script.summaries, chain.outcome.model) == (2, [], "test/2")

    @pytest.mark.parametrize("api", APIS)
    def test_far_from_the_limit_a_413_earns_one_compaction(self, api: str) -> None:
        script = Failing(Reject(413))
        assert remedy(script, failing(script, api, window=128_000)) == COMPACTED

    def test_a_second_413_goes_to_the_next_model(self) -> None:
        script = Failing(Reject(413), times=2)
        chain = failing(script, "chat_model", window=128_000)
        assert (len(script.failed), len(script.summaries), chain.outcome.model) == (2, 1, "test/2")

    def test_without_an_alternative_the_parent_is_told_who_refused(self) -> None:
        failure = run_chain(Link([Reject(413)] * 2, window=128_000), task=BRIEF).outcome.failure
        assert failure is not None
        assert failure.code is ErrorCode.SUBAGENT_CONTEXT_OVERFLOW
        assert "refused" in failure.message
        assert "after compaction" not in failure.message

    def test_an_unexplained_400_near_the_limit_earns_one_compaction(self) -> None:
        script = Failing(http(400, "invalid_request_error", "Something odd."), first=True)
        chain = failing(script, "chat_model", window=128_000, history=long_history(NEAR))
        assert "smaller" in remedy(script, chain)

    def test_near_a_window_that_was_learned_counts(self) -> None:
        """Believed are 1,000,000; an error stated 128,000 before."""
        knowledge = Knowledge()
        knowledge.of("test/1").learn_window(128_000)
        script = Failing(Reject(400), first=True)
        chain = failing(script, "chat_model", history=long_history(NEAR), knowledge=knowledge)
        assert "smaller" in remedy(script, chain)


class TestConnections:
    @pytest.mark.parametrize("api", APIS)
    @pytest.mark.parametrize(
        ("answer", "stream"),
        [
            (Drop(), False),
            (Drop(Reply("Half an ans")), False),
            (Drop(), True),
            (Drop(Reply("Half an ans")), True),
        ],
        ids=["before the headers", "in the body", "before the stream", "in the stream"],
    )
    def test_a_connection_that_breaks_is_tried_again(self, api: str, answer: Answer, stream: bool) -> None:
        script = Failing(answer)
        chain = failing(script, api, stream=stream)
        assert remedy(script, chain) == {"waited 1", "unchanged"}
        assert chain.outcome.turns == 2

    @pytest.mark.parametrize("api", APIS)
    def test_a_provider_that_says_nothing_is_given_up_and_asked_again(self, api: str) -> None:
        """The client waits five seconds, the run one more."""
        script = Failing(Hang(100.0))
        assert remedy(script, failing(script, api, timeout=5.0)) == {"waited 6", "unchanged"}


class TestEndOfA200:
    """An answer that came through and says, by its end or its usage, that the window is full."""

    FULL = "model_context_window_exceeded"

    @pytest.mark.parametrize("api", APIS)
    @pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
    def test_the_stop_reason_of_a_full_window_compacts_and_asks_again(self, api: str, stream: bool) -> None:
        script = Failing(Reply("Half an ans", finish=self.FULL))
        chain = failing(script, api, stream=stream)
        assert remedy(script, chain) >= COMPACTED
        assert (chain.outcome.status, chain.outcome.report) == (Status.COMPLETED, "Done.")
        assert (chain.outcome.compactions, chain.outcome.degraded) == (1, False)

    @pytest.mark.parametrize("api", APIS)
    def test_a_second_one_keeps_the_half_and_says_so(self, api: str) -> None:
        script = Failing(Reply("Half an ans", finish=self.FULL), times=2)
        outcome = failing(script, api).outcome
        assert (outcome.status, outcome.stop_reason) == (Status.PARTIAL, StopReason.LENGTH)
        assert outcome.report == "Half an ans"

    @pytest.mark.parametrize("api", APIS)
    def test_a_first_request_has_nothing_to_compact_and_keeps_the_half(self, api: str) -> None:
        script = Failing(Reply("Half an ans", finish=self.FULL), first=True)
        chain = failing(script, api)
        assert (chain.outcome.status, script.later) == (Status.PARTIAL, [])

    @pytest.mark.parametrize("api", APIS)
    def test_its_calls_are_not_executed(self, api: str) -> None:
        script = Failing(Reply("I", [("fetch", {"key": "c"})], finish=self.FULL), times=2)
        chain = failing(script, api)
        assert all("c: plain words" not in seen.text for seen in chain.requests)
        assert chain.outcome.tool_calls == 1

    def test_the_window_that_it_filled_is_learned(self) -> None:
        knowledge = Knowledge()
        script = Failing(Reply("Half", finish=self.FULL, usage=Usage(30_000, 2_000)))
        failing(script, "anthropic_model", knowledge=knowledge)
        assert knowledge.of("test/1").window == 32_000

    def test_without_a_reported_prompt_no_window_is_learned(self) -> None:
        knowledge = Knowledge()
        script = Failing(Reply("Half", finish=self.FULL, usage=Usage(0, 900)))
        chain = failing(script, "anthropic_model", knowledge=knowledge)
        assert remedy(script, chain) >= COMPACTED
        assert knowledge.of("test/1").window is None

    def test_a_cut_answer_that_fills_the_window_was_not_cut_by_the_cap(self) -> None:
        """LM Studio's "stop at limit": `length`, and input and output are the window."""
        script = Failing(Reply("Half", finish="length", usage=Usage(4_000, 3_990)))
        chain = failing(script, "chat_model", window=8_000)
        assert remedy(script, chain) >= COMPACTED
        assert chain.outcome.status is Status.COMPLETED

    def test_a_cut_answer_that_does_not_was(self) -> None:
        script = Failing(Reply("Half", finish="length", usage=Usage(1_100, 3_000)))
        outcome = failing(script, "chat_model", window=128_000).outcome
        assert (outcome.status, script.later) == (Status.PARTIAL, [])

    def test_more_than_the_window_taken_without_a_word_compacts_once(self) -> None:
        """z.ai: `usage.input` over the window on a success, and our own count is near it."""
        near, over = Reply(tool_calls=[("fetch", {"key": "a"})], usage=Usage(110_000, 10)), Usage(129_000, 10)
        script = iter([near, Reply("Too long.", usage=over), Reply("Done.", usage=Usage(300, 10))])
        asked: list[Seen] = []

        def answer(seen: Seen) -> Reply:
            asked.append(seen)
            return next(script) if seen.tool_names else Reply("## Goal\nReport.")

        outcome = run_chain(Link(answer, window=128_000), tools=[fetch], task="words " * 20_000).outcome
        assert (outcome.status, outcome.report) == (Status.COMPLETED, "Done.")
        assert outcome.compactions == 1


ROWS: list[dict[str, Any]] = tomllib.loads(
    (Path(__file__).parents[1] / "core" / "provider_answers.toml").read_text(encoding="utf-8")
)["answer"]
NOT_SERVED = {
    "MiniMax, older: 200": "the SDK keeps nothing of a 200 without choices",
    "the answer was cut, pydantic-ai": "a sentence of the client, not of a provider",
}
SERVED = [(row, APIS[number % 3]) for number, row in enumerate(ROWS) if row["row"] not in NOT_SERVED]


def served(row: dict[str, Any]) -> tuple[Any, bool]:
    """Return the answer of a row and whether it comes in a stream: those without a status do."""
    if "stop_reason" in row:
        usage = Usage(row["input_reported"], row["output_reported"]) if "input_reported" in row else None
        return Reply("Half", finish=row["stop_reason"], usage=usage), False
    status, code = row.get("status"), row.get("code")
    if status is None or status < 400:
        return InStreamError(row["body"], code or "unknown"), True
    body: Any = row["body"]
    if code is not None and code not in body:
        body = json.loads(body)
        body.setdefault("error", body).update(code=code)
    return Reject(status, body), False


def run_row(row: dict[str, Any], api: str, *, stubborn: bool = False) -> tuple[Failing, Any]:
    """Run into the row once, or with `stubborn` at every request after the first two."""
    answer, stream = served(row)
    near = "estimate" in row
    script = Failing(answer, stubborn=stubborn, first=near)
    options: dict[str, Any] = {"max_tokens": 200_000, "stream": stream}
    if near or "input_reported" in row:
        options |= {"window": row.get("window", 128_000), "max_tokens": 3_000}
    if near:
        options |= {"window": 128_000, "history": long_history(NEAR)}
    return script, failing(script, api, **options)


REMEDIES = {
    Kind.OUTPUT: {"lower"},
    Kind.RATE: {"waited 2", "unchanged"},
    Kind.BYTES: {"smaller"},
    Kind.BROKEN: {"unchanged"},
    Kind.SERVER: {"waited 1", "unchanged"},
}
"""What the other kinds get on the first time; those that are not here go to the next model."""


def ids(value: Any) -> str:
    return value["row"] if isinstance(value, dict) else ""


def of_kinds(*kinds: Kind) -> Any:
    """The served rows of these kinds."""
    found = [(row, api) for row, api in SERVED if row["kind"] in kinds]
    return pytest.mark.parametrize(("row", "api"), found, ids=ids)


@of_kinds(*(kind for kind in Kind if kind not in {Kind.INPUT, Kind.SUM, Kind.RATE}))
def test_each_recorded_answer_gets_the_remedy_of_its_kind(row: dict[str, Any], api: str) -> None:
    script, chain = run_row(row, api)
    assert remedy(script, chain) == REMEDIES.get(row["kind"], {"switched"})
    assert chain.outcome.status is Status.COMPLETED


@of_kinds(Kind.RATE, Kind.OUTPUT)
def test_a_rate_limit_and_an_output_cap_never_compact_however_often_they_come(
    row: dict[str, Any], api: str
) -> None:
    script, chain = run_row(row, api, stubborn=True)
    first = {"switched"} if row.get("incurable") else REMEDIES[row["kind"]] | {"switched"}
    assert remedy(script, chain) == first
    assert script.summaries == []
    assert all(seen.messages == script.failed[0].messages for seen in script.failed)
    assert (chain.outcome.compactions, chain.outcome.degradations) == (0, 0)


@of_kinds(Kind.INPUT, Kind.SUM)
def test_a_request_that_was_too_long_is_never_sent_again_unchanged(row: dict[str, Any], api: str) -> None:
    script, chain = run_row(row, api, stubborn=True)
    did, bodies = remedy(script, chain), [seen.raw for seen in script.failed]
    if row.get("irreducible"):
        assert did == {"switched"}
    else:
        assert did & {"smaller", *(["lower"] if row["kind"] == Kind.SUM else [])}
    assert len(set(bodies)) == len(bodies)
    assert len(bodies) <= 4, "it ends: two lower outputs and one compaction at the most"
    assert len(script.summaries) <= 1
    assert chain.outcome.status in {Status.COMPLETED, Status.PARTIAL}


def test_every_row_is_served_or_named_as_one_that_cannot_be() -> None:
    assert {row["row"] for row, _ in SERVED} | set(NOT_SERVED) == {row["row"] for row in ROWS}


class TestOwnPatterns:
    """Wordings that a user adds come first."""

    def test_an_unknown_sentence_becomes_an_overflow(self) -> None:
        said = http(400, "odd", "Der Kontext ist voll: 9000 von 60000.")
        own = Pattern("ours", Kind.INPUT, r"kontext ist voll: {input} von {limit}")
        without, within = Failing(said), Failing(said)
        assert remedy(without, failing(without, "chat_model")) == {"switched"}
        assert remedy(within, failing(within, "chat_model", patterns=[own])) == COMPACTED
