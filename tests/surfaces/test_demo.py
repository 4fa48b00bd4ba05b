"""The main job, as `make demo` runs it: one delegation that compacts at least twice and finds the line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
QUESTION = re.search(r'^DEMO_QUESTION = "(.*)"$', (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.slow
def test_the_demo_compacts_at_least_twice_and_reports_the_right_line(tmp_path: Path) -> None:
    assert QUESTION is not None
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "SIDEQUEST_CONFIG": "examples/demo/config.toml"}
    command = [sys.executable, "-m", "sidequest", "run", QUESTION[1], "--json", "--cwd", "src"]
    done = subprocess.run(
        [*command, "--agents-dir", "examples/demo/agents"],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    (delegation,) = result["delegations"]
    assert delegation["status"] == "completed"
    assert delegation["agent"] == "explorer"
    assert delegation["contextCompactions"] >= 2
    budget = (ROOT / "src/sidequest/core/budget.py").read_text().splitlines()
    line = next(n for n, text in enumerate(budget, 1) if "hard_limit = max(1" in text)
    assert f"sidequest/core/budget.py:{line}: " in result["text"]
