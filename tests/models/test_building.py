"""Bindings become pydantic-ai models: protocol, address, key, window. Fake keys, no network."""

from __future__ import annotations

import pytest

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.models.bindings import OFFLINE_KEY, ModelBinding, ModelEntry
from sidequest.models.providers import PROVIDERS, sdk_installed
from sidequest.models.registry import ModelRegistry


def registry(
    entries: dict[str, ModelEntry] | None = None, env: dict[str, str] | None = None
) -> ModelRegistry:
    return ModelRegistry(entries, env or {})


def entry(**fields: object) -> ModelEntry:
    return ModelEntry.model_validate(fields)


def test_each_provider_becomes_its_pydantic_ai_model_with_the_window_of_the_binding():
    env = dict.fromkeys(("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"), "fake")
    models = registry({"anthropic/claude-opus-4-5": entry(context_window=50_000)}, env)
    built = {
        name: models.resolve(name).build()
        for name in (
            "anthropic/claude-opus-4-5",
            "openai/gpt-5",
            "openai-chat/gpt-5",
            "google/gemini-4-argon",
        )
    }
    assert [type(model).__name__ for model in built.values()] == [
        "AnthropicModel",
        "OpenAIResponsesModel",
        "OpenAIChatModel",
        "GoogleModel",
    ]
    assert built["anthropic/claude-opus-4-5"].context_window == 50_000


@pytest.mark.parametrize(
    "key", ["anthropic/x", "openai/x", "openai-chat/x", "deepseek/x", "openrouter/x/y", "together/x/y"]
)
def test_no_client_retries_behind_the_runs_back(key: str):
    model = registry({key: entry(api_key="fake")}).resolve(key).build()
    assert model.client.max_retries == 0


@pytest.mark.parametrize(
    ("key", "fields", "made"),
    [
        ("ollama/q", {}, ("OpenAIChatModel", "ollama", "http://127.0.0.1:11434/v1/")),
        ("vllm/q", {"context_window": 9_000}, ("OpenAIChatModel", "vllm", "http://127.0.0.1:8000/v1/")),
        ("deepseek/q", {"api_key": "fake"}, ("OpenAIChatModel", "deepseek", "https://api.deepseek.com")),
        (
            "deepseek/q",
            {"api_key": "fake", "api": "openai-responses"},
            ("OpenAIResponsesModel", "deepseek", "https://api.deepseek.com"),
        ),
        (
            "lab/q",
            {"base_url": "http://x.test", "api": "anthropic"},
            ("AnthropicModel", "anthropic", "http://x.test"),
        ),
    ],
)
def test_protocol_and_address_follow_the_provider_and_the_table(
    key: str, fields: dict[str, object], made: tuple[str, str, str]
):
    model = registry({key: entry(**fields)}).resolve(key).build()
    assert (type(model).__name__, model.system, model.base_url) == made


def test_other_providers_are_passed_through_with_key_window_and_headers():
    own = {"openrouter/x/y": entry(context_window=9_000, api_key="fake", headers={"X-Team": "side"})}
    model = registry(own).resolve("openrouter/x/y").build()
    assert (type(model).__name__, model.model_name, model.context_window) == ("OpenRouterModel", "x/y", 9_000)
    assert model.settings == {"extra_headers": {"X-Team": "side"}}


def test_an_address_of_ones_own_never_gets_the_key_of_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "fake-openai-key")
    local = {
        "home/qwen": entry(base_url="http://127.0.0.1:1/v1"),
        "openai/q": entry(base_url="http://x.test/v1"),
    }
    for key in local:
        model = registry(local, {"OPENAI_API_KEY": "fake-openai-key"}).resolve(key).build()
        assert model.provider is not None
        assert model.provider.client.api_key == "no-key-needed"


def test_a_server_that_imitates_openai_gets_the_older_field_for_the_output_cap():
    model = registry({"home/qwen": entry(base_url="http://127.0.0.1:1/v1")}).resolve("home/qwen").build()
    assert model.profile.get("openai_chat_supports_max_completion_tokens") is False


def test_the_provider_table_has_only_names_that_pydantic_ai_knows():
    from pydantic_ai.models import known_model_names
    from pydantic_ai.providers import infer_provider_class

    unknown = []
    for facts in PROVIDERS:
        try:
            infer_provider_class(facts.id)
        except ImportError:  # known, its package is not installed here
            continue
        except ValueError:
            unknown.append(facts.id)
    assert unknown == ["lmstudio", "llamacpp"]
    offered = {f"{facts.id}:{name}" for facts in PROVIDERS for name in facts.starters}
    assert offered <= set(known_model_names())


def test_a_library_users_own_model_is_found_by_its_key_and_comes_back_as_it_is():
    from pydantic_ai.models.test import TestModel

    own = TestModel()
    mine = ModelBinding("mine/test", "mine", "test", vendor="mine", window=1_000, factory=lambda: own)
    models = ModelRegistry({}, {}, bindings=[mine])
    assert models.default() is mine
    assert models.with_servers([]).resolve("mine/test").build() is own


def test_what_pydantic_ai_refuses_to_set_up_is_our_error():
    binding = registry(env={"AZURE_OPENAI_API_KEY": "fake"}).resolve("azure/gpt-5")
    with pytest.raises(SidequestError, match="azure/gpt-5 cannot be set up") as caught:
        binding.build()
    assert caught.value.code is ErrorCode.MODEL_NOT_CONFIGURED


@pytest.mark.skipif(sdk_installed("xai"), reason="needs a provider package that is not installed")
def test_a_package_that_turns_out_to_be_missing_is_one_line_to_type():
    models = ModelRegistry({}, {"XAI_API_KEY": "fake"}, installed=lambda extra: True)
    with pytest.raises(SidequestError, match=r'pip install "pydantic-ai-slim\[xai\]"') as caught:
        models.resolve("xai/grok-4.7").build()
    assert caught.value.code is ErrorCode.MISSING_EXTRA


def test_the_offline_engine_gets_the_window_of_its_table():
    models = registry({OFFLINE_KEY: entry(context_window=16_000, max_tokens=1_000)})
    binding = models.resolve(OFFLINE_KEY)
    assert (binding.budget().window, binding.budget().output) == (16_000, 1_000)
    assert binding.build().context_window == 16_000
