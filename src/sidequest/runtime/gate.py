"""One gate per model for all delegations: a fan-out under a rate limit slows down instead of dying.

After a 429 nobody asks that model again before the time the provider named, and then few at a time: the
number of requests under way is halved by each 429 and grows by one with each answer.
"""

from __future__ import annotations

import asyncio
import math
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic_ai.models.wrapper import WrapperModel

from sidequest.core.provider_errors import Kind, Meaning
from sidequest.core.recovery import MAX_RETRY_AFTER_S
from sidequest.runtime.summariser import Sleep

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
    from pydantic_ai.settings import ModelSettings
    from pydantic_ai.tools import RunContext

UNLIMITED_FROM = 64
"""Once this many requests may be under way the gate stops counting."""
DEFAULT_PAUSE_S = 2.0
"""How long a model rests when the provider names no time (specification 3.7)."""


@dataclass
class ModelGate:
    """Admits requests to one model. Not shared between event loops."""

    clock: Callable[[], float]
    """Seconds; only differences count."""
    sleep: Sleep = asyncio.sleep
    _limit: float = field(default=math.inf, init=False)
    _under_way: int = field(default=0, init=False)
    _resume_at: float = field(default=-math.inf, init=False)
    _changed: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    async def enter(self) -> None:
        """Wait until a request may leave, and count it as under way."""
        while True:
            resume_at = self._resume_at
            rest = resume_at - self.clock()
            if rest > 0:
                await self.sleep(rest)
                if self._resume_at == resume_at:
                    # It is over, whatever the clock says: sleep and clock need not be of one kind.
                    self._resume_at = -math.inf
                continue
            if self._under_way < self._limit:
                self._under_way += 1
                return
            self._changed.clear()
            await self._changed.wait()

    def leave(self, *, answered: bool) -> None:
        """Count a request as ended; an answer lets one more be under way at a time."""
        self._under_way -= 1
        if answered and self._limit < math.inf:
            self._limit += 1
            if self._limit >= UNLIMITED_FROM:
                self._limit = math.inf
        self._changed.set()

    def rate_limited(self, retry_after_s: float | None) -> None:
        """Take note of a 429: pause for that many seconds (None: 2) and halve what may be under way.

        A pause that nobody waits for (`MAX_RETRY_AFTER_S` and more) is not imposed on others either: each of
        them asks once and goes on with its next model.
        """
        if retry_after_s is not None and retry_after_s > MAX_RETRY_AFTER_S:
            retry_after_s = 0.0
        pause = DEFAULT_PAUSE_S if retry_after_s is None else max(0.0, retry_after_s)
        self._resume_at = max(self._resume_at, self.clock() + pause)
        self._limit = max(1, self._under_way // 2)


_GATES: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, ModelGate]] = (
    weakref.WeakKeyDictionary()
)


def gate_for(key: str, clock: Callable[[], float], sleep: Sleep) -> ModelGate:
    """Return the gate of the model `key`, one for everybody in the running event loop."""
    gates = _GATES.setdefault(asyncio.get_running_loop(), {})
    if key not in gates:
        gates[key] = ModelGate(clock, sleep)
    return gates[key]


class GatedModel(WrapperModel):
    """A model whose requests, summaries included, pass a gate; `meaning_of` says what a failure meant."""

    def __init__(self, wrapped: Model, gate: ModelGate, meaning_of: Callable[[Exception], Meaning]) -> None:
        super().__init__(wrapped)
        self._gate = gate
        self._meaning_of = meaning_of

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Ask the wrapped model when the gate admits it."""
        async with self._admitted():
            return await self.wrapped.request(messages, model_settings, model_request_parameters)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncIterator[StreamedResponse]:
        """Open a stream when the gate admits it; the request is under way until the stream ends."""
        async with (
            self._admitted(),
            self.wrapped.request_stream(
                messages, model_settings, model_request_parameters, run_context
            ) as stream,
        ):
            yield stream

    @asynccontextmanager
    async def _admitted(self) -> AsyncIterator[None]:
        await self._gate.enter()
        answered = False
        try:
            yield
            answered = True
        except Exception as error:
            meaning = self._meaning_of(error)
            if meaning.kind is Kind.RATE and not meaning.incurable:
                self._gate.rate_limited(meaning.retry_after_s)
            raise
        finally:
            self._gate.leave(answered=answered)
