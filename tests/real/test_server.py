"""The server of this group ends with its tests, however they end."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.real.server import LlamaServer

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(300)]
KILLED = """
import os, pathlib, sys
from tests.real.server import LlamaServer
with LlamaServer(pathlib.Path(sys.argv[1]), window=512) as server:
    print(server.url, flush=True)
    os.kill(os.getpid(), 9)
"""


def listens(url: str) -> bool:
    parts = urlsplit(url)
    with socket.socket() as asked:
        return asked.connect_ex((parts.hostname, parts.port)) == 0


def test_leaving_the_context_ends_the_process_and_its_group(tmp_path: Path, server: LlamaServer) -> None:
    with LlamaServer(tmp_path, window=512) as own:
        pid, url = own.pid, own.url
        assert listens(url) and url != server.url
    assert not listens(url)
    assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.killpg(pid, 0)


def test_tests_that_are_killed_leave_no_server_behind(tmp_path: Path, server: LlamaServer) -> None:
    run = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True, text=True, check=False
    )
    url = run.stdout.strip()
    assert (run.returncode, url[:17]) == (-9, "http://127.0.0.1:"), run.stderr
    deadline = time.monotonic() + 10
    while listens(url) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not listens(url)
