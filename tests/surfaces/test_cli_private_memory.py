"""The programs that hold keys close their process to others of the same user; the library does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a matter of Linux")

PROGRAM = """
import ctypes, os, sys
{before}
print("dumpable", ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))
"""


def dumpable(before: str, home: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(before=before)],
        env={**os.environ, "HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout.split()[-1]


@pytest.mark.parametrize("command", [["run"], ["delegate", "explorer"], ["serve", "--host", "192.0.2.1"]])
def test_a_command_that_works_with_keys_closes_its_process(tmp_path: Path, command: list[str]) -> None:
    # Each is refused before it has done anything: an empty prompt, an address that is not guarded.
    assert dumpable(f"from sidequest.surfaces.cli import main; main({command})", tmp_path) == "0"


def test_a_program_that_uses_the_library_is_left_as_it_is(tmp_path: Path) -> None:
    opened = """
import asyncio
from sidequest import Session

async def work():
    async with Session.open(os.environ["HOME"], model="offline/extractive"):
        pass

asyncio.run(work())
"""
    assert dumpable(opened, tmp_path) == "1"
