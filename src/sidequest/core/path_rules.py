"""Path rules as globs over absolute paths; a rule about a folder covers its files.

A rule is brought into one form first: without `.`, `..` and doubled slashes, one rule for each choice in
braces, and everything in one Unicode form without case. What would match nothing is refused.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from fnmatch import fnmatchcase, translate
from functools import lru_cache

MAX_CHOICES = 64
"""Most rules that the braces of one rule stand for, inclusive."""
_WILDCARD = re.compile(r"[*?\[]")
_CHOICE = re.compile(r"(?<!\[)\{([^{}\[\]]*,[^{}\[\]]*)\}")
_NO_CHOICE = re.compile(r"\{[^}]*(?:,|\.\.)|,[^{]*\}")
_VARIABLE = re.compile(r"\$[A-Za-z_{(]")


def folded(text: str) -> str:
    """Return `text` as names are compared: without case, composed (Unicode form NFC)."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).casefold())


@lru_cache(maxsize=2048)
def plain_rules(rule: str) -> tuple[str, ...]:
    """Return the plain rules that `rule` stands for: `*.{env,pem}` is `*.env` and `*.pem`.

    Each begins with `/`, with `~/`, or with a name that may stand in any folder.

    Raises:
        ValueError: the rule would match nothing; the text says why, as the end of a sentence.
    """
    text = rule.strip()
    if "\\" in text:
        raise ValueError("holds a backslash; folders are separated by /")
    if _VARIABLE.search(text):
        raise ValueError("holds a variable, which is not looked up")
    if text.startswith("!"):
        raise ValueError("begins with !; no rule takes another one back")
    return tuple(dict.fromkeys(_plain(choice) for choice in _choices(text)))


def _choices(text: str) -> list[str]:
    found, done = [text], list[str]()
    while found:
        one = found.pop()
        braces = _CHOICE.search(one)
        if braces is None:
            done.append(one)
        else:
            rest = one[: braces.start()], one[braces.end() :]
            found += [f"{rest[0]}{choice}{rest[1]}" for choice in reversed(braces[1].split(","))]
        if len(found) + len(done) > MAX_CHOICES:
            raise ValueError(f"stands for more than {MAX_CHOICES} rules")
    if any(_NO_CHOICE.search(one.replace("[{]", "").replace("[}]", "")) for one in done):
        raise ValueError("has braces that do not read as choices, like {a,b}")
    return done


def _plain(text: str) -> str:
    steps: list[str] = []
    first = text.split("/", 1)[0]
    if first.startswith("~") and first != "~":
        raise ValueError("begins with the home folder of somebody by name, which is not looked up")
    for step in text.split("/"):
        if step == "..":
            above = steps[-1] if steps else ("" if text.startswith("/") else "..")
            if above in ("..", "~", "**") or _WILDCARD.search(above):
                raise ValueError("leads with .. to a folder that cannot be told")
            steps = steps[:-1]
        elif step not in ("", "."):
            steps.append(step)
    if not steps and not text.startswith("/"):
        raise ValueError("names nothing")
    return ("/" if text.startswith("/") else "") + "/".join(steps)


def literal_part(plain: str) -> tuple[str, str]:
    """Return what a plain rule names in front of its first wildcard, and the rest, which begins with `/`.

    Worked case: `/w/link/*.pem` gives `/w/link` and `/*.pem`, `**/.env` gives `.env` and nothing, `*.pem`
    gives nothing and `/*.pem`.
    """
    steps = _without_any_folder(plain).split("/")
    number = next((n for n, step in enumerate(steps) if _WILDCARD.search(step)), len(steps))
    start = "/".join(steps[:number])
    return start or ("/" if plain == "/" else ""), "".join(f"/{step}" for step in steps[number:])


def _without_any_folder(plain: str) -> str:
    return re.sub(r"^/?(?:\*\*/)+", "", plain)


def _path_globs(plain: str) -> list[str]:
    """Return `fnmatch` patterns of absolute paths for a plain rule; `**/` also means no folder."""
    glob = folded(plain)
    anchored = glob.startswith("/") and not glob.startswith("/**/")
    glob = _without_any_folder(glob).removeprefix("~/")
    globs = [glob if anchored else f"*/{glob}"]
    return [*globs, *(re.sub(r"/(?:\*\*/)+", "/", each) for each in globs if "/**/" in each)]


def plain_matches(path: str, plain: str) -> bool:
    """Say whether a plain rule covers the absolute `path` or a folder that it is in."""
    return _pattern(plain).match(folded(path)) is not None


@lru_cache(maxsize=2048)
def _pattern(plain: str) -> re.Pattern[str]:
    globs = [each for glob in _path_globs(plain) for each in (glob, f"{glob.rstrip('/')}/*")]
    return re.compile("|".join(map(translate, globs)))


def denied_below(rules: Iterable[str], root: str) -> tuple[str, ...]:
    """Return plain rules as patterns of paths relative to the folder `root`, for tools that match those.

    Such a tool compares names as they are stored, so a pattern with signs that are composed of others is
    given decomposed as well. Worked case: below `/w/app`, `/w/*/keys` becomes `*/keys` and `keys`; `/w`
    becomes `*`, everything.
    """
    folder = folded(root).rstrip("/")
    found: dict[str, None] = {}
    for rule in rules:
        if plain_matches(folder, rule):
            found["*"] = None
        for glob in _path_globs(rule):
            for rest in _rest_of_glob(glob, f"{folder}/"):
                if not rest.startswith("/"):  # no relative path does
                    found.update({rest: None, unicodedata.normalize("NFD", rest): None})
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
