"""Processes that work on a job and may be killed at any instant.

Importing pydantic-ai and an SDK takes longer than the job: one process imports them once, does a job to warm
up, and forks a worker for each line that it reads: store, session ("" begins one), folder, notes, and after
how many seconds it is killed ("" for never).
"""

from __future__ import annotations

import asyncio
import gc
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from sidequest.store import Store
from tests.durable.job import BEGIN, GO_ON, a_session


async def work(port: int, url: str, session: str, root: Path, notes: Path) -> bool:
    """Begin the job, or go on with it; return whether the turn was answered."""
    async with await Store.open(url, env={}) as store, a_session(root, notes, port) as opened:
        await opened.attach(store, session or None)
        result = await opened.prompt(GO_ON if session else BEGIN)
        if not result.ok:
            print(result.failure, file=sys.stderr)
        return result.ok


def serve(port: int) -> None:
    """Fork a worker for each line, kill it when its time is over, and tell how it ended."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        asyncio.run(work(port, str(root / "store.db"), "", root, root / "notes"))
    gc.freeze()
    assert threading.active_count() == 1, threading.enumerate()
    print("ready", flush=True)
    for line in sys.stdin:
        url, session, root, notes, life = line.rstrip("\n").split("\t")
        pid = os.fork()
        if pid == 0:
            gc.disable()  # its life is short, and a sweep would copy the memory that it shares
            ok = asyncio.run(work(port, url, session, Path(root), Path(notes)))
            os._exit(0 if ok else 1)
        if life:
            _wait(pid, float(life))
            os.kill(pid, signal.SIGKILL)  # nobody else has this number: it is not waited for yet
        print(os.waitpid(pid, 0)[1], flush=True)


def _wait(pid: int, seconds: float) -> None:
    """Wait that long, or until the process has ended; it stays to be waited for."""
    watched = os.pidfd_open(pid)
    try:
        select.select([watched], [], [], seconds)
    finally:
        os.close(watched)


@dataclass
class Zygote:
    """The process that forks, as a test sees it."""

    stdin: IO[str]
    stdout: IO[str]

    def run(self, url: str, session: str, root: Path, notes: Path, life_s: float | None = None) -> int:
        """Run a worker, for `life_s` seconds at most, and return how it ended: a signal, or 0 for well."""
        life = "" if life_s is None else life_s
        self.stdin.write(f"{url}\t{session}\t{root}\t{notes}\t{life}\n")
        self.stdin.flush()
        return int(self.stdout.readline())


@contextmanager
def zygote(port: int) -> Iterator[Zygote]:
    """Start the process; it ends when its input does."""
    command = [sys.executable, "-m", "tests.durable.zygote", str(port)]
    root = Path(__file__).parent.parent.parent
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root
    ) as process:
        assert process.stdin and process.stdout
        assert process.stdout.readline() == "ready\n"
        yield Zygote(process.stdin, process.stdout)
        process.stdin.close()
        process.wait(timeout=20)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
