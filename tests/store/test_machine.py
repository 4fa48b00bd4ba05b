"""Random operations on the store and on plain dicts, compared: both databases run the same machine."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from itertools import count
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from sidequest.core.errors import ErrorCode
from sidequest.core.outcome import Status
from sidequest.store import NewCheckpoint, NewSession, Store
from sidequest.store.payload import INTERRUPTED
from tests.core.builders import call, result, results, says, user
from tests.store.builders import delegation, new, now, numbered, outcome, problems, refused, valid
from tests.store.reference import Conversation, Lane, Row, Task, as_said

WORDS = ["alpha", "beta", "gamma", "delta"]
texts = st.lists(st.sampled_from(WORDS), max_size=3).map(" ".join)
endings = st.sampled_from([s for s in Status if s is not Status.RUNNING])


class StoreMachine(RuleBasedStateMachine):
    """Picks with `data` from what is there, so that every step does something."""

    make_url: ClassVar[Callable[[], str]]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.url = self.make_url()
        self.ids = count(1)
        self.known: dict[str, Conversation] = {}
        self.touched: tuple[str, str | None] | None = None
        self.store = self.do(Store.open(self.url, env={}))

    def do(self, work: Any) -> Any:
        return self.runner.run(work)

    def name(self, kind: str) -> str:
        return f"{kind}{next(self.ids)}"

    def pick_session(self, data: st.DataObject) -> tuple[str, Conversation]:
        session = data.draw(st.sampled_from(list(self.known)), "session")
        self.touched = session, None
        return session, self.known[session]

    def pick_lane(self, data: st.DataObject) -> tuple[str, str | None, Lane]:
        session, talk = self.pick_session(data)
        open_lanes = [key for key in talk.lanes() if key is None or talk.tasks[key].status == "running"]
        key = data.draw(st.sampled_from(open_lanes), "lane")
        self.touched = session, key
        return session, key, talk.lane(key)

    def append(self, session: str, lane: str | None, key: str, message: Any) -> None:
        self.do(self.store.transcript.append(session, [new(key, message, lane)]))

    @rule(title=texts)
    def create(self, title: str) -> None:
        key = self.name("s")
        self.do(self.store.sessions.create(NewSession(key, now(), title)))
        self.known[key] = Conversation(title)

    @precondition(lambda self: self.known)
    @rule(data=st.data(), text=texts)
    def ask(self, data: st.DataObject, text: str) -> None:
        session, key, lane = self.pick_lane(data)
        row = Row(self.name("m"), "request", text)
        self.append(session, key, row.id, user(text))
        lane.rows.append(row)

    @precondition(lambda self: self.known)
    @rule(data=st.data(), text=texts, calls=st.integers(0, 3))
    def answer(self, data: st.DataObject, text: str, calls: int) -> None:
        session, key, lane = self.pick_lane(data)
        row = Row(self.name("m"), "response", text, [f"c{n}" for n in range(calls)])
        self.append(session, key, row.id, says(text, *map(call, row.calls)))
        lane.rows.append(row)

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def record(self, data: st.DataObject) -> None:
        session, _, lane = self.pick_lane(data)
        missing = [c for c in lane.uncarried() if c not in lane.newest_response().results]
        if missing:
            row, chosen = lane.newest_response(), data.draw(st.sampled_from(missing), "call")
            text = self.name("recorded ")
            self.do(self.store.transcript.record_result(session, row.id, result(text, chosen), now()))
            row.results[chosen] = text

    @precondition(lambda self: self.known)
    @rule(data=st.data(), text=texts)
    def send_results(self, data: st.DataObject, text: str) -> None:
        session, key, lane = self.pick_lane(data)
        if not lane.uncarried():
            return
        chosen = data.draw(st.lists(st.sampled_from(lane.uncarried()), min_size=1, unique=True), "calls")
        answered = lane.newest_response()
        row = Row(self.name("m"), "request", text, carries=chosen)
        for each in chosen:
            if each not in answered.results or data.draw(st.booleans(), "cut"):
                answered.results[each] = self.name("sent ")
        parts = [result(answered.results[each], each) for each in chosen]
        self.append(session, key, row.id, results(*parts, *user(text).parts))
        lane.rows.append(row)

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def delegate(self, data: st.DataObject) -> None:
        session, talk = self.pick_session(data)
        settled = [key for key, task in talk.tasks.items() if task.status != "running"]
        earlier = data.draw(st.sampled_from([None, *settled]), "resumes")
        key = self.name("d")
        self.do(self.store.delegations.start(session, delegation(key, resumed_from=earlier)))
        chain = talk.tasks[earlier].chain if earlier else key
        talk.tasks[key] = Task(len(talk.parent.rows), chain=chain)

    @precondition(lambda self: self.known)
    @rule(data=st.data(), status=endings, report=texts)
    def settle(self, data: st.DataObject, status: Status, report: str) -> None:
        session, talk = self.pick_session(data)
        running = [key for key, task in talk.tasks.items() if task.status == "running"]
        if running:
            key = data.draw(st.sampled_from(running), "delegation")
            self.do(self.store.delegations.settle(session, outcome(key, status, report), now()))
            talk.tasks[key].status, talk.tasks[key].report = status.value, report

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        session, talk = self.pick_session(data)
        if not talk.undelivered():
            return
        chosen = data.draw(st.lists(st.sampled_from(talk.undelivered()), min_size=1, unique=True), "reports")
        row = Row(self.name("m"), "request", "report")
        self.do(self.store.delegations.deliver(session, new(row.id, user("report")), chosen))
        talk.parent.rows.append(row)
        for key in chosen:
            talk.tasks[key].delivered_by = row.id
        with refused(ErrorCode.STORE_CONFLICT):
            self.do(self.store.delegations.deliver(session, new(self.name("m"), user("?")), chosen))

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        session, talk = self.pick_session(data)
        ids = [row.id for row in talk.parent.rows]
        first = ids.index(talk.checkpoints[-1][1]) if talk.checkpoints else 0
        if ids[first:]:
            anchor = data.draw(st.sampled_from(ids[first:]), "anchor")
            key = self.name("k")
            self.do(self.store.checkpoints.append(session, NewCheckpoint(key, "sum", anchor, 1, now())))
            talk.checkpoints.append((key, anchor))

    @precondition(lambda self: self.known)
    @rule(data=st.data(), events=st.integers(0, 3))
    def tell(self, data: st.DataObject, events: int) -> None:
        session, talk = self.pick_session(data)
        told = [numbered(talk.events + n) for n in range(1, events + 1)]
        self.do(self.store.events.append(session, told))
        talk.events += events

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        session, talk = self.pick_session(data)
        rows = data.draw(st.integers(0, len(talk.parent.rows)), "rows kept")
        anchor = talk.parent.rows[rows - 1].id if rows else None
        if any(task.after > rows and task.status == "running" for task in talk.tasks.values()):
            with refused(ErrorCode.AGENT_BUSY):
                self.do(self.store.sessions.truncate(session, anchor))
            return
        self.do(self.store.sessions.truncate(session, anchor))
        talk.cut(rows)
        self.do(self.compare(session))

    @precondition(lambda self: 0 < len(self.known) < 5)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        session, talk = self.pick_session(data)
        rows = data.draw(st.integers(0, len(talk.parent.rows)), "rows copied")
        anchor = talk.parent.rows[rows - 1].id if rows else None
        if anchor is None and talk.parent.rows:
            return
        key = self.name("s")
        self.do(self.store.sessions.fork(session, key, anchor, at_ms=now()))
        self.known[key] = talk.fork(rows)
        self.do(self.compare(key))

    @precondition(lambda self: len(self.known) > 1)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        session, _ = self.pick_session(data)
        self.do(self.store.sessions.delete(session, now_ms=now()))
        del self.known[session]
        self.touched = None
        with refused(ErrorCode.SESSION_UNKNOWN):
            self.do(self.store.transcript.append(session, [new("m", user("?"))]))

    @rule()
    def die_and_open_again(self) -> None:
        """What is done after a kill: running delegations are interrupted, open calls are closed."""
        self.do(self.store.close())
        self.store = self.do(Store.open(self.url, env={}))
        for session, talk in self.known.items():
            interrupted = self.do(self.store.delegations.interrupt_running(session, now()))
            running = [key for key, task in talk.tasks.items() if task.status == "running"]
            assert [row.id for row in interrupted] == running
            for key in running:
                talk.tasks[key].interrupt()
            self.do(self.store.transcript.close_open(session, at_ms=now()))
            answer = talk.parent.newest_response()
            for each in talk.parent.uncarried():
                answer.results.setdefault(each, INTERRUPTED)

    @precondition(lambda self: self.known)
    @rule(data=st.data(), word=st.sampled_from(WORDS))
    def search(self, data: st.DataObject, word: str) -> None:
        session, talk = self.pick_session(data)
        found = self.do(self.store.search.find(session, word.upper(), limit=25))
        assert [match.message_id for match in found] == talk.found(word)[::-1][:25]

    @invariant()
    def the_lane_that_was_touched_is_the_same(self) -> None:
        if self.touched is not None:
            session, key = self.touched
            self.do(self.compare_lane(session, key))

    async def compare_lane(self, session: str, key: str | None) -> None:
        lane = self.known[session].lane(key)
        history = await self.store.transcript.history(session, key)
        assert [as_said(message) for message in history] == lane.history()
        if history and history[0].kind == "request":
            valid(history)

    async def compare(self, session: str) -> None:
        store, talk = self.store, self.known[session]
        for key in talk.lanes():
            await self.compare_lane(session, key)
            rows = await store.transcript.load(session, key)
            ids = [row.id for row in talk.lane(key).rows]
            assert [(row.position, row.id) for row in rows] == list(enumerate(ids, start=1))
        tasks = [
            (row.id, row.status, row.report, row.delivered_by, row.chain_id)
            for row in await store.delegations.list(session)
        ]
        assert tasks == [(k, t.status, t.report, t.delivered_by, t.chain) for k, t in talk.tasks.items()]
        assert [row.id for row in await store.delegations.undelivered(session)] == talk.undelivered()
        checkpoints = await store.checkpoints.list(session)
        expected = [(n, *each) for n, each in enumerate(talk.checkpoints, start=1)]
        assert [(row.generation, row.id, row.through_message_id) for row in checkpoints] == expected
        assert [e.number for e in await store.events.after(session)] == list(range(1, talk.events + 1))

    def teardown(self) -> None:
        try:
            for session in self.known:
                self.do(self.compare(session))
            assert {row.id for row in self.do(self.store.sessions.list(limit=99))} == set(self.known)
            assert self.do(problems(self.store)) == []
        finally:
            self.do(self.store.close())
            self.runner.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_the_store_and_a_dict_agree(kind, tmp_path, request):
    numbers = count(1)

    def make_url() -> str:
        if kind == "postgresql":
            return request.getfixturevalue("postgres").emptied_database()
        source = request.getfixturevalue("empty_file")
        return str(shutil.copy(source, tmp_path / f"store-{next(numbers)}.db"))

    class Machine(StoreMachine):
        pass

    Machine.make_url = staticmethod(make_url)
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=12,
            stateful_step_count=40,
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
