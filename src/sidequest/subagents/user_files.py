"""Small files of the user: where they lie, and how one is written so that it is never half there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

FOLDER_MODE, FILE_MODE = 0o700, 0o600
"""Of what is nobody's business but the owner's."""
NEW_FILE_MODE = 0o644


def data_folder(env: Mapping[str, str]) -> Path:
    """Return `$XDG_DATA_HOME/sidequest`, else `~/.local/share/sidequest`; a relative variable is ignored."""
    home = env.get("XDG_DATA_HOME")
    data = Path(home) if home and Path(home).is_absolute() else Path("~/.local/share").expanduser()
    return data / "sidequest"


def write_whole(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Write `data` to `path`: afterwards the old file or the new one is there, also when the power fails.

    A link is followed, so that the file it names is written and the link stays. `mode` None keeps the rights
    of the file; a new one can be read by everybody. Folders above it are made.

    Raises:
        OSError: it cannot be written; the old file is untouched.
    """
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".", suffix=".tmp")
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), _mode_of(target) if mode is None else mode)
            os.fsync(file.fileno())
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def _mode_of(path: Path) -> int:
    try:
        return path.stat().st_mode & 0o777
    except FileNotFoundError:
        return NEW_FILE_MODE


def _sync_folder(folder: Path) -> None:
    """Make the new name durable, where the file system can do that; the file itself is written."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
