"""A PostgreSQL server for the tests: from the machine's own programs, alone, unprivileged, gone afterwards.

It listens on a socket in its own folder and on no port, so it meets no other server. The kernel stops it when
the process that started it dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import psycopg

from tests.store.builders import open_and_close

USER = "sidequest"
SHARED = "shared"
_PR_SET_PDEATHSIG = 1


def find_programs() -> Path | None:
    """The folder with `initdb` and `postgres`, the newest version of Debian's first; None without any."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version, reverse=True)
    beside = shutil.which("initdb")
    if beside:
        folders.append(Path(beside).parent)
    return next((f for f in folders if (f / "initdb").exists() and (f / "postgres").exists()), None)


def _version(folder: Path) -> int:
    return int(folder.parent.name) if folder.parent.name.isdigit() else 0


@dataclass
class Server:
    """A running server."""

    folder: Path
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def url(self, database: str) -> str:
        return f"postgresql://{USER}@/{database}?host={self.folder}"

    def make_database(self) -> str:
        """Make a database without any table and return its address."""
        name = f"test_{next(self._numbers)}"
        self.run(f"CREATE DATABASE {name}")
        return self.url(name)

    def emptied_database(self) -> str:
        """Remove every row of the one database that most tests share, and return its address."""
        self.run("TRUNCATE sessions, settings CASCADE", SHARED)
        return self.url(SHARED)

    def run(self, statement: str, database: str = "postgres") -> None:
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement.encode())


@contextlib.contextmanager
def running_server(programs: Path) -> Iterator[Server]:
    """Start a server in a temporary folder and stop it at the end."""
    folder = Path(tempfile.mkdtemp(prefix="sq-pg-"))
    # The server refuses to run as root.
    owner = pwd.getpwnam("nobody") if os.getuid() == 0 else None
    if owner:
        os.chown(folder, owner.pw_uid, owner.pw_gid)
    identity = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []} if owner else {}
    data = folder / "data"
    quiet = {"stdout": subprocess.DEVNULL, "cwd": folder, "env": {"PATH": os.defpath, "LC_ALL": "C"}}
    try:
        subprocess.run(
            [programs / "initdb", "-D", data, "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "-N"],
            check=True,
            **quiet,
            **identity,
        )
        settings = (
            "fsync=off",
            "full_page_writes=off",
            "shared_buffers=32MB",
            "listen_addresses=",
            "autovacuum=off",
        )
        options = [part for setting in settings for part in ("-c", setting)]
        process = subprocess.Popen(
            [programs / "postgres", "-D", data, "-k", folder, *options],
            stderr=subprocess.DEVNULL,
            preexec_fn=_die_with_parent,
            **quiet,
            **identity,
        )
        try:
            server = Server(folder)
            _wait_until_ready(server, process)
            server.run(f"CREATE DATABASE {SHARED}")
            asyncio.run(open_and_close(server.url(SHARED)))
            yield server
        finally:
            # At once: nothing in it is worth a last checkpoint.
            process.send_signal(signal.SIGQUIT)
            process.wait(timeout=20)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


def _wait_until_ready(server: Server, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            return server.run("SELECT 1")
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
