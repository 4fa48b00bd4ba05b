"""The matrix of rights: session mode, permission of the definition, rule and path. The table is the test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sidequest.core.permissions import DenyRules, Mode, Verdict
from sidequest.runtime.permissions import PermissionGate, Rights

CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    # what is called, with paths as a model writes them
    "read in": ("Read", {"path": "a.py"}),
    "read scratch": ("Read", {"path": "{scratch}/a"}),
    "read out": ("Read", {"path": "../out.py"}),
    "read link out": ("Read", {"path": "link-out"}),
    "edit in": ("Edit", {"path": "a.py"}),
    "edit out": ("Edit", {"path": "../out.py"}),
    "command": ("Bash", {"command": "make"}),
    "other tool": ("mcp__mail__send", {}),
    "edit git": ("Edit", {"path": "sub/.GIT/config"}),
    "edit link git": ("Edit", {"path": "link-git/hooks/x"}),
    "read git": ("Read", {"path": ".git/config"}),
    "rule: path": ("Read", {"path": "sub/.env"}),
    "rule: link": ("Edit", {"path": "link-env"}),
    "rule: out": ("Read", {"path": "../.env"}),
    "rule: words": ("Bash", {"command": "cd sub && git push"}),
    "rule: tool": ("Write", {"path": "a.py"}),
}
RULES = DenyRules(tools=("Write",), paths=("**/.env",), commands=("git push",))
READS = {"read in": "allow", "read scratch": "allow", "read git": "allow"}
DENIED = {name: "deny" for name in CALLS if name.startswith("rule")}


def row(others: str, *, edit_in: str) -> dict[str, str]:
    """Return the verdict on each call: reads and rules are the same everywhere, `others` is for the rest."""
    denied = DENIED | dict.fromkeys(("edit out", "edit git", "edit link git"), "deny")
    return dict.fromkeys(CALLS, others) | READS | {"edit in": edit_in} | denied


ASKS = row("ask", edit_in="ask")
EDITS = row("ask", edit_in="allow")
DOES = row("allow", edit_in="allow")
INHERIT = None

MATRIX = [
    # mode of the session, permission of the definition, what happens
    (Mode.ASK, INHERIT, ASKS),
    (Mode.ASK, Mode.ASK, ASKS),
    (Mode.ASK, Mode.ACCEPT_EDITS, ASKS),
    (Mode.ASK, Mode.AUTO, ASKS),
    (Mode.ACCEPT_EDITS, INHERIT, EDITS),
    (Mode.ACCEPT_EDITS, Mode.ASK, ASKS),
    (Mode.ACCEPT_EDITS, Mode.ACCEPT_EDITS, EDITS),
    (Mode.ACCEPT_EDITS, Mode.AUTO, EDITS),
    (Mode.AUTO, INHERIT, DOES),
    (Mode.AUTO, Mode.ASK, ASKS),
    (Mode.AUTO, Mode.ACCEPT_EDITS, EDITS),
    (Mode.AUTO, Mode.AUTO, DOES),
]


@pytest.fixture
def roots(tmp_path: Path) -> tuple[Path, Path]:
    """A workspace with links in it, and a scratch folder."""
    root, scratch = tmp_path / "w", tmp_path / "scratch"
    (root / "sub").mkdir(parents=True)
    scratch.mkdir()
    (root / "sub" / ".env").touch()
    (root / "link-out").symlink_to("../out.py")
    (root / "link-env").symlink_to("sub/.env")
    (root / "link-git").symlink_to(".git")
    return root.resolve(), scratch.resolve()


@pytest.mark.parametrize(
    ("mode", "definition", "expected"),
    MATRIX,
    ids=[f"{mode}-{definition or 'inherit'}" for mode, definition, _ in MATRIX],
)
def test_mode_definition_rule_and_path(
    roots: tuple[Path, Path], mode: Mode, definition: Mode | None, expected: dict[str, str]
) -> None:
    gate = PermissionGate(Rights(mode, RULES, roots=roots), ("parent", "x"), definition)
    found: dict[str, str] = {}
    for name, (tool, arguments) in CALLS.items():
        given = {
            key: text.replace("{scratch}", str(roots[1])) if isinstance(text, str) else text
            for key, text in arguments.items()
        }
        found[name] = gate.decision(gate.rights.action(tool, given)).verdict.value
    assert found == expected


def test_the_table_has_every_mode_with_every_permission() -> None:
    assert len({(mode, definition) for mode, definition, _ in MATRIX}) == len(Mode) * (len(Mode) + 1)
    assert {verdict for _, _, row_ in MATRIX for verdict in row_.values()} == set(Verdict)
