"""How the command line ends: exit codes, and errors as two lines instead of a traceback."""

from __future__ import annotations

import errno
import json
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum

from sidequest.core.errors import ErrorCode, Failure, SidequestError
from sidequest.surfaces.text import one_line

_PARTS_OF_APP = frozenset(
    {"typer", "click", "rich", "pydantic_settings", "pydantic_ai_harness", "tomlkit", "prompt_toolkit"}
    | {"sqlalchemy", "alembic"}
)

_REMEDIES = {
    ErrorCode.PROVIDER_UNAUTHORIZED: "Check the key of the provider: `sidequest models list`.",
    ErrorCode.PROVIDER_RATE_LIMITED: "Wait a little, or take another model with --model.",
    ErrorCode.PROVIDER_ERROR: "Try again later, or take another model with --model.",
    ErrorCode.NETWORK_ERROR: "Check the connection, and that the model's server runs.",
    ErrorCode.TIMEOUT: "Try again, or take another model with --model.",
    ErrorCode.STREAM_FAILED: "Run it again.",
    ErrorCode.MODEL_NOT_CONFIGURED: "`sidequest models list` shows the models that can be used.",
    ErrorCode.SUBAGENT_TURN_LIMIT: (
        "Ask for less at once, or raise the limit: `maxTurns` of the subagent, `max_turns` of the settings."
    ),
    ErrorCode.SUBAGENT_DURATION_TIMEOUT: "Ask for less at once, or raise `max_seconds` of the settings.",
    ErrorCode.SUBAGENT_COST_LIMIT: "Raise `max_cost_usd` of the settings, or take a cheaper model.",
    ErrorCode.SUBAGENT_NO_REPORT: "Ask for less at once, or take another model with --model.",
    ErrorCode.EMPTY_MODEL_RESPONSE: "Run it again, or take another model with --model.",
    ErrorCode.INTERNAL: "Run it with SIDEQUEST_DEBUG=1, and report this as a defect.",
    ErrorCode.UNEXPECTED_DELEGATION_REJECTION: "Run it with SIDEQUEST_DEBUG=1, and report this as a defect.",
}
"""What to do about failures whose sentence comes from a provider; our own sentences say it themselves."""


class Exit(IntEnum):
    """Exit codes of every command."""

    DONE = 0
    """Also for a partial report: there is usable text, and a warning says what is missing."""
    FAILED = 1
    USAGE = 2
    """Usage or configuration: nothing was started."""
    INTERRUPTED = 130


def complain(cause: str, remedy: str = "") -> None:
    """Write an error to standard error: one line of cause, one of remedy (none when it is empty)."""
    print(f"error: {one_line(cause)}", file=sys.stderr)
    if remedy:
        print(f"  try: {one_line(remedy)}", file=sys.stderr)


def complain_of(failure: Failure) -> None:
    """Write the failure of a run that had started."""
    complain(failure.cause, failure.remedy or _REMEDIES.get(failure.code, ""))


def guarded(command: Callable[[], int], *, debug: bool = False, as_json: bool = False) -> int:
    """Run `command` and return its exit code; whatever it raises becomes a message and a code.

    With `debug` the traceback comes before the message. With `as_json` the message is an object on standard
    output, too.
    """
    try:
        code = command()
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        return _reader_left()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        if as_json:
            _print_error(ErrorCode.TURN_ABORTED, "interrupted", "")
        return Exit.INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the edge of the program: every error is told and has a code
        if debug:
            traceback.print_exc()
        kind, cause, remedy = _described(error)
        complain(cause, remedy)
        if isinstance(error, OSError):
            _forget_output()
        if as_json:
            _print_error(kind, cause, remedy)
        return Exit.FAILED if kind is ErrorCode.INTERNAL else Exit.USAGE


def _described(error: Exception) -> tuple[ErrorCode, str, str]:
    if isinstance(error, SidequestError):
        return error.code, error.cause, error.remedy
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in _PARTS_OF_APP:
        missing = f"The package {error.name} is not installed."
        return ErrorCode.USAGE, missing, 'Run: pip install "sidequest[app]"'
    if isinstance(error, OSError) and error.filename is None and error.errno in (errno.ENOSPC, errno.EIO):
        cause = f"The output cannot be written: {(error.strerror or str(error)).lower()}."
        return ErrorCode.USAGE, cause, "Send the output to another place."
    if (said := _usage_error(error)) is not None:
        return ErrorCode.USAGE, *said
    remedy = "Run it with SIDEQUEST_DEBUG=1 to see where it happened."
    return ErrorCode.INTERNAL, f"{type(error).__name__}: {error}", remedy


def _print_error(code: ErrorCode, cause: str, remedy: str) -> None:
    """Write an error as the last object of `--json`; one that nobody reads is no further error."""
    error = {"code": code.value, "message": cause, "remedy": remedy}
    try:
        print(json.dumps({"type": "result", "ok": False, "error": error}, ensure_ascii=False), flush=True)
    except BrokenPipeError:
        _reader_left()


def _usage_error(error: Exception) -> tuple[str, str] | None:
    """Return cause and remedy of a mistake that Typer found in the arguments, else None.

    Recognised by shape: the class lives in click or in Typer's own copy of it, depending on the version.
    """
    words = getattr(error, "format_message", None)
    if words is None:
        return None
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "sidequest"
    return str(words()), f"{command} --help"


def _forget_output() -> None:
    """Keep what standard output could not take from failing once more when the process ends."""
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _reader_left() -> int:
    """End quietly when the program that read our output has gone; later flushes must not fail either."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            os.dup2(nowhere, stream.fileno())
        except (OSError, ValueError):  # a stream without a descriptor, as in tests
            continue
    return Exit.FAILED
