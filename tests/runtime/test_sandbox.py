"""Commands in a sandbox: what they may write, what they may reach, and where there is none."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.runtime.sandbox import (
    Sandbox,
    SandboxedCommands,
    bubblewrap_works,
    commands_of,
    own_processes_work,
)
from sidequest.runtime.workspace import Workspace
from tests.support.processes import ends

IDENTITY = ("-c", "user.name=A", "-c", "user.email=a@example.org")
needs_bubblewrap = pytest.mark.skipif(not bubblewrap_works(), reason="bubblewrap does not work here")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    return tmp_path / "outside"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    for name in ("project", "scratch"):
        (tmp_path / name).mkdir()
    return Workspace(tmp_path / "project", tmp_path / "scratch", sandbox=Sandbox.REQUIRE)


def ran(workspace: Workspace, command: str) -> str:
    return asyncio.run(workspace.bash(command))


@needs_bubblewrap
class TestInside:
    def test_a_command_writes_in_the_workspace_and_the_scratch_folder(self, workspace: Workspace) -> None:
        assert "[exit code: 0]" in ran(workspace, 'echo a > made.txt && echo b > "$SIDEQUEST_SCRATCH/b.txt"')
        assert (workspace.root / "made.txt").read_text() == "a\n"
        assert workspace.scratch is not None
        assert (workspace.scratch / "b.txt").read_text() == "b\n"

    def test_a_command_writes_nowhere_else(self, workspace: Workspace, outside: Path) -> None:
        said = ran(workspace, f"echo a > {outside}/made.txt; echo a > ~/made-by-a-test.txt")
        assert "[exit code: 0]" not in said
        assert list(outside.iterdir()) == []

    def test_a_link_out_of_the_workspace_does_not_help(self, workspace: Workspace, outside: Path) -> None:
        ran(workspace, f"ln -s {outside} door; echo a > door/made.txt")
        assert list(outside.iterdir()) == []

    def test_a_command_reaches_no_network(self, workspace: Workspace) -> None:
        code = "import socket; socket.create_connection(('127.0.0.1', 9), 1)"
        assert "[exit code: 0]" not in ran(workspace, f'python3 -c "{code}"')

    def test_a_command_that_takes_too_long_is_killed(self, workspace: Workspace) -> None:
        with pytest.raises(Exception, match="killed after"):
            asyncio.run(workspace.bash("sleep 30", timeout=0.3))


@pytest.fixture
def repository(workspace: Workspace) -> Path:
    return made(workspace.root)


def made(folder: Path) -> Path:
    """Make a git repository in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q")
    git(folder, "config", "user.name", "A")
    git(folder, "config", "user.email", "a@example.org")
    return folder


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def plant(root: Path, hooks: str) -> str:
    """Return a command that puts a hook there, which makes the file `escaped` beside `root`."""
    hook = f"{hooks}/pre-commit"
    return f"printf '#!/bin/sh\\ntouch {root.parent}/escaped\\n' > {hook}; chmod +x {hook}"


def escaped(root: Path, repository: Path) -> bool:
    """Let the user commit, outside of the sandbox, and say whether that ran what was planted."""
    git(repository, *IDENTITY, "commit", "--allow-empty", "-qm", "by the user")
    return (root.parent / "escaped").exists()


@needs_bubblewrap
class TestARepository:
    def test_a_command_uses_it(self, workspace: Workspace, repository: Path) -> None:
        said = ran(workspace, "echo a > a.txt && git status --short && git add . && git commit -qm first")
        assert said == "?? a.txt\n[exit code: 0]"
        assert ran(workspace, "git checkout -qb other && git gc -q && git log --format=%s").startswith(
            "first"
        )
        assert git(repository, "status", "--short") == ""

    @pytest.mark.parametrize(
        "attempt",
        [
            ":",
            "rm -r .git/hooks; mkdir .git/hooks",
            "mv .git old; cp -r old .git",
        ],
    )
    def test_no_command_plants_a_hook(self, workspace: Workspace, repository: Path, attempt: str) -> None:
        ran(workspace, f"{attempt}; {plant(repository, '.git/hooks')}")
        assert not escaped(repository, repository)

    def test_none_changes_its_settings(self, workspace: Workspace, repository: Path) -> None:
        ran(workspace, f"mkdir evil; git config core.hooksPath evil; {plant(repository, 'evil')}")
        assert not escaped(repository, repository)

    def test_none_leads_to_others(self, workspace: Workspace, repository: Path) -> None:
        said = ran(
            workspace, f"cp -r .git evil; echo ../evil > .git/commondir; {plant(repository, 'evil/hooks')}"
        )
        assert f"[removed, because git would run what it names: {repository}/.git/commondir]" in said
        assert not escaped(repository, repository)

    def test_nor_in_a_repository_below(self, workspace: Workspace) -> None:
        below = made(workspace.root / "libs" / "one")
        for attempt in (":", "cd libs/one; mv .git old; cp -r old .git; cd ../.."):
            ran(workspace, f"{attempt}; {plant(workspace.root, 'libs/one/.git/hooks')}")
        assert not escaped(workspace.root, below)

    def test_nor_in_a_submodule(self, workspace: Workspace, repository: Path, outside: Path) -> None:
        git(made(outside), "commit", "--allow-empty", "-qm", "first")
        git(repository, "-c", "protocol.file.allow=always", "submodule", "-q", "add", str(outside), "sub")
        ran(workspace, plant(repository, ".git/modules/sub/hooks"))
        ran(workspace, f"rm sub/.git; git init sub; {plant(repository, 'sub/.git/hooks')}")
        assert not escaped(repository, repository / "sub")


@needs_bubblewrap
@pytest.mark.skipif(not own_processes_work(), reason="no process namespace here")
class TestProcesses:
    def test_a_command_signals_none_of_ours(self, workspace: Workspace) -> None:
        assert "reached" not in ran(workspace, f"kill -0 {os.getpid()} && echo reached")

    def test_what_it_leaves_running_ends_with_it_and_is_named(self, workspace: Workspace) -> None:
        left = "setsid sh -c 'echo > ready; exec sleep 4982' >/dev/null 2>&1 &"
        said = ran(workspace, f"{left} until [ -e ready ]; do :; done; echo ok")
        assert said.startswith("ok\n[stderr]\n[ended with the command, as the sandbox ends: ")
        assert "still running" not in said

    def test_nothing_is_said_when_nothing_was_left(self, workspace: Workspace) -> None:
        assert ran(workspace, "echo hi | cat; exit 3") == "hi\n[exit code: 3]"

    def test_where_there_can_be_no_namespace_commands_run_without(self, workspace: Workspace) -> None:
        assert isinstance(workspace._commands, SandboxedCommands)
        workspace._commands.own_processes = False
        said = ran(workspace, "sleep 4981 >/dev/null 2>&1 & echo $!")
        assert "[still running until the session is stopped or closed: " in said
        workspace.leftovers.kill_all()
        assert ends(int(said.splitlines()[0]))


class TestWithout:
    def test_off_is_the_plain_backend(self, tmp_path: Path) -> None:
        backend = Workspace(tmp_path)._backend
        assert commands_of(backend, Sandbox.OFF, works=lambda: True) is backend

    def test_auto_goes_on_where_it_does_not_work(self, tmp_path: Path) -> None:
        backend = Workspace(tmp_path)._backend
        assert commands_of(backend, Sandbox.AUTO, works=lambda: False) is backend

    def test_require_is_an_error_where_it_does_not_work(self, tmp_path: Path) -> None:
        backend = Workspace(tmp_path)._backend
        with pytest.raises(SidequestError, match="bubblewrap does not work here") as caught:
            commands_of(backend, Sandbox.REQUIRE, works=lambda: False)
        assert caught.value.code is ErrorCode.SETTINGS_INVALID
