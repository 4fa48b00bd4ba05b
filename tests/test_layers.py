"""Arrows point one way: core <- subagents, models <- runtime <- surfaces; store knows core only (DESIGN).

The core is pure: no I/O, no clock, no logger, and of pydantic-ai its message, usage and exception types only.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sidequest

PACKAGE = Path(sidequest.__file__).parent

MAY_IMPORT = {
    "core": set(),
    "subagents": {"core"},
    "models": {"core"},
    "store": {"core"},
    "runtime": {"core", "subagents", "models", "store"},
    "surfaces": {"core", "subagents", "models", "runtime", "store"},
}
"""Which other layers a layer may import. `sidequest/__init__.py` stands above all of them."""

CORE_PYDANTIC_AI = {"pydantic_ai.messages", "pydantic_ai.usage", "pydantic_ai.exceptions"}
CORE_FORBIDDEN = {
    *("asyncio", "glob", "http", "io", "logging", "multiprocessing", "os", "random", "secrets", "select"),
    *("shutil", "signal", "socket", "sqlite3", "subprocess", "sys", "tempfile", "threading", "time"),
    *("urllib", "uuid"),
}
CORE_PATHS = {"PurePath", "PurePosixPath", "PureWindowsPath"}
"""What of pathlib does no I/O."""
CORE_FORBIDDEN_CALLS = {"open", "print", "input", "breakpoint", "exec", "eval"}
CLOCKS = {"now", "utcnow", "today"}


def _module_of(path: Path, package: Path) -> list[str]:
    return list(path.relative_to(package.parent).with_suffix("").parts)


def imports(path: Path, package: Path) -> Iterator[str]:
    """Yield the full name of everything that a file imports, also inside functions and under a condition."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # A relative import counts from the file's own package.
            base = _module_of(path, package)[: -node.level] if node.level else []
            source = ".".join([*base, *filter(None, [node.module])])
            yield from (f"{source}.{alias.name}" for alias in node.names)


def _may_import(layer: str, name: str) -> bool:
    root, _, rest = name.partition(".")
    if root == "sidequest":
        return rest.partition(".")[0] in {layer, *MAY_IMPORT[layer]}
    return layer != "core" or _core_may(name)


def _core_may(name: str) -> bool:
    root = name.partition(".")[0]
    if root == "pydantic_ai":
        return any(name == allowed or name.startswith(f"{allowed}.") for allowed in CORE_PYDANTIC_AI)
    if root == "pathlib":
        return name.partition(".")[2] in CORE_PATHS
    return root in sys.stdlib_module_names and root not in CORE_FORBIDDEN


def _impure_calls(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in CORE_FORBIDDEN_CALLS:
                yield f"{node.func.id}()"
            if isinstance(node.func, ast.Attribute) and node.func.attr in CLOCKS:
                yield f".{node.func.attr}()"


def wrong_arrows(package: Path) -> list[str]:
    """Return one line for each import or call that the layers do not allow; empty when all is well."""
    found: list[str] = []
    for path in sorted(package.rglob("*.py")):
        where = path.relative_to(package).as_posix()
        if "/" not in where:
            continue
        layer = where.split("/")[0]
        if layer not in MAY_IMPORT:
            found.append(f"{where}: {layer} is no layer")
            continue
        names = imports(path, package)
        found += [f"{where}: imports {name}" for name in names if not _may_import(layer, name)]
        if layer == "core":
            found += [f"{where}: calls {call}" for call in _impure_calls(path)]
    return found


def test_no_arrow_points_the_wrong_way():
    assert wrong_arrows(PACKAGE) == []


@pytest.mark.parametrize(
    ("where", "source", "complaint"),
    [
        ("core/a.py", "from sidequest.runtime import guard", "imports sidequest.runtime.guard"),
        ("core/a.py", "def f():\n    import sidequest.models.registry", "imports sidequest.models.registry"),
        ("core/a.py", "from ..subagents import definition", "imports sidequest.subagents.definition"),
        ("core/a.py", "from .. import store", "imports sidequest.store"),
        ("core/a.py", "import os.path", "imports os.path"),
        ("core/a.py", "from time import time", "imports time.time"),
        ("core/a.py", "from pathlib import Path", "imports pathlib.Path"),
        ("core/a.py", "import yaml", "imports yaml"),
        ("core/a.py", "from pydantic_ai import Agent", "imports pydantic_ai.Agent"),
        ("core/a.py", "from pydantic_ai.models import Model", "imports pydantic_ai.models.Model"),
        ("core/a.py", "from datetime import datetime\nx = datetime.now()", "calls .now()"),
        ("core/a.py", "x = open('f')", "calls open()"),
        ("core/deep/a.py", "from ...models import x", "imports sidequest.models.x"),
        ("subagents/a.py", "from sidequest.models import names", "imports sidequest.models.names"),
        ("models/a.py", "import sidequest.subagents.keys", "imports sidequest.subagents.keys"),
        ("models/a.py", "if True:\n    from sidequest.runtime import x", "imports sidequest.runtime.x"),
        ("store/a.py", "from sidequest.runtime import session", "imports sidequest.runtime.session"),
        ("runtime/a.py", "from sidequest.surfaces import cli", "imports sidequest.surfaces.cli"),
        ("subagents/a.py", "from sidequest import store", "imports sidequest.store"),
        ("surfaces/a.py", "import sidequest", "imports sidequest"),
        ("helpers/a.py", "", "helpers is no layer"),
    ],
)
def test_the_checker_catches_a_planted_arrow(tmp_path, where, source, complaint):
    path = tmp_path / "sidequest" / where
    path.parent.mkdir(parents=True)
    path.write_text(source)
    assert wrong_arrows(tmp_path / "sidequest") == [f"{where}: {complaint}"]


@pytest.mark.parametrize(
    ("where", "source"),
    [
        ("core/a.py", "from pydantic_ai.messages import ModelMessage\nfrom . import budget"),
        ("core/a.py", "import tomllib\nfrom importlib.resources import files"),
        ("core/a.py", "from pathlib import PurePosixPath\nfrom datetime import datetime"),
        ("runtime/a.py", "import os, time\nfrom sidequest.models import x\nfrom sidequest.store import y"),
        ("surfaces/cli/a.py", "from sidequest.runtime.session import Session\nfrom ..web import app"),
        ("surfaces/cli/a.py", "def f():\n    from sidequest.store import Store"),
        ("__init__.py", "from sidequest.runtime import session"),
    ],
)
def test_the_checker_lets_right_arrows_pass(tmp_path, where, source):
    path = tmp_path / "sidequest" / where
    path.parent.mkdir(parents=True)
    path.write_text(source)
    assert wrong_arrows(tmp_path / "sidequest") == []


def test_importing_sidequest_loads_next_to_nothing():
    """The bound of 50 ms, told by what is loaded and not by a clock: pydantic-ai alone takes two seconds."""
    program = (
        "import sys, json; before = set(sys.modules); import sidequest;"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = json.loads(answer.stdout)
    assert "sidequest" in loaded
    assert {name.partition(".")[0] for name in loaded} <= {"sidequest", *sys.stdlib_module_names}
    assert len(loaded) < 40
