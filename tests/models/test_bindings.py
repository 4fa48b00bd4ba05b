"""Which model a name means, what is known of it, and the settings of a run on it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.models.bindings import OFFLINE_KEY, ModelBinding, ModelEntry
from sidequest.models.catalog_facts import UNKNOWN, CatalogFacts, GenaiPrices
from sidequest.models.providers import PROVIDERS, sdk_installed
from sidequest.models.registry import ModelRegistry
from sidequest.models.run_settings import run_settings

ANTHROPIC = {"ANTHROPIC_API_KEY": "fake-key-a"}


CATALOG = {
    ("anthropic", "claude-sonnet-4-5"): CatalogFacts(200_000, None, 3.0, 15.0, "Claude Sonnet 4.5"),
    ("anthropic", "claude-opus-4-5"): CatalogFacts(200_000, None, 5.0, 25.0, "Claude Opus 4.5"),
    ("openrouter", "anthropic/claude-sonnet-4.5"): CatalogFacts(label="Claude Sonnet 4.5"),
}


class FakeCatalog:
    """Knows two Claude models and one of OpenRouter, which resells one of them."""

    def facts(self, provider: str, name: str, base_url: str | None = None) -> CatalogFacts:
        return CATALOG.get((provider, name), UNKNOWN)

    def model_id(self, provider: str, text: str) -> str | None:
        def plain(word: str | None) -> str:
            return (word or "").lower().translate(str.maketrans("", "", " .-"))

        owned = {name: facts.label for (owner, name), facts in CATALOG.items() if owner == provider}
        return next((i for i, label in owned.items() if plain(text) in (plain(i), plain(label))), None)


def registry(
    entries: dict[str, ModelEntry] | None = None,
    env: dict[str, str] | None = None,
    default: str | None = None,
    missing: tuple[str, ...] = (),
) -> ModelRegistry:
    return ModelRegistry(
        entries, env or {}, default, FakeCatalog(), installed=lambda extra: extra not in missing
    )


def entry(**fields: object) -> ModelEntry:
    return ModelEntry.model_validate(fields)


def refusal(models: ModelRegistry, name: str) -> SidequestError:
    with pytest.raises(SidequestError) as caught:
        models.resolve(name)
    assert caught.value.code is ErrorCode.MODEL_NOT_CONFIGURED
    return caught.value


# What is known of a model


def test_the_window_comes_from_the_catalog_when_nobody_says_otherwise():
    binding = registry(env=ANTHROPIC).resolve("anthropic/claude-sonnet-4-5")
    assert (binding.window, binding.window_source, binding.input_price) == (200_000, "catalog", 3.0)


def test_the_users_window_limit_and_price_beat_the_catalog():
    own = entry(context_window=64_000, max_tokens=4_000, input_price=0)
    binding = registry({"anthropic/claude-sonnet-4-5": own}, ANTHROPIC).resolve("anthropic/claude-sonnet-4-5")
    assert (binding.window, binding.window_source) == (64_000, "user")
    assert (binding.max_tokens, binding.max_tokens_source) == (4_000, "user")
    assert (binding.input_price, binding.output_price) == (0, 15.0)


def test_an_unknown_model_has_no_window_and_the_default_budget():
    binding = registry(env=ANTHROPIC).resolve("anthropic/claude-of-tomorrow")
    assert (binding.window, binding.window_source) == (None, "unknown")
    assert binding.budget().window == 128_000


def test_ollama_is_taken_to_serve_its_small_default_because_it_truncates_silently():
    binding = registry().resolve("ollama/llama3.2:3b")
    assert (binding.name, binding.window, binding.window_source) == ("llama3.2:3b", 4_096, "assumed")


def test_a_cap_changes_the_budget_and_never_loosens_it():
    binding = registry(env=ANTHROPIC).resolve("anthropic/claude-sonnet-4-5")
    assert binding.budget(4_000).hard_limit == 183_616
    assert binding.budget(64_000).hard_limit == 150_000
    limited = registry({"a/b": entry(base_url="http://x.test", context_window=200_000, max_tokens=8_192)})
    assert limited.resolve("a/b").budget(64_000) == limited.resolve("a/b").budget()


def test_the_installed_catalog_knows_every_starter_model():
    catalog = GenaiPrices()
    unknown = [(p.id, name) for p in PROVIDERS for name in p.starters if not catalog.facts(p.id, name).window]
    assert unknown == []


def test_the_installed_catalog_accepts_a_date_and_a_shown_name():
    catalog = GenaiPrices()
    dated = "claude-sonnet-4-5-20250929"
    assert catalog.model_id("anthropic", dated) == dated
    assert catalog.model_id("anthropic", "Claude Sonnet 4.5") == "claude-sonnet-4-5"
    assert catalog.facts("anthropic", dated).window == 200_000
    assert catalog.facts("nobody", "nothing") == UNKNOWN


def test_of_tiered_prices_the_first_is_given():
    assert GenaiPrices().facts("anthropic", "claude-sonnet-4-5").input_price == 3.0


# Names


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("anthropic/claude-sonnet-4-5", "anthropic/claude-sonnet-4-5"),
        ("anthropic:claude-sonnet-4-5", "anthropic/claude-sonnet-4-5"),
        (" Anthropic/claude-sonnet-4-5 ", "anthropic/claude-sonnet-4-5"),
        ("openrouter/anthropic/claude-sonnet-4.5", "openrouter/anthropic/claude-sonnet-4.5"),
        ("openrouter:anthropic/claude-sonnet-4.5", "openrouter/anthropic/claude-sonnet-4.5"),
        ("openai-chat:gpt-5", "openai-chat/gpt-5"),
        ("Mistral AI/mistral-large-latest", "mistral/mistral-large-latest"),
        ("offline/extractive", OFFLINE_KEY),
    ],
)
def test_provider_and_model_split_at_the_first_slash_or_at_a_colon_behind_a_provider(name: str, key: str):
    assert registry(env={**ANTHROPIC, "OPENROUTER_API_KEY": "fake"}).resolve(name).key == key


@pytest.mark.parametrize(
    "name",
    ["sonnet", "Sonnet", "claude-sonnet-4-5", "Claude Sonnet 4.5 (copilot)", "claude-sonnet-4.5", "quick"],
)
def test_an_alias_resolves_when_exactly_one_model_of_the_settings_fits(name: str):
    models = registry(
        {
            "anthropic/claude-sonnet-4-5": entry(aliases=["quick"]),
            "anthropic/claude-opus-4-5": entry(),
        },
        ANTHROPIC,
    )
    assert models.resolve(name).key == "anthropic/claude-sonnet-4-5"


def test_an_ambiguous_alias_is_not_resolved_and_the_error_names_the_candidates():
    local = {"base_url": "http://127.0.0.1:1/v1"}
    models = registry({"home/qwen3-8b": entry(**local), "lab/qwen3-8b": entry(**local)})
    assert "home/qwen3-8b, lab/qwen3-8b" in refusal(models, "qwen3-8b").cause


def test_of_two_models_that_fit_the_usable_one_is_meant():
    models = registry(
        {"anthropic/claude-opus-4-5": entry(), "eu/claude-opus-4-5": entry(base_url="http://x.test")}
    )
    assert models.resolve("opus").key == "eu/claude-opus-4-5"


def test_a_family_word_means_a_starter_as_soon_as_the_key_is_set():
    assert registry(env=ANTHROPIC).resolve("haiku").key == "anthropic/claude-haiku-5-5"
    assert "ANTHROPIC_API_KEY" in refusal(registry(), "haiku").remedy


def test_a_model_id_of_the_catalog_means_its_maker_before_a_reseller():
    both = {**ANTHROPIC, "OPENROUTER_API_KEY": "fake"}
    assert registry(env=both).resolve("Claude Sonnet 4.5").key == "anthropic/claude-sonnet-4-5"
    only = registry(env={"OPENROUTER_API_KEY": "fake"})
    assert only.resolve("Claude Sonnet 4.5").key == "openrouter/anthropic/claude-sonnet-4.5"


@pytest.mark.parametrize("name", ["", "gpt-5", "nobody/model", "fable", "GPT-4.1 | 'gpt-5'", "/x", "x/"])
def test_what_fits_nothing_is_refused_with_the_available_keys(name: str):
    assert "anthropic/claude-sonnet-5-5" in refusal(registry(env=ANTHROPIC), name).remedy


def test_a_near_miss_gets_a_suggestion():
    models = registry({"home/qwen3-8b": entry(base_url="http://127.0.0.1:1/v1")})
    assert refusal(models, "hone/qwen3-8b").remedy == "Did you mean home/qwen3-8b?"


def test_a_provider_is_found_by_id_then_by_vendor_key():
    work = {"work/gpt-5": entry(provider="openai", api_key="fake-work-key")}
    assert registry(work).resolve("openai/gpt-5").key == "work/gpt-5"
    assert registry(work, {"OPENAI_API_KEY": "fake"}).resolve("openai/gpt-5").key == "openai/gpt-5"


def test_a_vendor_key_that_fits_two_providers_needs_the_exact_id():
    two = {f"{name}/gpt-5": entry(provider="openai", api_key="fake") for name in ("work", "home")}
    assert "exact id" in refusal(registry(two), "openai/gpt-5").remedy


# Readiness


def test_a_missing_key_is_named():
    binding = registry().resolve("anthropic/claude-sonnet-4-5")
    assert (binding.ready, binding.why_not) == (False, "ANTHROPIC_API_KEY is not set.")
    with pytest.raises(SidequestError, match="ANTHROPIC_API_KEY is not set") as caught:
        binding.build()
    assert caught.value.code is ErrorCode.MODEL_NOT_CONFIGURED


def test_an_empty_variable_is_a_missing_key_and_either_google_variable_will_do():
    assert not registry(env={"GEMINI_API_KEY": ""}).resolve("google/gemini-4-argon").ready
    assert registry(env={"GEMINI_API_KEY": "fake"}).resolve("google/gemini-4-argon").ready


def test_the_variable_that_the_settings_name_is_the_one_that_counts():
    models = {"corp/claude": entry(provider="anthropic", api_key_env="CORP_KEY")}
    assert registry(models, ANTHROPIC).resolve("corp/claude").why_not == "CORP_KEY is not set."
    assert registry(models, {"CORP_KEY": "fake"}).resolve("corp/claude").ready


def test_a_missing_package_is_one_line_to_type():
    binding = registry(env={"GROQ_API_KEY": "fake"}, missing=("groq",)).resolve(
        "groq/llama-3.3-70b-versatile"
    )
    assert binding.why_not == "The package for Groq is not installed."
    with pytest.raises(SidequestError, match=r'pip install "pydantic-ai-slim\[groq\]"') as caught:
        binding.build()
    assert caught.value.code is ErrorCode.MISSING_EXTRA


def test_a_package_is_looked_for_without_importing_it():
    assert sdk_installed("pydantic_ai")
    assert not sdk_installed("no_such_package.at_all")


def test_an_unknown_provider_without_an_address_says_what_its_table_lacks():
    assert "base_url" in (registry({"my/model": entry()}).resolve("my/model").why_not or "")


# The default, and the list


def test_the_default_is_the_settings_then_the_first_key_then_the_offline_engine():
    env = {"OPENAI_API_KEY": "fake", **ANTHROPIC}
    home = {"home/qwen": entry(base_url="http://127.0.0.1:1/v1")}
    assert registry(home, env, default="google/gemini-4-argon").default().key == "google/gemini-4-argon"
    assert registry(home, env).default().key == "home/qwen"
    assert registry(env=env).default().key == "anthropic/claude-sonnet-5-5"
    assert registry().default().key == OFFLINE_KEY


def test_a_default_that_cannot_be_resolved_is_an_error_and_not_replaced():
    with pytest.raises(SidequestError, match="nobody/model"):
        registry(env=ANTHROPIC, default="nobody/model").default()


def test_the_list_shows_the_settings_first_then_what_the_keys_allow_then_the_offline_engine():
    listed = registry({"home/qwen": entry(base_url="http://127.0.0.1:1/v1")}, ANTHROPIC).listed()
    assert [b.key for b in listed[:2]] == ["home/qwen", "anthropic/claude-sonnet-5-5"]
    assert listed[-1].key == OFFLINE_KEY
    assert {b.key: b.why_not for b in listed}["openai/gpt-6.1-sol"] == "OPENAI_API_KEY is not set."


def test_a_table_for_the_offline_engine_sizes_it_and_does_not_make_it_the_default():
    models = registry({OFFLINE_KEY: entry(context_window=16_000)}, ANTHROPIC)
    assert models.resolve(OFFLINE_KEY).window == 16_000
    assert models.default().key == "anthropic/claude-sonnet-5-5"


def test_listing_imports_neither_pydantic_ai_nor_a_providers_package():
    script = (
        "import sys; from sidequest.models.registry import ModelRegistry;"
        "ModelRegistry(env={'ANTHROPIC_API_KEY': 'fake', 'OPENAI_API_KEY': 'fake'}).listed();"
        "print({'pydantic_ai', 'anthropic', 'openai', 'google.genai'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_no_key_appears_in_a_repr():
    models = registry(
        {"a/b": entry(base_url="http://x.test", api_key="fake-1", headers={"X": "fake-2"})}, ANTHROPIC
    )
    shown = repr([models.resolve("a/b"), models.resolve("sonnet"), entry(api_key="fake-1")])
    assert "fake-" not in shown


# Settings of a run


def sized(**fields: object) -> ModelBinding:
    return registry({"a/b": entry(base_url="http://x.test", **fields)}).resolve("a/b")


@pytest.mark.parametrize(
    ("cap", "limit", "sent"),
    [(None, None, None), (0, None, None), (4_000, None, 4_000), (None, 8_192, 8_192), (64_000, 8_192, 8_192)],
)
def test_a_run_sends_the_stricter_of_the_cap_and_the_models_limit(cap: int, limit: int, sent: int | None):
    assert run_settings(sized(max_tokens=limit), cap=cap).get("max_tokens") == sent


@pytest.mark.parametrize(
    ("asked", "default", "sent"),
    [
        (None, None, {}),
        (None, "low", {"thinking": "low"}),
        ("off", "low", {"thinking": False}),
        ("omit", "low", {}),
        ("max", None, {"thinking": "max"}),
    ],
)
def test_thinking_becomes_the_unified_setting(asked: str, default: str, sent: dict[str, object]):
    assert run_settings(sized(thinking=default), thinking=asked) == sent


def test_a_level_that_does_not_exist_is_refused():
    with pytest.raises(SidequestError, match="minimal, low"):
        run_settings(sized(), thinking="enormous")


def test_thinking_that_would_not_fit_the_cap_is_lowered_for_models_that_count_it():
    old = registry(env=ANTHROPIC).resolve("anthropic/claude-sonnet-4-5")
    assert run_settings(old, cap=4_000, thinking="high")["thinking"] == "low"
    assert run_settings(old, cap=1_000, thinking="high")["thinking"] is False
    new = registry(env=ANTHROPIC).resolve("anthropic/claude-sonnet-5-5")
    assert run_settings(new, cap=4_000, thinking="high")["thinking"] == "high"


def test_settings_belong_to_one_run_only():
    binding = sized(max_tokens=8_192)
    run_settings(binding)["max_tokens"] = 1
    assert run_settings(binding) == {"max_tokens": 8_192}
