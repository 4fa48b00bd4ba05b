"""The scratch folder of a session: made when it opens, gone when it closes, whatever commands put there."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any


def make_scratch() -> Path:
    """Make a folder that only this user may enter, among the temporary files of the system."""
    return Path(tempfile.mkdtemp(prefix="sidequest-"))


def remove_scratch(folder: Path) -> None:
    """Remove `folder` with all that is in it; what cannot be removed stays, and nothing is raised.

    Folders that were made read-only, as caches of packages are, are made writable for it.
    """

    def unlock(found: Path) -> None:
        # Never a folder above: its rights are not ours to change.
        if found.is_relative_to(folder) and found.is_dir() and not found.is_symlink():
            found.chmod(0o700)

    def again(remove: Callable[..., Any], path: str, error: object) -> None:
        with suppress(OSError):
            found = Path(path)
            unlock(found.parent)
            unlock(found)
            if remove in (os.unlink, os.rmdir):
                remove(path)
            elif found.is_relative_to(folder) and found.is_dir() and not found.is_symlink():
                shutil.rmtree(path, ignore_errors=True)

    if sys.version_info >= (3, 12):
        shutil.rmtree(folder, onexc=again)
    else:
        shutil.rmtree(folder, onerror=again)
