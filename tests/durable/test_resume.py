"""Going on with a delegation: in the process that ran it, and in another one on the same store (3.11)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.tools import Tool
from pydantic_ai.toolsets import FunctionToolset
from pydantic_ai.usage import RequestUsage

from sidequest.core.context_modes import ContextMode
from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.outcome import DEGRADED_NOTE, Status, report_text
from sidequest.core.transcript import user_text
from sidequest.runtime import delegations
from sidequest.runtime.past import PastRun
from sidequest.runtime.toolbox import Toolbox
from sidequest.store import DelegationRow
from sidequest.subagents.definition import Permission
from tests.durable.desk import Desk, Room, in_a_loop
from tests.support.scripted_model import Asked, ScriptedModel, calling
from tests.support.sessions import helper
from tests.support.team import Doors

UNAUTHORIZED = ModelHTTPError(401, "m", {"error": {"message": "invalid api key"}})
WAIT = calling(("TaskWait", {}))
FORK, INDEPENDENT = ContextMode.FORK, ContextMode.INDEPENDENT


@pytest.fixture(autouse=True)
def files(folder: Path) -> None:
    """Files of about 2,700 tokens each, line numbers included."""
    for name in "abcd":
        (folder / f"{name}.txt").write_text(f"OLD-{name}\n" + "words of a file\n" * 470)


def task(text: str = "Find a.", agent: str = "helper", **more: Any) -> ModelResponse:
    return calling(("Task", {"agent": agent, "task": text, **more}))


@dataclass(frozen=True)
class Resume:
    """A Task that goes on with an earlier delegation, the newest one unless `number` says otherwise."""

    text: str = "Now find b."
    number: int = -1
    agent: str = "helper"
    model: str | None = None


def reading(name: str, text: str = "") -> ModelResponse:
    return calling(("Read", {"path": f"{name}.txt"}), text=text)


@dataclass
class Way:
    """What a resume led to: in the process that ran the delegation, or in another one."""

    parent: list[Asked]
    """What the parent was asked in the turn that resumed."""
    child: Asked
    rows: list[DelegationRow]
    lane: list[str]
    """What is stored of the newest delegation."""

    @property
    def told(self) -> str:
        """What the Task that resumes gave the parent."""
        return self.parent[1].results[-1]


async def both_ways(
    room: Room,
    start: Sequence[str | Resume],
    again: Resume,
    work: Sequence[Any],
    more: Sequence[Any] = (),
    *,
    prepare: Callable[[Desk], None] = lambda desk: None,
    **options: Any,
) -> list[Way]:
    """Delegate the tasks in `start`, which `work` answers; then the parent goes on with `again` and `more`.

    It does so in the process that delegated, and in another one on a fork of what was stored in between.
    """
    ids: list[str] = []
    parent = ScriptedModel(lambda asked: _turn(asked, again, ids), repeat=True)
    child = ScriptedModel(*work, *more, *more)

    async def go_on(desk: Desk) -> Way:
        before = len(parent.asked)
        await desk.prompt("Go on.")
        rows = await desk.delegations()
        return Way(parent.asked[before:], child.asked[-1], rows, await desk.lane(rows[-1].id))

    async with room.desk(parent, child, **options) as desk:
        prepare(desk)
        for each in start:
            text, earlier = (each, None) if isinstance(each, str) else (each.text, ids[each.number])
            outcome = await desk.session.delegate("helper", text, resume=earlier)
            ids.append(outcome.delegation_id)
        fork = await desk.store.sessions.fork(desk.id, f"fork-{desk.id}", at_ms=1)
        here = await go_on(desk)
    async with room.desk(parent, child, continues=fork.id, **options) as desk:
        prepare(desk)
        return [here, await go_on(desk)]


def _turn(asked: Asked, again: Resume, ids: list[str]) -> Any:
    """Resume, wait, and end the turn."""
    called = [part.tool_name for part in _parts_of_turn(asked)]
    if not called:
        known = ids[again.number] if ids else "nothing"
        more = {"model": again.model} if again.model else {}
        return task(again.text, again.agent, resume=known, **more)
    return WAIT if "TaskWait" not in called and "started" in asked.results[-1] else "Thanks."


def _parts_of_turn(asked: Asked) -> list[ToolCallPart]:
    texts = [user_text(p) for m in asked.messages for p in m.parts if isinstance(p, UserPromptPart)]
    assert texts[0] == "Go on."
    return [part for m in asked.messages for part in m.parts if isinstance(part, ToolCallPart)]


FIND = ["Find a."]
SMALL = {"child_window": 16_000, "max_tokens": 2_000}
"""Requests of a delegate stay below 8,000 tokens, of which instructions and tools take about 900."""


class TestSeed:
    @in_a_loop
    async def test_R1_the_task_then_what_was_done_then_the_new_task(self, room: Room) -> None:
        for way in await both_ways(room, FIND, Resume(), [reading("a"), "It is a."], ["And b."]):
            first, second = way.rows
            assert second.resumed_from == second.chain_id == first.id
            assert way.child.user_texts == ["Find a.", "Now find b."]
            assert way.child.marked_texts("original") == ["Find a."]
            assert "OLD-a" in way.child.results[0]
            assert way.child.text.count("It is a.") == 1
            assert "And b." in way.parent[2].results[-1]

    @in_a_loop
    async def test_R1_the_same_task_again_is_there_twice(self, room: Room) -> None:
        for way in await both_ways(room, FIND, Resume("Find a."), ["It is a."], ["Still a."]):
            assert way.child.user_texts == ["Find a.", "Find a."]

    @in_a_loop
    async def test_R1_a_chain_of_three_has_each_task_once(self, room: Room) -> None:
        start, again = ["One.", Resume("Two.")], Resume("Three.", 0)
        for way in await both_ways(room, start, again, ["First.", "Second."], ["Third."]):
            assert way.child.user_texts == ["One.", "Two.", "Three."]
            assert len({row.chain_id for row in way.rows}) == 1
            assert [row.resumed_from for row in way.rows] == [None, way.rows[0].id, way.rows[1].id]

    @in_a_loop
    async def test_R2_the_oldest_results_go_and_the_words_beside_them_stay(self, room: Room) -> None:
        work = [*[reading(name, f"Reading {name}.") for name in "ab"], "All read."]
        for way in await both_ways(room, FIND, Resume("Go on. " * 1_000), work, ["Went on."], **SMALL):
            assert "OLD-a" not in way.child.text
            assert "OLD-b" in way.child.text
            assert "Reading a." in way.child.text
            assert (way.rows[-1].outcome or {}).get("contextCompactions") is None

    @in_a_loop
    async def test_R3_in_the_end_only_the_first_task_is_left(self, room: Room) -> None:
        first, then = ("Find a. " * 700).strip(), ("Go on. " * 2_700).strip()
        work = [reading("a", "Reading a."), "It is a. " * 600]
        for way in await both_ways(room, [first], Resume(then), work, ["Went on."], **SMALL):
            assert way.child.user_texts == [first, then]
            assert (way.child.results, len(way.child.messages)) == ([], 1)

    @in_a_loop
    async def test_R4_reported_usage_does_not_count(self, room: Room) -> None:
        said = ModelResponse(parts=[TextPart("It is a.")], usage=RequestUsage(input_tokens=7_900))
        for way in await both_ways(room, FIND, Resume(), [reading("a"), said], ["And b."], **SMALL):
            assert len(way.child.results) == 1
            assert way.child.marked_texts("summary") == []
            assert way.rows[-1].status is Status.COMPLETED

    @in_a_loop
    async def test_a_failed_run_goes_on_after_its_last_result(self, room: Room) -> None:
        for way in await both_ways(room, FIND, Resume(), [reading("a"), UNAUTHORIZED], ["It is a."]):
            assert [row.status for row in way.rows] == [Status.FAILED, Status.COMPLETED]
            assert "OLD-a" in way.child.results[0]

    @in_a_loop
    async def test_a_run_that_compacted_goes_on_below_the_limit(self, room: Room) -> None:
        work = [*map(reading, "abcd"), "All read."]
        for way in await both_ways(room, FIND, Resume(), work, ["Went on."], **SMALL):
            assert way.child.user_texts[0] == "Find a."
            assert way.child.user_texts[-1] == "Now find b."
            assert way.child.tokens < 8_000
            assert (way.rows[-1].outcome or {}).get("contextCompactions") is None

    @in_a_loop
    async def test_a_summary_that_makes_place_for_a_long_task_is_told(self, room: Room) -> None:
        summary = "- FACT=42 " + "detail " * 2_000
        child = ScriptedModel(*map(reading, "abcd"), "It is 42.", "It was.", summary=summary)
        async with room.desk(ScriptedModel("x"), child, **SMALL) as desk:
            first = await desk.session.delegate("helper", "Find a.")
            again = await desk.session.delegate("helper", "Now report. " * 1_500, resume=first.delegation_id)
        assert (first.compactions > 0, first.degraded) == (True, False)
        assert "FACT=42" not in child.asked[-1].text
        assert report_text(again).startswith(DEGRADED_NOTE)

    @in_a_loop
    async def test_as_much_of_a_long_chain_is_read_as_the_model_has_room_for(
        self, room: Room, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(delegations, "LISTED_TOKENS", 1_000)
        work = [*map(reading, "abcd"), "All read."]
        for way in await both_ways(room, FIND, Resume(), work, ["Went on."], child_window=64_000):
            assert len(way.child.results) == 4
            assert "contextDegraded" not in (way.rows[-1].outcome or {})

    @in_a_loop
    async def test_what_was_not_read_of_a_long_chain_is_told(self, room: Room) -> None:
        work = [reading("a"), "It is a.", "It is."]
        async with room.desk(ScriptedModel("x"), ScriptedModel(*work[:2])) as desk:
            first = await desk.session.delegate("helper", "Find a.")
        async with room.desk(ScriptedModel("x"), ScriptedModel(*work[2:]), continues=desk.id) as desk:
            record = desk.session.delegations.records.get(first.delegation_id)
            assert isinstance(record.run, PastRun)
            record.run.cut = True
            desk.session.delegations.load_history = None
            again = await desk.session.delegate("helper", "Go on.", resume=first.delegation_id)
        assert report_text(again).startswith(DEGRADED_NOTE)

    @in_a_loop
    async def test_rows_of_the_new_run_are_its_own_and_not_those_of_the_seed(self, room: Room) -> None:
        work, more = [reading("a"), "It is a."], [reading("b"), "And b."]
        for way in await both_ways(room, FIND, Resume(), work, more):
            assert [line.split(":")[0] for line in way.lane] == ["brief", "calls Read", "Read gives", "says"]


class TestRefusals:
    @in_a_loop
    async def test_R5_an_unknown_id_names_those_that_can_be_used(self, room: Room) -> None:
        async with room.desk(
            ScriptedModel(task("Go on.", resume="nothing"), "I see."), ScriptedModel("It is a.")
        ) as desk:
            outcome = await desk.session.delegate("helper", "Find a.")
            await desk.prompt("Go on.")
            result = (await desk.lane())[2]
            assert result.startswith("Task failed")
        (told,) = [r.part.model_response_str() for row in await desk.rows() for r in row.results]
        assert "no delegation nothing to resume" in told
        assert outcome.delegation_id in told

    @in_a_loop
    async def test_R5_the_work_of_another_subagent_is_refused(self, room: Room) -> None:
        two = [helper(), helper("other")]
        for way in await both_ways(room, FIND, Resume(agent="other"), ["It is a."], definitions=two):
            assert "belongs to helper" in way.told

    @in_a_loop
    async def test_R5_one_that_did_nothing_is_refused(self, room: Room) -> None:
        for way in await both_ways(room, FIND, Resume(), [UNAUTHORIZED]):
            assert "did nothing that could be gone on with" in way.told

    @in_a_loop
    async def test_R6_one_that_read_more_than_50000_lines_is_neither_listed_nor_resumed(
        self, room: Room
    ) -> None:
        for way in await both_ways(room, FIND, Resume(), [reading("a"), "a"], prepare=reads(50_001)):
            assert "has read 50001 lines, too many" in way.told
            assert "Delegations you can go on with" not in (way.parent[0].info.instructions or "")

    @in_a_loop
    async def test_R6_what_a_compaction_took_away_counts_and_so_does_what_an_earlier_run_read(
        self, room: Room
    ) -> None:
        window = {"child_window": 32_000, "max_tokens": 2_000}
        start, work = ["Find a.", Resume("Go on.", 0)], [*[reading("a")] * 5, "a", reading("a"), "a"]
        ways = await both_ways(room, start, Resume(), work, prepare=reads(9_000), **window)
        assert (ways[0].rows[0].outcome or {})["contextCompactions"] >= 1
        for way in ways:
            assert "has read 54000 lines, too many" in way.told

    @in_a_loop
    async def test_R6_one_that_read_50000_lines_is_resumed(self, room: Room) -> None:
        work = [reading("a"), "It is a."]
        for way in await both_ways(room, FIND, Resume(), work, ["And b."], prepare=reads(50_000)):
            assert "Delegations you can go on with" in (way.parent[0].info.instructions or "")
            assert way.rows[-1].resumed_from == way.rows[0].id

    @in_a_loop
    async def test_R7_the_third_chain_of_a_subagent_puts_out_the_oldest(self, room: Room) -> None:
        for way in await both_ways(room, ["One.", "Two.", "Three."], Resume(number=0), ["1", "2", "3"]):
            assert "is no longer kept for resuming" in way.told

    @in_a_loop
    async def test_R7_using_a_chain_keeps_it(self, room: Room) -> None:
        start = ["One.", "Two.", Resume("One more.", 0), "Three."]
        for way in await both_ways(room, start, Resume(number=1), ["1", "2", "1b", "3"]):
            assert "is no longer kept for resuming" in way.told

    @in_a_loop
    async def test_R10_a_model_with_a_resume_is_refused(self, room: Room) -> None:
        for way in await both_ways(room, FIND, Resume(model="test/parent"), ["It is a."]):
            assert "model cannot be given together with resume" in way.told


def reads(lines: int) -> Callable[[Desk], None]:
    """Give the delegates a Read whose result has so many lines."""

    async def read(path: str) -> str:
        """Read."""
        return "\n".join("x" * lines)

    def prepare(desk: Desk) -> None:
        desk.session.delegations.toolbox = Toolbox(None, FunctionToolset([Tool(read, name="Read")]))

    return prepare


class TestInterrupted:
    @in_a_loop
    async def test_each_of_several_that_a_kill_interrupted_can_be_gone_on_with(self, room: Room) -> None:
        """The limit of two chains is about those that ended by themselves."""
        hung = Doors("1")

        async def child(asked: Asked) -> Any:
            return hung if asked.results else reading("a")

        tasks = calling(*[("Task", {"agent": "helper", "task": f"Job {n}."}) for n in range(4)])
        async with room.desk(ScriptedModel(tasks, WAIT), ScriptedModel(child, repeat=True)) as desk:
            turn = asyncio.create_task(desk.session.prompt("Go."))
            await hung.arrived(4)
            await desk.die()
            await turn
        again = ScriptedModel("Done.", repeat=True)
        async with room.desk(ScriptedModel(), again, continues=desk.id) as desk:
            interrupted = await desk.delegations()
            assert [row.status for row in interrupted] == [Status.INTERRUPTED] * 4
            for row in interrupted:
                outcome = await desk.session.delegate("helper", "Go on.", resume=row.id)
                assert outcome.status is Status.COMPLETED


class TestRunning:
    @staticmethod
    def resume_first(text: str) -> Any:
        """A step that resumes the delegation that was started first."""

        def step(asked: Asked) -> ModelResponse:
            started = re.search(r"Delegation ([0-9a-f-]{36}) started", "\n".join(asked.results))
            assert started is not None
            return task(text, resume=started[1])

        return step

    @in_a_loop
    async def test_R5_a_stopped_one_is_refused(self, room: Room) -> None:
        stop = calling(("TaskStop", {}))
        parent = ScriptedModel(task(), stop, self.resume_first("Go on."), "I see.")
        async with room.desk(parent, ScriptedModel(Doors())) as desk:
            await desk.prompt("Delegate.")
        assert "was stopped and cannot be resumed" in parent.asked[-1].results[-1]

    @in_a_loop
    async def test_R5_one_that_runs_is_refused_and_not_queued(self, room: Room) -> None:
        doors = Doors("It is a.")

        async def wait_for_it(asked: Asked) -> ModelResponse:
            await doors.arrived(1)
            doors.open(0)
            return WAIT

        parent = ScriptedModel(task(), self.resume_first("Go on."), wait_for_it, "Thanks.")
        async with room.desk(parent, ScriptedModel(doors)) as desk:
            await desk.prompt("Delegate.")
        assert "is still running" in parent.asked[2].results[-1]

    @in_a_loop
    async def test_R7_one_that_runs_is_never_put_out(self, room: Room) -> None:
        long, short = Doors("1"), Doors("done")

        def child(asked: Asked) -> Any:
            return {"One.": long, "One more.": "done"}.get(asked.user_texts[-1], short)

        def let_through(number: int) -> Any:
            async def wait(_: Asked) -> ModelResponse:
                await long.arrived(1)
                await short.arrived(number)
                short.open(number - 1)
                return calling(("TaskWait", {"mode": "any"}))

            return wait

        parent = ScriptedModel(
            task("One."),
            task("Two."),
            let_through(1),
            task("Three."),
            let_through(2),
            lambda asked: (long.open(0), WAIT)[1],
            self.resume_first("One more."),
            WAIT,
            "Thanks.",
        )
        async with room.desk(parent, ScriptedModel(child, repeat=True)) as desk:
            await desk.prompt("Delegate.")
            rows = await desk.delegations()
            assert rows[-1].resumed_from == rows[0].id


class TestAnotherProcess:
    @in_a_loop
    async def test_R8_the_parent_is_told_what_can_be_gone_on_with(self, room: Room) -> None:
        doors = Doors()
        reads = [reading(name) for name in "abcd"]
        tasks = calling(
            ("Task", {"agent": "helper", "task": "Find all."}), ("Task", {"agent": "other", "task": "Look."})
        )
        two = [helper(), helper("other")]

        def child(asked: Asked) -> Any:
            if asked.user_texts[0] == "Look.":
                return "I looked."
            return [*reads, doors][len(asked.results)]

        async with room.desk(
            ScriptedModel(tasks, WAIT), ScriptedModel(child, repeat=True), definitions=two
        ) as desk:
            turn = asyncio.create_task(desk.session.prompt("Delegate."))
            await doors.arrived(1)
            await desk.die()
            await turn
            key = desk.id
        parent = ScriptedModel("I see.", "Thanks.")
        async with room.desk(parent, ScriptedModel(), definitions=two, continues=key) as desk:
            await desk.prompt("Go on.")
            rows = {row.agent: row for row in await desk.delegations()}
        told = parent.asked[0].info.instructions or ""
        assert f"- helper / {rows['helper'].id}: Find all. (read a.txt, b.txt, c.txt, d.txt)" in told
        assert f"- other / {rows['other'].id}: Look." in told

    @in_a_loop
    async def test_R9_it_runs_on_the_model_it_ran_on(self, room: Room) -> None:
        child = ScriptedModel("It is a.", "And b.")
        async with room.desk(ScriptedModel(task(), WAIT, "Read."), child) as desk:
            await desk.prompt("Delegate.")
            key = desk.id
        unpinned = [replace(helper(), model=None)]
        parent = ScriptedModel(self.resume_listed, WAIT, "Thanks.")
        async with room.desk(parent, child, definitions=unpinned, continues=key) as desk:
            await desk.prompt("Go on.")
            assert [row.model for row in await desk.delegations()] == ["test/child"] * 2

    @in_a_loop
    async def test_R9_another_model_is_told_when_that_one_is_gone(self, room: Room) -> None:
        async with room.desk(ScriptedModel(task(), WAIT, "Read."), ScriptedModel("It is a.")) as desk:
            await desk.prompt("Delegate.")
            key = desk.id
        unpinned = [replace(helper(), model=None)]
        parent = ScriptedModel(self.resume_listed, self.wait_or_work, self.wait_or_work, "Thanks.")
        async with room.desk(parent, definitions=unpinned, continues=key) as desk:
            await desk.prompt("Go on.")
            assert [row.model for row in await desk.delegations()] == ["test/child", "test/parent"]
            (first,) = [
                result
                for row in await desk.rows()
                for result in row.results
                if result.part.tool_name == "Task" and "resumedFrom" in (result.part.metadata or {})
            ]
            assert first.part.metadata["modelChangedFrom"] == "test/child"
            oldest = (await desk.delegations())[0].id
        async with room.desk(
            ScriptedModel("Still here."), ScriptedModel(), definitions=unpinned, continues=key
        ) as desk:
            outcome = await desk.session.delegate("helper", "And c.", resume=oldest)
            assert outcome.model == "test/parent", "any id of a chain means what ran last"

    @staticmethod
    def resume_listed(asked: Asked) -> ModelResponse:
        """Resume what the instructions list."""
        listed = re.search(r"- helper / ([0-9a-f-]{36})", asked.info.instructions or "")
        assert listed is not None
        return task("Now find b.", resume=listed[1])

    @staticmethod
    def wait_or_work(asked: Asked) -> ModelResponse | str:
        """One model for parent and delegate."""
        return WAIT if "TaskWait" in asked.tool_names else "And b."

    @pytest.mark.parametrize(
        ("then", "now", "why"),
        [
            ({"tools": ("Read",)}, {"tools": ("Read", "Bash")}, "given more tools .* ran: Bash"),
            ({"tools": ("Read",)}, {"inherit_tools": True, "tools": ()}, "given more tools"),
            ({"permission": Permission.ASK}, {"permission": Permission.AUTO}, "was ask, and is auto"),
            ({"permission": Permission.ASK}, {}, "was ask, and is auto"),
            ({"context": FORK}, {"allowed_contexts": (INDEPENDENT,)}, "no longer runs with context fork"),
            ({}, {"allowed_contexts": (FORK,)}, "independent, as that .* it allows: fork"),
            ({"context": FORK}, {"allowed_contexts": (INDEPENDENT, FORK)}, None),
            ({"tools": ("Read", "Bash")}, {"tools": ("Read",)}, None),
            ({"permission": Permission.AUTO}, {"permission": Permission.ASK}, None),
        ],
    )
    @in_a_loop
    async def test_a_resume_grants_nothing_new(
        self, room: Room, then: dict[str, Any], now: dict[str, Any], why: str | None
    ) -> None:
        child = ScriptedModel("It is a.", "And b.")
        async with room.desk(ScriptedModel(), child, definitions=[helper(**then)]) as desk:
            outcome = await desk.session.delegate("helper", "Find a.")
            key = desk.id
        changed = [helper(**now)]
        parent = ScriptedModel(task("Go on.", resume=outcome.delegation_id), WAIT, "Thanks.")
        async with room.desk(parent, child, definitions=changed, continues=key) as desk:
            await desk.prompt("Go on.")
            assert len(await desk.delegations()) == (2 if why is None else 1)
        assert why is None or re.search(why, parent.asked[1].results[-1])

    @in_a_loop
    async def test_a_subagent_that_is_gone_is_a_clear_refusal(self, room: Room) -> None:
        child = ScriptedModel("It is a.")
        async with room.desk(ScriptedModel(task(), WAIT, "Read."), child) as desk:
            await desk.prompt("Delegate.")
            (row,) = await desk.delegations()
            key = desk.id
        async with room.desk(ScriptedModel(), child, definitions=[helper("other")], continues=key) as desk:
            with pytest.raises(SidequestError) as caught:
                await desk.session.delegate("helper", "Go on.", resume=row.id)
            assert caught.value.code is ErrorCode.SUBAGENT_UNKNOWN
