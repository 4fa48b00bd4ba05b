"""OpenAI clients that send a payload as it is, without walking the whole history again at every turn.

The SDK's `create` passes its parameters through a recursive transform that renames and re-encodes fields of
its own types. The payload of pydantic-ai already has the shape of the wire, and the walk costs most of a long
delegate's CPU. Here `create` goes through the SDK's generic `post`; retries, timeouts, authentication, error
classes and streams stay the SDK's, and the bytes on the wire are the same (a test compares them over every
kind of message). Anthropic's SDK does no such walk since 2.0, so its client is used as it is.

`benchmarks/bench_wire.py` measures the gain; a release of the SDK that makes this unnecessary shows there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from openai import AsyncOpenAI, AsyncStream, NotGiven, Omit
from openai.resources.chat.chat import AsyncChat
from openai.resources.chat.completions import AsyncCompletions
from openai.resources.responses import AsyncResponses
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic_ai.exceptions import ModelHTTPError

_NOT_GIVEN = NotGiven()
_FIRST_FIELDS = ("model", "stream", "service_tier")
"""The SDK writes these first and the rest by name; chat puts `messages` right after them."""


def _ordered(params: Mapping[str, Any], first: tuple[str, ...]) -> dict[str, Any]:
    """Return the given parameters in the order in which the SDK would write them."""
    given = {k: v for k, v in params.items() if not isinstance(v, NotGiven | Omit)}
    names = [name for name in first if name in given]
    return {name: given[name] for name in (*names, *sorted(given.keys() - set(names)))}


def _options(extra_headers: Any, extra_query: Any, extra_body: Any, timeout: Any) -> Any:
    options: dict[str, Any] = {"security": {"bearer_auth": True}}
    if extra_headers is not None:
        options["headers"] = extra_headers
    if extra_query is not None:
        options["params"] = extra_query
    if extra_body is not None:
        options["extra_json"] = extra_body
    if not isinstance(timeout, NotGiven):
        options["timeout"] = timeout
    return options


def _raise_hidden_error(result: ChatCompletion, model: str) -> None:
    """Raise the error that a server answered with status 200: without choices nothing else would tell it."""
    extra = result.model_extra or {}
    hidden = extra.get("error") or extra.get("base_resp")
    if not getattr(result, "choices", None) and hidden:
        raise ModelHTTPError(400, model, {"error": hidden})


class _Completions(AsyncCompletions):
    async def create(
        self,
        *,
        extra_headers: Any = None,
        extra_query: Any = None,
        extra_body: Any = None,
        timeout: Any = _NOT_GIVEN,
        **params: Any,
    ) -> Any:
        stream = params.get("stream")
        result: Any = await self._client.post(
            "/chat/completions",
            cast_to=ChatCompletion,
            body=_ordered(params, (*_FIRST_FIELDS, "messages")),
            options=_options(extra_headers, extra_query, extra_body, timeout),
            stream=stream is True,
            stream_cls=AsyncStream[ChatCompletionChunk],
        )
        if isinstance(result, ChatCompletion):
            _raise_hidden_error(result, str(params.get("model", "")))
        return result


class _Chat(AsyncChat):
    @property
    def completions(self) -> AsyncCompletions:
        return _Completions(self._client)


class _Responses(AsyncResponses):
    async def create(
        self,
        *,
        extra_headers: Any = None,
        extra_query: Any = None,
        extra_body: Any = None,
        timeout: Any = _NOT_GIVEN,
        **params: Any,
    ) -> Any:
        stream = params.get("stream")
        return await self._client.post(
            "/responses",
            cast_to=Response,
            body=_ordered(params, _FIRST_FIELDS),
            options=_options(extra_headers, extra_query, extra_body, timeout),
            stream=stream is True,
            stream_cls=AsyncStream[ResponseStreamEvent],
        )


def lean(client: AsyncOpenAI) -> AsyncOpenAI:
    """Make `client` send chat completions and responses as they are given, and return it.

    For clients of every kind: OpenAI's, and those of compatible servers. Parameters must have the shape of
    the wire already, as pydantic-ai's have; typed objects of the SDK are not converted.
    """
    # Both are cached properties of the client: what is put into its namespace is what they give.
    vars(client).update(chat=_Chat(client), responses=_Responses(client))
    return client
