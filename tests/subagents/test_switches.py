"""What the user switched off stays off, wherever a catalog is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.subagents.switches import SwitchFile


@pytest.fixture
def switches(tmp_path: Path) -> SwitchFile:
    return SwitchFile.of({"XDG_DATA_HOME": str(tmp_path)})


def test_without_a_file_everything_is_on(switches: SwitchFile):
    assert switches.disabled() == frozenset()


def test_off_and_on_again(switches: SwitchFile):
    switches.switch("builtin:fixer", on=False)
    switches.switch("user:tides", on=False)
    switches.switch("builtin:fixer", on=True)
    assert switches.disabled() == {"user:tides"}
    assert switches.path.stat().st_mode & 0o777 == 0o600


def test_a_switch_follows_a_new_name_and_goes_with_the_file(switches: SwitchFile):
    switches.switch("user:tides", on=False)
    switches.rename("user:tides", "user:ebb")
    assert switches.disabled() == {"user:ebb"}
    switches.rename("user:ebb", None)
    assert switches.disabled() == frozenset()


@pytest.mark.parametrize("text", ["{", "[]", '{"disabled": 1}'])
def test_a_damaged_file_is_an_error_because_nothing_may_be_switched_on_by_it(switches: SwitchFile, text: str):
    switches.path.parent.mkdir(parents=True)
    switches.path.write_text(text)
    with pytest.raises(SidequestError, match="cannot be read") as refused:
        switches.disabled()
    assert refused.value.code is ErrorCode.SETTINGS_INVALID
