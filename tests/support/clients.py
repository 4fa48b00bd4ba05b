"""pydantic-ai models whose real SDK clients speak to a loopback provider.

SDK retries are off, so that one request of a model is one request of the provider. The SDKs are imported
when a model is made: a test that needs none does not pay for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx2
    from pydantic_ai import ModelProfile
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.settings import ModelSettings


class BoundModels:
    """Makes models for the server that `_bind` named, and closes their HTTP clients in `_close_clients`.

    `timeout` is the SDK's, in seconds for each connect and read. `settings` and `profile` go to the model.
    """

    _root: str | None = None
    _pooled: bool = True
    _clients: list[httpx2.AsyncClient]

    def chat_model(
        self,
        name: str = "test-model",
        *,
        api_key: str = "test-key",
        timeout: float = 5.0,
        settings: ModelSettings | None = None,
        profile: ModelProfile | None = None,
    ) -> OpenAIChatModel:
        """Return a model that uses chat completions here."""
        from pydantic_ai.models.openai import OpenAIChatModel

        provider = self._openai(api_key, timeout)
        return OpenAIChatModel(name, provider=provider, settings=settings, profile=profile)

    def responses_model(
        self,
        name: str = "test-model",
        *,
        api_key: str = "test-key",
        timeout: float = 5.0,
        settings: ModelSettings | None = None,
        profile: ModelProfile | None = None,
    ) -> OpenAIResponsesModel:
        """Return a model that uses Responses here."""
        from pydantic_ai.models.openai import OpenAIResponsesModel

        provider = self._openai(api_key, timeout)
        return OpenAIResponsesModel(name, provider=provider, settings=settings, profile=profile)

    def anthropic_model(
        self,
        name: str = "test-model",
        *,
        api_key: str = "test-key",
        timeout: float = 5.0,
        settings: ModelSettings | None = None,
        profile: ModelProfile | None = None,
    ) -> AnthropicModel:
        """Return a model that uses Messages here."""
        from anthropic import AsyncAnthropic
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        client = AsyncAnthropic(
            api_key=api_key,
            base_url=self.url,
            http_client=self._http_client(timeout),
            timeout=timeout,
            max_retries=0,
        )
        provider = AnthropicProvider(anthropic_client=client)
        return AnthropicModel(name, provider=provider, settings=settings, profile=profile)

    @property
    def url(self) -> str:
        """The root, which Anthropic clients take; raises `RuntimeError` before the provider runs."""
        if self._root is None:
            raise RuntimeError("Enter the provider before asking it for an address or a model.")
        return self._root

    @property
    def openai_url(self) -> str:
        """The base of the OpenAI paths, which OpenAI clients take."""
        return f"{self.url}/v1"

    @property
    def environment(self) -> dict[str, str]:
        """Variables that bind the SDKs of another process to this provider."""
        return {
            "OPENAI_BASE_URL": self.openai_url,
            "OPENAI_API_KEY": "test-key",
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": "test-key",
            "NO_PROXY": "127.0.0.1",
        }

    def _bind(self, port: int, *, pooled: bool) -> None:
        """Name the server. Without a pool no connection outlives its request, so none needs to be closed."""
        self._root = f"http://127.0.0.1:{port}"
        self._pooled = pooled
        self._clients = []

    async def _close_clients(self) -> None:
        """Close the HTTP clients; to be awaited in the event loop that used them."""
        for client in self._clients:
            await client.aclose()

    def _openai(self, api_key: str, timeout: float) -> OpenAIProvider:
        from openai import AsyncOpenAI
        from pydantic_ai.providers.openai import OpenAIProvider

        client = AsyncOpenAI(
            api_key=api_key,
            base_url=self.openai_url,
            http_client=self._http_client(timeout),
            timeout=timeout,
            max_retries=0,
        )
        return OpenAIProvider(openai_client=client)

    def _http_client(self, timeout: float) -> httpx2.AsyncClient:
        import httpx2

        limits = httpx2.Limits(max_keepalive_connections=None if self._pooled else 0)
        # A proxy named in the environment must not see loopback traffic; reading certificates takes 20 ms.
        client = httpx2.AsyncClient(timeout=timeout, limits=limits, trust_env=False, verify=False)
        self._clients.append(client)
        return client
