"""Ctrl-C: the first stops the work and shows what there is, the second quits at once; both are code 130."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.support.gate import Gate
from tests.support.neutral import Hang, Reply
from tests.support.processes import ends
from tests.support.provider import LoopbackProvider
from tests.surfaces.conftest import write_settings

NEVER_STOPS = """
import asyncio, sys
from pathlib import Path
from types import SimpleNamespace
from sidequest.runtime.workspace import Workspace
from sidequest.surfaces.cli.interrupts import Interrupts

async def stop():
    await asyncio.sleep(60)

async def work():
    workspace = Workspace(Path(sys.argv[1]).parent, Path(sys.argv[1]))
    await workspace.bash("sleep 4983 >/dev/null 2>&1 & echo $! > left-running")
    session = SimpleNamespace(stop=stop, workspace=workspace)
    with Interrupts(session, lambda: print("stopping", flush=True), terminal=False):
        print("ready", flush=True)
        await asyncio.sleep(60)

asyncio.run(work())
"""


def start(*command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "NO_PROXY": "127.0.0.1"},
    )


def settings_for(provider: LoopbackProvider, home: Path) -> None:
    write_settings(
        home,
        f'default_model = "lab/test"\n[models."lab/test"]\nbase_url = "{provider.openai_url}"\n'
        'api_key = "k"\ncontext_window = 32000\n',
    )


@pytest.mark.slow
@pytest.mark.parametrize("command", [("run", "x"), ("delegate", "explorer", "x")], ids=["run", "delegate"])
def test_the_first_ctrl_c_shows_the_partial_work(home: Path, tree: Path, command: tuple[str, ...]):
    never = Gate()
    script = [Reply("Half of it.", tool_calls=[("Glob", {"pattern": "*.md"})]), Hang(never)]
    with LoopbackProvider(script).run_in_thread() as provider:
        settings_for(provider, home)
        process = start("-m", "sidequest", *command)
        provider.arrived_blocking(2, timeout=50)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        never.open()
    said = "" if command[0] == "run" else "explorer was stopped after 2 turns.\n\nLast output:\n"
    assert (process.returncode, out) == (130, f"{said}Half of it.\n")
    assert "stopping; press Ctrl-C again to quit at once" in err
    assert "status        stopped in" in err
    assert "Traceback" not in err
    assert "error:" not in err


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_the_program_leaves_no_command_and_no_scratch_folder(
    home: Path, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    command = "sleep 4980 >/dev/null 2>&1 & echo $! > left-running"
    never = Gate()
    script = [Reply("Look.", tool_calls=[("Bash", {"command": command})]), Hang(never)]
    with LoopbackProvider(script).run_in_thread() as provider:
        settings_for(provider, home)
        process = start("-m", "sidequest", "run", "x", "--permission-mode", "auto")
        provider.arrived_blocking(2, timeout=50)
        assert list(temporary.glob("sidequest-*"))
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        never.open()
    assert (process.returncode, out) == (128 + number, "Look.\n")
    assert "Ended what commands had left running: sleep (pid" in err
    assert ends(int((tree / "left-running").read_text()))
    assert not list(temporary.glob("sidequest-*"))


@pytest.mark.slow
def test_a_terminal_that_is_gone_is_no_error(home: Path, tree: Path):
    never = Gate()
    with LoopbackProvider([Hang(never)]).run_in_thread() as provider:
        settings_for(provider, home)
        master, slave = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "sidequest", "run", "x"],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env={**os.environ, "NO_PROXY": "127.0.0.1"},
        )
        os.close(slave)
        provider.arrived_blocking(1, timeout=50)
        os.close(master)  # the kernel sends SIGHUP
        assert process.wait(timeout=60) == 128 + signal.SIGHUP
        never.open()


def test_the_second_ctrl_c_does_not_wait_and_leaves_no_scratch_folder_and_no_command(tmp_path: Path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    process = start("-c", NEVER_STOPS, str(scratch))
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "stopping\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err, scratch.exists()) == (130, "", False)
    assert ends(int((tmp_path / "left-running").read_text()))
