"""A path rule holds for a file as it is named, for each link on its way, and for what it leads to."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.exceptions import ToolFailed

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.permissions import Action, DenyRules, Mode, Verdict
from sidequest.runtime.attachments import read_attachments
from sidequest.runtime.links import names_of, with_links_followed
from sidequest.runtime.outside import let_through
from sidequest.runtime.permissions import PermissionGate, Rights
from sidequest.runtime.workspace import Workspace


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace that is reached through a link, with links in it, and a linked folder beside it."""
    real = tmp_path / "wreal"
    for name in ("conf/real.txt", "secret.txt", "keys/k.txt", "free.txt"):
        (real / name).parent.mkdir(parents=True, exist_ok=True)
        (real / name).write_text(f"needle in {name}")
    (tmp_path / "wlink").symlink_to("wreal")
    (real / ".env").symlink_to("conf/real.txt")
    (real / "way").symlink_to("middle")
    (real / "middle").symlink_to("keys")
    (real / "loop").symlink_to("loop")
    (tmp_path / "far").mkdir()
    (tmp_path / "far/k.txt").write_text("needle far away")
    (tmp_path / "private").symlink_to("far")
    return real


def calls(path: str) -> list[tuple[str, dict[str, Any]]]:
    return [
        ("Read", {"path": path}),
        ("Grep", {"pattern": "needle", "path": path}),
        ("Glob", {"pattern": "*", "path": path}),
        ("Edit", {"path": path, "old_text": "needle", "new_text": "x"}),
    ]


HELD = [
    # a rule, and a path that it holds for; {tmp} is the folder around
    ("{tmp}/wlink/secret.txt", "secret.txt"),
    ("{tmp}/wlink/*.txt", "secret.txt"),
    ("{tmp}/wlink", "keys/k.txt"),
    ("**/.env", ".env"),
    ("**/.env", "conf/real.txt"),
    (".env", "conf/real.txt"),
    ("middle", "way/k.txt"),
    ("**/middle/*.txt", "way/k.txt"),
    ("{tmp}/private", "{tmp}/private/k.txt"),
    ("{tmp}/private", "{tmp}/far/k.txt"),
    ("**/private", "{tmp}/private/k.txt"),
    ("{tmp}/far", "../private/k.txt"),
    ("loop", "loop"),
]


@pytest.mark.parametrize(("rule", "path"), HELD)
def test_the_gate_holds_a_rule(root: Path, rule: str, path: str) -> None:
    tmp = root.parent
    rules = DenyRules(paths=(rule.format(tmp=tmp),))
    gate = PermissionGate(Rights(Mode.AUTO, rules, roots=(root,)), ("parent",))
    for tool, arguments in calls(path.format(tmp=tmp)):
        decision = gate.decision(gate.rights.action(tool, arguments))
        assert decision.verdict is Verdict.DENY and rules.paths[0] in decision.reason


@pytest.mark.parametrize(("rule", "path"), HELD)
def test_the_tools_hold_it_by_themselves(root: Path, rule: str, path: str) -> None:
    tmp = root.parent
    workspace = Workspace(root, denied=(rule.format(tmp=tmp),))
    for tool, arguments in calls(path.format(tmp=tmp)):

        async def call(tool: str = tool, arguments: dict[str, Any] = arguments) -> object:
            let_through(str(tmp / "far"))
            return await getattr(workspace, tool.lower())(**arguments)

        with pytest.raises(ToolFailed):
            asyncio.run(call())


@pytest.mark.parametrize(("rule", "path"), HELD)
def test_an_attachment_is_not_read_past_it(root: Path, rule: str, path: str) -> None:
    tmp = root.parent
    rules = DenyRules(paths=(rule.format(tmp=tmp),))
    gate = PermissionGate(Rights(Mode.AUTO, rules, roots=(root,)), ("parent",))
    with pytest.raises(SidequestError) as caught:
        asyncio.run(read_attachments([path.format(tmp=tmp)], gate, consented=True))
    assert caught.value.code is ErrorCode.TOOL_DENIED


SEARCHES = [
    # a rule, the folder that is searched, what of it must not be found
    ("{tmp}/wlink/secret.txt", ".", "secret.txt"),
    ("**/.env", ".", "real.txt"),
    ("**/middle/*.txt", "way", "k.txt"),
    ("way/*.txt", "way", "k.txt"),
    ("{tmp}/private", "{tmp}", "k.txt"),
    ("**/private/*.txt", "{tmp}/private", "k.txt"),
]


@pytest.mark.parametrize(("rule", "folder", "hidden"), SEARCHES)
@pytest.mark.parametrize("tool", ["Grep", "Glob"])
def test_a_search_leaves_out_what_it_covers(
    root: Path, tool: str, rule: str, folder: str, hidden: str
) -> None:
    tmp = root.parent
    workspace = Workspace(root, denied=(rule.format(tmp=tmp),))

    async def search() -> str:
        let_through(str(tmp))
        if tool == "Grep":
            return await workspace.grep("needle", folder.format(tmp=tmp))
        return await workspace.glob("**/*", folder.format(tmp=tmp))

    found = asyncio.run(search())
    assert not [
        line for line in found.splitlines() if line.split(":")[0].endswith(hidden) and "keys" not in line
    ]
    assert folder != "." or "free.txt" in found


def test_the_home_folder_is_that_of_the_user(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(root / "way"))
    rules = with_links_followed(DenyRules(paths=("~/k.txt",)), ())
    assert rules.match(Action("Read", f"{root}/way/k.txt")) == "paths: ~/k.txt"
    assert rules.match(Action("Read", f"{root}/keys/k.txt")) == "paths: ~/k.txt"
    assert rules.match(Action("Read", "/w/app/k.txt")) is None


def test_a_path_has_the_names_of_all_links_on_its_way(root: Path) -> None:
    tmp = root.parent
    assert names_of("../wlink/way/k.txt", root) == (
        f"{tmp}/wlink/way/k.txt",
        f"{tmp}/wreal/way/k.txt",
        f"{tmp}/wreal/middle/k.txt",
        f"{tmp}/wreal/keys/k.txt",
    )
    assert names_of("loop", root) == (f"{root}/loop",)


def test_the_gate_reads_a_path_as_the_tools_do(root: Path) -> None:
    (root / "deep").symlink_to("conf/deeper")
    (root / "conf/deeper").mkdir()
    action = Rights(roots=(root,)).action("Read", {"path": "deep/../secret.txt"})
    assert action.path == f"{root}/secret.txt"
    assert "needle in secret.txt" in str(asyncio.run(Workspace(root).read("deep/../secret.txt")))
