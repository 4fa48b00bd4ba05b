"""Links, followed step by step: every name that a path goes by, and what the paths of deny rules lead to."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sidequest.core.path_rules import literal_part, plain_rules
from sidequest.core.permissions import DenyRules

MAX_LINKS = 40
"""Most links that are followed for one path, inclusive; the system itself follows no more."""


def resolved(path: str, base: Path) -> str:
    """Return what `path` leads to; a relative one starts in `base`.

    `..` takes back the step that is written before it, as the file tools read it: after a link, that is
    another folder than the one above what the link leads to.

    Raises:
        OSError, ValueError: the system refuses the path.
    """
    return os.path.realpath(os.path.normpath(os.path.join(base, path)))  # noqa: PTH118 - a Path keeps ".."


def names_of(path: str, base: Path) -> tuple[str, ...]:
    """Return every name of `path`: as it is written, for each link on its way, and what it leads to.

    All are absolute; `path` is read as by `resolved`. Worked case: with `wlink -> wreal` and
    `wreal/a -> b`, `/x/wlink/a` also is `/x/wreal/a` and `/x/wreal/b`.

    Raises:
        OSError, ValueError: the system refuses the path.
    """
    whole = os.path.normpath(os.path.join(base, path))  # noqa: PTH118
    names = {whole: None}
    reached, ahead, followed = os.sep, _steps(whole), 0
    while ahead:
        step = ahead.pop()
        if step == os.pardir:
            reached = os.path.dirname(reached)  # noqa: PTH120 - text, of which nothing need be there
            continue
        here = os.path.join(reached, step)  # noqa: PTH118
        if followed == MAX_LINKS or not os.path.islink(here):  # noqa: PTH114
            reached = here
            continue
        followed += 1
        names[os.path.normpath(os.path.join(here, *reversed(ahead)))] = None  # noqa: PTH118
        target = os.readlink(here)  # noqa: PTH115
        ahead += _steps(target)
        if os.path.isabs(target):  # noqa: PTH117
            reached = os.sep
    return tuple(names | {os.path.realpath(whole): None})


def _steps(path: str) -> list[str]:
    """Return the steps of a path, the next one last."""
    whole = Path(path)
    return list(reversed(whole.relative_to(whole.anchor).parts))


def with_links_followed(rules: DenyRules, roots: Sequence[Path]) -> DenyRules:
    """Return `rules` that also cover what the path of each path rule leads to, as the links are now.

    `~/` becomes the home folder of the user. What stands in front of the first wildcard is followed; a rule
    that may stand in any folder (`conf/key`, `**/.env`) is looked for at the top of each of `roots`.
    """
    home = str(Path.home()).rstrip("/")
    found: dict[tuple[str, str], None] = {}
    for rule in rules.paths:
        for plain in plain_rules(rule):
            start, rest = literal_part(plain)
            if plain == "~" or plain.startswith("~/"):
                start = f"{home}{start[1:]}"
                found[rule, glob.escape(start) + rest] = None
            places = [start] if start.startswith("/") else [str(root / start) for root in roots if start]
            for name in dict.fromkeys(name for place in places for name in _followed(place)):
                found[rule, glob.escape(name) + rest] = None
    return replace(rules, spellings=tuple(found))


def _followed(place: str) -> tuple[str, ...]:
    """Return what `place` also is because of links in it, none where there are none."""
    try:
        return names_of(place, Path(os.sep))[1:]
    except (OSError, ValueError):  # nothing can be named in this way
        return ()
