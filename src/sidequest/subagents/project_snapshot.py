"""What the files of a project say that trust is about, read once: what is judged is what is loaded."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from sidequest.subagents.definition import Scope
from sidequest.subagents.diagnostics import Diagnostic
from sidequest.subagents.regular_files import beginning_inside
from sidequest.subagents.sources import RawFile, Source, read_source, standard_sources

INSTRUCTION_FILES = ("AGENTS.md", "CLAUDE.md")
"""Files with instructions for every agent in a project; the first that says something counts."""
MAX_PROJECT_INSTRUCTIONS_BYTES = 32 * 1024
"""Most bytes of project instructions that are used, inclusive (specification 3.8)."""
_OF_A_PROJECT = frozenset({Scope.PROJECT, Scope.FOREIGN})


def read_instructions(root: Path) -> dict[str, bytes]:
    """Return the contents of the instruction files in `root` by name: what is used, and one byte more.

    Only a regular file inside `root` is read, links resolved; any other, and one that cannot be read, counts
    as missing. The byte more says that the file is longer than what is used.
    """
    found: dict[str, bytes] = {}
    for name in INSTRUCTION_FILES:
        try:
            found[name] = beginning_inside(root / name, root, MAX_PROJECT_INSTRUCTIONS_BYTES + 1)
        except OSError:
            continue
    return found


@dataclass(frozen=True)
class ProjectSnapshot:
    """Instructions and definitions of a project as they were when they were read."""

    root: Path
    instructions: Mapping[str, bytes]
    """What `read_instructions` gave."""
    folders: Mapping[Path, tuple[tuple[RawFile, ...], tuple[Diagnostic, ...]]]
    """What `read_source` gave for each of the known folders."""

    @classmethod
    def take(cls, root: Path) -> ProjectSnapshot:
        """Read the project `root`; never raises because of a file."""
        folders: dict[Path, tuple[tuple[RawFile, ...], tuple[Diagnostic, ...]]] = {}
        for source in standard_sources(root / ".none", root):
            if source.scope in _OF_A_PROJECT:
                files, remarks = read_source(source)
                folders[source.folder] = (tuple(files), tuple(remarks))
        return cls(root, read_instructions(root), folders)

    @property
    def files(self) -> list[Path]:
        """The files that trust is about: instructions first, then definitions as they are read."""
        definitions = [Path(raw.path) for files, _ in self.folders.values() for raw in files]
        return [*(self.root / name for name in self.instructions), *definitions]

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the names of all these files and of everything that would be loaded of them."""
        digest = hashlib.sha256()
        for path, data in self._contents():
            name = str(path.relative_to(self.root)).encode("utf-8", "surrogateescape")
            said = b"unread" if data is None else b"%d" % len(data)
            digest.update(b"%d:%s:%s:" % (len(name), name, said) + hashlib.sha256(data or b"").digest())
        return digest.hexdigest()

    def _contents(self) -> Iterable[tuple[Path, bytes | None]]:
        yield from ((self.root / name, data) for name, data in self.instructions.items())
        yield from ((Path(raw.path), raw.data) for files, _ in self.folders.values() for raw in files)

    def applied(self, sources: Iterable[Source]) -> tuple[Source, ...]:
        """Return `sources` so that those of this project give what was read here, whatever the disk says."""
        return tuple(
            replace(source, read=self.folders[source.folder])
            if source.scope in _OF_A_PROJECT and source.folder in self.folders
            else source
            for source in sources
        )
