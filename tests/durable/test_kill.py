"""A process is killed at any instant of a job with parallel delegations; another one completes the job."""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart

from sidequest.core.transcript import user_text, validate
from sidequest.store import DelegationRow, Store, StoredMessage
from sidequest.store.lanes import valid_history
from tests.durable.desk import shown
from tests.durable.job import AGENTS, END, KEYS, answer
from tests.durable.zygote import Zygote, zygote
from tests.support.provider import LoopbackProvider

KILLS, AT_ONCE, SEED = 200, 2, 20_261_130
"""Kills that meet a process at work; one that comes after the end of the job is drawn again."""
SHORTER = 0.9
"""What the span of the instants is multiplied by after a kill that came too late: the machine got faster."""
LIVES = (1, 2, 3, 4)
"""How often a job is killed, in turn; from the second time on while it is being gone on with."""


@dataclass
class Found:
    """What a store holds of the job, sound in all of its parts."""

    session: str = ""
    delegations: list[DelegationRow] = field(default_factory=list)
    lanes: dict[str | None, list[StoredMessage]] = field(default_factory=dict)
    told: str = ""
    """What a model of the parent reads in its results and deliveries."""

    @property
    def done(self) -> set[str]:
        """Keys whose calls are recorded as done."""
        results = [result.part for rows in self.lanes.values() for row in rows for result in row.results]
        return {str(part.content).removeprefix("noted ") for part in results if _is_note(part)}

    @property
    def started(self) -> set[str]:
        """Ids that the parent was told to have started."""
        results = [result.part for row in self.lanes.get(None, []) for result in row.results]
        ids = [p.metadata["delegationId"] for p in results if p.tool_name == "Task" and p.metadata]
        return set(ids)


def _is_note(part: object) -> bool:
    return getattr(part, "tool_name", "") == "Note" and getattr(part, "outcome", "") == "success"


def _told(message: ModelMessage) -> str:
    parts = message.parts
    results = [part.model_response_str() for part in parts if isinstance(part, ToolReturnPart)]
    return "\n".join([*results, *(user_text(part) for part in parts if isinstance(part, UserPromptPart))])


async def found(url: str) -> Found:
    """Read the store, whose lease has run out, and check that all of it is sound."""
    async with await Store.open(url, env={}) as store:
        assert await store.verify() == []
        sessions = await store.sessions.list()
        if not sessions:
            return Found()
        (session,) = sessions
        lease = await store.leases.get(session.id)
        if lease is not None:
            await store.leases.release(lease)
        delegations = await store.delegations.list(session.id)
        end = Found(session.id, delegations)
        for lane in (None, *(row.id for row in delegations)):
            end.lanes[lane] = await store.transcript.load(session.id, lane)
            history = valid_history(end.lanes[lane])
            if history:
                validate([*history, ModelRequest(parts=[])])
            if lane is None:
                end.told = "\n".join(map(_told, history))
        return end


@dataclass
class Job:
    """One job in a folder of its own."""

    root: Path
    kills: list[bool] = field(default_factory=list)
    """Of each kill, whether it came while the process was at work."""
    interrupted: int = 0
    """Delegations that a kill found running."""

    @property
    def url(self) -> str:
        return str(self.root / "store.db")

    @property
    def notes(self) -> Path:
        return self.root / "notes"

    def written(self) -> Counter[str]:
        """How often each key was written."""
        return Counter(self.notes.read_text().split() if self.notes.exists() else ())

    def run(self, worker: Zygote, session: str = "") -> float:
        """Work until the end and return how long that took, in seconds."""
        begun = time.monotonic()
        assert worker.run(self.url, session, self.root, self.notes) == 0
        return time.monotonic() - begun

    def kill(self, worker: Zygote, after_s: float, session: str = "") -> Found:
        """Work, be killed after that time, and leave a sound store."""
        end = worker.run(self.url, session, self.root, self.notes, after_s)
        assert end in {0, signal.SIGKILL}
        self.kills.append(end == signal.SIGKILL)
        left = asyncio.run(found(self.url))
        self.interrupted += sum(row.status == "running" for row in left.delegations)
        assert left.started <= {row.id for row in left.delegations}, "a delegation was lost"
        assert left.done <= set(self.written()), "what is recorded was done"
        return left

    def survive(self, worker: Zygote, kills: int, instant: Callable[[], float]) -> None:
        """Be killed that often, be gone on with, and find everything done and nothing done again.

        `instant` gives a random part of the time that a whole job takes; what is done already shortens it.
        """
        left = Found()
        recorded: Counter[str] = Counter()
        for _ in range(kills):
            missing = 1 - len(left.done) / (len(KEYS) + 1)
            left = self.kill(worker, instant() * missing, left.session)
            assert {key: self.written()[key] for key in recorded} == recorded
            recorded = Counter({key: self.written()[key] for key in left.done})
        self.run(worker, left.session)
        self.check(recorded, kills)

    def check(self, recorded: Counter[str], kills: int) -> None:
        written = self.written()
        assert set(written) == set(KEYS)
        assert max(written.values()) <= 1 + kills
        for key, times in recorded.items():
            assert written[key] == times, f"{key} was recorded as done and done again"
        end = asyncio.run(found(self.url))
        assert end.done == set(KEYS)
        assert all(row.status != "running" for row in end.delegations)
        assert shown([end.lanes[None][-1].message]) == [f"says: {END}"]
        for agent in AGENTS:
            assert end.told.count(f"REPORT-{agent}") == 1, f"the report of {agent} comes once"


@pytest.fixture
def workers() -> Iterator[list[Zygote]]:
    """As many processes that fork as there are jobs at once."""
    with LoopbackProvider(answer).run_in_thread() as provider:
        port = int(provider.url.rsplit(":", 1)[1])
        with zygote(port) as first, zygote(port) as second:
            yield [first, second]
        assert provider.failures == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_hundred_kills_at_random_instants(
    workers: list[Zygote], tmp_path: Path, empty_store: Path
) -> None:
    def a_job(name: str) -> Job:
        root = tmp_path / name
        root.mkdir()
        shutil.copy(empty_store, root / "store.db")
        return Job(root)

    def some(number: int) -> list[Job]:
        chance, worker = random.Random(SEED + number), workers[number]
        lasts = a_job(f"whole-{number}").run(worker)
        jobs: list[Job] = []
        while sum(sum(job.kills) for job in jobs) < KILLS // AT_ONCE:
            job = a_job(f"job-{number}-{len(jobs)}")
            jobs.append(job)
            job.survive(worker, LIVES[len(jobs) % len(LIVES)], partial(chance.uniform, 0, lasts))
            lasts *= 1 / SHORTER if all(job.kills) else SHORTER
            shutil.rmtree(job.root)
        return jobs

    with ThreadPoolExecutor(AT_ONCE) as pool:
        jobs = [job for jobs in pool.map(some, range(AT_ONCE)) for job in jobs]
    kills = [at_work for job in jobs for at_work in job.kills]
    assert sum(kills) >= KILLS
    assert sum(job.interrupted for job in jobs) > KILLS // 2
