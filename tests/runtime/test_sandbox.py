"""Commands in a sandbox: what they may write, what they may reach, and where there is none."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.runtime.sandbox import Sandbox, bubblewrap_works, commands_of
from sidequest.runtime.workspace import Workspace

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
