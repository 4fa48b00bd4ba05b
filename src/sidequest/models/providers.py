"""What is known of each provider without importing pydantic-ai: its variables, its package, its first models.

The ids are those of `pydantic_ai.providers.infer_provider_class`, so that every name of that library works
here; a test compares the two. Local servers that speak OpenAI's protocol are added.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from typing import Literal

from sidequest.models.names import alias_of

Api = Literal["openai-chat", "openai-responses", "anthropic", "google", "auto"]
"""Protocol of a model; `auto` leaves the choice to the provider's id and base URL."""

SMALL_DEFAULT_WINDOW = 4_096
"""Tokens that Ollama and LM Studio serve when nobody asked for more, however much the model could take."""

_SDK_OF_EXTRA = {
    "google": "google.genai",
    "mistral": "mistralai",
    "xai": "xai_sdk",
    "bedrock": "boto3",
    "bedrock-mantle": "boto3",
    "huggingface": "huggingface_hub",
    "cerebras": "openai",
    "snowflake": "openai",
    "zai": "openai",
}


@dataclass(frozen=True, slots=True)
class ProviderFacts:
    """One provider: how a person names it, where its key comes from, what has to be installed for it."""

    id: str
    label: str
    """Name shown to people; also accepted in a pin."""
    key_variables: tuple[str, ...] = ()
    """Environment variables that may hold the key, the first one that is set wins. Empty: no key of ours."""
    extra: str = "openai"
    """Extra of `pydantic-ai-slim` that installs the package it needs."""
    api: Api = "auto"
    url_variable: str | None = None
    """Environment variable that moves the provider to another address, or None."""
    local_url: str | None = None
    """Address of a server on this machine, with `/v1`; None for a hosted provider."""
    catalog_id: str | None = None
    """Its id in genai-prices where that differs from `id`."""
    vendor: str | None = None
    """Id of the provider whose facts it shares: `openai` for `openai-chat`. None: itself."""
    also: tuple[str, ...] = ()
    """Other ids that people write."""
    starters: tuple[str, ...] = ()
    """Models offered as soon as the key is set, the default first. As of November 2026."""
    small_default_window: bool = field(default=False)
    """Whether it serves `SMALL_DEFAULT_WINDOW` tokens unless told otherwise."""


PROVIDERS: tuple[ProviderFacts, ...] = (
    ProviderFacts(
        "anthropic",
        "Anthropic",
        ("ANTHROPIC_API_KEY",),
        "anthropic",
        "anthropic",
        url_variable="ANTHROPIC_BASE_URL",
        also=("claude",),
        starters=("claude-sonnet-5-5", "claude-opus-5-5", "claude-haiku-5-5"),
    ),
    ProviderFacts(
        "openai",
        "OpenAI",
        ("OPENAI_API_KEY",),
        url_variable="OPENAI_BASE_URL",
        starters=("gpt-6.1-sol", "gpt-6-luna"),
    ),
    ProviderFacts(
        "google",
        "Google",
        ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
        "google",
        "google",
        also=("gemini", "google-gla"),
        starters=("gemini-3.8-flash", "gemini-4-argon"),
    ),
    ProviderFacts(
        "deepseek", "DeepSeek", ("DEEPSEEK_API_KEY",), starters=("deepseek-flash", "deepseek-v4-pro")
    ),
    ProviderFacts(
        "xai", "xAI", ("XAI_API_KEY",), "xai", catalog_id="x-ai", also=("grok",), starters=("grok-4.7",)
    ),
    ProviderFacts(
        "openai-chat", "OpenAI Chat Completions", ("OPENAI_API_KEY",), api="openai-chat", vendor="openai"
    ),
    ProviderFacts(
        "openai-responses", "OpenAI Responses", ("OPENAI_API_KEY",), api="openai-responses", vendor="openai"
    ),
    ProviderFacts("openrouter", "OpenRouter", ("OPENROUTER_API_KEY",)),
    ProviderFacts("mistral", "Mistral AI", ("MISTRAL_API_KEY",), "mistral"),
    ProviderFacts("groq", "Groq", ("GROQ_API_KEY",), "groq"),
    ProviderFacts("cerebras", "Cerebras", ("CEREBRAS_API_KEY",), "cerebras"),
    ProviderFacts("together", "Together AI", ("TOGETHER_API_KEY",)),
    ProviderFacts("fireworks", "Fireworks AI", ("FIREWORKS_API_KEY",)),
    ProviderFacts("moonshotai", "Moonshot AI", ("MOONSHOTAI_API_KEY",), also=("moonshot", "kimi")),
    ProviderFacts("zai", "Z.AI", ("ZAI_API_KEY",), "zai"),
    ProviderFacts("alibaba", "Alibaba Cloud", ("ALIBABA_API_KEY", "DASHSCOPE_API_KEY"), also=("qwen",)),
    ProviderFacts("cohere", "Cohere", ("CO_API_KEY",), "cohere"),
    ProviderFacts("huggingface", "Hugging Face", ("HF_TOKEN",), "huggingface"),
    ProviderFacts("meta", "Meta", ("META_API_KEY",)),
    ProviderFacts("nebius", "Nebius", ("NEBIUS_API_KEY",)),
    ProviderFacts("ovhcloud", "OVHcloud", ("OVHCLOUD_API_KEY",)),
    ProviderFacts("sambanova", "SambaNova", ("SAMBANOVA_API_KEY",)),
    ProviderFacts("crusoe", "Crusoe", ("CRUSOE_API_KEY",)),
    ProviderFacts("heroku", "Heroku", ("HEROKU_INFERENCE_KEY",)),
    ProviderFacts("vercel", "Vercel AI Gateway", ("VERCEL_AI_GATEWAY_API_KEY", "VERCEL_OIDC_TOKEN")),
    ProviderFacts("azure", "Azure OpenAI", ("AZURE_OPENAI_API_KEY",)),
    # These sign in by other means than one key; only building the model shows what is missing.
    ProviderFacts("bedrock", "Amazon Bedrock", extra="bedrock", catalog_id="aws", also=("aws",)),
    ProviderFacts("bedrock-mantle", "Amazon Bedrock Mantle", extra="bedrock-mantle", catalog_id="aws"),
    ProviderFacts(
        "google-cloud", "Google Cloud", extra="google", catalog_id="google", also=("google-vertex",)
    ),
    ProviderFacts("github-copilot", "GitHub Copilot", also=("copilot",)),
    ProviderFacts("openai-chatgpt", "ChatGPT", catalog_id="openai"),
    ProviderFacts("openai-codex", "OpenAI Codex", catalog_id="openai"),
    ProviderFacts("snowflake", "Snowflake", extra="snowflake"),
    ProviderFacts(
        "ollama",
        "Ollama",
        url_variable="OLLAMA_BASE_URL",
        local_url="http://127.0.0.1:11434/v1",
        small_default_window=True,
    ),
    ProviderFacts("lmstudio", "LM Studio", local_url="http://127.0.0.1:1234/v1", small_default_window=True),
    ProviderFacts("llamacpp", "llama.cpp", local_url="http://127.0.0.1:8080/v1"),
    ProviderFacts("vllm", "vLLM", url_variable="VLLM_BASE_URL", local_url="http://127.0.0.1:8000/v1"),
)
"""Every known provider; the order is the one in which a default is looked for."""

_BY_ID = {facts.id: facts for facts in PROVIDERS}


def provider_facts(provider: str) -> ProviderFacts | None:
    """Return what is known of the provider with exactly this id, or None."""
    return _BY_ID.get(provider)


@cache
def _by_alias() -> dict[str, ProviderFacts]:
    found: dict[str, ProviderFacts] = {}
    for facts in PROVIDERS:
        for name in (facts.id, facts.label, *facts.also):
            found.setdefault(alias_of(name), facts)
    return found


def provider_by_alias(text: str) -> ProviderFacts | None:
    """Return the provider meant by an id, a label or another usual name, letters and digits only compared."""
    return _by_alias().get(alias_of(text))


def sdk_installed(extra: str) -> bool:
    """Say whether the package behind an extra of pydantic-ai can be imported, without importing it."""
    module = _SDK_OF_EXTRA.get(extra, extra)
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package above a dotted name is missing
        return False


def install_line(extra: str) -> str:
    """Return the sentence that says how to install what a provider needs."""
    return f'Run: pip install "pydantic-ai-slim[{extra}]"'
