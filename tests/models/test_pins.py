"""Which model a delegation runs on: cases M1 to M6 and M8 of the specification, and limits on pins."""

from __future__ import annotations

import pytest

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.models.bindings import ModelEntry
from sidequest.models.pins import resolve_fallbacks, resolve_for_delegation, too_many_providers
from sidequest.models.registry import ModelRegistry

SESSION = "anthropic/claude-sonnet-5-5"
PIN = "openai/gpt-6-luna"
ENV = {"ANTHROPIC_API_KEY": "fake", "OPENAI_API_KEY": "fake"}


def registry(*opted_in: str, env: dict[str, str] | None = None) -> ModelRegistry:
    entries = {key: ModelEntry.model_validate({"available_for_subagents": True}) for key in opted_in}
    return ModelRegistry(entries, ENV if env is None else env)


def run_on(models: ModelRegistry, pin: str | None = None, override: str | None = None, **more: object) -> str:
    return resolve_for_delegation(models, models.resolve(SESSION), pin, override, **more).key


def refusal(models: ModelRegistry, pin: str | None = None, override: str | None = None) -> SidequestError:
    with pytest.raises(SidequestError) as caught:
        run_on(models, pin, override)
    return caught.value


def test_without_pin_and_override_the_session_model_runs():
    assert run_on(registry()) == SESSION
    assert run_on(registry(), " ", "") == SESSION


def test_a_pin_beats_the_session_and_needs_no_opt_in():
    assert run_on(registry(), PIN) == PIN


def test_M1_the_private_pin_of_another_definition_is_refused_as_an_override():
    error = refusal(registry("openai/gpt-6.1-sol"), pin=None, override=PIN)
    assert error.code is ErrorCode.MODEL_NOT_CONFIGURED
    assert PIN in error.cause
    assert "openai/gpt-6.1-sol" in error.remedy


@pytest.mark.parametrize("echo", [PIN, "OpenAI:GPT-6-Luna", "gpt-6-luna"])
def test_M2_an_override_that_repeats_the_own_pin_is_the_pin(echo: str):
    assert run_on(registry(), PIN, echo) == PIN


def test_M3_an_opted_in_override_beats_the_pin():
    assert run_on(registry("openai/gpt-6.1-sol"), PIN, "openai/gpt-6.1-sol") == "openai/gpt-6.1-sol"


def test_M4_the_host_may_grant_a_model_on_demand():
    assert run_on(registry(), None, PIN, granted={PIN}) == PIN


@pytest.mark.parametrize(
    "echo",
    [SESSION, "anthropic:claude-sonnet-5-5", "Anthropic/Claude-Sonnet-5.5", "claude-sonnet-5-5", "sonnet"],
)
def test_M5_an_override_that_means_the_session_model_inherits_it(echo: str):
    assert run_on(registry(), PIN, echo) == SESSION


def test_M5_the_vendor_key_of_the_session_provider_counts_too():
    own = ModelEntry.model_validate({"provider": "openai", "api_key": "fake"})
    models = ModelRegistry({"work/gpt-5": own}, ENV)
    session = models.resolve("work/gpt-5")
    assert resolve_for_delegation(models, session, None, "openai/gpt-5") is session


def test_M6_a_revoked_opt_in_is_refused():
    assert run_on(registry(PIN), None, PIN) == PIN
    assert "Leave model out" in refusal(registry(), None, PIN).remedy


def test_M8_fallback_pins_are_no_choice_for_an_override():
    models = registry()
    session = models.resolve(SESSION)
    assert resolve_fallbacks(models, session, session, [PIN])[0].binding is not None
    assert models.available_for_subagents() == ()
    assert refusal(models, None, PIN).code is ErrorCode.MODEL_NOT_CONFIGURED


def test_an_opted_in_model_without_its_key_is_neither_listed_nor_run():
    models = registry(PIN, env={"ANTHROPIC_API_KEY": "fake"})
    assert models.available_for_subagents() == ()
    assert "OPENAI_API_KEY" in refusal(models, None, PIN).cause


def test_a_pin_means_the_provider_with_exactly_its_id_before_the_vendor_key_of_the_session():
    own = ModelEntry.model_validate({"provider": "openai", "api_key": "fake"})
    models = ModelRegistry({"work/gpt-5": own}, ENV)
    session = models.resolve("work/gpt-5")
    assert resolve_for_delegation(models, session, "openai/gpt-5", None).key == "openai/gpt-5"
    assert resolve_for_delegation(models, session, "work:gpt-5", None) is session


def test_an_override_may_come_to_the_own_pin_by_another_name():
    assert run_on(registry(), "anthropic/claude-opus-5-5", "opus") == "anthropic/claude-opus-5-5"
    assert refusal(registry(), "nobody/model", "opus").cause.startswith("The model 'opus'")


def test_an_override_that_is_no_model_at_all_gets_the_available_keys():
    assert "Use one of: openai/gpt-6-luna;" in refusal(registry(PIN), None, "nobody/model").remedy


@pytest.mark.parametrize("pin", ["nobody/model", "claude-3-sonnet-of-2024", "groq/llama-9"])
def test_a_pin_that_cannot_be_used_is_named_and_never_replaced_by_the_session_model(pin: str):
    assert f"{pin!r}" in refusal(registry(), pin).cause


def test_a_pin_whose_key_is_missing_says_which():
    assert "MISTRAL_API_KEY is not set" in refusal(registry(), "mistral/mistral-large-latest").cause


def test_fallbacks_keep_their_order_record_failures_and_drop_repetitions():
    models = registry()
    session = models.resolve(SESSION)
    pins = ["sonnet", "nobody/model", PIN, "openai:gpt-6-luna", "opus"]
    found = resolve_fallbacks(models, session, session, pins)
    assert [item.pin for item in found] == ["nobody/model", PIN, "opus"]
    assert found[0].error is not None
    assert found[0].error.code is ErrorCode.MODEL_NOT_CONFIGURED


def test_eight_pinned_providers_are_allowed_and_the_ninth_is_named():
    pins = ["openai:x/y", *(f"p{number}/model" for number in range(7))]
    assert too_many_providers([*pins, "P1/other", "sonnet", "OpenAI/z"]) == ()
    assert too_many_providers([*pins, "ninth/model"]) == ("ninth",)
