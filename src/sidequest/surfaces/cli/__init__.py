"""The command line. `main` is what the installed script calls; nothing is imported before it needs to be."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from sidequest.surfaces.cli.errors import guarded


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 failed, 2 usage or configuration, 130 interrupted.

    A signal that ended the work has its own: 143 is SIGTERM, 129 is SIGHUP.

    `argv` are the arguments behind the program's name; None takes those of the process. Never raises.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = os.environ.get("SIDEQUEST_DEBUG", "0") not in ("", "0") or arguments[:1] == ["--debug"]
    _make_outputs_safe()
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return guarded(lambda: _dispatch(arguments), debug=debug, as_json="--json" in options)


def _make_outputs_safe() -> None:
    """No output is worth a crash: a closed one swallows, a missing character becomes a replacement."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - open to the end
        reconfigure = getattr(getattr(sys, name), "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")


def _dispatch(arguments: list[str]) -> int:
    from sidequest.surfaces.cli.app import run_command

    return run_command(arguments)
