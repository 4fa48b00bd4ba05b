"""`sidequest trust`: whose definitions and AGENTS.md are used."""

from __future__ import annotations

import os
from pathlib import Path

from sidequest.subagents.trust import TrustFile, project_files
from sidequest.surfaces.assemble import existing_folder
from sidequest.surfaces.cli.errors import Exit
from sidequest.surfaces.cli.jsonlines import print_json
from sidequest.surfaces.cli.screen import Screen, put
from sidequest.surfaces.text import one_line


def trust_folder(folder: Path, *, as_json: bool) -> int:
    """Trust a folder as it is now, say which files that is about, and return the exit code.

    Raises:
        SidequestError: the folder is not there, or the decisions cannot be read.
    """
    root = existing_folder(folder, "sidequest trust")
    files = [str(path.relative_to(root)) for path in project_files(root)]
    TrustFile.of(os.environ).trust(root)
    if as_json:
        print_json({"folder": str(root), "trusted": True, "files": files})
        return Exit.DONE
    screen = Screen.of_process()
    put(screen.out, f"trusted as it is now: {one_line(str(root))}", "green")
    for name in files:
        put(screen.out, f"  {one_line(name)}")
    if not files:
        put(screen.out, "  there are no definitions and no AGENTS.md in it yet; new ones end the trust")
    return Exit.DONE


def forget_folder(folder: Path, *, as_json: bool) -> int:
    """Trust a folder, which need not exist any more, no longer; the exit code is 1 when it was not trusted.

    Raises:
        SidequestError: the decisions cannot be read.
    """
    root = folder.expanduser().absolute()
    was = TrustFile.of(os.environ).forget(root)
    if as_json:
        print_json({"folder": str(root), "trusted": False, "was": was})
    else:
        said = "trusted no longer" if was else "was not trusted"
        put(Screen.of_process().out, f"{said}: {one_line(str(root))}")
    return Exit.DONE if was else Exit.FAILED


def list_trusted(*, as_json: bool) -> int:
    """Print the folders that are trusted, and which of them have changed since; return the exit code.

    Raises:
        SidequestError: the decisions cannot be read.
    """
    file = TrustFile.of(os.environ)
    rows = [(folder, file.trusts(Path(folder))) for folder in file.entries()]
    if as_json:
        print_json({"folders": [{"folder": folder, "trusted": trusted} for folder, trusted in rows]})
        return Exit.DONE
    screen = Screen.of_process()
    for folder, trusted in rows:
        put(screen.out, one_line(folder) + ("" if trusted else "  (changed since, so not trusted)"))
    if not rows:
        put(screen.err, "you trust no folder", "dim")
    return Exit.DONE
