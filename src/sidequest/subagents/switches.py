"""Which subagents the user switched off: one JSON file, read wherever a catalog is made."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.subagents.user_files import FILE_MODE, FOLDER_MODE, data_folder, write_whole


@dataclass(frozen=True, slots=True)
class SwitchFile:
    """The switched-off entries by key, such as `builtin:explorer`; a missing file switches nothing off."""

    path: Path

    @classmethod
    def of(cls, env: Mapping[str, str]) -> SwitchFile:
        """Return the file in the user's data folder."""
        return cls(data_folder(env) / "subagents.json")

    def disabled(self) -> frozenset[str]:
        """Return the keys of entries that are off; see `Entry.key`.

        Raises:
            SidequestError: `SETTINGS_INVALID` when the file cannot be read, because going on would switch
                on what was switched off.
        """
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return frozenset()
        except (OSError, ValueError) as error:
            raise self._unreadable(str(error)) from error
        keys = found.get("disabled") if isinstance(found, dict) else None
        if not isinstance(keys, list):
            raise self._unreadable("it holds no list of disabled subagents")
        return frozenset(map(str, keys))

    def switch(self, key: str, *, on: bool) -> None:
        """Switch one entry on or off.

        Raises:
            SidequestError: `SETTINGS_INVALID` when the file cannot be read or written.
        """
        known = self.disabled()
        wanted = known - {key} if on else known | {key}
        if wanted != known:
            self._write(wanted)

    def rename(self, old: str, new: str | None) -> None:
        """Carry the switch of a definition over to its new key; None: the definition is gone.

        Raises:
            SidequestError: as `switch`.
        """
        known = self.disabled()
        if old in known:
            self._write((known - {old}) | ({new} if new else set()))

    def _write(self, keys: Iterable[str]) -> None:
        text = json.dumps({"disabled": sorted(keys)}, indent=2) + "\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
            write_whole(self.path, text.encode(), mode=FILE_MODE)
        except OSError as error:
            raise SidequestError(
                ErrorCode.SETTINGS_INVALID,
                f"{self.path} cannot be written: {error.strerror}.",
                "Check the folder and its permissions.",
            ) from error

    def _unreadable(self, reason: str) -> SidequestError:
        return SidequestError(
            ErrorCode.SETTINGS_INVALID,
            f"{self.path} cannot be read: {reason}.",
            "Correct or remove it; without it every subagent is on.",
        )
