"""A delegation over a chain of models, each with a provider of its own, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic_ai.messages import ModelMessage
from pydantic_ai.settings import ModelSettings

from sidequest.core.events import Event
from sidequest.core.outcome import ModelFailure, Outcome
from sidequest.core.provider_errors import Pattern
from sidequest.runtime.attempts import Alternative, ResolvedModel
from sidequest.runtime.costs import Price, catalog_price
from sidequest.runtime.delegation import DelegationRun
from sidequest.runtime.knowledge import Knowledge
from tests.support.delegating import Bench
from tests.support.neutral import Script, Seen
from tests.support.provider import LoopbackProvider
from tests.support.scripting import ScriptRunner
from tests.support.virtual_time import now, run_virtual

APIS = ["chat_model", "responses_model", "anthropic_model"]


@dataclass
class Link:
    """One model: what its provider answers, and what the delegation believes about it."""

    script: Script = ()
    api: str = "chat_model"
    window: int | None = None
    """What the delegation believes, in tokens."""
    max_tokens: int | None = None
    provider: dict[str, Any] = field(default_factory=dict)
    """Options of the `LoopbackProvider`, for example its real window."""
    settings: ModelSettings | None = None
    price: Price = catalog_price
    name: str = "test-model"
    timeout: float = 600.0
    """Of the client, in virtual seconds for each connect and read."""
    unresolved: Exception | None = None
    """Raised instead of giving the model when its turn comes."""
    key: str = ""
    """`provider/model`; empty: `test/1` for the first link, `test/2` for the second, and so on."""


@dataclass
class Chain:
    """What happened: the outcome, the providers in the order of the links, and the events."""

    providers: list[LoopbackProvider]
    bench: Bench
    run: DelegationRun
    outcome: Outcome = field(init=False)
    order: list[str] = field(default_factory=list)
    """Keys of the models in the order in which requests reached them."""
    times: list[float] = field(default_factory=list)
    """Virtual seconds at which those requests came."""
    resolved: list[str] = field(default_factory=list)
    """Keys of the alternatives that were asked for."""

    @property
    def requests(self) -> list[Seen]:
        """All requests, of all providers, link by link."""
        return [seen for provider in self.providers for seen in provider.requests]

    @property
    def failures(self) -> list[tuple[str, str]]:
        """Model and code of each recorded failure, in order."""
        return [(failure.model, failure.code.value) for failure in self.outcome.model_failures]

    @property
    def pauses(self) -> list[float]:
        """Seconds between one request and the next."""
        return [later - earlier for earlier, later in zip(self.times, self.times[1:], strict=False)]

    def failure_of(self, model: str) -> ModelFailure:
        """Return the failure of one model."""
        return next(failure for failure in self.outcome.model_failures if failure.model == model)


Then = Callable[[Chain, "asyncio.Task[Outcome]"], Any]


def run_chain(
    *links: Link,
    task: str = "Do the task.",
    tools: Sequence[Any] = (),
    cap: int | None = None,
    max_turns: int | None = None,
    max_cost_usd: float | None = None,
    history: Sequence[ModelMessage] = (),
    knowledge: Knowledge | None = None,
    patterns: Sequence[Pattern] = (),
    stream: bool = False,
    on_event: Callable[[Event, Chain], None] | None = None,
    then: Then | None = None,
) -> Chain:
    """Run a delegation that starts on the first link and may fall back to the others.

    `stream` asks for streamed answers. `on_event` hears every event; `then` is awaited beside the run, with
    the task that it may cancel. Fails when a script was asked for more than it has.
    """

    async def case() -> Chain:
        async with AsyncExitStack() as stack:
            chain = Chain([], Bench(), None)  # type: ignore[arg-type]
            resolved = [await _enter(stack, chain, link, number) for number, link in enumerate(links, 1)]
            alternatives = [_alternative(chain, *pair) for pair in zip(links[1:], resolved[1:], strict=True)]

            def emit(event: Event) -> None:
                chain.bench.events.append(event)
                if on_event is not None:
                    on_event(event, chain)

            plan = chain.bench.run_of(
                resolved[0].model,
                task,
                tools=tools,
                cap=cap,
                max_turns=max_turns,
                max_cost_usd=max_cost_usd,
                history=history,
                alternatives=alternatives,
            ).plan
            chain.run = DelegationRun(
                replace(plan, model=resolved[0], patterns=tuple(patterns)),
                emit,
                jitter=lambda: 0.0,
                clock=now,
                knowledge=knowledge if knowledge is not None else Knowledge(),
            )
            if stream:
                chain.run.attempts.stream = _ignore
            job = asyncio.create_task(chain.run.run())
            if then is not None:
                await then(chain, job)
            chain.outcome = await job
            assert [provider.failures for provider in chain.providers] == [[]] * len(links)
            return chain

    return run_virtual(case())


async def _enter(stack: AsyncExitStack, chain: Chain, link: Link, number: int) -> ResolvedModel:
    key = link.key or f"test/{number}"
    failures: list[str] = []
    runner = ScriptRunner(link.script, failures)

    async def answer(seen: Seen) -> Any:
        chain.order.append(key)
        chain.times.append(now())
        return await runner.answer(seen)

    provider = await stack.enter_async_context(LoopbackProvider(answer, **link.provider))
    provider.failures = failures
    chain.providers.append(provider)
    model = getattr(provider, link.api)(link.name, api_key=f"key-of-{key}", timeout=link.timeout)
    return ResolvedModel(key, model, link.window, link.max_tokens, link.price, link.settings)


def _alternative(chain: Chain, link: Link, model: ResolvedModel) -> Alternative:
    def resolve() -> ResolvedModel:
        chain.resolved.append(model.key)
        if link.unresolved is not None:
            raise link.unresolved
        return model

    return Alternative(model.key, resolve)


async def _ignore(ctx: Any, events: Any) -> None:
    async for _ in events:
        pass
