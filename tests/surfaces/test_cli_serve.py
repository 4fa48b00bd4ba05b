"""What `sidequest serve` refuses before it serves anything."""

from __future__ import annotations

import sys

import pytest

from tests.surfaces.conftest import Cli


def test_the_command_refuses_an_address_that_nothing_guards(cli: Cli) -> None:
    result = cli("serve", "--host", "0.0.0.0", "--no-open")
    assert result.code == 2
    assert result.err.splitlines() == [
        "error: Other machines can reach 0.0.0.0, and no token guards it.",
        "  try: Give --token, or leave --host out to serve this machine only.",
    ]


@pytest.mark.parametrize("package", ["nicegui", "fastapi", "uvicorn"])
def test_without_the_extra_one_line_says_what_to_install(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    for name in list(sys.modules):
        if name.startswith(("sidequest.surfaces.web", "sidequest.surfaces.api")) or name == package:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    result = cli("serve", "--no-open")
    assert result.code == 2
    assert result.err.splitlines()[1] == '  try: Run: pip install "sidequest[web]"'
