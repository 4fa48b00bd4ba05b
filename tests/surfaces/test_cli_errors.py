"""Every end of a command is a code and at most two lines; a traceback is for those who ask."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sidequest.core.errors import ErrorCode, Failure, SidequestError
from sidequest.surfaces.cli.errors import complain_of, guarded
from tests.surfaces.conftest import Cli


def raising(error: BaseException) -> Callable[[], int]:
    def command() -> int:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "code", "err"),
    [
        (SidequestError(ErrorCode.USAGE, "No.", "Say yes."), 2, "error: No.\n  try: Say yes.\n"),
        (SidequestError(ErrorCode.SETTINGS_INVALID, "A\nb.", ""), 2, "error: A b.\n"),
        (
            SidequestError(ErrorCode.INTERNAL, "Broken.", "Report it."),
            1,
            "error: Broken.\n  try: Report it.\n",
        ),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (BrokenPipeError(), 1, ""),
        (
            ModuleNotFoundError("No module", name="typer"),
            2,
            'error: The package typer is not installed.\n  try: Run: pip install "sidequest[app]"\n',
        ),
        (
            ValueError("odd"),
            1,
            "error: ValueError: odd\n  try: Run it with SIDEQUEST_DEBUG=1 to see where it happened.\n",
        ),
        (
            ModuleNotFoundError("No module named 'surprise'", name="surprise"),
            1,
            "error: ModuleNotFoundError: No module named 'surprise'\n"
            "  try: Run it with SIDEQUEST_DEBUG=1 to see where it happened.\n",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_what_a_command_raises_becomes_a_code_and_words(
    capsys: pytest.CaptureFixture[str], error: BaseException, code: int, err: str
):
    assert guarded(raising(error)) == code
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", err)


def test_debug_puts_the_traceback_before_the_message(capsys: pytest.CaptureFixture[str]):
    guarded(raising(ValueError("odd")), debug=True)
    err = capsys.readouterr().err
    assert err.startswith("Traceback")
    assert "error: ValueError: odd" in err


def test_a_failure_of_a_provider_gets_a_remedy_and_ours_say_it_themselves(
    capsys: pytest.CaptureFixture[str],
):
    complain_of(Failure(ErrorCode.PROVIDER_UNAUTHORIZED, "Bad key."))
    complain_of(Failure(ErrorCode.SUBAGENT_CONTEXT_OVERFLOW, "Too large. Narrow the task."))
    assert capsys.readouterr().err.splitlines() == [
        "error: Bad key.",
        "  try: Check the key of the provider: `sidequest models list`.",
        "error: Too large. Narrow the task.",
    ]


def test_control_codes_in_an_error_are_removed(capsys: pytest.CaptureFixture[str]):
    guarded(raising(SidequestError(ErrorCode.USAGE, "\x1b[2Jgone", "x")))
    assert capsys.readouterr().err.startswith("error: gone\n")


@pytest.mark.parametrize(
    "command", [("agents", "list"), ("budget", "5"), ("models", "list", "--no-discover")]
)
def test_an_output_that_nobody_reads_ends_a_command_quietly(
    tree: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    process = subprocess.Popen(
        [sys.executable, "-m", "sidequest", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert (process.stderr.read(), process.wait(timeout=60)) == ("", 1)
    process.stderr.close()


@pytest.mark.parametrize("value", ["abc", "-1", "inf"])
def test_a_delay_that_is_no_number_is_named(cli: Cli, monkeypatch: pytest.MonkeyPatch, value: str):
    monkeypatch.setenv("SIDEQUEST_OFFLINE_DELAY_S", value)
    result = cli("run", "x")
    assert result.code == 2
    assert f"SIDEQUEST_OFFLINE_DELAY_S is no number of seconds: '{value}'" in result.err
