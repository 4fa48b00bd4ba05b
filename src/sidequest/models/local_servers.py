"""Finds model servers on this machine: Ollama, LM Studio, llama.cpp and vLLM at their usual ports.

Only loopback addresses are asked, redirects are not followed, proxies are not used, and no key is sent. A
server that is slow or answers something else gives no models and a note, never an error.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from sidequest.models.local_answers import (
    LocalModel,
    llamacpp_models,
    lmstudio_models,
    names_to_show,
    ollama_models,
    vllm_models,
)

if TYPE_CHECKING:
    from httpx2 import AsyncClient

ServerKind = Literal["ollama", "lmstudio", "llamacpp", "vllm"]
MAX_ANSWER_BYTES = 4 * 1024 * 1024
"""Longest answer that is read from a server, in bytes, inclusive."""
MAX_SHOWN_MODELS = 64
"""Most Ollama models whose details are asked for; the rest get the small default window."""


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where to look for which server; `url` is the root, without `/v1`."""

    kind: ServerKind
    url: str


DEFAULT_ADDRESSES = (
    ServerAddress("ollama", "http://127.0.0.1:11434"),
    ServerAddress("lmstudio", "http://127.0.0.1:1234"),
    ServerAddress("llamacpp", "http://127.0.0.1:8080"),
    ServerAddress("vllm", "http://127.0.0.1:8000"),
)


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A server that answered, or something at its port that did not answer as it should."""

    kind: ServerKind
    base_url: str
    """Address of its OpenAI-compatible API, with `/v1`."""
    models: tuple[LocalModel, ...] = ()
    note: str | None = None
    """One sentence about why there are no models, or None."""


class _NoServerError(Exception):
    """Nothing listens at the address."""


class _BadAnswerError(Exception):
    """The answer cannot be used; the text says why."""


Ask = Callable[..., Awaitable[object]]


async def discover(
    addresses: Iterable[ServerAddress] = DEFAULT_ADDRESSES, timeout_s: float = 0.4
) -> list[LocalServer]:
    """Ask all `addresses` at once and return what is there, in their order; never raises for a server.

    `timeout_s` is the time for one question, in seconds. A server needs at most two questions in a row, so
    the whole takes at most twice as long. Closed ports are left out.
    """
    from httpx2 import AsyncClient

    # Without certificates to load (`verify`), because only plain HTTP to this machine is spoken.
    async with AsyncClient(
        trust_env=False, follow_redirects=False, verify=False, timeout=timeout_s
    ) as client:
        found = await asyncio.gather(*(_look(client, address, timeout_s) for address in addresses))
    return [server for server in found if server is not None]


async def _look(client: AsyncClient, address: ServerAddress, timeout_s: float) -> LocalServer | None:
    root = address.url.rstrip("/")
    base_url = f"{root}/v1"
    if not _is_loopback(root):
        return LocalServer(address.kind, base_url, note="Not asked: only addresses of this machine are.")
    try:
        models = await _READERS[address.kind](partial(_ask, client, root, timeout_s))
    except _NoServerError:
        return None
    except _BadAnswerError as error:
        return LocalServer(address.kind, base_url, note=str(error))
    note = None if models else f"It offers no model that {address.kind} would list."
    return LocalServer(address.kind, base_url, models, note)


def _is_loopback(url: str) -> bool:
    parts = urlsplit(url)
    if parts.scheme != "http":
        return False
    try:
        return ip_address(parts.hostname or "").is_loopback
    except ValueError:  # a name: what it resolves to is not ours to trust
        return False


async def _ask(
    client: AsyncClient, root: str, timeout_s: float, path: str, body: dict[str, str] | None = None
) -> object:
    from httpx2 import ConnectError, HTTPError

    try:
        async with (
            asyncio.timeout(timeout_s),
            client.stream("POST" if body else "GET", root + path, json=body) as response,
        ):
            if response.status_code != 200:
                raise _BadAnswerError(f"{path} answered with status {response.status_code}.")
            text = bytearray()
            async for chunk in response.aiter_bytes():
                text += chunk
                if len(text) > MAX_ANSWER_BYTES:
                    raise _BadAnswerError(f"The answer to {path} is longer than {MAX_ANSWER_BYTES} bytes.")
        parsed: object = json.loads(text)
    except ConnectError as error:
        raise _NoServerError from error
    except (HTTPError, TimeoutError) as error:
        raise _BadAnswerError(f"{path} was not answered properly within {timeout_s} s.") from error
    except (ValueError, RecursionError) as error:
        raise _BadAnswerError(f"The answer to {path} is not JSON.") from error
    return parsed


async def _or_none(answer: Awaitable[object]) -> object:
    """Give None for a detail that a server does not tell; its list alone is enough to offer its models."""
    try:
        return await answer
    except (_BadAnswerError, _NoServerError):
        return None


async def _ollama(ask: Ask) -> tuple[LocalModel, ...]:
    tags, running = await asyncio.gather(ask("/api/tags"), _or_none(ask("/api/ps")))
    names = names_to_show(tags)[:MAX_SHOWN_MODELS]
    details = await asyncio.gather(*(_or_none(ask("/api/show", {"model": name})) for name in names))
    return ollama_models(tags, running, dict(zip(names, details, strict=True)))


async def _lmstudio(ask: Ask) -> tuple[LocalModel, ...]:
    return lmstudio_models(await ask("/api/v0/models"))


async def _llamacpp(ask: Ask) -> tuple[LocalModel, ...]:
    props, listed = await asyncio.gather(ask("/props"), ask("/v1/models"))
    return llamacpp_models(props, listed)


async def _vllm(ask: Ask) -> tuple[LocalModel, ...]:
    return vllm_models(await ask("/v1/models"))


_READERS: dict[ServerKind, Callable[[Ask], Awaitable[tuple[LocalModel, ...]]]] = {
    "ollama": _ollama,
    "lmstudio": _lmstudio,
    "llamacpp": _llamacpp,
    "vllm": _vllm,
}
