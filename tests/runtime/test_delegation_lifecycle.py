"""Delegations from the spawn to the report, over real SDK clients (specification 7: L1 to L12, X1 to X7)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sidequest.core.context_modes import ContextMode
from sidequest.core.events import (
    ContextCompacted,
    ContextDegraded,
    DelegationSettled,
    DelegationStarted,
    ToolEnded,
    ToolStarted,
    TurnStarted,
)
from sidequest.core.outcome import Status
from sidequest.runtime.planning import StartRequest
from sidequest.runtime.session import Session, TurnResult
from sidequest.runtime.workspace import Workspace
from tests.support.acts import Acts, call
from tests.support.gate import Gate
from tests.support.neutral import Hang, Reply, Seen
from tests.support.provider import LoopbackProvider
from tests.support.scripted_model import Asked, ScriptedModel, calling
from tests.support.sessions import helper, session, told
from tests.support.team import Team, worker

APIS = ("chat_model", "responses_model", "anthropic_model")
IDS = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")
LONG = "words of a long report " * 1_000


def task(text: str = "Help.", **more: Any) -> tuple[str, dict[str, Any]]:
    return "Task", {"agent": "helper", "task": text, **more}


def tasks(*calls: tuple[str, dict[str, Any]]) -> Reply:
    return Reply(tool_calls=list(calls))


WAIT = call("TaskWait")


@dataclass
class Run:
    """One prompt of a session whose parent and helpers talk to providers of their own."""

    root: Path
    parent_script: Any
    child_script: Any
    api: str = "chat_model"
    options: dict[str, Any] = field(default_factory=dict)
    result: TurnResult = field(init=False)
    opened: Session = field(init=False)
    parent: list[Seen] = field(init=False)
    child: list[Seen] = field(init=False)

    def __post_init__(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        async with (
            LoopbackProvider(self.parent_script) as parent,
            LoopbackProvider(self.child_script) as child,
        ):
            self.opened = session(
                self.root, getattr(parent, self.api)(), getattr(child, self.api)(), **self.options
            )
            async with self.opened:
                self.result = await self.opened.prompt("The users question.")
            assert parent.failures == child.failures == []
            assert parent.rejections == child.rejections == []
        self.parent, self.child = parent.requests, child.requests

    def statuses(self) -> list[Status]:
        """How the delegations of the turn ended, in the order of their start."""
        return [outcome.status for outcome in self.result.delegations]


class TestRunning:
    @pytest.mark.parametrize("api", APIS)
    def test_L1_two_tasks_of_one_message_run_together(self, tmp_path: Path, api: str) -> None:
        (tmp_path / "a.txt").write_text("SECRET")
        gate, here = Gate(), []

        async def together(seen: Seen) -> Any:
            if not seen.tool_results:
                return call("Read", path="a.txt")
            here.append(seen)
            if len(here) == 2:
                gate.open()
            await gate.wait()
            return "REPORT"

        run = Run(tmp_path, [tasks(task("One."), task("Two.")), WAIT, "Thanks."], together, api)
        assert run.statuses() == [Status.COMPLETED] * 2
        last = run.parent[-1]
        assert last.tool_results[-1].text.count("REPORT") == 2
        assert "SECRET" not in last.text
        assert len(run.parent) == 3

    def test_L1_what_a_delegate_does_is_told_under_its_own_id(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text("text")
        child = Acts(call("Read", path="a.txt"), "REPORT")
        run = Run(tmp_path, [tasks(task()), WAIT, "Thanks."], child)
        (started,) = told(run.opened, DelegationStarted)
        tools = {event.tool: event.delegation_id for event in told(run.opened, ToolStarted)}
        assert tools == {"Task": None, "TaskWait": None, "Read": started.delegation_id}
        turns = [event.turn for event in told(run.opened, TurnStarted) if event.delegation_id]
        assert turns == [1, 2]

    def test_L3_the_eleventh_task_names_the_cap_and_a_stop_makes_room(self, tmp_path: Path) -> None:
        gate = Gate()
        texts: list[str] = []

        def stop_one(seen: Seen) -> Reply:
            texts.extend(result.text for result in seen.tool_results)
            first = IDS.search(texts[0])
            assert first is not None
            return call("TaskStop", delegationIds=[first[0]])

        script = [
            tasks(*[task(f"Task {n}.") for n in range(11)]),
            stop_one,
            tasks(task("One more.")),
            call("TaskStop"),
            "Stopped.",
        ]
        run = Run(tmp_path, script, lambda seen: Hang(gate))
        assert sum("started" in text for text in texts) == 10
        assert sum("10 delegations are running, which is the limit" in text for text in texts) == 1
        assert run.statuses() == [Status.STOPPED] * 11
        assert "started" in run.parent[3].tool_results[-1].text

    def test_L4_a_stopped_delegation_has_an_end_and_is_not_delivered(self, tmp_path: Path) -> None:
        run = Run(tmp_path, [tasks(task()), call("TaskStop"), "Stopped."], lambda seen: Hang(Gate()))
        (settled,) = told(run.opened, DelegationSettled)
        assert settled.outcome.status is Status.STOPPED
        (record,) = run.opened.delegations.records.all()
        assert record.completed_at_ms is not None
        assert len(run.parent) == 3

    def test_L7_a_delivered_report_has_12000_characters_at_most(self, tmp_path: Path) -> None:
        run = Run(tmp_path, [tasks(task()), "Idle.", "Read it."], [LONG])
        delivered = run.parent[-1].user_texts[-1]
        found = re.search(r"<delegation-report[^>]*>\n(.*)\n</delegation-report>", delivered, re.DOTALL)
        assert found is not None
        assert len(found[1]) == 12_000
        (outcome,) = run.result.delegations
        assert outcome.report == LONG.strip(), "what is stored is not bounded"

    def test_L8_reports_that_did_not_fit_a_wait_are_delivered_when_the_parent_is_idle(
        self, tmp_path: Path
    ) -> None:
        script = [tasks(*[task()] * 8), WAIT, "Idle.", "Read all."]
        options = {"window": 12_000, "child_window": 128_000}
        run = Run(tmp_path, script, lambda seen: LONG, options=options)
        waited = run.parent[2].tool_results[-1].text
        delivered = "\n".join(run.parent[3].user_texts)
        counts = [text.count("</delegation-report>") for text in (waited, delivered)]
        assert min(counts) >= 1
        assert f"[{counts[1]} more did not fit now" in waited
        heads = [set(re.findall(r"## helper \((.+)\)", text)) for text in (waited, delivered)]
        assert len(heads[0] | heads[1]) == sum(counts) == 8

    def test_L9_the_answer_of_task_comes_before_its_delegation_settles(self, tmp_path: Path) -> None:
        run = Run(tmp_path, [tasks(task()), "Idle.", "Read it."], ["Quick."])
        events = [numbered.event for numbered in run.opened.log.after()]
        (answered,) = [e for e in events if isinstance(e, ToolEnded) and e.tool == "Task"]
        places = [events.index(event) for event in (*told(run.opened, DelegationStarted), answered)]
        (settled,) = told(run.opened, DelegationSettled)
        assert [*places, events.index(settled)] == sorted([*places, events.index(settled)])

    def test_L12_two_delegates_that_edit_one_file_at_the_same_time_both_survive(self, tmp_path: Path) -> None:
        (tmp_path / "list.txt").write_text("- one\n- two\n")

        def edit(asked: Asked) -> Any:
            word = "one" if "one" in asked.user_texts[0] else "two"
            arguments = {"path": "list.txt", "old_text": f"- {word}", "new_text": f"- {word} done"}
            return f"Did {word}." if asked.results else calling(("Edit", arguments))

        async def case() -> None:
            team = Team(
                ScriptedModel(edit, repeat=True),
                [worker(tools=("Edit",))],
                workspace=Workspace(tmp_path),
                tools=(),
            )
            outcomes = await asyncio.gather(team.outcome("Do one."), team.outcome("Do two."))
            assert {outcome.status for outcome in outcomes} == {Status.COMPLETED}

        asyncio.run(case())
        assert (tmp_path / "list.txt").read_text() == "- one done\n- two done\n"


class TestContext:
    """Context modes (specification 5): what a delegate sees of its parent."""

    FORK = tasks(task("Now look at b.", context="fork"))

    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        (tmp_path / "a.txt").write_text("CONTENT-OF-A")
        return tmp_path

    def run(self, root: Path, spawn: Reply, child: Any, **options: Any) -> Run:
        script = [call("Read", path="a.txt"), spawn, WAIT, "Thanks."]
        return Run(root, script, child, **options)

    @pytest.mark.parametrize("api", APIS)
    def test_X3_an_independent_request_has_no_text_of_the_parent(self, root: Path, api: str) -> None:
        run = self.run(root, tasks(task("Look at b.")), ["REPORT"], api=api)
        (seen,) = run.child
        assert seen.user_texts == ("Look at b.",)
        assert "CONTENT-OF-A" not in seen.text
        assert "users question" not in seen.text

    @pytest.mark.parametrize("api", APIS)
    def test_X4_a_fork_has_the_whole_branch_and_no_call_without_result(self, root: Path, api: str) -> None:
        run = self.run(root, self.FORK, ["REPORT"], api=api)
        (seen,) = run.child
        assert "The users question." in seen.text
        assert [result.text for result in seen.tool_results] == [
            result.text for result in run.parent[1].tool_results
        ]
        assert [call.name for call in seen.tool_calls] == ["Read"]
        assert seen.tool_names == ("Read", "Grep")
        last = seen.user_texts[-1]
        assert "You are now helper" in last
        assert last.endswith("Task:\nNow look at b.")
        assert "software engineering agent" not in seen.system

    def test_X4_the_parent_is_not_changed_by_a_fork(self, root: Path) -> None:
        run = self.run(root, self.FORK, Acts(call("Read", path="a.txt"), "REPORT"))
        before, after = run.parent[1].messages, run.parent[2].messages
        assert after[: len(before)] == before
        assert "You are now helper" not in run.parent[-1].text

    def test_X5_a_fork_over_the_limit_is_compacted_and_not_refused(self, root: Path) -> None:
        (root / "a.txt").write_text("words of a large file\n" * 1_500)
        child = Acts("REPORT")
        run = self.run(root, self.FORK, child, options={"child_window": 16_000})
        assert run.statuses() == [Status.COMPLETED]
        (compacted,) = told(run.opened, ContextCompacted)
        assert (compacted.delegation_id is None, compacted.hard_limit) == (False, 8_000)
        (work,) = child.worked
        assert "words of a large file" not in work.text
        assert work.user_texts[-1].endswith("Now look at b.")

    def test_a_degraded_fork_keeps_its_own_brief_and_not_the_parents_question(self, root: Path) -> None:
        (root / "a.txt").write_text("words of a large file\n" * 1_500)
        child = Acts("REPORT", summary="")
        run = self.run(root, self.FORK, child, options={"child_window": 16_000})
        assert [e.delegation_id is None for e in told(run.opened, ContextDegraded)] == [False]
        (work,) = child.worked
        assert "users question" not in work.text
        assert "Now look at b." in work.user_texts[0]
        assert "older working history was discarded" in run.parent[-1].text

    def test_X6_mode_and_end_are_in_the_metadata(self, root: Path) -> None:
        run = self.run(root, self.FORK, ["REPORT"])
        text = run.parent[-1].tool_results[-1].text
        assert re.search(
            r"\[context fork, stop reason stop, \d+\.\d s, 1 turn, 0 tool calls, model test/child\]", text
        )
        assert "- completed" in text
        (outcome,) = run.result.delegations
        assert outcome.context_mode == "fork"

    def test_X7_siblings_see_nothing_of_each_other(self, root: Path) -> None:
        both = tasks(task("FIRST task.", context="fork"), task("SECOND task.", context="fork"))
        run = self.run(root, both, lambda seen: "REPORT")
        assert len(run.child) == 2
        for seen in run.child:
            assert ("FIRST" in seen.text) != ("SECOND" in seen.text)
            assert "CONTENT-OF-A" in seen.text

    def test_a_fork_is_taken_at_the_spawn(self, root: Path) -> None:
        gate = Gate()

        def go_on(seen: Seen) -> Reply:
            gate.open()
            return WAIT

        script = [call("Read", path="a.txt"), self.FORK, call("Grep", pattern="LATER"), go_on, "Thanks."]
        child = Acts(Hang(gate, then=call("Grep", pattern="CONTENT")), "REPORT")
        run = Run(root, script, child)
        assert "LATER" not in run.child[-1].text
        assert "LATER" in run.parent[-1].text

    def test_a_forks_first_size_is_its_own_and_not_what_the_parent_reported(self, root: Path) -> None:
        parent = [
            Reply(tool_calls=[("Read", {"path": "a.txt"})]),
            Reply(self.FORK.text, self.FORK.tool_calls),
            WAIT,
            "Thanks.",
        ]
        run = Run(root, parent, ["REPORT"])
        sizes = [event.tokens for event in told(run.opened, TurnStarted) if event.delegation_id]
        assert sizes[0] < min(seen.tokens for seen in run.parent)

    @pytest.mark.parametrize(
        ("definition", "session_default", "expected"),
        [
            (None, None, "independent"),
            (None, ContextMode.FORK, "fork"),
            (ContextMode.INDEPENDENT, ContextMode.FORK, "independent"),
        ],
    )
    def test_X1_definition_before_session_before_independent(
        self, root: Path, definition: Any, session_default: Any, expected: str
    ) -> None:
        options = {"definitions": [helper(context=definition)], "default_context": session_default}
        run = self.run(root, tasks(task()), ["REPORT"], options=options)
        (outcome,) = run.result.delegations
        assert outcome.context_mode == expected
        assert ("CONTENT-OF-A" in run.child[0].text) == (expected == "fork")

    def test_X2_a_mode_that_a_definition_does_not_allow_is_a_tool_failure(self, root: Path) -> None:
        options: dict[str, Any] = {"definitions": [helper(allowed_contexts=(ContextMode.INDEPENDENT,))]}
        run = Run(root, [self.FORK, "I see."], [], options=options)
        assert "Use one of: independent" in run.parent[-1].tool_results[-1].text
        assert run.statuses() == []


def test_a_prompt_stops_what_an_earlier_turn_left_running(tmp_path: Path) -> None:
    """Specification 3.7."""

    async def case() -> Sequence[Status]:
        gate = Gate()
        async with LoopbackProvider(["ok"]) as parent, LoopbackProvider(lambda seen: Hang(gate)) as child:
            opened = session(tmp_path, parent.chat_model(), child.chat_model())
            async with opened:
                record = opened.delegations.start(StartRequest("helper", "Help."))
                await child.arrived(1)
                await opened.prompt("Something else.")
                return [record.status]

    assert asyncio.run(case()) == [Status.STOPPED]
