"""What a run cost: the user's prices beat the catalog, and a price that is not known is said, not guessed."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.usage import RequestUsage

from sidequest.core.events import Notice
from sidequest.core.outcome import Usage
from sidequest.models.bindings import ModelBinding, ModelEntry
from sidequest.models.registry import ModelRegistry
from sidequest.runtime.costs import FixedPrice, catalog_price, usage_of
from sidequest.runtime.model_choice import RegistryModels
from tests.support.acts import FOUND, Acts, call
from tests.support.chain import APIS, Link, run_chain
from tests.support.error_bodies import error
from tests.support.neutral import Reply, Seen
from tests.support.neutral import Usage as Reported

MILLION = 1_000_000


def answer(
    model: str | None = "gpt-4o",
    *,
    read: int = 0,
    written: int = 0,
    provider: str = "openai",
    cached: int = 0,
) -> ModelResponse:
    """An answer that read and wrote so many tokens, `cached` of what it read from a cache."""
    usage = RequestUsage(input_tokens=read, output_tokens=written, cache_read_tokens=cached)
    return ModelResponse(parts=[TextPart("hi")], usage=usage, model_name=model, provider_name=provider)


class TestCatalogPrice:
    def test_input_and_output_at_their_own_rates(self) -> None:
        """gpt-4o: 2.50 dollars for a million in, 10 out."""
        assert catalog_price(answer(read=MILLION, written=MILLION // 10)) == pytest.approx(3.5)

    def test_cache_reads_at_theirs(self) -> None:
        assert catalog_price(answer(read=MILLION, cached=MILLION)) == pytest.approx(1.25)

    @pytest.mark.parametrize("model", ["qwen-of-the-lab", "", None])
    def test_a_model_that_is_not_listed_has_none(self, model: str | None) -> None:
        assert catalog_price(answer(model, read=MILLION, provider="nowhere")) is None

    def test_what_the_provider_reports_beats_the_list(self) -> None:
        told = answer(read=MILLION)
        told.usage.cost = 0.07  # type: ignore[assignment]
        assert catalog_price(told) == pytest.approx(0.07)


class TestFixedPrice:
    def test_is_for_a_million_tokens(self) -> None:
        assert FixedPrice(3, 15)(answer(read=1_000, written=200)) == pytest.approx(0.003 + 0.003)

    def test_needs_no_name_and_beats_the_list(self) -> None:
        assert FixedPrice(1, 2)(answer(None, read=MILLION)) == pytest.approx(1)
        assert FixedPrice(1, 2)(answer("gpt-4o", read=MILLION)) == pytest.approx(1)

    def test_zero_is_a_price(self) -> None:
        assert usage_of(answer(read=500), FixedPrice(0, 0)).cost_usd == 0.0


class TestUsageOf:
    def test_counts_one_request_with_its_tokens_and_its_price(self) -> None:
        assert usage_of(answer(read=100, written=20), FixedPrice(10, 10)) == Usage(
            1, 100, 20, pytest.approx(0.0012)
        )

    @pytest.mark.parametrize("price", [catalog_price, FixedPrice(3, 15)])
    def test_zero_usage_is_no_usage_and_not_free(self, price: Any) -> None:
        assert usage_of(answer(), price) == Usage(1, 0, 0, None)

    def test_an_unknown_price_stays_unknown_in_every_sum(self) -> None:
        known, unknown = Usage(1, 100, 10, 0.5), Usage(1, 100, 10, None)
        assert known.plus(known).cost_usd == 1.0
        assert known.plus(unknown).cost_usd is None
        assert unknown.plus(known).plus(known).cost_usd is None
        assert Usage().plus(known).cost_usd == 0.5


def price_of(entry: ModelEntry | None, key: str = "openai/gpt-4o") -> Any:
    """The price under which a binding of the registry is charged."""
    registry = ModelRegistry({key: entry} if entry else {}, {"OPENAI_API_KEY": "fake"})
    binding = registry.resolve(key)
    return RegistryModels(registry, binding).ready(binding).price


class TestBindings:
    def test_prices_of_the_settings_beat_the_catalog(self) -> None:
        own = price_of(ModelEntry(input_price=1, output_price=2))
        assert own(answer(read=MILLION, written=MILLION)) == pytest.approx(3)

    def test_without_them_the_catalog_holds(self) -> None:
        assert price_of(None)(answer(read=MILLION)) == pytest.approx(2.5)

    def test_a_model_of_the_users_own_has_the_price_that_the_user_gave_it_or_none(self) -> None:
        entry = ModelEntry(base_url="http://127.0.0.1:1/v1")
        priced = entry.model_copy(update={"input_price": 0.0, "output_price": 0.0})
        mine = answer("qwen", read=MILLION, provider="lab")
        assert price_of(entry, "lab/qwen")(mine) is None
        assert price_of(priced, "lab/qwen")(mine) == 0.0

    def test_a_ready_made_binding_keeps_its_prices(self) -> None:
        given = ModelBinding(
            "my/own",
            "my",
            "own",
            "my",
            input_price=4.0,
            output_price=8.0,
            price_source="user",
            factory=lambda: None,
        )
        price = RegistryModels(ModelRegistry(env={}, bindings=[given]), given).ready(given).price
        assert price(answer(None, read=MILLION)) == pytest.approx(4)


async def fetch(key: str) -> str:
    """Fetch what is stored under a key."""
    return f"{key}: " + ("plain words of a result " * 125)[:2_800]


def costing(reply: Reply, read: int = 500, written: int = 100) -> Reply:
    return Reply(reply.text, reply.tool_calls, usage=Reported(read, written))


WORK = [costing(call("fetch", key=key)) for key in "abc"]
DONE = costing(Reply("Done."))
DOLLAR = FixedPrice(2_000, 0)
"""A dollar for a request of five hundred tokens."""
SMALL: dict[str, Any] = {"window": 4_096, "max_tokens": 1_024}


class TestRuns:
    @pytest.mark.parametrize("api", APIS)
    def test_every_answer_and_every_summary_is_paid(self, api: str) -> None:
        script = Acts(*WORK, DONE, summary=costing(Reply(FOUND), read=250))
        outcome = run_chain(Link(script, api=api, price=DOLLAR, **SMALL), tools=[fetch]).outcome
        assert outcome.compactions == 1
        assert outcome.usage == Usage(5, 2_250, 500, pytest.approx(4.5))

    def test_a_summary_that_could_not_be_used_is_paid_as_well(self) -> None:
        script = Acts(*WORK, DONE, summary=costing(Reply(""), read=250))
        outcome = run_chain(Link(script, price=DOLLAR, **SMALL), tools=[fetch]).outcome
        assert (outcome.degraded, outcome.usage.cost_usd) == (True, pytest.approx(4.5))

    def test_each_model_at_its_own_price(self) -> None:
        def gone(seen: Seen) -> Any:
            return error(seen.format, 404, "gone")

        outcome = run_chain(
            Link([WORK[0], gone], price=FixedPrice(2_000, 0)),
            Link([DONE], price=FixedPrice(14_000, 0)),
            tools=[fetch],
        ).outcome
        assert outcome.usage == Usage(2, 1_000, 200, pytest.approx(8))

    def test_refused_requests_cost_nothing(self) -> None:
        def busy(seen: Seen) -> Any:
            return error(seen.format, 503, "busy")

        outcome = run_chain(Link([busy, busy, DONE], price=DOLLAR)).outcome
        assert outcome.usage == Usage(1, 500, 100, pytest.approx(1))

    def test_an_answer_that_was_thrown_away_is_paid(self) -> None:
        full = Reply("Half", finish="model_context_window_exceeded", usage=Reported(500, 100))
        outcome = run_chain(Link([*WORK[:2], full, DONE], price=DOLLAR), tools=[fetch]).outcome
        assert (outcome.report, outcome.usage) == ("Done.", Usage(4, 2_000, 400, pytest.approx(4)))

    @pytest.mark.parametrize(
        ("api", "name"),
        [("chat_model", "gpt-4o"), ("responses_model", "gpt-4o"), ("anthropic_model", "claude-haiku-4-5")],
    )
    def test_the_catalog_knows_a_model_by_the_name_that_answered(self, api: str, name: str) -> None:
        outcome = run_chain(Link([costing(Reply("Done."), read=MILLION)], api=api, name=name)).outcome
        assert outcome.usage.cost_usd == pytest.approx(2.5 if name == "gpt-4o" else 1.0, rel=0.01)

    def test_one_model_of_unknown_price_makes_the_sum_unknown(self) -> None:
        def gone(seen: Seen) -> Any:
            return error(seen.format, 404, "gone")

        outcome = run_chain(Link([WORK[0], gone], price=DOLLAR), Link([DONE]), tools=[fetch]).outcome
        assert (outcome.usage.cost_usd, outcome.usage.total_tokens) == (None, 1_200)

    def test_an_unknown_price_is_said_once_when_there_is_a_limit_it_cannot_count_towards(self) -> None:
        chain = run_chain(Link([*WORK, DONE]), tools=[fetch], max_cost_usd=0.5)
        (notice,) = chain.bench.of(Notice)
        assert "No price is known for test-model" in notice.text
        assert chain.outcome.report == "Done."
