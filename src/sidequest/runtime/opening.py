"""Opens regular files without following a link that appears after the path was resolved."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CAN_OPEN_BELOW = os.open in os.supports_dir_fd
"""Whether this system opens files relative to an open folder."""


@contextmanager
def opened(root: str, path: str, flags: int) -> Iterator[int]:
    """Open a regular file below `root` without following any link that appears after it was resolved.

    Others look where a path leads and open it later; a link put there in between would lead outside.

    Raises:
        OSError: it is not there, leads outside `root`, or is no regular file.
    """
    real = os.path.realpath(path)
    if os.path.commonpath([root, real]) != root:
        raise PermissionError(f"{path} leads outside the project root through a link.")
    with opened_resolved(root, real, flags) as descriptor:
        yield descriptor


@contextmanager
def opened_resolved(root: str, real: str, flags: int) -> Iterator[int]:
    """Open the regular file `real` below `root`; both hold no link, and one that they do hold is refused.

    Raises:
        OSError: it is not there, is reached through a link, or is no regular file.
    """
    *folders, name = Path(os.path.relpath(real, root)).parts or (os.curdir,)
    held = [os.open(root, os.O_RDONLY | os.O_DIRECTORY)]
    try:
        for folder in folders:
            held.append(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=held[-1]))
        if name != os.curdir and is_special(Path(real)):
            raise OSError(f"not a regular file: {real!r}")
        # O_NONBLOCK: one that was swapped in since must not make us wait for its other end.
        held.append(os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666, dir_fd=held[-1]))
        mode = os.fstat(held[-1]).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(real)
        if not stat.S_ISREG(mode):
            raise OSError(f"not a regular file: {real!r}")
        yield held[-1]
    finally:
        for descriptor in held:
            os.close(descriptor)


def is_special(path: Path) -> bool:
    """Say whether `path` is a FIFO, socket or device; False when it is not there."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)
