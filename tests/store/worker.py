"""Processes that work on a store and may be killed at any instant.

Importing pydantic-ai takes longer than all the work, so one helper process imports it once and forks a worker
for each line that it reads: mode, address, session and the file in which the worker notes what is stored.
A worker notes a thing after the call that stores it has returned: what is noted must never be lost.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.store import Holder, NewCheckpoint, NewSession, Store, leases
from tests.core.builders import call, result, results, says, user
from tests.store.builders import delegation, new, numbered, outcome

HOLD_MS = 60_000


@dataclass
class Worker:
    """Plays rounds of a session with a delegation in each, for ever."""

    store: Store
    session: str
    notes: int
    made: int = field(default_factory=time.monotonic_ns)

    def note(self, *words: object) -> None:
        os.write(self.notes, (" ".join(map(str, words)) + "\n").encode())

    def name(self, kind: str) -> str:
        self.made += 1
        return f"{kind}{self.made}"

    async def say(self, *messages, lane: str | None = None) -> list[str]:
        """Append messages together, and note them."""
        ids = [self.name("m") for _ in messages]
        rows = [new(key, message, lane, 1) for key, message in zip(ids, messages, strict=True)]
        await self.store.transcript.append(self.session, rows)
        for key in ids:
            self.note("message", key)
        return ids

    async def begin(self) -> None:
        """Do what a session does when it is opened after a kill."""
        try:
            await self.store.sessions.create(NewSession(self.session, 1))
        except SidequestError as error:
            if error.code is not ErrorCode.STORE_CONFLICT:
                raise
        await self.store.delegations.interrupt_running(self.session, 1)
        await self.store.transcript.close_open(self.session, at_ms=1)
        waiting = await self.store.delegations.undelivered(self.session)
        if waiting:
            await self.deliver([row.id for row in waiting])

    async def deliver(self, ids: list[str]) -> None:
        message = new(self.name("m"), user(f"reports of {ids}"), at_ms=1)
        await self.store.delegations.deliver(self.session, message, ids)
        for key in ids:
            self.note("delivered", message.id, key)

    async def round(self) -> None:
        """Store a prompt, calls, a delegation with rows of its own, results one by one, and the report."""
        *_, asked = await self.say(user("go"), says("", call("c1", "Task"), call("c2")))
        lane = self.name("d")
        await self.store.delegations.start(self.session, delegation(lane, parent_message_id=asked))
        _, inside = await self.say(user("brief"), says("", call("c1"), call("c2")), lane=lane)
        parts = [result("one " * 400, "c1"), result("two", "c2")]
        for part in parts:
            await self.store.transcript.record_result(self.session, inside, part, 1)
            self.note("result", inside, part.tool_call_id)
        await self.say(results(*parts), says("Found."), lane=lane)
        await self.store.transcript.record_result(self.session, asked, result("started", "c1", "Task"), 1)
        self.note("result", asked, "c1")
        answered = results(result("started", "c1", "Task"), result("text", "c2"))
        *_, last = await self.say(answered, says("Waiting."))
        await self.store.delegations.settle(self.session, outcome(lane), 1)
        self.note("settled", lane)
        await self.deliver([lane])
        number = await self.store.events.newest_number(self.session) + 1
        await self.store.events.append(self.session, [numbered(number), numbered(number + 1)])
        self.note("event", number + 1)
        await self.store.checkpoints.append(self.session, NewCheckpoint(self.name("k"), "sum", last, 1, 1))
        self.note("checkpoint", f"k{self.made}")


async def play(url: str, session: str, notes: int) -> None:
    async with await Store.open(url, env={}) as store:
        worker = Worker(store, session, notes)
        await worker.begin()
        while True:
            await worker.round()


async def hold(url: str, session: str, notes: int) -> None:
    """Take the lease, by the clock of the test, and keep it."""
    leases.clock = lambda tx, caller_ms: caller_ms
    async with await Store.open(url, env={}) as store:
        holder = Holder(f"holder-{os.getpid()}", "host-1", os.getpid())
        await store.leases.acquire(session, holder, now_ms=0, ttl_ms=HOLD_MS)
        os.write(notes, b"held\n")
        await asyncio.sleep(60)


async def warm_up() -> None:
    """Load all that a worker needs, by one round of play: a worker's life is short."""
    with tempfile.TemporaryDirectory() as folder:
        notes = os.open(Path(folder) / "notes", os.O_WRONLY | os.O_CREAT)
        async with await Store.open(f"{folder}/store.db", env={}) as store:
            worker = Worker(store, "s", notes)
            await worker.begin()
            await worker.round()
        os.close(notes)
    importlib.import_module("sqlalchemy.dialects.postgresql.psycopg")
    importlib.import_module("psycopg")


def serve() -> None:
    """Fork a worker for each line, tell its number, wait until it has ended and tell that."""
    asyncio.run(warm_up())
    for line in sys.stdin:
        mode, url, session, notes = line.rstrip("\n").split("\t")
        pid = os.fork()
        if pid == 0:
            file = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            asyncio.run((play if mode == "play" else hold)(url, session, file))
            os._exit(0)
        print(pid, flush=True)
        os.waitpid(pid, 0)
        print("ended", flush=True)


@dataclass
class Helper:
    """The helper process, as a test sees it."""

    stdin: IO[str]
    stdout: IO[str]

    def start(self, mode: str, url: str, session: str, notes: Path) -> int:
        """Start a worker and return its process number."""
        self.stdin.write(f"{mode}\t{url}\t{session}\t{notes}\n")
        self.stdin.flush()
        return int(self.stdout.readline())

    def kill(self, pid: int) -> None:
        """Kill the worker and return when it is gone."""
        os.kill(pid, signal.SIGKILL)
        assert self.stdout.readline() == "ended\n"


@contextmanager
def helper_process() -> Iterator[Helper]:
    """Start the helper; it ends when its input does."""
    command = [sys.executable, "-m", "tests.store.worker"]
    root = Path(__file__).parent.parent.parent
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root
    ) as process:
        assert process.stdin and process.stdout
        yield Helper(process.stdin, process.stdout)
        process.stdin.close()
        process.wait(timeout=20)


if __name__ == "__main__":
    serve()
