"""A storm: ten delegations at once, twenty requests a minute allowed, in virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

import pytest

from sidequest.core.outcome import Outcome, Status
from sidequest.runtime.delegation import DelegationRun
from sidequest.runtime.knowledge import Knowledge
from tests.support.acts import FOUND, call, is_summary
from tests.support.chain import APIS
from tests.support.delegating import Bench
from tests.support.neutral import Hang, Reply, Seen
from tests.support.provider import LoopbackProvider
from tests.support.virtual_time import now, run_virtual

AGENTS = 10
ROUNDS = 5
PER_MINUTE = 20


@dataclass
class Quota:
    """Allows twenty requests in any minute; the others are told when the oldest of those is a minute old."""

    allowed: deque[float] = field(default_factory=deque)
    refused: list[tuple[float, float]] = field(default_factory=list)
    """When a request was refused, and until when it was asked to wait."""
    early: list[float] = field(default_factory=list)
    """When a request came although an earlier 429 had asked to wait longer."""

    def __call__(self, seen: Seen) -> float | None:
        if any(when < now() < until for when, until in self.refused):
            self.early.append(now())
        while self.allowed and self.allowed[0] <= now() - 60:
            self.allowed.popleft()
        if len(self.allowed) < PER_MINUTE:
            self.allowed.append(now())
            return None
        wait = self.allowed[0] + 60 - now()
        self.refused.append((now(), now() + wait))
        return wait


async def fetch(key: str) -> str:
    """Fetch what is stored under a key."""
    return f"value of {key}. " + "plain words of a result " * 160


class Worker:
    """A model that fetches five keys, one per turn, and then reports; an answer takes a second or two."""

    def __init__(self) -> None:
        self._fetched: Counter[str] = Counter()

    def __call__(self, seen: Seen) -> Hang:
        return Hang(1.0 + seen.index % 7 / 5, self._answer(seen))

    def _answer(self, seen: Seen) -> Reply:
        if is_summary(seen):
            return Reply(FOUND)
        task = seen.user_texts[-1]
        self._fetched[task] += 1
        done = self._fetched[task] > ROUNDS
        return Reply(f"Done: {task}") if done else call("fetch", key=f"k{self._fetched[task]}")


@dataclass
class Storm:
    """What became of it; `seconds` are virtual."""

    outcomes: list[Outcome]
    quota: Quota
    provider: LoopbackProvider
    seconds: float


def storm(api: str = "chat_model", window: int | None = None) -> Storm:
    async def case() -> Storm:
        quota = Quota()
        async with LoopbackProvider(Worker(), rate=quota) as provider:
            model = getattr(provider, api)(timeout=600.0)
            knowledge = Knowledge()
            runs = [delegation(f"Task {number}.", model, window, knowledge) for number in range(AGENTS)]
            outcomes = await asyncio.gather(*(run.run() for run in runs))
            assert provider.failures == []
            return Storm(outcomes, quota, provider, now())

    return run_virtual(case())


def delegation(task: str, model: Any, window: int | None, knowledge: Knowledge) -> DelegationRun:
    bench = Bench()
    plan = bench.run_of(model, task, tools=[fetch], window=window, key="test/shared").plan
    return DelegationRun(plan, bench.events.append, jitter=lambda: 0.0, clock=now, knowledge=knowledge)


@pytest.mark.parametrize("api", APIS)
def test_all_ten_complete_and_nobody_comes_back_early(api: str) -> None:
    happened = storm(api)
    assert [outcome.status for outcome in happened.outcomes] == [Status.COMPLETED] * AGENTS
    assert [outcome.report for outcome in happened.outcomes] == [f"Done: Task {n}." for n in range(AGENTS)]
    assert happened.quota.refused, "there was a storm"
    assert happened.quota.early == []


def test_it_slows_down_to_what_the_provider_allows_and_no_further() -> None:
    """Sixty requests at twenty a minute need two minutes at the least."""
    happened = storm()
    assert AGENTS * (ROUNDS + 1) == 60
    assert 120 <= happened.seconds <= 200
    assert len(happened.quota.refused) <= 30, "most requests are sent once"
    assert [outcome.turns for outcome in happened.outcomes] == [ROUNDS + 1] * AGENTS


def test_summary_requests_keep_the_distance_too() -> None:
    happened = storm(window=8_000)
    assert sum(outcome.compactions for outcome in happened.outcomes) >= AGENTS
    assert [outcome.status for outcome in happened.outcomes] == [Status.COMPLETED] * AGENTS
    assert happened.quota.early == []
    assert not any(outcome.degraded for outcome in happened.outcomes)
