"""`sidequest budget`: the formula with its numbers, and where they come from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.surfaces.conftest import Cli, write_settings

FORMULA_200K = """\
context budget in tokens: a window of 200,000

W  window           200,000   the command line
M  max output        32,000   the command line
O  output            32,000   min(M, W / 4)
                            = min(32,000, 50,000)
F  reserve floor     16,384   min(16,384, W / 2)
                            = min(16,384, 100,000)
H  headroom          32,000   min(W - 1, max(F, O, 5 % of W))
                            = min(199,999, max(16,384, 32,000, 10,000))
L  hard limit       168,000   W - H, the first size that is too large
                            = 200,000 - 32,000
K  keep recent       33,600   min(max(8,000, min(64,000, L / 5)), L / 2)
                            = min(max(8,000, min(64,000, 33,600)), 84,000)
   summary out       25,600   min(80 % of H, M)
                            = min(25,600, 32,000)
   summary in       172,352   max(1, W - summary out - 2,048)
                            = max(1, 200,000 - 25,600 - 2,048)
"""


def test_the_formula_of_a_window_is_filled_in_line_by_line(cli: Cli):
    result = cli("budget", "200000", "--max-tokens", "32000")
    assert (result.code, result.out, result.err) == (0, FORMULA_200K, "")


@pytest.mark.parametrize("written", ["200000", "200_000", "200,000"])
def test_a_window_may_have_separators(cli: Cli, written: str):
    assert json.loads(cli("budget", written, "--json").out)["window"] == 200_000


@pytest.mark.parametrize(
    ("arguments", "window", "hard_limit"),
    [
        (("1",), 1, 1),
        (("16000", "--max-tokens", "4096"), 16_000, 8_000),
        (("16000", "--window", "32000"), 32_000, 16_000),
        (("offline/extractive",), 32_000, 16_000),
        (("offline/extractive", "--window", "8000"), 8_000, 4_000),
    ],
)
def test_the_numbers_are_those_of_the_specification(
    cli: Cli, arguments: tuple[str, ...], window: int, hard_limit: int
):
    data = json.loads(cli("budget", *arguments, "--json").out)
    assert (data["window"], data["hardLimit"]) == (window, hard_limit)
    assert data["window"] - data["requestHeadroom"] == data["hardLimit"]


def test_every_number_in_the_lines_is_consistent_for_the_smallest_window(cli: Cli):
    out = cli("budget", "1").out
    assert "= min(8,192, 1)" in out
    assert "= 1 - 0\n" in out


def test_a_model_says_who_states_its_window(cli: Cli, home: Path):
    write_settings(home, '[models."lab/tiny"]\nbase_url = "http://127.0.0.1:9/v1"\ncontext_window = 4096\n')
    out = cli("budget", "lab/tiny", "--max-tokens", "1024").out
    assert out.startswith("context budget in tokens: lab/tiny\n")
    assert "W  window             4,096   your settings" in out
    assert "M  max output         1,024   the command line" in out
    assert "L  hard limit         2,048" in out


def test_a_cap_that_is_looser_than_the_model_changes_nothing(cli: Cli):
    out = cli("budget", "offline/extractive", "--max-tokens", "50000").out
    assert "M  max output         2,000   built in" in out


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (("nope",), "No model is configured under the name 'nope'."),
        (("5", "--window", "-1"), "--window -1 is below 0."),
        (("5", "--max-tokens", "-1"), "--max-tokens -1 is below 0."),
    ],
)
def test_what_it_cannot_compute_is_code_2(cli: Cli, arguments: tuple[str, ...], cause: str):
    result = cli("budget", *arguments)
    assert (result.code, result.out) == (2, "")
    assert result.err.splitlines()[0] == f"error: {cause}"


@pytest.mark.parametrize("arguments", [("0",), ("--", "-5"), ("-5",), ("32000", "--max-tokens", "-1")])
def test_a_window_of_nothing_is_refused(cli: Cli, arguments: tuple[str, ...]):
    result = cli("budget", *arguments)
    assert (result.code, result.out) == (2, "")


def test_a_model_that_no_catalog_knows_is_said_with_near_names(cli: Cli):
    result = cli("budget", "anthropic/claude-sonet-4-5")
    assert result.code == 0
    assert "warning: no catalog knows anthropic/claude-sonet-4-5, so its window is assumed" in result.err
    assert "Did you mean anthropic/claude-sonnet-4" in result.err


def test_a_key_of_no_provider_is_told_how_a_model_is_configured(cli: Cli):
    result = cli("budget", "foo/bar")
    assert result.code == 2
    assert '[models."foo/bar"] with its base_url' in result.err
