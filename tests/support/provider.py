"""A model provider on loopback, for tests that run the real SDK clients.

    async with LoopbackProvider([Reply("hello")], window=16_000) as provider:
        result = await Agent(provider.chat_model()).run("hi")
    assert provider.requests[0].user_texts == ("hi",)

It serves OpenAI chat completions, OpenAI Responses and Anthropic Messages, streamed or not, from one script.
It keeps every request, counts its tokens without any tokenizer, and refuses what does not fit the window or
does not pair tool calls with results, in the words of the provider whose format was used.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from tests.support import error_bodies, wire_anthropic, wire_openai_chat, wire_openai_responses
from tests.support.clients import BoundModels
from tests.support.counting import count_request
from tests.support.delivery import JSON, Delivery
from tests.support.gate import Gate
from tests.support.http_server import HttpAnswer, HttpRequest, HttpServer
from tests.support.limits import Limits
from tests.support.neutral import Answer, Reject, Script, Seen
from tests.support.scripting import ScriptRunner
from tests.support.wire_common import Wire, compact

WIRES: Mapping[str, Wire] = {
    "/v1/chat/completions": wire_openai_chat,
    "/v1/responses": wire_openai_responses,
    "/v1/messages": wire_anthropic,
}
_SERIALS = itertools.count()


@dataclass
class Exchange:
    """A request and what became of it."""

    seen: Seen
    """The request as it arrived."""
    shown: Seen
    """What the script saw; differs from `seen` only for a request that was cut silently."""
    answer: Answer | None = None
    """None while the script is thinking, and for good when the client left before it was done."""
    outcome: Literal["pending", "answered", "cut", "abandoned"] = "pending"
    """Cut by the server, or abandoned by the client or by the end of the provider."""


class LoopbackProvider(BoundModels):
    """A provider in the event loop of the test, or in a thread of its own (`run_in_thread`).

    `script` gives every answer that is not a refusal. Options, all off by default except `pairing`:

    - `window`: context window in tokens. An input of that size or more is refused, equality included.
    - `enforce_sum`: also refuse when input plus requested output is more than the window.
    - `truncate_silently`: instead of refusing, show the script the newest messages only, without system
      text, and report half the window plus 2 as input, as Ollama does. 16,000 reports 8,002.
    - `rate`: asked first about each request; seconds mean 429 with `retry-after`, None lets it pass.
    - `overflow`: gives the refusal of a too long input, from the request and the window.
    - `pairing`: refuse a history whose tool calls and results do not pair up.
    - `models`: ids that `GET /v1/models` lists.
    """

    def __init__(
        self,
        script: Script = (),
        *,
        window: int | None = None,
        enforce_sum: bool = False,
        truncate_silently: bool = False,
        rate: Callable[[Seen], float | None] | None = None,
        overflow: Callable[[Seen, int], Answer] = error_bodies.overflow,
        pairing: bool = True,
        models: tuple[str, ...] = ("test-model",),
    ) -> None:
        self.exchanges: list[Exchange] = []
        """All exchanges, refused ones included, in order of arrival."""
        self.failures: list[str] = []
        """What went wrong on the side of the test: a script that ran out or raised, an unknown path."""
        self._script = ScriptRunner(script, self.failures)
        self._limits = Limits(
            window=window,
            enforce_sum=enforce_sum,
            truncate_silently=truncate_silently,
            rate=rate,
            overflow=overflow,
            pairing=pairing,
        )
        self._models = models
        self._serial = next(_SERIALS)
        self._http = HttpServer(self._handle)
        self._arrivals: list[tuple[int, Gate]] = []

    @property
    def requests(self) -> list[Seen]:
        """All requests as they arrived, refused ones included."""
        return [exchange.seen for exchange in self.exchanges]

    @property
    def rejections(self) -> list[Exchange]:
        """The exchanges that were answered with an HTTP error."""
        return [exchange for exchange in self.exchanges if isinstance(exchange.answer, Reject)]

    @property
    def open_connections(self) -> int:
        """How many clients are connected, idle ones included."""
        return self._http.open_connections

    async def __aenter__(self) -> Self:
        self._bind(await self._http.start(), pooled=True)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._close_clients()
        await self._http.stop()

    @contextlib.contextmanager
    def run_in_thread(self) -> Iterator[Self]:
        """Serve from a thread with an event loop of its own, for tests that block or start processes."""
        started, stop = threading.Event(), Gate()

        async def serve() -> None:
            self._bind(await self._http.start(), pooled=False)
            started.set()
            await stop.wait()
            await self._http.stop()

        thread = threading.Thread(target=lambda: asyncio.run(serve()), name="loopback-provider", daemon=True)
        thread.start()
        if not started.wait(5):
            raise RuntimeError("The loopback provider did not start within 5 seconds.")
        try:
            yield self
        finally:
            stop.open()
            thread.join(5)

    async def arrived(self, count: int, timeout: float = 5.0) -> None:
        """Wait until `count` requests have arrived; raises `TimeoutError` after `timeout` seconds."""
        async with asyncio.timeout(timeout):
            await self._arrival(count).wait()

    def arrived_blocking(self, count: int, timeout: float = 5.0) -> None:
        """The same for a thread without an event loop."""
        if not self._arrival(count).wait_blocking(timeout):
            raise TimeoutError(f"{len(self.exchanges)} of {count} requests arrived in {timeout} s.")

    def _arrival(self, count: int) -> Gate:
        gate = Gate()
        self._arrivals.append((count, gate))
        self._announce_arrivals()
        return gate

    def _announce_arrivals(self) -> None:
        for count, gate in list(self._arrivals):
            if len(self.exchanges) >= count:
                gate.open()

    async def _handle(self, request: HttpRequest, answer: HttpAnswer) -> None:
        wire = WIRES.get(request.path)
        if request.method == "GET" and request.path == "/v1/models":
            await answer.send(200, JSON, compact(self._model_list(request)).encode())
        elif request.method == "POST" and wire is not None:
            await self._exchange(wire, request, answer)
        else:
            await self._fail(answer, 404, f"No such endpoint: {request.method} {request.path}")

    async def _fail(self, answer: HttpAnswer, status: int, problem: str) -> None:
        self.failures.append(problem)
        await answer.send(status, JSON, compact({"error": {"message": problem}}).encode())

    def _model_list(self, request: HttpRequest) -> dict[str, Any]:
        if "anthropic-version" not in request.headers:
            entry = {"object": "model", "created": 0, "owned_by": "loopback"}
            return {"object": "list", "data": [{"id": name, **entry} for name in self._models]}
        entry = {"type": "model", "created_at": "2026-01-01T00:00:00Z"}
        listed = [{"id": name, "display_name": name, **entry} for name in self._models]
        return {"data": listed, "has_more": False, "first_id": None, "last_id": None}

    async def _exchange(self, wire: Wire, request: HttpRequest, answer: HttpAnswer) -> None:
        try:
            seen = self._read(wire, request)
        except (KeyError, TypeError, ValueError) as malformed:
            await self._fail(answer, 400, f"Malformed request to {request.path}: {malformed!r}")
            return
        exchange = Exchange(seen, self._limits.shown(seen))
        self.exchanges.append(exchange)
        self._announce_arrivals()
        try:
            exchange.answer = self._limits.refusal(seen) or await self._script.answer(exchange.shown)
            await Delivery(wire, exchange.shown, self._serial, answer).deliver(exchange.answer)
            exchange.outcome = "answered" if answer.complete else "cut"
        except (asyncio.CancelledError, ConnectionError):
            exchange.outcome = "abandoned"
            raise
        except Exception as problem:  # noqa: BLE001 - the edge of the server, and recorded
            exchange.outcome = "cut"
            self.failures.append(f"Request {seen.index} ({seen.format}) was not answered: {problem!r}")

    def _read(self, wire: Wire, request: HttpRequest) -> Seen:
        payload = json.loads(request.body)
        parsed = wire.parse(payload)
        return Seen(
            **vars(parsed),
            index=len(self.exchanges),
            headers=request.headers,
            raw=request.body,
            json=payload,
            tokens=count_request(parsed),
        )
