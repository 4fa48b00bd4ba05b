"""Which folders a user trusts: their definitions are on and their AGENTS.md is followed.

Trust is bound to what the files say: a changed, new or removed file ends it until the user looks again. A
document never runs anything by being loaded; trust decides whether its text reaches a model.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.subagents.project_snapshot import ProjectSnapshot
from sidequest.subagents.user_files import data_folder


def project_files(root: Path) -> list[Path]:
    """Return the files of a project that trust is about: instructions and definitions in known folders."""
    return ProjectSnapshot.take(root).files


def fingerprint(root: Path) -> str:
    """Return a hash of the names and contents of all files that trust is about, as they are now."""
    return ProjectSnapshot.take(root).fingerprint


@dataclass(frozen=True, slots=True)
class TrustFile:
    """The user's decisions, in one JSON file; a missing file trusts nothing."""

    path: Path

    @classmethod
    def of(cls, env: Mapping[str, str]) -> TrustFile:
        """Return the file below `$XDG_DATA_HOME/sidequest`, else `~/.local/share/sidequest`."""
        return cls(data_folder(env) / "trust.json")

    def entries(self) -> dict[str, str]:
        """Return trusted folders with the fingerprint they were trusted with.

        Raises:
            SidequestError: `SETTINGS_INVALID` when the file cannot be read; nothing is trusted then.
        """
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise SidequestError(
                ErrorCode.SETTINGS_INVALID,
                f"{self.path} cannot be read: {error}.",
                "Remove it and trust your folders again.",
            ) from error
        if not isinstance(found, dict):
            return {}
        return {str(folder): str(mark) for folder, mark in found.items()}

    def mark(self, root: Path) -> str | None:
        """Return the fingerprint `root` was trusted with, None when it never was."""
        return self.entries().get(_key(root))

    def trusts(self, root: Path) -> bool:
        """Say whether `root` is trusted as it is now."""
        return self.entries().get(_key(root)) == fingerprint(root)

    def changed(self, root: Path) -> bool:
        """Say whether `root` was trusted and its files have changed since."""
        known = self.entries().get(_key(root))
        return known is not None and known != fingerprint(root)

    def trust(self, root: Path) -> None:
        """Trust `root` as it is now."""
        self._write({**self.entries(), _key(root): fingerprint(root)})

    def forget(self, root: Path) -> bool:
        """Trust `root` no longer; return whether it was trusted."""
        known = self.entries()
        was = known.pop(_key(root), None) is not None
        if was:
            self._write(known)
        return was

    def _write(self, entries: Mapping[str, str]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix="trust-")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(dict(sorted(entries.items())), file, indent=2)
        Path(name).replace(self.path)


def _key(root: Path) -> str:
    return os.path.realpath(root)
