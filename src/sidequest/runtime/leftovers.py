"""What commands leave running: known from the moment a command starts, ended with those it was started for.

A command leads a session (in the sense of POSIX) of its own, whose number is that of its shell. What it
starts stays in that session, or leaves it and is known as long as the chain of parents to it is whole at a
look. What cannot be found: a process that made a session of its own and whose parent ended before the
command did, as a daemon does (`setsid server &` as the last thing of a command). It belongs to the system's
first process then, and nothing that Linux tells of it leads back to the command.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field

from sidequest.runtime.process_table import Process, process, processes, send

GRACE_S = 0.5
"""How long what is ended may take to end by itself, before it is killed."""
KILL_S = 2.0
"""How long to wait until what was killed is gone."""
FREEZE_S = 0.5
"""How long to wait until what runs stands still."""
_POLL_S = 0.01
_MOST_NAMED = 5

_OWNER: ContextVar[str | None] = ContextVar("owner_of_commands", default=None)


def commands_belong_to(owner: str) -> None:
    """Let the commands that are started in this context from now on belong to the delegation `owner`."""
    _OWNER.set(owner)


def named(found: Collection[Process]) -> str:
    """Return names and numbers of processes, the first five of them."""
    first = ", ".join(str(one) for one in list(found)[:_MOST_NAMED])
    more = len(found) - _MOST_NAMED
    return f"{first} and {more} more" if more > 0 else first


def note_left(found: Collection[Process]) -> str:
    """Return what the model is told of processes that its command left running."""
    until = "the session is stopped or closed" if _OWNER.get() is None else "this delegation ends"
    return f"[still running until {until}: {named(found)}]"


class Family:
    """The processes that one command started, told apart from strangers that get a number of theirs."""

    def __init__(self, leader: int, owner: str | None, started: str | None) -> None:
        self.owner = owner
        """Id of the delegation that the command runs for, None for the parent agent."""
        self._leader = leader
        self._leader_started = started
        self._members = {leader: started} if started is not None else {}
        self._sessions = {leader}
        self._looked = False

    def look(self, table: Mapping[int, Process]) -> list[Process]:
        """Return who of the family is running by `table`.

        A system does not give the number of a session away while somebody is in it. So a session is ours as
        long as somebody whom we know by number and start is still in it, and otherwise forgotten: its number
        may be a stranger's. Only the first look goes by the number alone, unless it finds a stranger as its
        leader: it is made while the command runs, or at once when it has ended.
        """
        here = {pid for pid, started in self._members.items() if pid in table}
        here = {pid for pid in here if table[pid].started == self._members[pid]}
        if self._looked:
            self._sessions &= {table[pid].session for pid in here}
        elif (one := table.get(self._leader)) is not None and one.started != self._leader_started:
            self._sessions.discard(self._leader)
        self._looked = True
        self._members = {pid: table[pid].started for pid in self._grown(here, table)}
        return [table[pid] for pid in sorted(self._members) if table[pid].running]

    def _grown(self, here: set[int], table: Mapping[int, Process]) -> set[int]:
        found, before = set(here), -1
        while len(found) != before:
            before = len(found)
            found |= {
                one.pid for one in table.values() if one.session in self._sessions or one.parent in found
            }
            # What leads a session was started by us, and so was everything in that session.
            self._sessions |= {pid for pid in found if table[pid].session == pid}
        return found


@dataclass
class Leftovers:
    """What the commands of a workspace have left running. May be used from several threads."""

    look: Callable[[], Mapping[int, Process]] = processes
    grace_s: float = GRACE_S
    send: Callable[[Process, signal.Signals], bool] = send
    _beyond: set[tuple[int, str]] = field(default_factory=set, init=False)
    """Number and start of those that may not be signalled: nobody waits for them."""
    _families: list[Family] = field(default_factory=list, init=False)
    _lock: threading.RLock = field(default_factory=threading.RLock, init=False)

    def begun(self, pid: int) -> Family:
        """Note that a command was started, whose shell has the number `pid` and leads a session."""
        leader = process(pid)
        family = Family(pid, _OWNER.get(), leader.started if leader is not None else None)
        with self._lock:
            self._families.append(family)
        return family

    async def left_by(self, families: list[Family], *, end: bool = False) -> list[Process]:
        """Return what commands that have just ended left running; they are forgotten if nothing.

        With `end` it is killed, and nothing is left.
        """

        if not families:
            return []

        def look() -> list[Process]:
            running = self._running(families)
            if not running or not end:
                return running
            self._kill(families)
            return []

        # Done in any case: a look at once after the end is what tells their processes from strangers.
        return await asyncio.shield(asyncio.ensure_future(asyncio.to_thread(look)))

    def kill(self, family: Family) -> None:
        """Kill at once what a command has started, and those that left its group too."""
        self._kill([family])

    def kill_all(self) -> None:
        """Kill at once what all commands have started: this process is about to quit."""
        self._kill([*self._families])

    async def end(self, owner: str | None) -> str | None:
        """End what the commands of the delegation `owner` left running; None means those of the parent.

        Returns what to tell about it, None when nothing was running.
        """
        return await self._ended([family for family in self._families if family.owner == owner])

    async def end_all(self) -> str | None:
        """End what all commands left running, as `end` does."""
        return await self._ended([*self._families])

    async def _ended(self, families: list[Family]) -> str | None:
        if not families:
            return None
        # A thread cannot be cancelled: who is cancelled meanwhile leaves it to end what it is at.
        return await asyncio.shield(asyncio.ensure_future(asyncio.to_thread(self._end, families)))

    def _end(self, families: list[Family]) -> str | None:
        """Ask what runs to end, kill what does not, and say which it was."""
        met = {one.identity: one for one in self._frozen(families)}
        if not met:
            return None
        for number in (signal.SIGTERM, signal.SIGCONT):
            for one in met.values():
                self.send(one, number)
        asked = time.monotonic()
        while running := self._within_reach(families):
            if time.monotonic() - asked >= self.grace_s:
                running = self._kill(families)
            met |= {one.identity: one for one in running}
            if time.monotonic() - asked >= self.grace_s + KILL_S:
                break
            time.sleep(_POLL_S)
        left = {one.identity: one for one in self._running(families)}
        ended = [one for identity, one in met.items() if identity not in left]
        parts = [f"Ended what commands had left running: {named(ended)}."] if ended else []
        if left:
            parts.append(f"This could not be ended: {named(left.values())}.")
        return " ".join(parts)

    def _kill(self, families: list[Family]) -> list[Process]:
        met = self._frozen(families)
        for one in met:
            self.send(one, signal.SIGKILL)
        return met

    def _frozen(self, families: list[Family]) -> list[Process]:
        """Stop what runs of `families` and return it.

        While all of them stand still nobody starts another one, and their sessions keep their numbers.
        """
        begun, before = time.monotonic(), list[Process]()
        while running := self._running(families):
            # A look takes its time, so only the second one that finds the same is the whole.
            moving = [one for one in running if not one.stopped and one.identity not in self._beyond]
            if (running == before and not moving) or time.monotonic() - begun >= FREEZE_S:
                break
            self._beyond |= {one.identity for one in moving if not self.send(one, signal.SIGSTOP)}
            before = running
        return running

    def _within_reach(self, families: list[Family]) -> list[Process]:
        return [one for one in self._running(families) if one.identity not in self._beyond]

    def _running(self, families: list[Family]) -> list[Process]:
        """Return what runs of `families`; those of which nothing runs are forgotten."""
        with self._lock:
            table, found = self.look(), list[Process]()
            for family in families:
                running = family.look(table)
                found += running
                if not running and family in self._families:
                    self._families.remove(family)
        return found
