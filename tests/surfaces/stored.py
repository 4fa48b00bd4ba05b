"""A stored conversation with all that a screen has to show: delegations, a compaction, calls that failed."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolReturnPart

from sidequest.core.errors import ErrorCode, Failure
from sidequest.core.outcome import Status, Usage
from sidequest.core.transcript import brief_request, marked
from sidequest.store import Holder, NewCheckpoint, NewMessage, NewSession, Store
from tests.core.builders import call, result, results, says, user
from tests.store.builders import delegation, outcome

Result = TypeVar("Result")

SESSION = "5e551011aaaabbbbccccddddeeeeffff"
EXPLORER = "de1e9a7e-0001-4000-8000-000000000001"
FIXER = "f1ce0000-0002-4000-8000-000000000002"
DIED = "d1ed0000-0003-4000-8000-000000000003"
HOUR_MS = 3_600_000
REPORT = "Found:\n- src/harbour.py:1: BERTH_LIMIT = 12"


def store_of(home: Path) -> Path:
    """Return where the store of the user lies whose home it is."""
    return home / ".local/share/sidequest/sidequest.db"


def with_store(home: Path, work: Callable[[Store], Awaitable[Result]]) -> Result:
    """Run `work` on the store of the user whose home it is."""

    async def opened() -> Result:
        async with await Store.open(str(store_of(home)), env={}) as store:
            return await work(store)

    return asyncio.run(opened())


async def hold(store: Store, session_id: str, *, host: str = "other-host", pid: int = 4711) -> None:
    """Take a session as another process does, for a minute."""
    now = time.time_ns() // 1_000_000
    await store.leases.acquire(session_id, Holder("h", host, pid), now_ms=now, ttl_ms=60_000)


def dead_pid() -> int:
    """Return the number of a process that has ended."""
    with subprocess.Popen(["true"]) as process:
        process.wait()
    return process.pid


class Conversation:
    """Writes a session as a run does; its clock ticks a second at each row, from two hours and a half ago."""

    def __init__(self, store: Store, session_id: str = SESSION) -> None:
        self.store = store
        self.id = session_id
        self.at_ms = time.time_ns() // 1_000_000 - 5 * HOUR_MS // 2
        self.rows = 0

    def tick(self) -> int:
        self.at_ms += 1_000
        return self.at_ms

    async def say(self, *messages, lane: str | None = None) -> str:
        """Append messages and return the id of the last one: `m0000001...` for the first."""
        for message in messages:
            self.rows += 1
            row_id = f"m{self.rows:07}{self.id}"
            new = NewMessage(row_id, message, self.tick(), lane, "explorer" if lane else None)
            await self.store.transcript.append(self.id, [new])
        return row_id

    async def deliver(self, text: str, delegation_id: str) -> None:
        """Hand over a report by itself, as it happens when the parent's turn would end."""
        self.rows += 1
        request = ModelRequest(parts=[marked(text, "report", [delegation_id])])
        new = NewMessage(f"m{self.rows:07}{self.id}", request, self.tick())
        await self.store.delegations.deliver(self.id, new, [delegation_id])

    async def begin(self, title: str, root: Path) -> None:
        await self.store.sessions.create(
            NewSession(self.id, self.tick(), title, str(root), "offline/extractive")
        )

    async def delegate(self, delegation_id: str, label: str, **facts: object) -> None:
        started = delegation(delegation_id, label=label, task=f"{label}.", started_at_ms=self.tick(), **facts)
        await self.store.delegations.start(self.id, started)


async def write_harbour(store: Store, root: Path, session_id: str = SESSION) -> None:
    """The conversation: two delegations of which one failed, a compaction, a turn that ended badly."""
    talk = Conversation(store, session_id)
    await talk.begin("Berths and tides", root)
    task = call("c1", "Task", agent="explorer", task="Look up BERTH_LIMIT")
    asked = await talk.say(user("What is BERTH_LIMIT?"), says("I ask the explorer.", task))
    await talk.delegate(EXPLORER, "Look up BERTH_LIMIT", parent_message_id=asked)
    read = call("r1", "Read", path="src/harbour.py")
    await talk.say(brief_request("Look up BERTH_LIMIT."), says("Reading.", read), lane=EXPLORER)
    await talk.say(results(result("BERTH_LIMIT = 12", "r1", "Read")), says(REPORT), lane=EXPLORER)
    usage = Usage(3, 4_220, 107, 0.0)
    ended = outcome(EXPLORER, report=REPORT, turns=2, tool_calls=1, usage=usage)
    await store.delegations.settle(talk.id, ended, talk.tick())
    wait = call("c2", "TaskWait", delegationIds=[EXPLORER])
    waiting = await talk.say(results(result("started", "c1", "Task")), says("", wait))
    reported = result("report", "c2", "TaskWait")
    await store.transcript.record_result(talk.id, waiting, reported, talk.tick(), delivers=[EXPLORER])
    answered = await talk.say(results(reported), says("It is 12."))
    await store.checkpoints.append(
        talk.id, NewCheckpoint("k1", "Goal: berths.", answered, 12_345, talk.tick(), 2_100)
    )
    failed = ToolReturnPart("Bash", "exit 1", tool_call_id="c3", outcome="failed")
    await talk.say(user("Raise it to 14."), says("", call("c3", "Bash", command="make test")))
    await talk.say(results(failed))
    await talk.delegate(FIXER, "Raise the limit", agent="fixer")
    why = Failure(ErrorCode.PROVIDER_UNAUTHORIZED, "Incorrect API key")
    broken = outcome(FIXER, Status.FAILED, "", failure=why, turns=1)
    await store.delegations.settle(talk.id, broken, talk.tick())
    await talk.deliver("The fixer failed.", FIXER)
    note = TextPart("[This turn ended with NETWORK_ERROR: no route]")
    await talk.say(ModelResponse(parts=[note], finish_reason="error"))


def harbour_in(home: Path, root: Path) -> None:
    """Store the conversation for the user whose home it is."""
    with_store(home, lambda store: write_harbour(store, root.resolve()))
