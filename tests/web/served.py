"""`sidequest serve` as a process of its own, in a folder and a home of its own, and pages that look at it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from playwright.sync_api import Browser, BrowserContext, StorageState

LINK = re.compile(r"http://127\.0\.0\.1:\d+/\S*")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""


@dataclass
class Served:
    """A server that answers, and the key to it."""

    link: str
    """The one-time link that was printed."""
    home: Path
    root: Path
    """The folder it works in."""
    process: subprocess.Popen[str]
    entered: StorageState | None = None
    """The cookie that the link was changed for; None until the first page came in."""

    @property
    def url(self) -> str:
        """Address without the link's token and without a slash at its end."""
        return re.match(r"http://[^/]+", self.link)[0]  # type: ignore[index]

    def enter(self, browser: Browser, **options: object) -> BrowserContext:
        """Return a window of a person who has come in by the link; all of them share its cookie."""
        context = browser.new_context(storage_state=self.entered, **options)  # type: ignore[arg-type]
        context.set_default_timeout(15_000)
        if self.entered is None:
            # Without a page: closing one that still connects can hang in the browser.
            answer = context.request.get(self.link)
            assert answer.ok, answer.status
            self.entered = context.storage_state()
        return context


@contextmanager
def serve(root: Path, home: Path, *arguments: str, env: Mapping[str, str] = {}) -> Iterator[Served]:
    """Start the server on a free port and stop it at the end, as a person does with Ctrl-C."""
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("SIDEQUEST_") and not name.endswith(("_API_KEY", "_TOKEN"))
    }
    own |= {"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config"), "PYTHONUNBUFFERED": "1", **env}
    own.pop("XDG_DATA_HOME", None)
    command = [sys.executable, "-m", "sidequest", "serve", "--port", "0", "--no-open", *arguments]
    log = home / "serve.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, cwd=root, env=own, text=True, stdout=subprocess.PIPE, stderr=errors
        ) as process,
    ):
        try:
            yield Served(_link(process.stdout, log), home, root, process)
        finally:
            process.terminate()
            process.wait(timeout=60)


def _link(output: IO[str] | None, log: Path) -> str:
    assert output is not None
    for line in output:
        if found := LINK.search(line):
            return found[0]
    raise AssertionError(f"the server ended without a link: {log.read_text()}")
