"""What the file tools refuse: path rules, what is no regular file, links that lead elsewhere or come late."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.workspaces import WorkspaceError

from sidequest.runtime.workspace import Workspace, _said


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    root = tmp_path / "project"
    for name, text in {
        ".env": "needle of the environment",
        "deep/.env": "needle of the deep environment",
        "a.pem": "needle of a key",
        "secrets/k.txt": "needle of a secret",
        "abs/x.txt": "needle of an absolute rule",
        "open/ok.txt": "needle that is free",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "folder").symlink_to("secrets")
    (root / "plain.txt").symlink_to(".env")
    (tmp_path / "scratch").mkdir()
    (tmp_path / "outside.txt").write_text("outside")
    denied = ("**/.env", "*.pem", "secrets", f"{root}/abs/*")
    return Workspace(root, tmp_path / "scratch", denied=denied)


def said(operation: Coroutine[Any, Any, Any]) -> str:
    return str(asyncio.run(asyncio.wait_for(operation, 30)))


def failed(operation: Coroutine[Any, Any, Any]) -> str:
    with pytest.raises(ToolFailed) as caught:
        asyncio.run(asyncio.wait_for(operation, 30))
    return caught.value.message


class TestPathRules:
    @pytest.mark.parametrize("glob", [None, "**/.env", ".*", "*.pem", "*.txt", "**/*"])
    def test_grep_gives_nothing_of_a_denied_file(self, workspace: Workspace, glob: str | None) -> None:
        found = said(workspace.grep("needle", glob=glob))
        assert [line for line in found.splitlines() if "needle" in line and "free" not in line] == []

    def test_grep_goes_on_with_the_others(self, workspace: Workspace) -> None:
        assert said(workspace.grep("needle")) == "open/ok.txt:1:needle that is free"

    @pytest.mark.parametrize(
        "path", [".env", "deep/.env", "DEEP/../.ENV", "a.pem", "abs/x.txt", "secrets", "folder", "plain.txt"]
    )
    def test_grep_in_a_denied_place_is_refused_or_finds_nothing(
        self, workspace: Workspace, path: str
    ) -> None:
        assert "denied by pattern" in failed(workspace.grep("needle", path))

    @pytest.mark.parametrize("pattern", ["**/*", "**/.*", "*/*", "folder/*", "abs/*", "**/*.pem"])
    def test_glob_names_no_denied_file(self, workspace: Workspace, pattern: str) -> None:
        found = said(workspace.glob(pattern))
        assert not any(name in found for name in (".env", ".pem", "secrets", "/k.txt", "/x.txt", "plain"))

    def test_glob_names_the_others(self, workspace: Workspace) -> None:
        assert "open/ok.txt" in said(workspace.glob("**/*.txt")).splitlines()

    @pytest.mark.parametrize(
        "path", [".env", "a.pem", "secrets/k.txt", "folder/k.txt", "plain.txt", "abs/x.txt"]
    )
    def test_read_and_write_follow_the_rules_too(self, workspace: Workspace, path: str) -> None:
        assert "denied by pattern" in failed(workspace.read(path))
        failed(workspace.write(path, "x"))
        assert "needle" in (workspace.root / path).read_text()

    def test_the_scratch_folder_follows_them(self, workspace: Workspace) -> None:
        failed(workspace.write(f"{workspace.scratch}/new.pem", "x"))
        assert "denied" in failed(workspace.read(f"{workspace.scratch}/.env"))


class TestNoRegularFile:
    @pytest.fixture
    def special(self, workspace: Workspace) -> Workspace:
        os.mkfifo(workspace.root / "fifo")
        (workspace.root / "to-fifo").symlink_to("fifo")
        (workspace.root / "zero").symlink_to("/dev/zero")
        here = os.open(workspace.root, os.O_RDONLY)
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(f"/proc/self/fd/{here}/socket")
        os.close(here)
        return workspace

    @pytest.mark.timeout(20)
    @pytest.mark.parametrize("path", ["fifo", "to-fifo", "socket", "zero"])
    def test_it_is_refused_and_not_waited_for(self, special: Workspace, path: str) -> None:
        expected = "leads outside" if path == "zero" else "not a regular file"
        for operation in (special.read(path), special.write(path, "x"), special.edit(path, "a", "b")):
            assert expected in failed(operation)
        assert "not a regular file" in failed(special.grep("x", path))

    def test_a_search_of_the_folder_passes_it_over(self, special: Workspace) -> None:
        assert "open/ok.txt" in said(special.grep("needle"))


class TestLateLinks:
    @pytest.mark.parametrize("target", ["../outside.txt", "/etc/hostname"])
    def test_a_link_that_appears_after_the_check_is_not_followed(
        self, workspace: Workspace, target: str
    ) -> None:
        (workspace.root / "late").symlink_to(target)
        path = str(workspace.root / "late")
        with pytest.raises(PermissionError):
            asyncio.run(workspace._backend.read_bytes(path))
        with pytest.raises(PermissionError):
            asyncio.run(workspace._backend.write_bytes(path, b"x"))

    def test_a_link_that_is_swapped_all_the_time_never_leads_outside(
        self, workspace: Workspace, tmp_path: Path
    ) -> None:
        inside, spare = workspace.root / "open" / "ok.txt", workspace.root / "spare"
        done = threading.Event()

        def swap() -> None:
            while not done.is_set():
                for target in (inside, tmp_path / "outside.txt"):
                    spare.symlink_to(target)
                    spare.replace(workspace.root / "open" / "swapped")

        async def case() -> list[str]:
            answers = []
            for _ in range(150):
                for operation in (workspace.read("open/swapped"), workspace.write("open/swapped", "needle")):
                    try:
                        answers.append(str(await operation))
                    except ToolFailed as error:
                        answers.append(error.message)
            return answers

        swapper = threading.Thread(target=swap)
        swapper.start()
        try:
            answers = asyncio.run(case())
        finally:
            done.set()
            swapper.join()
        assert not any("\toutside" in answer for answer in answers)
        assert (tmp_path / "outside.txt").read_text() == "outside"


class TestFailures:
    @pytest.mark.parametrize("error", [WorkspaceError("the workspace is gone"), RecursionError("too deep")])
    def test_what_the_workspace_cannot_do_is_a_tool_failure(self, error: Exception) -> None:
        async def broken() -> str:
            raise error

        assert str(error) in failed(_said(broken()))

    def test_a_pattern_that_is_nested_too_deep_is_a_tool_failure(self, workspace: Workspace) -> None:
        assert "recursion" in failed(workspace.glob("**/" * 3_000 + "x"))
