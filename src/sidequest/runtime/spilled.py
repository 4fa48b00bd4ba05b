"""Whole tool results that were cut: files in the scratch folder, those of earlier processes from the store.

A cut result names the file by its path. That folder goes with its process, the name stays in the
conversation: in a later process the same path leads to a file that is written anew from what was stored.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import shutil
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

Load = Callable[[str], Awaitable[str | None]]
"""Gives the whole result of a path, or None when there is none."""

_GIANT_LINE = re.compile(r"[^\n]{4000}(?=[^\n])")


@dataclass
class Spilled:
    """The whole results of a session."""

    scratch: Path | None
    """Where they are written; None means nowhere."""
    root: Path
    """What relative paths start at."""
    keep: Callable[[str, str], None] = field(default=lambda path, text: None)
    """Told path and text of each result that is written, to be stored ahead of what names it."""
    load: Load | None = None
    """Reads those of earlier processes; None means that their files are there already."""
    own: list[str] = field(default_factory=list, init=False)
    """Paths of those that were written here, oldest first."""
    earlier: list[str] = field(default_factory=list, init=False)
    """Paths in scratch folders that were others' before."""

    def write(self, name: str, text: str) -> str | None:
        """Write a whole result and return its path, or None when it cannot be.

        No earlier result is overwritten: local servers number their calls afresh at each turn, and siblings
        share the folder. Giant lines are broken, so that Read can give slices of them.
        """
        if self.scratch is None:
            return None
        safe = "".join(c if c.isalnum() or c in "-_" else "-" for c in name)[:80]
        for number in itertools.count(1):
            path = self.scratch / (f"{safe}.txt" if number == 1 else f"{safe}-{number}.txt")
            try:
                _write(path, text)
            except FileExistsError:
                continue
            except OSError:
                return None
            self.own.append(str(path))
            self.keep(str(path), text)
            return str(path)
        return None

    def expect(self, paths: Iterable[str], load: Load) -> None:
        """Let `paths`, which a stored conversation names, lead to what `load` gives."""
        self.earlier = [path for path in paths if path not in self.own]
        self.load = load

    def copy_from(self, other: Spilled) -> None:
        """Take over the results of the session that this one was forked from."""
        self.earlier, self.load = [*other.earlier, *other.own], other.load
        for path in self.earlier:
            there, here = other.here(path), self.here(path)
            if here != path and os.path.exists(there):  # noqa: PTH110 - paths are texts in a conversation
                Path(here).parent.mkdir(mode=0o700, exist_ok=True)
                shutil.copyfile(there, here)

    def here(self, path: str) -> str:
        """Return where `path` is now: in this scratch folder for one of an earlier process, else as it is."""
        if self.scratch is None or not self.earlier:
            return path
        try:
            asked = Path(os.path.normpath(self.root / path))
        except (OSError, ValueError):
            return path
        if asked.is_relative_to(self.scratch):
            return path
        for known in map(Path, self.earlier):
            if asked in (known, known.parent):
                return str(self.scratch / known.parent.name / asked.relative_to(known.parent))
        return path

    async def fetch(self, path: str) -> str:
        """Return where `path` is now, and put there what is stored of it.

        Raises:
            SidequestError: the store failed.
        """
        here = self.here(path)
        if here != path and self.load is not None:
            for known in self.earlier:
                target = Path(self.here(known))
                if not target.is_relative_to(here) or await asyncio.to_thread(target.exists):
                    continue
                text = await self.load(known)
                if text is not None:
                    await asyncio.to_thread(_put, target, text)
        return here

    async def whole(self) -> list[tuple[str, str]]:
        """Return path and text of every result whose file is here, for a store that has none of them."""
        every = [*self.earlier, *self.own]
        found = [(path, await asyncio.to_thread(_read, Path(self.here(path)))) for path in every]
        return [(path, text) for path, text in found if text is not None]


def _write(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8", errors="replace") as file:
        file.write(_GIANT_LINE.sub(r"\g<0>\n", text))


def _put(path: Path, text: str) -> None:
    """Write a file whole; who reads it meanwhile finds all of it or nothing."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.urandom(4).hex()}")
    _write(unfinished, text)
    unfinished.replace(path)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
