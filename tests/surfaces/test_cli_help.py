"""What `sidequest` says of itself, how fast, and what it says to wrong arguments.

`SIDEQUEST_UPDATE_SNAPSHOTS=1` writes the snapshots anew.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.surfaces.conftest import Cli

SNAPSHOTS = Path(__file__).parent / "snapshots"
COMMANDS = (
    (),
    ("run",),
    ("delegate",),
    ("agents",),
    ("agents", "list"),
    ("agents", "show"),
    ("agents", "check"),
    ("sessions",),
    ("sessions", "list"),
    ("sessions", "show"),
    ("sessions", "export"),
    ("sessions", "rename"),
    ("sessions", "delete"),
    ("sessions", "fork"),
    ("sessions", "verify"),
    ("delegations",),
    ("delegations", "list"),
    ("delegations", "show"),
    ("delegations", "resume"),
    ("models",),
    ("models", "list"),
    ("budget",),
    ("serve",),
    ("trust",),
    ("version",),
)
MODULE_CEILING = 200
"""Most modules that `--help` may load; 155 at the time of writing, of which Typer 110."""
STORE_CEILING = 700
"""Most modules that a listing of what is stored may load; 593 at the time of writing."""


def snapshot(name: str, text: str) -> None:
    file = SNAPSHOTS / name
    if os.environ.get("SIDEQUEST_UPDATE_SNAPSHOTS") == "1":
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command) or "root")
def test_help_text_is_the_reviewed_one(cli: Cli, command: tuple[str, ...]):
    result = cli(*command, "--help")
    assert (result.code, result.err) == (0, "")
    snapshot(f"help_{'_'.join(command) or 'root'}.txt", result.out)


def test_without_a_command_the_help_goes_to_standard_error_and_the_code_is_2(cli: Cli):
    result = cli()
    assert (result.code, result.out) == (2, "")
    assert "Commands:" in result.err


@pytest.mark.parametrize("arguments", [("version",), ("--version",)])
def test_version(cli: Cli, arguments: tuple[str, ...]):
    assert cli(*arguments).out == f"sidequest {version('sidequest')}\n"


@pytest.mark.parametrize(
    ("arguments", "cause", "remedy"),
    [
        (("rnu",), "No such command 'rnu'. Did you mean 'run'?", "sidequest --help"),
        (("run", "--jsn"), "No such option: --jsn", "sidequest run --help"),
        (("agents", "lst"), "No such command 'lst'. Did you mean 'list'?", "sidequest agents --help"),
        (("delegate",), "Missing argument 'AGENT'.", "sidequest delegate --help"),
        (("budget", "1", "--window", "x"), "Invalid value for '--window'", "sidequest budget --help"),
    ],
)
def test_wrong_arguments_are_two_lines_and_code_2(
    cli: Cli, arguments: tuple[str, ...], cause: str, remedy: str
):
    result = cli(*arguments)
    first, second = result.err.splitlines()
    assert (result.code, result.out) == (2, "")
    assert first.startswith(f"error: {cause}")
    assert second == f"  try: {remedy}"


def loaded_by(code: str) -> set[str]:
    """Return the modules that a fresh interpreter has loaded after `code`."""
    script = f"import sys, json\n{code}\nprint(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(done.stderr.splitlines()[-1]))


def test_help_loads_few_modules(home: Path):
    loaded = loaded_by("from sidequest.surfaces.cli import main\nassert main(['--help']) == 0")
    assert len(loaded) < MODULE_CEILING
    assert loaded.isdisjoint({"pydantic_ai", "pydantic", "rich", "yaml", "asyncio"})


def test_listing_agents_never_loads_pydantic_ai(tree: Path):
    loaded = loaded_by("from sidequest.surfaces.cli import main\nassert main(['agents', 'list']) == 0")
    assert "sidequest.subagents.catalog" in loaded
    assert loaded.isdisjoint({"pydantic_ai", "openai", "anthropic", "genai_prices"})


@pytest.mark.parametrize("listed", ["sessions", "delegations"])
def test_listing_what_is_stored_never_loads_pydantic_ai(ready_store: Path, tree: Path, listed: str):
    loaded = loaded_by(f"from sidequest.surfaces.cli import main\nassert main([{listed!r}, 'list']) == 0")
    assert "sidequest.store.store" in loaded
    assert len(loaded) < STORE_CEILING
    assert loaded.isdisjoint({"pydantic_ai", "openai", "anthropic", "genai_prices", "sidequest.runtime"})


def test_it_runs_as_a_module(home: Path):
    done = subprocess.run([sys.executable, "-m", "sidequest", "version"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("sidequest ")
