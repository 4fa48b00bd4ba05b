"""Path rules as globs over absolute paths; a rule about a folder covers its files."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase


def _path_globs(rule: str) -> list[str]:
    """Return `fnmatch` patterns of absolute paths for a rule, in lower case; `**/` also means no folder."""
    glob = rule.strip().casefold().removeprefix("./").rstrip("/") or "/"
    anchored = glob.startswith("/") and not glob.startswith("/**/")
    glob = re.sub(r"^(?:~/|/?(?:\*\*/)+)", "", glob)
    globs = [glob if anchored else f"*/{glob}"]
    return [*globs, *(re.sub(r"/(?:\*\*/)+", "/", each) for each in globs if "/**/" in each)]


def _with_parents(path: str) -> Iterable[str]:
    yield from (path[: found.start()] for found in re.finditer("/", path) if found.start())
    yield path


def path_matches(path: str, rule: str) -> bool:
    """Say whether `rule` covers the absolute `path` or a folder that it is in, in any case."""
    paths = list(_with_parents(path.casefold()))
    return any(fnmatchcase(each, glob) for glob in _path_globs(rule) for each in paths)


def denied_below(rules: Iterable[str], root: str) -> tuple[str, ...]:
    """Return path rules as patterns of paths relative to the folder `root`, for tools that match those.

    Worked case: below `/w/app`, `/w/*/keys` becomes `*/keys` and `keys`; `/w` becomes `*`, everything.
    """
    folder = root.casefold().rstrip("/")
    found: dict[str, None] = {}
    for rule in rules:
        if path_matches(folder, rule):
            found["*"] = None
        for glob in _path_globs(rule):
            found.update(dict.fromkeys(_rest_of_glob(glob, f"{folder}/")))
    return tuple(found)


def _rest_of_glob(glob: str, prefix: str) -> list[str]:
    """Return what `glob` still asks of a path once `prefix` is read: none, one or several patterns."""
    tokens = re.findall(r"\[!?\]?[^\]]*\]|.", glob, re.DOTALL)

    def skipping(positions: Iterable[int]) -> set[int]:
        reached: set[int] = set()
        for position in positions:
            reached.add(position)
            while position < len(tokens) and tokens[position] == "*":
                position += 1
                reached.add(position)
        return reached

    at = skipping({0})
    for character in prefix:
        at = skipping(
            position if tokens[position] == "*" else position + 1
            for position in at
            if position < len(tokens) and fnmatchcase(character, tokens[position])
        )
    return ["".join(tokens[position:]) for position in sorted(at) if position < len(tokens)]
