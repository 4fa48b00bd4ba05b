"""Reads the beginning of a regular file; never waits for a FIFO or a device, and never reads a whole disk."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def beginning_of(path: Path, most: int) -> bytes:
    """Return the first bytes of the regular file `path`, at most `most`.

    Raises:
        OSError: it is not there, cannot be read, or is no regular file.
    """
    # O_NONBLOCK: opening a FIFO must not wait for somebody who writes.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is not a regular file")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(most)
    finally:
        os.close(descriptor)


def beginning_inside(path: Path, folder: Path, most: int) -> bytes:
    """Return the same of a file that lies in `folder` with every link resolved.

    Raises:
        OSError: as `beginning_of`, or it leads out of `folder`.
    """
    try:
        real = path.resolve(strict=True)
    except RuntimeError as error:  # Python 3.12 and older say so of a loop of links
        raise OSError(f"{path} leads nowhere") from error
    if not real.is_relative_to(folder.resolve()):
        raise PermissionError(f"{path} leads out of {folder}")
    return beginning_of(real, most)
