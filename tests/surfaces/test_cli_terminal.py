"""What a terminal is sent, and what a dumb one is not: the real program behind a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

DELEGATE = ("delegate", "explorer", "What is the value of BERTH_LIMIT?")
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-9]m")
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"

pytestmark = pytest.mark.slow


def on_terminal(*arguments: str, **env: str) -> str:
    """Run a command with both outputs on a terminal and return what the terminal was sent."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "sidequest", *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "TERM": "xterm-256color", **env},
    )
    os.close(slave)
    sent = b""
    try:
        while chunk := os.read(master, 65536):
            sent += chunk
    except OSError:  # Linux says so when the last writer has left
        pass
    finally:
        os.close(master)
    assert process.wait(timeout=60) == 0
    return sent.decode()


def test_a_terminal_gets_a_live_view_and_its_cursor_back(tree: Path):
    sent = on_terminal(*DELEGATE)
    assert sent.index(HIDE_CURSOR) < sent.rindex(SHOW_CURSOR) < sent.index("BERTH_LIMIT = 12")


def test_a_dumb_terminal_gets_plain_lines(tree: Path):
    sent = on_terminal(*DELEGATE, TERM="dumb")
    assert "\x1b" not in sent
    assert "#1 explorer  started on offline/extractive" in sent


def test_no_color_is_honoured(tree: Path):
    assert COLOUR.search(on_terminal("agents", "list"))
    assert not COLOUR.search(on_terminal("agents", "list", NO_COLOR="1"))


@pytest.mark.parametrize("columns", [60, 120])
def test_no_line_of_a_list_is_wider_than_the_terminal(tree: Path, columns: int):
    for command in (("agents", "list"), ("models", "list", "--no-discover")):
        sent = re.sub(r"\x1b\[[0-9;]*m", "", on_terminal(*command, COLUMNS=str(columns)))
        assert max(map(len, sent.splitlines())) <= columns
