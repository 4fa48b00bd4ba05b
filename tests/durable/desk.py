"""A folder to work in and a store beside it, which outlive the sessions that are opened on them."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model

from sidequest.core.errors import SidequestError
from sidequest.core.permissions import Mode
from sidequest.core.transcript import mark_of, user_text, validate
from sidequest.runtime.session import Session, TurnResult
from sidequest.store import DelegationRow, Store, StoredMessage
from tests.durable.watched import WatchedStore
from tests.support.sessions import session

LOCK_WAIT_MS = 100
"""How long a store waits for a lock that a test holds, in ms."""
PATIENCE_MS = 30_000
"""How long it waits where only a slow machine could make it wait."""


def in_a_loop(case: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an async test in the loop of its room, and find the room afterwards as it ought to be left."""

    @functools.wraps(case)
    def test(*args: Any, **fixtures: Any) -> None:
        room = next(value for value in fixtures.values() if isinstance(value, Room))

        async def run() -> None:
            async with room:
                await case(*args, **fixtures)

        room.run(run())

    return test


def shown(messages: Sequence[ModelMessage]) -> list[str]:
    """Return one line for each part of `messages`: who says what."""
    return [line for message in messages for line in map(_line, message.parts) if line]


def _line(part: Any) -> str:
    match part:
        case UserPromptPart():
            mark = mark_of(part)
            text = " ".join(user_text(part).split())[:60]
            return "summary" if mark == "summary" else f"{mark or 'user'}: {text}"
        case TextPart():
            return f"says: {' '.join(part.content.split())[:60]}"
        case ToolCallPart():
            return f"calls {part.tool_name}"
        case ToolReturnPart():
            outcome = "gives" if part.outcome == "success" else part.outcome
            return f"{part.tool_name} {outcome}: {' '.join(part.model_response_str().split())[:30]}"
        case _:
            return type(part).__name__


@dataclass
class Desk:
    """A session that is open on a store."""

    session: Session
    store: WatchedStore
    dead: bool = False

    @property
    def id(self) -> str:
        """Id of the session."""
        return self.session.id

    async def prompt(self, text: str) -> TurnResult:
        """Prompt the session, which must be answered."""
        result = await self.session.prompt(text)
        assert result.failure is None, result.failure
        return result

    async def rows(self, delegation_id: str | None = None) -> list[StoredMessage]:
        """Return the rows of a lane."""
        return await self.store.transcript.load(self.id, delegation_id)

    async def lane(self, delegation_id: str | None = None) -> list[str]:
        """Return what a lane holds, a line for each part."""
        return shown([row.message for row in await self.rows(delegation_id)])

    async def delegations(self) -> list[DelegationRow]:
        """Return the delegations of the session as they are stored."""
        return await self.store.delegations.list(self.id)

    async def die(self) -> None:
        """End like a killed process: nothing is stored any more."""
        self.dead = True
        self.store.stop_taking()
        with suppress(SidequestError):
            await self.session.close()


@dataclass
class Room:
    """Where the sessions of a test are opened; they outlive their desks.

    `root` is the folder they work in, `url` the store. As a context manager it ends with finding sound what
    the test stored. Tests that break nothing share one store, whose opening takes as long as a short test.
    """

    root: Path
    url: str
    shared: tuple[asyncio.Runner, Store] | None = None
    damaged: bool = False
    """Whether the test damaged its store, which is then not checked."""
    lock_wait_ms: int = LOCK_WAIT_MS
    """How long a store of its own waits for one that locks it."""
    _store: Store | None = field(default=None, init=False)
    _used: list[str] = field(default_factory=list, init=False)

    def run(self, case: Coroutine[Any, Any, None]) -> None:
        """Run `case` in the loop in which the store is open."""
        if self.shared is not None:
            self.shared[0].run(case)
        else:
            asyncio.run(case)

    async def __aenter__(self) -> Room:
        self._store = (
            self.shared[1]
            if self.shared is not None
            else await Store.open(self.url, env={}, lock_wait_ms=self.lock_wait_ms)
        )
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        assert self._store is not None
        if kind is None and not self.damaged:
            for session_id in self._used:
                await sound(self._store, session_id)
        if self.shared is None:
            await self._store.close()

    @property
    def store(self) -> WatchedStore:
        """The store, watched anew each time."""
        assert self._store is not None
        return WatchedStore(self._store)

    def forget(self, session_id: str) -> None:
        """Do not look for a session that the test removed."""
        self._used.remove(session_id)

    @asynccontextmanager
    async def another_store(self) -> AsyncIterator[WatchedStore]:
        """Open the store as a process of its own does."""
        async with await Store.open(self.url, env={}, lock_wait_ms=PATIENCE_MS) as store:
            yield WatchedStore(store)

    @asynccontextmanager
    async def desk(
        self,
        parent: Model,
        child: Model | None = None,
        *,
        continues: str | None = None,
        **options: Any,
    ) -> AsyncIterator[Desk]:
        """Open a session, and close it; `continues` is the id of a stored one."""
        opened = session(self.root, parent, child, **{"permission_mode": Mode.AUTO, **options})
        desk = Desk(opened, self.store)
        try:
            await opened.attach(desk.store, continues)  # type: ignore[arg-type]
            self._used.append(opened.id)
            yield desk
        finally:
            if not desk.dead:
                await opened.close()
        if opened.messages:
            validate([*opened.messages, ModelRequest(parts=[])])


async def sound(store: Store, session_id: str) -> None:
    """Check that nothing of a session contradicts itself, and that each of its lanes is a valid history."""
    problems = await store.verify(session_id)
    assert problems == [], problems
    for lane in (None, *(row.id for row in await store.delegations.list(session_id))):
        history = await store.transcript.history(session_id, lane)
        if history:
            validate([*history, ModelRequest(parts=[])])
