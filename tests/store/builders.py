"""Short words for the tests of the store, and the decorator that hands them one."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.events import Notice, Numbered
from sidequest.core.outcome import Outcome, Status, StopReason
from sidequest.core.transcript import validate
from sidequest.store import Holder, NewDelegation, NewMessage, NewSession, Store
from tests.core.builders import stored, user

S = "s-1"
"""The session of most tests."""


_BY_NAME = inspect.Parameter.POSITIONAL_OR_KEYWORD


def on_a_store(case: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an async test, or a method, with an open store as `store`, once on each database."""
    asked = inspect.signature(case).parameters
    wanted = [name for name in asked if name not in {"store", "store_url"}]
    keep_url = "store_url" in asked
    # pytest reads this to know the fixtures: the address in place of the store.
    parameters = [inspect.Parameter(name, _BY_NAME) for name in [*wanted, "store_url"]]

    @functools.wraps(case)
    def test(*self: object, store_url: str, **fixtures: Any) -> None:
        if keep_url:
            fixtures["store_url"] = store_url

        async def opened() -> None:
            async with await Store.open(store_url, env={}) as store:
                await case(*self, store=store, **fixtures)

        asyncio.run(opened())

    test.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return test


_clock = count(1_000)


def now() -> int:
    """A clock that ticks at each look."""
    return next(_clock)


def new(
    message_id: str, message: ModelMessage, lane: str | None = None, at_ms: int | None = None
) -> NewMessage:
    agent = "explorer" if lane else None
    return NewMessage(message_id, message, now() if at_ms is None else at_ms, lane, agent)


def delegation(delegation_id: str, **facts: Any) -> NewDelegation:
    values = {
        "agent": "explorer",
        "task": f"task of {delegation_id}",
        "brief": f"brief of {delegation_id}",
        "model": "offline/extractive",
        "context_mode": "independent",
        "started_at_ms": now(),
    }
    return NewDelegation(delegation_id, **(values | facts))


def outcome(
    delegation_id: str, status: Status = Status.COMPLETED, report: str = "Found it.", **facts: Any
) -> Outcome:
    values: dict[str, Any] = {"model": "offline/extractive", "context_mode": "independent", "elapsed_s": 1.5}
    return Outcome(delegation_id, "explorer", status, StopReason.STOP, report, **(values | facts))


def numbered(number: int, text: str = "hello") -> Numbered:
    return Numbered(number, now(), Notice(None, text))


def holder(name: str = "h-1", pid: int = 11) -> Holder:
    return Holder(name, "host-1", pid)


async def a_session(store: Store, *messages: NewMessage, session_id: str = S, title: str = "") -> str:
    """A session with these messages."""
    await store.sessions.create(NewSession(session_id, now(), title))
    if messages:
        await store.transcript.append(session_id, messages)
    return session_id


def valid(history: list[ModelMessage]) -> list[ModelMessage]:
    """The history, after checking that the next prompt may follow it."""
    validate([*history, user("next")])
    return history


def same(left: list[ModelMessage], right: list[ModelMessage]) -> bool:
    return stored(left) == stored(right)


def refused(code: ErrorCode, *words: str) -> Any:
    """A context in which a SidequestError with that code must be raised, whose text has these words."""
    return _Refused(code, words)


class _Refused:
    def __init__(self, code: ErrorCode, words: tuple[str, ...]) -> None:
        self.code, self.words = code, words
        self._raises = pytest.raises(SidequestError)

    def __enter__(self) -> pytest.ExceptionInfo[SidequestError]:
        self._info = self._raises.__enter__()
        return self._info

    def __exit__(self, *error: Any) -> bool:
        handled = bool(self._raises.__exit__(*error))
        if handled:
            assert self._info.value.code is self.code, self._info.value
            for word in self.words:
                assert word in str(self._info.value)
        return handled


async def problems(store: Store, session_id: str | None = None) -> list[str]:
    return [f"{p.kind}: {p.where} {p.message}" for p in await store.verify(session_id)]


async def open_and_close(url: str) -> None:
    """Bring a store's schema up to date."""
    async with await Store.open(url, env={}):
        pass
