"""What commands leave running is told, and ended with the delegation or the session it was started for."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

import pytest

from sidequest import Session, SessionOptions
from sidequest.core.events import Notice
from sidequest.core.outcome import Status
from sidequest.core.permissions import Mode
from sidequest.runtime import process_table
from sidequest.runtime.leftovers import Family, Leftovers
from sidequest.runtime.process_table import Process, process, processes
from sidequest.runtime.workspace import Workspace
from tests.support.processes import ends, is_running
from tests.support.scripted_model import ScriptedModel, calling
from tests.support.team import Doors, Team, worker

SLEEPER = "sleep 4987 >/dev/null 2>&1 & echo $! > {0}.part; mv {0}.part {0}"
HIDDEN = "setsid sh -c 'echo $$ > pid.part; mv pid.part pid; exec sleep 4986'"
needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="no /proc here")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def pid_in(path: Path) -> int:
    return int(path.read_text())


def in_background(script: str, *, until: str) -> str:
    """Return a command that leaves `script` running once the file `until` is there."""
    return f"sh -c {quote(script)} >/dev/null 2>&1 & until [ -e {until} ]; do :; done"


def told_by(pid: int, *, session: int, parent: int = 1, started: str = "1", running: bool = True) -> Process:
    return Process(pid, parent, session, session, started, running, False, "x")


def table(*found: Process) -> dict[int, Process]:
    return {one.pid: one for one in found}


class TestASession:
    async def leave(self, root: Path, *ends_with: str) -> tuple[int, list[str]]:
        options = SessionOptions(permission_mode=Mode.AUTO, project_instructions=False)
        session = Session.open(root, model="offline/extractive", options=options)
        notices: list[str] = []
        session.log.subscribe(lambda n: isinstance(n.event, Notice) and notices.append(n.event.text))
        await session.workspace.bash(SLEEPER.format("pid"))
        pid = pid_in(root / "pid")
        assert is_running(pid)
        for end in ends_with:
            await getattr(session, end)()
        assert not is_running(pid)
        if "close" not in ends_with:
            await session.close()
        return pid, notices

    @pytest.mark.parametrize("ends_with", ["stop", "close"])
    def test_its_end_is_the_end_of_what_commands_left_running(self, tmp_path: Path, ends_with: str) -> None:
        pid, notices = asyncio.run(self.leave(tmp_path, ends_with))
        assert notices == [f"Ended what commands had left running: sleep (pid {pid})."]

    def test_a_second_end_has_nothing_to_tell(self, tmp_path: Path) -> None:
        _, notices = asyncio.run(self.leave(tmp_path, "stop", "stop", "close"))
        assert len(notices) == 1


class TestADelegation:
    def test_its_end_is_the_end_of_its_commands_and_of_no_others(self, workspace: Workspace) -> None:
        async def case() -> tuple[Team, Any]:
            model = ScriptedModel(calling(("Bash", {"command": SLEEPER.format("own")})), "Done.")
            team = Team(model, [worker(tools=("Bash",))], workspace=workspace, tools=())
            await workspace.bash(SLEEPER.format("parents"))
            return team, await team.outcome()

        team, outcome = asyncio.run(case())
        own, parents = pid_in(workspace.root / "own"), pid_in(workspace.root / "parents")
        assert outcome.status is Status.COMPLETED
        assert not is_running(own)
        assert is_running(parents)
        ended = Notice(outcome.delegation_id, f"Ended what commands had left running: sleep (pid {own}).")
        assert team.of(Notice) == [ended]
        workspace.leftovers.kill_all()
        assert ends(parents)

    def test_so_is_its_stop(self, workspace: Workspace) -> None:
        async def case() -> Any:
            doors = Doors()
            model = ScriptedModel(calling(("Bash", {"command": SLEEPER.format("pid")})), doors)
            team = Team(model, [worker(tools=("Bash",))], workspace=workspace, tools=())
            record = team.start()
            await doors.arrived(1)
            await team.delegations.stop()
            return record.outcome

        assert asyncio.run(case()).status is Status.STOPPED
        assert not is_running(pid_in(workspace.root / "pid"))

    def test_the_model_is_told_what_runs_on_and_until_when(self, workspace: Workspace) -> None:
        seen: list[str] = []

        def report(asked: Any) -> str:
            seen.extend(str(part.content) for part in asked.messages[-1].parts)
            return "Done."

        model = ScriptedModel(calling(("Bash", {"command": SLEEPER.format("pid")})), report)
        asyncio.run(Team(model, [worker(tools=("Bash",))], workspace=workspace, tools=()).outcome())
        pid = pid_in(workspace.root / "pid")
        assert f"[still running until this delegation ends: sleep (pid {pid})]" in seen[0]


class TestACommand:
    def end(self, workspace: Workspace, command: str) -> str:
        async def case() -> str:
            said = await workspace.bash(command)
            await workspace.leftovers.end_all()
            return said

        return asyncio.run(case())

    def test_that_leaves_nothing_says_nothing_of_it(self, workspace: Workspace) -> None:
        assert self.end(workspace, "echo hi | cat") == "hi\n[exit code: 0]"

    def test_the_parent_is_told_that_it_runs_until_the_session_is_stopped(self, workspace: Workspace) -> None:
        assert "[still running until the session is stopped or closed: sleep (pid" in self.end(
            workspace, SLEEPER.format("pid")
        )

    def test_what_pays_no_heed_is_killed(self, workspace: Workspace) -> None:
        stubborn = "trap '' TERM; echo $$ > pid.part; mv pid.part pid; while :; do sleep 1; done"
        self.end(workspace, in_background(stubborn, until="pid"))
        assert not is_running(pid_in(workspace.root / "pid"))

    def test_what_may_clean_up_does(self, workspace: Workspace) -> None:
        workspace.leftovers.grace_s = 60
        tidy = "trap 'echo > clean; exit' TERM; echo > ready; while :; do sleep 0.01; done"
        self.end(workspace, in_background(tidy, until="ready"))
        assert (workspace.root / "clean").exists()

    def test_what_stands_still_is_ended(self, workspace: Workspace) -> None:
        self.end(workspace, SLEEPER.format("pid") + "; kill -STOP $(cat pid)")
        assert not is_running(pid_in(workspace.root / "pid"))

    @needs_proc
    def test_a_group_of_its_own_hides_nothing(self, workspace: Workspace) -> None:
        self.end(workspace, "set -m; " + SLEEPER.format("pid"))
        assert not is_running(pid_in(workspace.root / "pid"))

    @needs_proc
    def test_nor_does_a_session_of_its_own_whose_parent_is_there(self, workspace: Workspace) -> None:
        self.end(workspace, in_background(f"{HIDDEN}; :", until="pid"))
        assert not is_running(pid_in(workspace.root / "pid"))

    @needs_proc
    def test_that_is_stopped_ends_with_those_that_left_its_group(self, workspace: Workspace) -> None:
        async def case() -> None:
            command = asyncio.create_task(workspace.bash(f"{HIDDEN} >/dev/null 2>&1 & sleep 4985"))
            async with asyncio.timeout(60):
                while not os.path.exists(workspace.root / "pid"):  # noqa: ASYNC110, ASYNC240
                    await asyncio.sleep(0.005)
            command.cancel()
            await asyncio.wait([command])

        asyncio.run(case())
        assert ends(pid_in(workspace.root / "pid"))

    @needs_proc
    def test_that_starts_others_all_the_time_leaves_none(self, workspace: Workspace) -> None:
        restless = "while :; do sleep 4984 & echo > some; sleep 0.01; done"
        self.end(workspace, "echo $$ > session; " + in_background(restless, until="some"))
        session = pid_in(workspace.root / "session")
        assert not [one for one in processes().values() if one.session == session and one.running]


class TestWhatCannotBeEnded:
    def test_it_is_named_and_nobody_waits_for_it(self, workspace: Workspace) -> None:
        left = workspace.leftovers
        left.grace_s = 600
        asked: list[signal.Signals] = []

        def refuse(one: Process, number: signal.Signals) -> bool:
            asked.append(number)
            return False

        async def case() -> str | None:
            await workspace.bash(SLEEPER.format("pid"))
            left.send = refuse
            return await left.end_all()

        told = asyncio.run(case())
        pid = pid_in(workspace.root / "pid")
        assert told == f"This could not be ended: sleep (pid {pid})."
        assert asked.count(signal.SIGSTOP) == 1
        left.send = process_table.send
        left.kill_all()
        assert ends(pid)


class TestStrangers:
    """Numbers are given away again: nothing of a stranger is ever taken for ours."""

    def test_a_session_is_ours_while_somebody_known_is_in_it(self) -> None:
        family = Family(10, None, "1")
        ours, later = told_by(11, session=10), told_by(12, session=10, started="5")
        assert family.look(table(ours)) == [ours]
        assert family.look(table(ours, later)) == [ours, later]
        assert family.look(table(later)) == [later]

    def test_one_that_ended_without_being_collected_holds_its_number(self) -> None:
        family = Family(10, None, "1")
        family.look(table(told_by(11, session=10)))
        later = told_by(12, session=10, started="5")
        assert family.look(table(told_by(11, session=10, running=False), later)) == [later]

    def test_a_session_that_all_have_left_is_a_strangers(self) -> None:
        family = Family(10, None, "1")
        family.look(table(told_by(11, session=10)))
        assert family.look(table(told_by(10, session=10, started="9"), told_by(12, session=10))) == []

    def test_so_is_a_number_with_another_start(self) -> None:
        family = Family(10, None, "1")
        family.look(table(told_by(11, session=10)))
        assert family.look(table(told_by(11, session=11, started="9"))) == []

    def test_so_is_a_new_leader_at_the_first_look(self) -> None:
        found = table(told_by(10, session=10, started="9"), told_by(12, session=10, started="9"))
        assert Family(10, None, "1").look(found) == []
        assert Family(10, None, None).look(found) == []

    def test_a_child_that_left_is_ours_with_all_it_started(self) -> None:
        family = Family(10, None, "1")
        ours, left = told_by(11, session=10), told_by(20, session=20, parent=11)
        assert family.look(table(ours, left)) == [ours, left]
        orphan = told_by(21, session=20, started="7")
        assert family.look(table(left, orphan)) == [left, orphan]

    def test_nobody_is_signalled_who_started_at_another_time(self) -> None:
        own = process(os.getpid())
        assert own is not None
        process_table.send(replace(own, started="another time"), signal.SIGKILL)


class TestWithoutProc:
    @pytest.fixture(autouse=True)
    def no_proc(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(process_table, "_has_proc", lambda: False)

    def test_ps_tells_what_runs(self) -> None:
        own = processes()[os.getpid()]
        assert (own.parent, own.group, own.running) == (os.getppid(), os.getpgrp(), True)
        assert own == processes()[os.getpid()]

    def test_what_a_command_left_in_its_group_is_ended(self, workspace: Workspace) -> None:
        async def case() -> str | None:
            await workspace.bash(SLEEPER.format("pid"))
            return await workspace.leftovers.end(None)

        told = asyncio.run(case())
        pid = pid_in(workspace.root / "pid")
        assert told == f"Ended what commands had left running: sleep (pid {pid})."
        assert ends(pid)

    def test_without_ps_nothing_is_known_and_nothing_ended(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "")
        assert processes() == {}
        assert asyncio.run(Leftovers().end_all()) is None
