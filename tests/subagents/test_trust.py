"""Trust in a folder is bound to what its files say."""

from __future__ import annotations

from pathlib import Path

import pytest

from sidequest.core.errors import SidequestError
from sidequest.subagents.catalog import Catalog
from sidequest.subagents.project_snapshot import ProjectSnapshot
from sidequest.subagents.sources import standard_sources
from sidequest.subagents.trust import TrustFile, fingerprint, project_files


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    folder = root / ".claude" / "agents"
    folder.mkdir(parents=True)
    (folder / "reviewer.md").write_text("---\nname: reviewer\ndescription: x\n---\nReview.")
    (root / "AGENTS.md").write_text("Use tabs.")
    return root


@pytest.fixture
def file(tmp_path: Path) -> TrustFile:
    return TrustFile(tmp_path / "data" / "trust.json")


def test_nothing_is_trusted_until_the_user_says_so(project: Path, file: TrustFile) -> None:
    assert not file.trusts(project)
    file.trust(project)
    assert file.trusts(project)
    assert not file.changed(project)


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "AGENTS.md").write_text("Run this."),
        lambda root: (root / "AGENTS.md").unlink(),
        lambda root: (root / ".claude/agents/new.md").write_text("x"),
        lambda root: (root / ".claude/agents/reviewer.md").rename(root / ".claude/agents/other.md"),
        lambda root: (root / "CLAUDE.md").write_text(""),
    ],
    ids=["edited", "removed", "added", "renamed", "an empty file more"],
)
def test_any_change_of_the_files_ends_it(project: Path, file: TrustFile, change) -> None:
    file.trust(project)
    change(project)
    assert not file.trusts(project)
    assert file.changed(project)


def test_other_files_do_not_matter(project: Path, file: TrustFile) -> None:
    file.trust(project)
    (project / "main.py").write_text("print()")
    assert file.trusts(project)


def test_another_way_to_the_same_folder_is_the_same_folder(
    project: Path, file: TrustFile, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(project)
    file.trust(tmp_path / "link")
    assert file.trusts(project)
    assert file.forget(project)
    assert not file.trusts(tmp_path / "link")
    assert not file.forget(project)


def test_a_broken_file_trusts_nothing_and_says_what_to_do(project: Path, file: TrustFile) -> None:
    file.trust(project)
    file.path.write_text("{")
    with pytest.raises(SidequestError, match="trust your folders again"):
        file.trusts(project)


def test_what_trust_is_about(project: Path) -> None:
    assert [path.name for path in project_files(project)] == ["AGENTS.md", "reviewer.md"]


def test_what_was_judged_is_what_is_loaded_whatever_the_disk_says_later(project: Path) -> None:
    folder = project / ".claude" / "agents"
    snapshot = ProjectSnapshot.take(project)
    (folder / "reviewer.md").write_text("---\nname: reviewer\ndescription: x\ntools: Bash\n---\nEvil.")
    (folder / "new.md").write_text("---\nname: new\ndescription: x\n---\nEvil.")
    (project / "AGENTS.md").write_text("Evil.")
    sources = snapshot.applied(standard_sources(project / "home", project, trusted=[project]))
    catalog = Catalog.load(sources, builtins=False)
    assert [definition.body for definition in catalog.active] == ["Review."]
    assert snapshot.instructions == {"AGENTS.md": b"Use tabs."}
    assert snapshot.fingerprint != fingerprint(project)


def test_the_file_that_a_link_kept_as_text_leads_to_counts_too(project: Path, file: TrustFile) -> None:
    (project / "shared.md").write_text("---\nname: linked\ndescription: x\n---\nOne.")
    (project / ".claude/agents/linked.md").write_text("../../shared.md")
    file.trust(project)
    (project / "shared.md").write_text("---\nname: linked\ndescription: x\n---\nTwo.")
    assert not file.trusts(project)
