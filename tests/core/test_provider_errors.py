"""What a provider meant: each known sentence, the traps of their order, statuses, waits, exceptions."""

from __future__ import annotations

import asyncio
import json
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai import exceptions as pai

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.provider_errors import (
    Kind,
    Pattern,
    ProviderFacts,
    builtin_patterns,
    classify,
    facts_from_exception,
    flatten,
    retry_after_seconds,
    stop_kind,
)

ANSWERS: list[dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("provider_answers.toml").read_text(encoding="utf-8")
)["answer"]
NUMBERS = ("input", "output", "requested", "limit")
NOW = datetime(2026, 11, 2, 12, 0, 0, tzinfo=UTC)


def facts_of(answer: dict[str, Any]) -> ProviderFacts:
    return ProviderFacts(
        status=answer.get("status"),
        text=answer["body"],
        code=answer.get("code"),
        stop_reason=answer.get("stop_reason"),
        empty_body=answer.get("empty_body", False),
        estimate=answer.get("estimate"),
        window=answer.get("window"),
        input_tokens=answer.get("input_reported"),
        output_tokens=answer.get("output_reported"),
    )


def answers(*kinds: str) -> list[dict[str, Any]]:
    return [answer for answer in ANSWERS if answer["kind"] in kinds]


class TestEachSentence:
    @pytest.mark.parametrize("answer", ANSWERS, ids=lambda a: a["row"])
    def test_has_its_kind_and_its_numbers(self, answer: dict[str, Any]) -> None:
        meaning = classify(facts_of(answer))
        assert (meaning.kind, meaning.provider) == (answer["kind"], answer.get("says"))
        assert {n: getattr(meaning, f"{n}_tokens") for n in NUMBERS} == {n: answer.get(n) for n in NUMBERS}
        assert meaning.irreducible == answer.get("irreducible", False)
        assert meaning.incurable == answer.get("incurable", False)
        if "excess" in answer:
            assert meaning.excess == answer["excess"]

    def test_of_the_data_file_is_tried_here(self) -> None:
        tried = {answer.get("says") for answer in ANSWERS} | {name for _, _, name in WORDINGS}
        assert {pattern.name for pattern in builtin_patterns()} - tried == set()

    def test_names_are_unique_and_rows_are_read_once(self) -> None:
        names = [pattern.name for pattern in builtin_patterns()]
        assert len(set(names)) == len(names)
        assert builtin_patterns() is builtin_patterns()

    @pytest.mark.parametrize("answer", answers("input", "sum", "output"), ids=lambda a: a["row"])
    def test_under_a_429_is_a_rate_limit(self, answer: dict[str, Any]) -> None:
        meaning = classify(ProviderFacts(status=429, text=answer["body"], estimate=9, window=10))
        assert (meaning.kind, meaning.code) == (Kind.RATE, ErrorCode.PROVIDER_RATE_LIMITED)

    @pytest.mark.parametrize("answer", answers("rate", "output", "broken", "bytes"), ids=lambda a: a["row"])
    def test_that_only_looks_like_overflow_is_never_overflow(self, answer: dict[str, Any]) -> None:
        for status in (None, 400, 413):
            full = ProviderFacts(status=status, text=answer["body"], estimate=99, window=100)
            assert classify(full).kind == answer["kind"]

    @pytest.mark.parametrize("answer", [a for a in ANSWERS if "says" in a], ids=lambda a: a["row"])
    def test_survives_three_layers_of_json_strings(self, answer: dict[str, Any]) -> None:
        text = answer["body"]
        for key in ("message", "error", "detail"):
            text = json.dumps({key: f"upstream said: {text}"})
        meaning = classify(ProviderFacts(status=answer.get("status"), text=text, code=answer.get("code")))
        assert (meaning.kind, meaning.provider) == (answer["kind"], answer["says"])
        assert meaning.limit_tokens == answer.get("limit")

    @pytest.mark.parametrize("kind", ["input", "sum", "bytes"])
    def test_about_a_size_is_context_too_large_and_not_retried(self, kind: str) -> None:
        meaning = classify(facts_of(answers(kind)[0]))
        assert (meaning.code, meaning.retriable) == (ErrorCode.CONTEXT_TOO_LARGE, False)


class TestTraps:
    def test_dashscope_ranges_differ_by_one_word(self) -> None:
        ranges = [f"Range of {what} should be [1, 65536]" for what in ("input length", "max_tokens")]
        kinds = [classify(ProviderFacts(status=400, text=text)).kind for text in ranges]
        assert kinds == [Kind.INPUT, Kind.OUTPUT]

    def test_a_limit_per_minute_is_not_copilots_limit(self) -> None:
        copilot = "prompt token count of 31000 exceeds the limit of 30000"
        assert classify(ProviderFacts(text=copilot)).kind is Kind.INPUT
        assert classify(ProviderFacts(text=copilot + " tokens per minute")).kind is Kind.RATE

    @pytest.mark.parametrize(
        "words",
        [
            "rate limit",
            "RateLimitError",
            "quota",
            "too many requests",
            "12 RPM",
            "per hour",
            "per-minute",
            "TPD",
        ],
    )
    def test_a_word_of_time_wins_over_overflow_words(self, words: str) -> None:
        text = f"context length exceeded, too many tokens ({words})"
        assert classify(ProviderFacts(status=413, text=text)).kind is Kind.RATE

    def test_a_rate_limit_over_the_whole_quota_is_not_retried(self) -> None:
        text = "tokens per minute (TPM): Limit 6,000, Requested {}"
        over, under = (classify(ProviderFacts(status=413, text=text.format(n))) for n in ("6,001", "6,000"))
        assert (over.incurable, over.retriable, over.excess) == (True, False, 1)
        assert (under.incurable, under.retriable, under.excess) == (False, True, None)

    def test_a_sum_whose_input_alone_is_over_is_an_input(self) -> None:
        text = "input length and `max_tokens` exceed context limit: {} + 1000 > 200000"
        kinds = [classify(ProviderFacts(text=text.format(n))).kind for n in (199_999, 200_000)]
        assert kinds == [Kind.SUM, Kind.INPUT]

    def test_a_sum_without_any_output_is_an_input(self) -> None:
        text = "maximum context length is 99 tokens. However, you requested 0 output tokens and your prompt"
        assert classify(ProviderFacts(text=f"{text} contains at least 98 input tokens")).kind is Kind.INPUT

    def test_numbers_may_have_separators(self) -> None:
        meaning = classify(ProviderFacts(text="prompt is too long: 1,213,462 tokens > 1_000_000 maximum"))
        assert (meaning.input_tokens, meaning.limit_tokens) == (1_213_462, 1_000_000)

    def test_the_innermost_numbers_count(self) -> None:
        outer = "prompt is too long: 9 tokens > 8 maximum"
        inner = "prompt is too long: 7 tokens > 6 maximum"
        meaning = classify(ProviderFacts(text=json.dumps({"error": f'{outer}: {{"message":"{inner}"}}'})))
        assert (meaning.input_tokens, meaning.limit_tokens) == (7, 6)

    def test_an_exact_sentence_wins_over_echoed_parameters(self) -> None:
        text = "maximum context length is 8 tokens. However, your messages resulted in 9 tokens."
        echo = ' Received kwargs: {"max_tokens": 4096, "limit": 3}'
        assert classify(ProviderFacts(status=400, text=text + echo)).kind is Kind.INPUT

    def test_flattening_leaves_one_line_without_escapes(self) -> None:
        assert flatten(r"a \\\"b\\\" \\n c\td \u003e 1\ud83d e") == 'a "b" c d > 1 e'


class TestBareRefusals:
    @pytest.mark.parametrize("status", [400, 413])
    @pytest.mark.parametrize(("estimate", "kind"), [(159_999, Kind.UNKNOWN), (160_000, Kind.INPUT)])
    def test_are_overflow_from_80_percent_of_the_window(self, status: int, estimate: int, kind: Kind) -> None:
        facts = ProviderFacts(status=status, empty_body=True, estimate=estimate, window=200_000)
        assert classify(facts).kind is kind

    def test_are_unknown_without_an_estimate(self) -> None:
        meaning = classify(ProviderFacts(status=413, empty_body=True))
        assert (meaning.kind, meaning.code) == (Kind.UNKNOWN, ErrorCode.CONTEXT_TOO_LARGE)
        assert (meaning.retriable, meaning.near_limit) == (False, False)

    @pytest.mark.parametrize(("estimate", "near"), [(79, False), (80, True)])
    def test_with_an_unknown_text_are_flagged_near_the_window(self, estimate: int, near: bool) -> None:
        facts = ProviderFacts(status=400, text="Bad Request", estimate=estimate, window=100)
        meaning = classify(facts)
        assert (meaning.kind, meaning.code) == (Kind.UNKNOWN, ErrorCode.PROVIDER_ERROR)
        assert (meaning.near_limit, meaning.retriable) == (near, False)

    @pytest.mark.parametrize(
        ("status", "text", "opaque"),
        [(400, "", True), (422, "", True), (400, "odd", False), (413, "", False)],
    )
    def test_without_text_are_opaque(self, status: int, text: str, opaque: bool) -> None:
        assert classify(ProviderFacts(status=status, text=text)).opaque is opaque

    def test_never_leave_the_reader_without_a_sentence(self) -> None:
        assert (
            classify(ProviderFacts(status=413)).message
            == "The provider answered with status 413 and no text."
        )
        assert classify(ProviderFacts()).message == "The provider gave no reason."


STATUSES = [
    (401, Kind.AUTH, ErrorCode.PROVIDER_UNAUTHORIZED, False),
    (402, Kind.REQUEST, ErrorCode.PROVIDER_ERROR, False),
    (403, Kind.AUTH, ErrorCode.PROVIDER_UNAUTHORIZED, False),
    (404, Kind.NOT_FOUND, ErrorCode.MODEL_NOT_CONFIGURED, False),
    (408, Kind.TIMEOUT, ErrorCode.TIMEOUT, True),
    (409, Kind.UNKNOWN, ErrorCode.PROVIDER_ERROR, True),
    (413, Kind.UNKNOWN, ErrorCode.CONTEXT_TOO_LARGE, False),
    (422, Kind.UNKNOWN, ErrorCode.PROVIDER_ERROR, False),
    (429, Kind.RATE, ErrorCode.PROVIDER_RATE_LIMITED, True),
    (500, Kind.SERVER, ErrorCode.PROVIDER_ERROR, True),
    (529, Kind.SERVER, ErrorCode.PROVIDER_ERROR, True),
]
WORDINGS = [
    ("Incorrect API key provided: sk-abc", Kind.AUTH, "any/credentials"),
    (
        "The model `gpt-9` does not exist or you do not have access to it.",
        Kind.NOT_FOUND,
        "any/unknown-model",
    ),
    ("AbortError: This operation was aborted", Kind.CANCELLED, "any/aborted"),
    ("Request timed out.", Kind.TIMEOUT, "any/timeout"),
    ("Streamed response ended without content or tool calls", Kind.STREAM, "any/stream"),
    ("('Connection aborted.', RemoteDisconnected())", Kind.NETWORK, "any/network"),
    ("Rate limit reached", Kind.RATE, "any/rate-limit"),
]


class TestStatusesAndWording:
    @pytest.mark.parametrize(("status", "kind", "code", "retriable"), STATUSES)
    def test_a_status_decides_without_known_words(
        self, status: int, kind: Kind, code: ErrorCode, retriable: bool
    ) -> None:
        meaning = classify(ProviderFacts(status=status, text="no"))
        assert (meaning.kind, meaning.code, meaning.retriable) == (kind, code, retriable)

    @pytest.mark.parametrize(("text", "kind", "row"), WORDINGS)
    def test_without_a_status_the_wording_decides(self, text: str, kind: Kind, row: str) -> None:
        meaning = classify(ProviderFacts(text=text))
        assert (meaning.kind, meaning.provider) == (kind, row)

    def test_without_anything_known_it_is_worth_a_retry(self) -> None:
        meaning = classify(ProviderFacts(text="something odd"))
        assert (meaning.kind, meaning.code, meaning.retriable) == (
            Kind.UNKNOWN,
            ErrorCode.PROVIDER_ERROR,
            True,
        )

    @pytest.mark.parametrize(
        ("text", "kind"),
        [
            ("529 {}", Kind.SERVER),
            ("Error code: 429 - please", Kind.RATE),
            ("Request failed with status code 404", Kind.NOT_FOUND),
            ("HTTP/1.1 503 upstream", Kind.SERVER),
            ("Upstream failed (502)", Kind.SERVER),
            ("waited (599) and 650", Kind.SERVER),
            ("status code 399", Kind.UNKNOWN),
        ],
    )
    def test_a_status_is_read_from_the_text(self, text: str, kind: Kind) -> None:
        assert classify(ProviderFacts(text=text)).kind is kind

    def test_a_token_count_is_not_a_status(self) -> None:
        assert classify(ProviderFacts(text="500 tokens were odd")).kind is Kind.UNKNOWN
        text = "The input token count (512) exceeds the maximum number of tokens allowed (429)."
        assert classify(ProviderFacts(text=text)).kind is Kind.INPUT

    def test_a_forbidden_rate_limit_is_a_rate_limit(self) -> None:
        assert classify(ProviderFacts(status=403, text="API rate limit exceeded")).kind is Kind.RATE

    def test_cancelled_outranks_everything(self) -> None:
        meaning = classify(ProviderFacts(status=429, text="prompt is too long", cancelled=True))
        assert (meaning.kind, meaning.code, meaning.retriable) == (
            Kind.CANCELLED,
            ErrorCode.TURN_ABORTED,
            False,
        )

    def test_a_refused_certificate_is_not_retried(self) -> None:
        text = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"
        meaning = classify(ProviderFacts(text=text, network=True))
        assert (meaning.kind, meaning.retriable) == (Kind.NETWORK, False)

    def test_the_message_is_the_sentence_of_the_body_bounded_and_without_secrets(self) -> None:
        body = json.dumps({"error": {"message": f"bad key sk-abcdefghijklmnop\n{'x' * 900}"}})
        message = classify(ProviderFacts(status=401, text=body)).message
        assert message.startswith("bad key [redacted] xxx")
        assert len(message) == 600


class TestStopReasons:
    @pytest.mark.parametrize("reason", ["model_context_window_exceeded", "model_length"])
    def test_a_full_window_is_an_input_overflow(self, reason: str) -> None:
        meaning = classify(ProviderFacts(status=200, stop_reason=reason))
        assert (meaning.kind, meaning.code) == (Kind.INPUT, ErrorCode.CONTEXT_TOO_LARGE)

    @pytest.mark.parametrize(("prompt", "kind"), [(197_999, Kind.CUT), (198_000, Kind.INPUT)])
    def test_length_with_a_full_window_and_no_output_is_overflow(self, prompt: int, kind: Kind) -> None:
        facts = ProviderFacts(stop_reason="length", input_tokens=prompt, output_tokens=0, window=200_000)
        assert classify(facts).kind is kind

    @pytest.mark.parametrize("reason", ["length", "max_tokens", "MAX_TOKENS", "max_output_tokens"])
    def test_an_output_cap_cuts_the_answer(self, reason: str) -> None:
        meaning = classify(ProviderFacts(stop_reason=reason, input_tokens=500, window=200_000))
        assert (meaning.kind, meaning.code) == (Kind.CUT, ErrorCode.SUBAGENT_OUTPUT_TRUNCATED)

    @pytest.mark.parametrize(
        ("reason", "kind"),
        [("refusal", Kind.REQUEST), ("aborted", Kind.CANCELLED), ("stop", None), (None, None)],
    )
    def test_other_reasons(self, reason: str | None, kind: Kind | None) -> None:
        assert stop_kind(ProviderFacts(stop_reason=reason)) is kind

    @pytest.mark.parametrize(("estimate", "kind"), [(79, None), (80, Kind.INPUT)])
    def test_more_than_the_window_needs_our_estimate_to_agree(self, estimate: int, kind: Kind | None) -> None:
        facts = ProviderFacts(stop_reason="stop", input_tokens=101, estimate=estimate, window=100)
        assert stop_kind(facts) is kind


class TestRetryAfter:
    @pytest.mark.parametrize(
        ("headers", "seconds"),
        [
            ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
            ({"Retry-After": "20"}, 20.0),
            ({"retry-after": "0.25"}, 0.25),
            ({"retry-after-ms": "soon", "retry-after": "3"}, 3.0),
            ({"retry-after-ms": "-5", "retry-after": "0"}, 0.0),
            ({"retry-after": "Mon, 02 Nov 2026 12:01:30 GMT"}, 90.0),
            ({"retry-after": "Mon, 02 Nov 2026 11:00:00 GMT"}, 0.0),
            ({"retry-after": "later"}, None),
            ({"retry-after": "nan"}, None),
            ({"retry-after": "inf"}, None),
            ({}, None),
        ],
    )
    def test_forms(self, headers: dict[str, str], seconds: float | None) -> None:
        assert retry_after_seconds(headers, NOW) == seconds

    def test_a_date_needs_to_know_now(self) -> None:
        assert retry_after_seconds({"retry-after": "Mon, 02 Nov 2026 12:01:30 GMT"}) is None

    def test_it_is_part_of_the_meaning(self) -> None:
        facts = ProviderFacts(status=503, headers={"Retry-After": "Mon, 02 Nov 2026 12:00:07 GMT"})
        assert classify(facts, now=NOW).retry_after_s == 7.0


class TestUserPatterns:
    def test_a_user_pattern_beats_the_builtin_rows_and_the_status(self) -> None:
        regex = r"quota of the box: (?P<used>\d+) of {limit}"
        mine = Pattern.from_mapping({"name": "mine", "kind": "input", "regex": regex})
        meaning = classify(ProviderFacts(status=429, text="quota of the box: 9 of 8"), extra_patterns=[mine])
        assert (meaning.kind, meaning.provider) == (Kind.INPUT, "mine")
        assert (meaning.input_tokens, meaning.limit_tokens, meaning.excess) == (9, 8, 1)

    def test_a_pattern_may_be_for_some_statuses_and_codes(self) -> None:
        row = {"name": "mine", "kind": "bytes", "codes": ["E77"], "statuses": [418]}
        mine = [Pattern.from_mapping(row)]
        assert classify(ProviderFacts(status=418, code="e77"), extra_patterns=mine).kind is Kind.BYTES
        assert classify(ProviderFacts(status=500, code="e77"), extra_patterns=mine).kind is Kind.SERVER

    @pytest.mark.parametrize(
        "row",
        [
            {"name": "mine", "kind": "input", "regex": "("},
            {"name": "mine", "kind": "input", "regex": "{limit} {limit}"},
            {"name": "mine", "kind": "overflow", "regex": "x"},
            {"name": "mine", "kind": ["input"], "regex": "x"},
            {"name": "mine", "kind": "input"},
            {"name": "mine", "kind": "input", "regex": "x", "statuses": [True]},
            {"name": "mine", "kind": "input", "regex": "x", "status": 400},
            {"kind": "input", "regex": "x"},
        ],
    )
    def test_a_bad_pattern_is_a_settings_error(self, row: dict[str, Any]) -> None:
        with pytest.raises(SidequestError) as caught:
            Pattern.from_mapping(row)
        assert caught.value.code is ErrorCode.SETTINGS_INVALID
        assert row.get("name", "has no name") in caught.value.cause


REQUEST = httpx2.Request("POST", "https://provider.test/v1")


def response(status: int, body: str, **headers: str) -> httpx2.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.Response(status, text=body, headers=named, request=REQUEST)


def chained(outer: BaseException, *causes: BaseException) -> BaseException:
    for link, cause in zip((outer, *causes), causes, strict=False):
        link.__cause__ = cause
    return outer


class TestPydanticAiExceptions:
    def test_an_http_error_brings_status_body_code_and_headers(self) -> None:
        body = {"message": "prompt token count of 9 exceeds the limit of 8", "code": "x"}
        error = pai.ModelHTTPError(400, "m", body, headers={"Retry-After": "4"})
        facts = facts_from_exception(error, estimate=3, window=8)
        assert (facts.status, facts.code, facts.estimate, facts.window) == (400, "x", 3, 8)
        meaning = classify(facts)
        assert (meaning.kind, meaning.limit_tokens, meaning.retry_after_s) == (Kind.INPUT, 8, 4.0)

    def test_a_http_error_without_body_is_bare(self) -> None:
        facts = facts_from_exception(pai.ModelHTTPError(413, "m", None), estimate=9, window=10)
        assert (facts.empty_body, facts.text) == (True, "")
        assert classify(facts).kind is Kind.INPUT

    def test_a_known_sentence_corrects_the_class(self) -> None:
        body = {"message": "'max_tokens' is too large: 64. This model's maximum context length is 65 tokens"}
        error = pai.ModelHTTPError.for_category(
            pai.ModelContextWindowExceededError, status_code=400, model_name="m", body=body
        )
        assert classify(facts_from_exception(error)).kind is Kind.OUTPUT

    def test_the_class_decides_when_the_sentence_is_unknown(self) -> None:
        error = pai.ModelHTTPError.for_category(
            pai.ModelContextWindowExceededError, status_code=400, model_name="m", body={"message": "nope"}
        )
        assert classify(facts_from_exception(error)).kind is Kind.INPUT

    def test_inside_a_stream_too_a_known_sentence_corrects_the_class(self) -> None:
        text = "max_tokens: 64 > 32, which is the maximum allowed number of output tokens"
        error = pai.ModelContextWindowExceededError("m", text, in_stream=True)
        assert classify(facts_from_exception(error)).kind is Kind.OUTPUT

    def test_what_the_model_wrote_is_not_what_the_provider_said(self) -> None:
        error = pai.UnexpectedModelBehavior("odd", "prompt is too long: 9 tokens > 8 maximum")
        assert classify(facts_from_exception(error)).kind is Kind.UNKNOWN

    @pytest.mark.parametrize(
        ("error", "kind"),
        [
            (pai.ModelConnectionError("m", "Connection error."), Kind.NETWORK),
            (pai.ModelConnectionError("m", "incomplete chunked read", phase="read"), Kind.STREAM),
            (pai.ModelTimeoutError("m", "Request timed out."), Kind.TIMEOUT),
            (pai.ModelRequestTimeout("m", 60.0), Kind.TIMEOUT),
            (pai.ModelRateLimitError("m", "no", retry_after=2.5), Kind.RATE),
            (pai.ModelContextWindowExceededError("m", "no"), Kind.INPUT),
            (pai.ModelOverloadedError("m", "no"), Kind.SERVER),
            (pai.ModelAuthenticationError("m", "no"), Kind.AUTH),
            (pai.ModelNotFoundError("m", "no"), Kind.NOT_FOUND),
            (pai.ModelAPIError("m", "Input is too long for requested model."), Kind.INPUT),
            (pai.ContentFilterError("Content filter triggered.", '"prompt is too long"'), Kind.REQUEST),
            (pai.IncompleteToolCall("Model token limit (9) exceeded while generating"), Kind.CUT),
            (pai.UsageLimitExceeded("Exceeded the input_tokens_limit of 9"), Kind.REQUEST),
            (pai.UnexpectedModelBehavior("Streamed response ended without content"), Kind.STREAM),
            (pai.RunCancelled("stopped"), Kind.CANCELLED),
        ],
        ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
    )
    def test_classes(self, error: Exception, kind: Kind) -> None:
        assert classify(facts_from_exception(error)).kind is kind

    def test_seconds_to_wait_without_headers(self) -> None:
        facts = facts_from_exception(pai.ModelRateLimitError("m", "no", retry_after=2.5))
        assert classify(facts).retry_after_s == 2.5


class TestSdkErrors:
    def test_openai_status_error(self) -> None:
        import openai

        error = {
            "message": "Your input exceeds the context window of this model.",
            "code": "context_length_exceeded",
        }
        client = openai.OpenAI(api_key="k", max_retries=0)
        raised = client._make_status_error_from_response(response(400, json.dumps({"error": error})))
        client.close()
        facts = facts_from_exception(raised)
        assert (facts.status, facts.code) == (400, "context_length_exceeded")
        assert classify(facts).provider == "openai/window"

    def test_openai_error_event_inside_a_stream(self) -> None:
        import openai

        body = {"code": "rate_limit_exceeded", "message": "slow down"}
        raised = openai.APIError("slow down", REQUEST, body=body)
        facts = facts_from_exception(chained(pai.ModelAPIError("m", "slow down"), raised))
        assert (facts.status, facts.code) == (None, "rate_limit_exceeded")
        assert classify(facts).kind is Kind.RATE

    def test_openai_empty_body(self) -> None:
        import openai

        raised = openai.APIStatusError("Error code: 413", response=response(413, ""), body="")
        facts = facts_from_exception(raised, estimate=8, window=10)
        assert (facts.empty_body, classify(facts).kind) == (True, Kind.INPUT)

    def test_openai_timeout_is_not_just_a_connection_error(self) -> None:
        import openai

        assert classify(facts_from_exception(openai.APITimeoutError(REQUEST))).kind is Kind.TIMEOUT
        assert classify(facts_from_exception(openai.APIConnectionError(request=REQUEST))).kind is Kind.NETWORK

    def test_anthropic_rate_limit_with_its_wait(self) -> None:
        import anthropic

        body = {
            "type": "error",
            "error": {"type": "rate_limit_error", "message": "limit of 8 tokens per minute"},
        }
        raised = anthropic.RateLimitError(
            "429", response=response(429, json.dumps(body), retry_after="21"), body=body
        )
        meaning = classify(facts_from_exception(raised))
        assert (meaning.kind, meaning.limit_tokens, meaning.retry_after_s) == (Kind.RATE, 8, 21.0)

    def test_anthropic_error_event_with_the_status_of_its_stream(self) -> None:
        import anthropic

        body = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
        raised = anthropic.APIStatusError("Overloaded", response=response(200, ""), body=body)
        assert classify(facts_from_exception(raised)).kind is Kind.SERVER

    def test_an_http_client_error_that_was_never_read(self) -> None:
        unread = httpx2.Response(413, stream=httpx2.ByteStream(b""), request=REQUEST)
        raised = httpx2.HTTPStatusError("too large", request=REQUEST, response=unread)
        assert facts_from_exception(raised).status == 413

    def test_botocore_client_error(self) -> None:
        class ClientError(Exception):
            response: ClassVar[dict[str, Any]] = {
                "Error": {"Code": "ThrottlingException", "Message": "Too many tokens, please wait."},
                "ResponseMetadata": {"HTTPStatusCode": 400, "HTTPHeaders": {"retry-after": "1"}},
            }

        facts = facts_from_exception(ClientError("An error occurred"))
        assert (facts.status, facts.code, facts.headers["retry-after"]) == (400, "ThrottlingException", "1")
        assert classify(facts).kind is Kind.RATE


class TestCauses:
    def test_a_status_is_found_four_causes_deep_and_no_deeper(self) -> None:
        deep = pai.ModelHTTPError(429, "m", "wait")
        four = chained(*(Exception(str(n)) for n in range(4)), deep)
        assert facts_from_exception(four).status == 429
        five = chained(*(Exception(str(n)) for n in range(5)), deep)
        assert facts_from_exception(five).status is None

    def test_a_ring_of_causes_ends(self) -> None:
        first, second = Exception("a"), Exception("b")
        first.__cause__, second.__cause__ = second, first
        assert facts_from_exception(first).text == "a | b"

    def test_an_earlier_attempt_does_not_colour_a_network_error(self) -> None:
        later = ConnectionResetError("reset by peer")
        later.__context__ = pai.ModelHTTPError(429, "m", "wait")
        facts = facts_from_exception(later)
        assert (facts.network, facts.status, facts.text) == (True, None, "reset by peer")

    def test_a_hidden_context_stays_hidden(self) -> None:
        shown = ValueError("odd")
        shown.__context__, shown.__suppress_context__ = pai.ModelHTTPError(429, "m", "wait"), True
        assert facts_from_exception(shown).status is None

    def test_the_reason_behind_a_network_error_is_kept(self) -> None:
        reason = OSError("certificate verify failed: self-signed certificate")
        error = chained(pai.ModelConnectionError("m", "Connection error."), reason)
        meaning = classify(facts_from_exception(error))
        assert (meaning.kind, meaning.retriable) == (Kind.NETWORK, False)

    def test_a_group_speaks_through_its_first_error(self) -> None:
        group = ExceptionGroup("all failed", [pai.ModelHTTPError(404, "m", "no"), ValueError("x")])
        assert classify(facts_from_exception(group)).kind is Kind.NOT_FOUND

    def test_a_timeout_caused_by_a_cancellation_is_a_timeout(self) -> None:
        async def late() -> None:
            async with asyncio.timeout(0):
                await asyncio.sleep(1)

        with pytest.raises(TimeoutError) as caught:
            asyncio.run(late())
        facts = facts_from_exception(caught.value)
        assert (facts.cancelled, classify(facts).kind) == (False, Kind.TIMEOUT)

    def test_a_cancellation_is_one(self) -> None:
        assert classify(facts_from_exception(asyncio.CancelledError())).kind is Kind.CANCELLED


class TestProperties:
    FRAGMENTS = st.sampled_from([answer["body"] for answer in ANSWERS])
    TEXTS = st.lists(st.one_of(st.text(max_size=80), FRAGMENTS), max_size=4).map(" ".join)

    @settings(max_examples=60, deadline=None, database=None)
    @given(
        TEXTS,
        st.one_of(st.none(), st.integers(-1, 1000)),
        st.dictionaries(st.sampled_from(["retry-after", "Retry-After-Ms"]), st.text(max_size=40)),
    )
    def test_classify_never_raises(self, text: str, status: int | None, headers: dict[str, str]) -> None:
        facts = ProviderFacts(status=status, text=text, headers=headers, estimate=9, window=10)
        meaning = classify(facts, now=NOW)
        assert 0 < len(meaning.message) <= 600
        assert status != 429 or meaning.kind is Kind.RATE

    @settings(max_examples=40, deadline=None, database=None)
    @given(
        st.sampled_from(answers("rate", "output")),
        st.text(max_size=60),
        st.sampled_from([None, 400, 413, 422]),
    )
    def test_a_rate_limit_or_an_output_cap_is_never_an_input_overflow(
        self, answer: dict[str, Any], noise: str, status: int | None
    ) -> None:
        facts = ProviderFacts(
            status=status, text=f"{noise} {answer['body']} {noise}", estimate=99, window=100
        )
        assert classify(facts).kind is not Kind.INPUT

    @pytest.mark.timeout(20)
    @pytest.mark.parametrize(
        "unit", ["1", "max_tokens ", "prompt ", '\\"', "9 of x input, ", "exceed image "]
    )
    def test_a_huge_body_is_read_in_part(self, unit: str) -> None:
        text = unit * 200_000 + "prompt is too long: 9 tokens > 8 maximum"
        assert len(flatten(text)) <= 16_001
        assert classify(ProviderFacts(status=400, text=text)).message
