"""What a git repository runs by itself: where it lies, so that a command in a sandbox cannot write it.

Hooks and configuration of a repository are run by the user's next `git commit`, outside of the sandbox. Not
covered are a repository that a command makes, also in the place of one below the workspace that it moves
away; one that lies deeper or later than the search goes; a `.git` or `hooks` that is a link and is replaced;
and hooks that a project keeps among its own files (`core.hooksPath`).
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MAX_DEPTH = 3
"""How deep below the workspace repositories are looked for."""
MAX_ENTRIES = 5_000
"""After how many names the search for them ends; it is made before each command."""
_NEVER_SEARCHED = frozenset({"node_modules", "venv", "__pycache__", "site-packages"})


@dataclass(frozen=True, slots=True)
class Guard:
    """What of the repositories in a workspace a command may not change."""

    pinned: tuple[str, ...] = ()
    """Folders that stay where they are and may be written: what lies in them cannot be swapped with them."""
    read_only: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    """Files that are not there and must not come to be: they would lead git to other hooks and settings."""

    @property
    def mounts(self) -> list[str]:
        """The arguments for bubblewrap; folders come before what lies in them."""
        binds = dict.fromkeys(self.pinned, "--bind-try") | dict.fromkeys(self.read_only, "--ro-bind-try")
        return [arg for path in sorted(binds) for arg in (binds[path], path, path)]

    def restore(self) -> list[str]:
        """Remove what has come to be that must not, and return it."""
        removed: list[str] = []
        for path in self.absent:
            with suppress(OSError):
                os.unlink(path)  # noqa: PTH108 - text, as the mounts are
                removed.append(path)
        return removed


def guard_of(root: Path) -> Guard:
    """Return what to guard in the repositories at `root` and below it; an absent `hooks` folder is made."""
    pinned, read_only, absent = set[str](), set[str](), set[str]()
    for marker in _markers(root):
        if marker.is_file():  # the working folder of a submodule or of a worktree: it names the real one
            read_only.add(str(marker))
            continue
        pinned.add(str(marker))
        for home in (marker, *_homes_of_submodules(marker)):
            pinned |= {str(folder) for folder in (home, *home.parents) if marker in folder.parents}
            hooks = home / "hooks"
            with suppress(OSError):
                hooks.mkdir(exist_ok=True)
            own = (hooks, home / "config", home / "config.worktree")
            # Not a link: mounting there would change another place, and it could be replaced all the same.
            read_only |= {str(path) for path in own if path.exists() and not path.is_symlink()}
            others = (home / "commondir", home / "config.worktree")
            absent |= {str(path) for path in others if not os.path.lexists(path)}
    return Guard(tuple(pinned), tuple(read_only), tuple(absent))


def _markers(root: Path) -> Iterator[Path]:
    """Give each `.git` at `root` and in the folders below it, as far as the search goes."""
    waiting, seen = deque([(root, 0)]), 0
    while waiting and seen < MAX_ENTRIES:
        folder, depth = waiting.popleft()
        entries = _entries(folder)
        seen += len(entries)
        for entry in entries:
            if entry.name == ".git":
                marker = Path(entry.path)
                is_home = entry.is_dir(follow_symlinks=False) and (marker / "HEAD").is_file()
                if is_home or entry.is_file(follow_symlinks=False):
                    yield marker
            elif depth < MAX_DEPTH and entry.is_dir(follow_symlinks=False) and _is_searched(entry.name):
                waiting.append((Path(entry.path), depth + 1))


def _is_searched(name: str) -> bool:
    return not name.startswith(".") and name not in _NEVER_SEARCHED


def _homes_of_submodules(marker: Path) -> Iterator[Path]:
    """Give what stands for `.git` of each submodule of the repository `marker`."""
    waiting, seen = deque([(marker / "modules", 0)]), 0
    while waiting and seen < MAX_ENTRIES:
        folder, depth = waiting.popleft()
        seen += 1
        if (folder / "HEAD").is_file():
            yield folder
            waiting.append((folder / "modules", depth + 1))
        elif depth <= MAX_DEPTH:
            waiting.extend(
                (Path(entry.path), depth + 1)
                for entry in _entries(folder)
                if entry.is_dir(follow_symlinks=False)
            )


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []
