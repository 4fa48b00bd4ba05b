"""Shell commands as texts: their parts and words, which rule denies them, what a grant remembers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

MAX_COMMAND_CHARS = 100_000
"""Longest command that is compared with deny rules, inclusive; a longer one is denied where rules are."""
MAX_ORDERED = 100_000
"""Most words of a command times rules; beyond, the words of a rule deny in any order."""
_SEPARATOR = re.compile(r"[;|&\n`(){}]|\$\(")
_REDIRECTION = re.compile(r"&>>?|[0-9]*[<>]+[&|]?")
# Where quotes may end elsewhere than a simple reading says, or a text is read by another shell.
_UNSURE = re.compile(r"[#`]|<<|\$['\"({]|\b(?:alias|eval|(?:ba|da|z|k|c|tc|fi|a)?sh)\b", re.IGNORECASE)
_TOKEN = re.compile(r"'[^']*'?|\"(?:\\.|[^\"\\])*\"?|\\.|[;|&\n(){}]|[^'\"\\;|&\n(){}]+", re.DOTALL)
_QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.", re.DOTALL)
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=\S*")
_SHELL_WORDS = "if then elif else fi for while until do done case esac in ! { } [[ function"
_RESERVED = frozenset(_SHELL_WORDS.split())
_RUN_ANOTHER = (
    "sudo doas su env exec command builtin nohup setsid time timeout nice ionice stdbuf watch xargs parallel "
    "eval source . sh bash dash zsh ksh csh tcsh fish ash busybox ssh chroot unshare nsenter script strace "
    "trap alias flock coproc setarch linux32 linux64 chrt taskset prlimit numactl runuser pkexec systemd-run "
    "run0 unbuffer expect at batch crontab fakeroot firejail bwrap dbus-run-session xvfb-run entr ltrace "
    "valgrind gdb perf torsocks proxychains"
)
_WRAPPERS = frozenset(_RUN_ANOTHER.split())
"""Commands that run another one, of which their own name says nothing."""
_TAKES_WORDS = frozenset({"xargs", "parallel"})
"""Commands that put words of their input behind their own."""
_INTERPRETER = re.compile(r"(?:python|pypy|perl|ruby|node|nodejs|deno|bun|php|lua|tclsh|[gmn]?awk)[0-9.]*")
_NEVER_GRANTED = re.compile(r"[`<>\x00-\x08\x0b-\x1f\x7f]|\$\(|\$\{")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_./+-]+")


def denied_command(command: str, rules: Sequence[str]) -> str | None:
    """Return the rule among `rules` that denies `command`, as `commands: RULE`, or None."""
    text = command.replace("\\\n", "").casefold()
    parts = _parts(text)
    readings = [words for part in parts for words in (_words(part), _words(part, "$`[]")) if words]
    for words in readings:
        if not _TAKES_WORDS.isdisjoint(_name(word.lstrip("=")) for word in words):
            words.append("$")
    said = {word.lstrip("=") for words in readings for word in words}
    known = {name for word in said for name in (word, _name(word))}
    replaced = any(map(_is_open, known))
    globs = any(re.search(r"[*?\[]", word) for word in known)
    size = sum(map(len, readings)) * len(rules)
    hidden = len(text) > MAX_COMMAND_CHARS or any(map(_is_hidden, _parts(text, "(){}")))
    for rule in rules:
        wanted = _words(rule.casefold(), "$`[]")
        if not wanted:
            if rule.strip().casefold() in text:
                return f"commands: {rule}"
            continue
        wanted = [word.lstrip("=") for word in wanted]
        wanted[0] = _name(wanted[0])
        ways = [wanted, [f"{wanted[0]}-{wanted[1]}", *wanted[2:]]] if len(wanted) > 1 else [wanted]
        possible = [way for way in ways if globs or known.issuperset(way if not replaced else way[:1])]
        # The order of the words is looked at as long as that takes no noticeable time.
        if hidden or (possible and size > MAX_ORDERED):
            return f"commands: {rule}"
        if any(_holds(words, way) for way in possible for words in readings):
            return f"commands: {rule}"
    return None


def _parts(text: str, more: str = "") -> list[str]:
    """Split a shell text at operators outside quotes; where quotes are not certain, nowhere.

    Too few parts deny too much, too many would deny too little. With `more` operators it is the other way
    round, and where quotes are not certain it is split inside them too.
    """
    plain = _REDIRECTION.sub(" ", text)
    ends = f";|&\n{more}"
    if _UNSURE.search(text):
        return re.split(f"[{ends}]", plain) if more else [re.sub(r"[;|&]", " ", plain)]
    parts = [""]
    for token in _TOKEN.findall(plain):
        if token in ends:
            parts.append("")
        else:
            parts[-1] += token
    return parts


def _words(part: str, blanks: str = "") -> list[str]:
    """Return the words of a part without quotes; brackets, commas and equals signs end words as well.

    What stood behind an equals sign or a quoted blank has `=` in front: `'a.b=c d'` is `a.b`, `=c`, `=d`.
    Braces are kept in words (`pu{sh,x}`) unless further `blanks` are asked for.
    """
    ends = f"(),{re.escape(blanks)}" + ("{}" if blanks else "")
    joined = _QUOTED.sub(lambda found: re.sub(r"\s+", " =", found[0]), part)
    plain = re.sub(f"[{ends}]", " ", re.sub(r"[\\\"']", "", joined))
    return [word for word in re.sub("=+", " =", plain).split() if word != "="]


def _name(word: str) -> str:
    return word.rsplit("/", 1)[-1] or word


def _is_open(word: str) -> bool:
    """Whether the shell puts something else in the place of `word`."""
    return any(sign in word for sign in "$`{") and word not in _RESERVED


def _is_hidden(part: str) -> bool:
    """Whether the command of `part` is not written out: `$x push`, `g?t push`, `xargs $x`."""
    words = re.sub(r"[\\\"']", "", part).split()
    while words and (words[0] in _RESERVED or _ASSIGNMENT.fullmatch(words[0])):
        if words.pop(0) in {"for", "case"}:
            return False
    if words and _name(words[0]) in _WRAPPERS:
        return any(_is_open(word) for word in words[1:])
    return bool(words) and (_is_open(words[0]) or (words[0] != "[" and bool(re.search(r"[*?\[]", words[0]))))


def _holds(words: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether `wanted` occurs in `words` in this order.

    A word that the shell replaces stands for any, right after the word before it and its options, and
    for an option anywhere: `git -C x $y` may push, `git commit -m "$y"` does not. Words that belong
    together are one where an option takes them: `git -c 'a.b=c d' $y` may push.
    """
    reached = [True] + [False] * len(wanted)
    near = [False] * (len(wanted) + 1)
    around, taken, option = near, False, False
    for whole in words:
        word = whole.lstrip("=")
        if word == whole:  # nothing that belongs to the word before it
            near = [close or (was and taken) for close, was in zip(near, around, strict=True)]
            around, taken = near, option or word.startswith("-")
        before, close = reached.copy(), near.copy()
        near = [was and (option or word.startswith("-")) for was in close]
        for index, name in enumerate(wanted):
            opened = index > 0 and _is_open(word) and (close[index] or name.startswith("-"))
            if before[index] and (opened or _may_be(word, name)):
                reached[index + 1] = near[index + 1] = True
        option = word.startswith("-")
    return reached[-1]


def _may_be(word: str, name: str) -> bool:
    if name in (word, _name(word)):
        return True
    return bool(re.search(r"[*?\[]", word)) and word.strip("*?./") != "" and fnmatchcase(name, _name(word))


def command_parts(command: str) -> list[str]:
    """Return the simple commands in a shell text for showing, each with single blanks and in lower case.

    Split at every operator, also inside quotes. Assignments and `sudo`, `env`, `exec` in front are left out.
    """
    parts: list[str] = []
    for piece in _SEPARATOR.split(command):
        words = re.sub(r"[\\\"']", "", piece).casefold().split()
        while words and (words[0] in _PREFIXES or _ASSIGNMENT.fullmatch(words[0])):
            words.pop(0)
        if words:
            parts.append(" ".join([_name(words[0]), *words[1:]]))
    return parts


_PREFIXES = {"sudo", "env", "exec", "command", "nohup", "time", "builtin", "then", "do", "else", "!"}


def granted_commands(command: str) -> frozenset[str]:
    """Return the first words of all parts of `command`, split also inside quotes, or nothing.

    It is nothing when one of them could do anything: a substitution, a redirection, a wrapper (`sudo`,
    `xargs`, `sh`, `python`) or an assignment in front. `${x}` is a word like `$x`.
    """
    command = _VARIABLE.sub(r"$\1", command)
    if _NEVER_GRANTED.search(command):
        return frozenset()
    found: set[str] = set()
    for piece in _SEPARATOR.split(command):
        words = piece.strip(" \t").replace("\t", " ").split(" ")
        if words == [""]:
            continue
        name = _name(words[0]).casefold()
        runs_another = name in _WRAPPERS or name in _RESERVED or _INTERPRETER.fullmatch(name)
        if (
            runs_another
            or not _PLAIN_NAME.fullmatch(words[0])
            or any(w.startswith(("-exec", "-ok")) for w in words)
        ):
            return frozenset()
        found.add(words[0])
    return frozenset(found)
