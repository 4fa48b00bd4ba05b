"""Paths as a person would write them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Shortener:
    """Folders that are shortened on screens: the one worked in, and the user's home."""

    root: Path
    home: Path

    def short(self, path: str | None) -> str:
        """Return `path` as a person would write it here; `in code` for None."""
        if path is None:
            return "in code"
        for base, sign in ((self.root, ""), (self.home, "~/")):
            if Path(path).is_relative_to(base):
                return sign + str(Path(path).relative_to(base))
        return path

    @classmethod
    def of_process(cls) -> Shortener:
        """Return the one for the current folder and the user who works in it."""
        return cls(Path.cwd(), Path.home())

    def folder(self, path: str | None) -> str:
        """Return the folder a session works in, in words where there are any: `this folder`, `~/src`."""
        if path is None:
            return "no folder"
        if Path(path) == self.root:
            return "this folder"
        if not Path(path).is_relative_to(self.home):
            return path
        below = Path(path).relative_to(self.home)
        return f"~/{below}" if below.parts else "~"
