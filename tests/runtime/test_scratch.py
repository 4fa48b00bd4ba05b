"""The scratch folder goes with its session, whatever lies in it; nothing beside it is touched."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sidequest import Session
from sidequest.core.errors import SidequestError
from sidequest.runtime.scratch import make_scratch, remove_scratch
from tests.support.processes import ends


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    return tmp_path / "temporary"


def test_only_its_user_may_enter_it() -> None:
    assert make_scratch().stat().st_mode & 0o777 == 0o700


def test_folders_that_were_made_read_only_go_too(temporary: Path) -> None:
    scratch = make_scratch()
    (scratch / "cache" / "package").mkdir(parents=True)
    (scratch / "cache" / "package" / "file").write_text("x")
    for folder in (scratch / "cache" / "package", scratch / "cache"):
        folder.chmod(0o500)
    remove_scratch(scratch)
    assert list(temporary.iterdir()) == []


def test_what_a_link_leads_to_stays(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("x")
    scratch = make_scratch()
    (scratch / "door").symlink_to(tmp_path)
    remove_scratch(scratch)
    assert (tmp_path / "kept").read_text() == "x"


def test_one_that_is_gone_changes_nothing_around_it(temporary: Path) -> None:
    temporary.chmod(0o755)
    remove_scratch(temporary / "sidequest-gone")
    assert temporary.stat().st_mode & 0o777 == 0o755


def test_a_session_that_cannot_open_leaves_none(tmp_path: Path, temporary: Path) -> None:
    with pytest.raises(SidequestError):
        Session.open(tmp_path / "nowhere", model="offline/extractive")
    assert list(temporary.iterdir()) == []


def test_a_close_that_is_interrupted_leaves_neither_folder_nor_command(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def interrupted() -> None:
        raise asyncio.CancelledError

    async def case() -> None:
        session = Session.open(tmp_path, model="offline/extractive")
        await session.workspace.bash("sleep 4979 >/dev/null 2>&1 & echo $! > pid")
        monkeypatch.setattr(session, "stop", interrupted)
        with pytest.raises(asyncio.CancelledError):
            await session.close()

    asyncio.run(case())
    assert list(temporary.iterdir()) == []
    assert ends(int((tmp_path / "pid").read_text()))
