"""The six tools over real folders: bounds, failures a model can act on, locks, and what a command may do."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import BinaryContent

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.outcome import Status
from sidequest.runtime.workspace import TOOL_NAMES, Workspace
from tests.support.processes import ends
from tests.support.scripted_model import Asked, ScriptedModel, calling
from tests.support.team import Team, worker

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "a.txt").write_text("one\ntwo\nthree\n")
    (root / "src" / "main.py").write_text("LIMIT = 7\nprint(LIMIT)\n")
    (tmp_path / "scratch").mkdir()
    (tmp_path / "secret.txt").write_text("outside")
    return Workspace(root, tmp_path / "scratch")


def said(operation: Coroutine[Any, Any, Any]) -> str:
    return str(asyncio.run(operation))


def failed(operation: Coroutine[Any, Any, Any]) -> str:
    with pytest.raises(ToolFailed) as caught:
        asyncio.run(operation)
    return caught.value.message


class TestRead:
    def test_lines_are_numbered(self, workspace: Workspace) -> None:
        assert said(workspace.read("a.txt")).endswith("     1\tone\n     2\ttwo\n     3\tthree\n")

    def test_a_slice_skips_offset_lines_and_gives_limit(self, workspace: Workspace) -> None:
        text = said(workspace.read("a.txt", offset=1, limit=1))
        assert "     2\ttwo" in text
        assert "one" not in text
        assert "three" not in text

    def test_an_image_comes_as_an_image(self, workspace: Workspace) -> None:
        (workspace.root / "p.png").write_bytes(PIXEL)
        result = asyncio.run(workspace.read("p.png"))
        assert any(isinstance(item, BinaryContent) and item.is_image for item in result)

    def test_other_binary_files_are_described(self, workspace: Workspace) -> None:
        (workspace.root / "b.bin").write_bytes(b"\0\1\2" * 1_000)
        assert "3000 bytes" in said(workspace.read("b.bin"))

    def test_a_large_file_is_given_in_whole_lines_within_bounds(self, workspace: Workspace) -> None:
        (workspace.root / "big.txt").write_text("a line of a big file\n" * 10_000)
        text = said(workspace.read("big.txt"))
        assert len(text) < 52_000
        assert "offset=" in text


class TestFailures:
    @pytest.mark.parametrize(
        ("call", "said"),
        [
            (lambda w: w.read("nope.txt"), "not found"),
            (lambda w: w.read("src"), "src is a folder; list it with Glob."),
            (lambda w: w.read("a.txt", offset=99), "exceeds file length"),
            (lambda w: w.read("../secret.txt"), "outside"),
            (lambda w: w.read("/etc/passwd"), "outside"),
            (lambda w: w.read("a\0b"), "null byte"),
            (lambda w: w.read("x" * 5_000), "too long"),
            (lambda w: w.glob("/etc/*"), "relative"),
            (lambda w: w.glob("*", "nope"), "Not a directory"),
            (lambda w: w.grep("("), "regex"),
            (lambda w: w.grep("x", "nope"), "not a file or directory"),
            (lambda w: w.grep("root", "/etc"), "outside"),
            (lambda w: w.edit("a.txt", "nothing", "x"), "not found"),
            (lambda w: w.edit("nope.txt", "a", "b"), "not found"),
            (lambda w: w.edit("../secret.txt", "outside", "in"), "outside"),
            (lambda w: w.edit("a\0b", "a", "b"), "null byte"),
            (lambda w: w.write("src", "x"), "not a regular file"),
            (lambda w: w.write("a.txt/b.txt", "x"), "not a directory"),
            (lambda w: w.write("../secret.txt", "x"), "outside"),
            (lambda w: w.write("../new/file.txt", "x"), "outside"),
            (lambda w: w.write("a\0b/c", "x"), "null byte"),
            (lambda w: w.write("s.txt", "\ud800"), "surrogates"),
            (lambda w: w.bash("echo a\0b"), "null byte"),
            (lambda w: w.bash("echo '\ud800'"), "surrogates"),
        ],
    )
    def test_a_mistake_is_a_tool_failure(self, workspace: Workspace, call: Any, said: str) -> None:
        assert said in failed(call(workspace))

    def test_nothing_outside_was_touched(self, workspace: Workspace, tmp_path: Path) -> None:
        for path in ("../secret.txt", str(tmp_path / "secret.txt"), "src/../../secret.txt"):
            failed(workspace.write(path, "x"))
        (workspace.root / "link").symlink_to(tmp_path)
        failed(workspace.write("link/secret.txt", "x"))
        failed(workspace.read("link/secret.txt"))
        assert (tmp_path / "secret.txt").read_text() == "outside"
        assert not (tmp_path / "new").exists()

    def test_failures_use_up_no_retries(self, workspace: Workspace) -> None:
        model = ScriptedModel(*[calling(("Read", {"path": "nope.txt"}))] * 15, "It is not there.")
        team = Team(model, [worker(tools=("Read",))], workspace=workspace, tools=())
        outcome = asyncio.run(team.outcome())
        assert (outcome.status, outcome.tool_calls) == (Status.COMPLETED, 15)

    def test_a_folder_that_is_not_there_is_told_at_once(self, tmp_path: Path) -> None:
        with pytest.raises(SidequestError) as caught:
            Workspace(tmp_path / "nope")
        assert caught.value.code is ErrorCode.USAGE
        assert "existing folder" in caught.value.remedy


class TestSearch:
    def test_glob_gives_paths(self, workspace: Workspace) -> None:
        assert said(workspace.glob("**/*.py")) == "src/main.py"

    def test_grep_gives_path_line_and_text(self, workspace: Workspace) -> None:
        assert said(workspace.grep("LIMIT =")) == "src/main.py:1:LIMIT = 7"
        assert said(workspace.grep("(", literal=True)) == "src/main.py:2:print(LIMIT)"
        assert said(workspace.grep("limit", glob="*.txt", ignore_case=True)) == "No matches found."

    def test_the_rest_of_a_cut_result_is_searched_in_the_scratch_folder(self, workspace: Workspace) -> None:
        path = workspace.spill("Bash-1", "one\nneedle\n")
        assert path is not None
        assert "needle" in said(workspace.grep("needle", path))

    def test_the_scratch_folder_is_searched_and_its_paths_start_there(self, workspace: Workspace) -> None:
        assert workspace.scratch is not None
        (workspace.scratch / "deep").mkdir()
        (workspace.scratch / "deep/note.txt").write_text("needle")
        for path in (str(workspace.scratch), "../scratch"):
            start = f"[paths start at {workspace.scratch}]\n"
            assert said(workspace.glob("**/*.txt", path)) == f"{start}deep/note.txt"
            assert said(workspace.grep("needle", path)) == f"{start}deep/note.txt:1:needle"

    def test_a_rule_holds_in_a_search_of_the_scratch_folder(self, workspace: Workspace) -> None:
        assert workspace.scratch is not None
        (workspace.scratch / "note.txt").write_text("needle")
        held = workspace.denying(["note.txt"])
        assert "note" not in said(held.glob("*", str(workspace.scratch)))


class TestChanges:
    def test_an_edit_replaces_the_one_place(self, workspace: Workspace) -> None:
        said(workspace.edit("a.txt", "two", "2"))
        assert (workspace.root / "a.txt").read_text() == "one\n2\nthree\n"

    def test_a_text_that_is_not_unique_is_refused_and_nothing_changes(self, workspace: Workspace) -> None:
        failed(workspace.edit("src/main.py", "LIMIT", "MAX"))
        assert (workspace.root / "src" / "main.py").read_text() == "LIMIT = 7\nprint(LIMIT)\n"

    def test_a_missing_parent_folder_is_made(self, workspace: Workspace) -> None:
        said(workspace.write("new/deep/file.txt", "hello"))
        assert (workspace.root / "new" / "deep" / "file.txt").read_text() == "hello"

    @pytest.mark.parametrize("path", [".env", "keys/k.pem", "secrets.txt", "secrets/k.txt", ".gitignore"])
    def test_no_name_but_git_is_protected(self, workspace: Workspace, path: str) -> None:
        said(workspace.write(path, "text"))
        assert (workspace.root / path).read_text() == "text"

    @pytest.mark.parametrize("path", [".git/hooks/x", "deep/.GIT", ".git"])
    def test_git_is_protected(self, workspace: Workspace, path: str) -> None:
        assert "protected" in failed(workspace.write(path, "text"))
        assert not (workspace.root / path).exists()

    def test_the_scratch_folder_may_be_written(self, workspace: Workspace) -> None:
        said(workspace.write(f"{workspace.scratch}/notes.txt", "note"))
        said(workspace.edit(f"{workspace.scratch}/notes.txt", "note", "NOTE"))
        assert "NOTE" in said(workspace.read(f"{workspace.scratch}/notes.txt"))

    def test_L12_edits_of_one_file_at_the_same_time_all_survive(self, workspace: Workspace) -> None:
        path = workspace.root / "many.txt"
        path.write_text("\n".join(f"<{n}>" for n in range(20)))

        async def case() -> None:
            spellings = ["many.txt", "./many.txt", "src/../many.txt", str(path)]
            await asyncio.gather(*(workspace.edit(spellings[n % 4], f"<{n}>", f"[{n}]") for n in range(20)))

        asyncio.run(case())
        assert path.read_text() == "\n".join(f"[{n}]" for n in range(20))

    def test_different_files_never_wait_for_each_other(self, workspace: Workspace) -> None:
        async def case() -> None:
            async with workspace.locks.holding(str(workspace.root / "a.txt")), asyncio.timeout(30):
                await workspace.write("b.txt", "free")
                waiting = asyncio.create_task(workspace.write("./a.txt", "late"))
                await asyncio.sleep(0.02)
                assert not waiting.done()
            await waiting

        asyncio.run(case())
        assert (workspace.root / "a.txt").read_text() == "late"


class TestBash:
    def test_output_errors_and_exit_code_come_back(self, workspace: Workspace) -> None:
        assert said(workspace.bash("echo hi; echo bad >&2; exit 3")) == "hi\n[stderr]\nbad\n[exit code: 3]"
        assert said(workspace.bash("true")) == "[no output]\n[exit code: 0]"

    def test_it_runs_in_the_folder_and_reads_no_input(self, workspace: Workspace) -> None:
        assert said(workspace.bash("pwd; cat")).splitlines()[0] == str(workspace.root)

    def test_a_timeout_kills_everything_that_was_started(self, workspace: Workspace) -> None:
        started = time.monotonic()
        message = failed(workspace.bash("echo begun; sleep 30 & echo $! > child; sleep 30", timeout=1))
        assert time.monotonic() - started < 25
        assert message.startswith("begun")
        assert "killed after 1 seconds" in message
        child = int((workspace.root / "child").read_text())
        assert ends(child)

    def test_a_stop_kills_the_command_of_a_delegate(self, workspace: Workspace) -> None:
        pid = workspace.root / "pid"

        async def case() -> Any:
            command = "echo $$ > pid; exec sleep 30"
            model = ScriptedModel(calling(("Bash", {"command": command})))
            team = Team(model, [worker(tools=("Bash",))], workspace=workspace, tools=())
            record = team.start()
            async with asyncio.timeout(30):
                while not (pid.is_file() and pid.read_text()):  # noqa: ASYNC110 - a file is all there is
                    await asyncio.sleep(0.005)
            await team.delegations.stop()
            return record.outcome

        outcome = asyncio.run(case())
        assert (outcome.status, outcome.unfinished_tool) == (Status.STOPPED, "Bash")
        assert ends(int(pid.read_text()))

    def test_no_key_of_ours_reaches_a_command(
        self, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-do-not-tell")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "do-not-tell")
        fresh = Workspace(workspace.root, workspace.scratch)
        environment = said(fresh.bash("env"))
        assert "do-not-tell" not in environment
        assert f"SIDEQUEST_SCRATCH={workspace.scratch}" in environment

    def test_output_without_an_end_is_stopped(self, workspace: Workspace) -> None:
        assert "output exceeded" in failed(workspace.bash("yes", timeout=20))


class TestToolset:
    def test_all_six_in_their_order(self, workspace: Workspace) -> None:
        assert tuple(workspace.toolset().tools) == TOOL_NAMES

    def test_only_what_is_asked_for(self, workspace: Workspace) -> None:
        assert tuple(workspace.toolset(["Grep", "Read", "Fly"]).tools) == ("Read", "Grep")

    def test_a_delegate_gets_no_tool_that_its_definition_does_not_grant(self, workspace: Workspace) -> None:
        def script(asked: Asked) -> Any:
            return "Only " + ", ".join(asked.tool_names)

        team = Team(ScriptedModel(script), [worker(tools=("Read", "Grep"))], workspace=workspace)
        assert asyncio.run(team.outcome()).report == "Only Read, Grep"
