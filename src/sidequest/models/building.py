"""From a binding to a pydantic-ai model: the only module that imports provider packages."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from sidequest.core.errors import ErrorCode, SidequestError, bounded_message
from sidequest.models.bindings import OFFLINE_MAX_TOKENS, OFFLINE_PROVIDER, OFFLINE_WINDOW, ModelBinding
from sidequest.models.providers import install_line, provider_facts

if TYPE_CHECKING:
    from pydantic_ai.models import Model
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers import Provider
    from pydantic_ai.settings import ModelSettings

NO_KEY = "no-key-needed"
"""Key for a server that needs none, so that no client falls back to a key of the environment."""


OFFLINE_DELAY_VARIABLE = "SIDEQUEST_OFFLINE_DELAY_S"
"""Environment variable: seconds the embedded engine waits before each answer, so that it can be watched."""
SDK_RETRIES = 0
"""The run retries, with budgets of its own; a retry inside a package hides a rate limit from its siblings."""


def build_model(binding: ModelBinding) -> Model:
    """Return a new pydantic-ai model for `binding`.

    Raises:
        SidequestError: `MODEL_NOT_CONFIGURED`, or `MISSING_EXTRA` with the line that installs it.
    """
    binding.require_ready()
    if binding.vendor == OFFLINE_PROVIDER:
        return _offline(binding)
    from pydantic_ai.exceptions import UserError

    try:
        return _construct(binding)
    except ImportError as error:
        raise SidequestError(
            ErrorCode.MISSING_EXTRA,
            f"The model {binding.key} needs a package that is not installed.",
            install_line(extra_of(binding)),
            model=binding.key,
        ) from error
    except (UserError, ValueError) as error:
        raise SidequestError(
            ErrorCode.MODEL_NOT_CONFIGURED,
            f"The model {binding.key} cannot be set up: {bounded_message(str(error), 300)}",
            "Check its name, its key and its table in the settings.",
            model=binding.key,
        ) from error


def extra_of(binding: ModelBinding) -> str:
    """Return the extra of pydantic-ai that the binding needs."""
    if binding.api in ("anthropic", "google"):
        return binding.api
    facts = provider_facts(binding.vendor)
    return facts.extra if facts is not None and binding.api == "auto" else "openai"


def _offline(binding: ModelBinding) -> Model:
    from sidequest.models.extractive import ExtractiveModel

    window, max_tokens = binding.window or OFFLINE_WINDOW, binding.max_tokens or OFFLINE_MAX_TOKENS
    delay = float(os.environ.get(OFFLINE_DELAY_VARIABLE) or 0)
    return ExtractiveModel(window=window, max_tokens=max_tokens, name=binding.name, delay_s=delay)


def _construct(binding: ModelBinding) -> Model:
    match binding.api:
        case "anthropic":
            return _anthropic(binding)
        case "google":
            return _google(binding)
        case "openai-chat" | "openai-responses":
            return _openai(binding)
        case _:
            return _passed_through(binding)


def _key(binding: ModelBinding) -> str:
    return binding.api_key.get_secret_value() if binding.api_key else NO_KEY


def _settings(binding: ModelBinding) -> ModelSettings | None:
    if not binding.headers:
        return None
    return {"extra_headers": {name: value.get_secret_value() for name, value in binding.headers.items()}}


def _profile(binding: ModelBinding, **flags: bool) -> OpenAIModelProfile | None:
    """What the model is told about itself on top of its provider's profile; None when that is nothing."""
    profile: Any = dict(flags)
    if binding.window is not None:
        profile["context_window"] = binding.window
    return profile or None


def _anthropic(binding: ModelBinding) -> Model:
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    provider = AnthropicProvider(api_key=_key(binding), base_url=binding.base_url)
    provider.client.max_retries = SDK_RETRIES
    return AnthropicModel(
        binding.name, provider=provider, profile=_profile(binding), settings=_settings(binding)
    )


def _google(binding: ModelBinding) -> Model:
    from pydantic_ai.models.google import GoogleModel
    from pydantic_ai.providers.google import GoogleProvider

    provider = GoogleProvider(api_key=_key(binding), base_url=binding.base_url)
    return GoogleModel(
        binding.name, provider=provider, profile=_profile(binding), settings=_settings(binding)
    )


def _openai(binding: ModelBinding) -> Model:
    from sidequest.models.wire import lean

    provider = _openai_provider(binding)
    lean(provider.client).max_retries = SDK_RETRIES
    settings = _settings(binding)
    if binding.api == "openai-responses":
        from pydantic_ai.models.openai import OpenAIResponsesModel

        return OpenAIResponsesModel(
            binding.name, provider=provider, profile=_profile(binding), settings=settings
        )
    from pydantic_ai.models.openai import OpenAIChatModel

    return OpenAIChatModel(binding.name, provider=provider, profile=_chat_profile(binding), settings=settings)


def _chat_profile(binding: ModelBinding) -> OpenAIModelProfile | None:
    if binding.base_url is None or binding.vendor == "openai":
        return _profile(binding)
    # Servers that imitate OpenAI know less than OpenAI. The first one matters most: Ollama accepts
    # `max_completion_tokens` and ignores it (ollama#7125), so an output cap would silently be lost.
    return _profile(
        binding,
        openai_chat_supports_max_completion_tokens=False,
        openai_chat_supports_allowed_tools=False,
        openai_chat_supports_multiple_system_messages=False,
        openai_supports_strict_tool_definition=False,
    )


def _openai_provider(binding: ModelBinding) -> Provider[Any]:
    if binding.vendor == "ollama":
        from pydantic_ai.providers.ollama import OllamaProvider

        return OllamaProvider(base_url=binding.base_url, api_key=_key(binding))
    if binding.vendor == "vllm":
        from pydantic_ai.providers.vllm import VLLMProvider

        return VLLMProvider(base_url=binding.base_url, api_key=_key(binding))
    if binding.base_url is not None or binding.vendor == "openai":
        from pydantic_ai.providers.openai import OpenAIProvider

        return OpenAIProvider(base_url=binding.base_url, api_key=_key(binding))
    return _own_provider(binding, binding.vendor)


def _own_provider(binding: ModelBinding, provider: str) -> Provider[Any]:
    from pydantic_ai.providers import infer_provider, infer_provider_class

    if binding.api_key is None:
        return infer_provider(provider)
    # Every provider that has a key variable in our table takes the key as `api_key`.
    make: Any = infer_provider_class(provider)
    built: Provider[Any] = make(api_key=binding.api_key.get_secret_value())
    return built


def _passed_through(binding: ModelBinding) -> Model:
    from pydantic_ai.models import infer_model

    model = infer_model(
        f"{binding.vendor}:{binding.name}", provider_factory=lambda provider: _own_provider(binding, provider)
    )
    profile, settings = _profile(binding), _settings(binding)
    if profile is None and settings is None:
        return _without_retries(model)
    # `infer_model` knows which class belongs to a provider but takes no profile: build that class again.
    make: Any = type(model)
    rebuilt: Model = make(model.model_name, provider=model.provider, profile=profile, settings=settings)
    return _without_retries(rebuilt)


def _without_retries(model: Model) -> Model:
    client = getattr(model, "client", None)
    if isinstance(getattr(client, "max_retries", None), int):
        client.max_retries = SDK_RETRIES  # type: ignore[union-attr]
    return model
