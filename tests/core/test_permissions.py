"""The matrix of rights: mode, definition, rule, path and command (specification 4.8)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.permissions import (
    Action,
    DenyRules,
    Mode,
    Verdict,
    command_parts,
    decide,
    denied_below,
    effective_mode,
    grants_of,
    parse_mode,
)
from tests.core.builders import repeatable

ALLOW, ASK, DENY = Verdict.ALLOW, Verdict.ASK, Verdict.DENY
READ = Action("Read", "/w/a.py")
READ_OUTSIDE = Action("Read", "/etc/hosts", inside=False)
EDIT = Action("Edit", "/w/a.py")
EDIT_OUTSIDE = Action("Edit", "/etc/hosts", inside=False)
BASH = Action("Bash", command="pytest -q")
TASK = Action("Task")
FOREIGN = Action("mcp__mail__send")

MATRIX = [
    # action, ask, accept-edits, auto
    (READ, ALLOW, ALLOW, ALLOW),
    (READ_OUTSIDE, ASK, ASK, ALLOW),
    (EDIT, ASK, ALLOW, ALLOW),
    (EDIT_OUTSIDE, ASK, ASK, ALLOW),
    (BASH, ASK, ASK, ALLOW),
    (TASK, ALLOW, ALLOW, ALLOW),
    (FOREIGN, ASK, ASK, ALLOW),
]


@pytest.mark.parametrize(("action", "ask", "accept", "auto"), MATRIX)
def test_what_each_mode_does(action: Action, ask: Verdict, accept: Verdict, auto: Verdict) -> None:
    found = [decide(action, mode, DenyRules()).verdict for mode in (Mode.ASK, Mode.ACCEPT_EDITS, Mode.AUTO)]
    assert found == [ask, accept, auto]


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize(
    ("rules", "action"),
    [
        (DenyRules(tools=("bash",)), BASH),
        (DenyRules(tools=("mcp__*",)), FOREIGN),
        (DenyRules(paths=("**/.env",)), Action("Read", "/w/deep/.env")),
        (DenyRules(paths=("*.pem",)), Action("Read", "/w/keys/A.PEM")),
        (DenyRules(paths=("/w/secret/*",)), Action("Edit", "/w/secret/x")),
        (DenyRules(commands=("git push",)), Action("Bash", command="git push --force")),
        (DenyRules(commands=("git push",)), Action("Bash", command="cd x && git  push")),
        (DenyRules(commands=("rm",)), Action("Bash", command="echo a; sudo /bin/rm -rf x")),
        (DenyRules(commands=("rm",)), Action("Bash", command="X=1 env Y=2 rm a")),
        (DenyRules(commands=("curl",)), Action("Bash", command="echo $(curl http://127.0.0.1)")),
        (DenyRules(commands=("curl",)), Action("Bash", command="true | 'curl' x")),
        (DenyRules(commands=("rm",)), Action("Bash", command="if true; then rm x; fi")),
    ],
)
def test_a_deny_rule_comes_first_in_every_mode(mode: Mode, rules: DenyRules, action: Action) -> None:
    assert decide(action, mode, rules).verdict is DENY


HIDDEN_PUSHES = [
    "git -C x push",
    "git --no-pager push",
    "git \\\n push",
    "g\\\nit push",
    "xargs git push",
    "if git push; then :; fi",
    ">f git push",
    "git 2>&1 push",
    "git &>log push",
    "sh -c 'git push'",
    "/usr/bin/git push",
    "echo git push",
    "git -c 'a;b' push",
    "git -c a\\;b push",
    "git${IFS}push",
    "{git,push}",
    "git pu{sh,x}",
    "g''it pu\\sh",
    "GIT push",
    "gi? push",
    "$x push",
    "git $x",
    "git -C x $y",
    "xargs $x",
    "$(echo git) push",
    "git pu$(echo sh)",
    'g() { git "$@"; }; g push',
    "alias g=git; g push",
    "echo # '\n git 'a;b' push",
    'git "$(echo ";")" push',
    """python -c 'import os; os.system("git push")'""",
    """python -c 'run(["git","push"])'""",
    "(git push)",
    "true;git push&",
    "x=1 git push",
    "f=push; git -c a.b=c $f origin",
    "f=push; git --no-pager -c a.b=c $f",
    "f=push; git -c a.b=c=d --git-dir=/x -C y $f",
    "f=push; git -c 'a.b=c d' $f",
    "f=push; git -c a.b=c\\ d -c x=y $f",
    "sh -c 'git push'; git log",
    "/usr/lib/git-core/git-push origin",
    "cd /usr/lib/git-core; ./git-push origin",
    "flock $lock push",
    "echo " + "x" * 100_000,
]


@pytest.mark.parametrize("command", HIDDEN_PUSHES, ids=lambda text: repr(text[:30]))
def test_a_command_rule_finds_its_words_however_they_are_written(command: str) -> None:
    assert DenyRules(commands=("git push",)).match(Action("Bash", command=command)) == "commands: git push"


@pytest.mark.parametrize(
    ("rule", "command"),
    [
        ("git push", "git pushy"),
        ("git push", "git status"),
        ("git push", "git add . && npm run push"),
        ("git push", "git log | grep push"),
        ("git push", 'git commit -m "$(cat message)"'),
        ("git push", 'git commit -m "$message"'),
        ("git push", "git add *.py"),
        ("git push", "[ -f x ] && cat x"),
        ("git push", "for f in *.py; do cat $f; done"),
        ("rm", "rmdir x"),
        ("rm", "ls | awk '{print $1}'"),
        ("rm", "case $x in a) ls;; esac"),
        ("rm", 'echo "total: $x; $y"'),
        ("rm", "grep -E '(a|$b)' f"),
        ("rm", "x=$((x + 1)); y=$(date)"),
        ("git push", "ls | xargs git add"),
        ("rm", "echo $HOME"),
        ("rm -rf", "rm x"),
        ("git push", "git -c a.b=c log $x"),
        ("git push", "git --git-dir=/x log $x"),
        ("git push", "git -c 'a.b=c d' log $x"),
        ("git push", "grep 'git log $x' f"),
        ("git push", "git log --format='%h %s' $x"),
        ("git push", "git send-pack origin"),
        ("git push", "cat git-push.md"),
    ],
)
def test_a_command_rule_leaves_other_commands_alone(rule: str, command: str) -> None:
    assert DenyRules(commands=(rule,)).match(Action("Bash", command=command)) is None


@pytest.mark.timeout(30)
@pytest.mark.parametrize("text", ["git $a ", "git * ", "git -c $a ", "a=b ", "$(", "'", "! "])
def test_a_giant_command_is_decided(text: str) -> None:
    rules = DenyRules(commands=tuple(f"git p{number} q r" for number in range(256)))
    rules.match(Action("Bash", command=(text * 100_000)[:99_000]))


def test_a_command_rule_may_be_signs_only_or_a_whole_path() -> None:
    assert DenyRules(commands=("()",)).match(Action("Bash", command=":() { :; }"))
    assert DenyRules(commands=("/bin/rm",)).match(Action("Bash", command="rm x"))


@pytest.mark.parametrize(
    ("rule", "path", "denied"),
    [
        ("/w/secret", "/w/secret/deep/x", True),
        ("/w/secret/", "/w/secret/x", True),
        ("secrets", "/w/secrets/x", True),
        ("src/**/k", "/w/src/k", True),
        ("src/**/k", "/w/src/a/b/k", True),
        ("~/.ssh/*", "/home/me/.ssh/id", True),
        ("./a/b", "/w/a/b", True),
        ("/etc/*", "/w/etc/x", False),
        ("secret", "/w/secrets", False),
        ("*.pem", "/w/a.pem.txt", False),
        ("/w/./a", "/w/a/b", True),
        ("/w//a", "/w/a/b", True),
        ("/w/x/../a", "/w/a/b", True),
        ("/w/x/../a", "/w/x/a", False),
        ("*.{env,pem}", "/w/x.pem", True),
        ("/w/{a,b{1,2}}/k", "/w/b2/k", True),
        ("/w/{a,b}/k", "/w/c/k", False),
        ("{{name}}", "/w/{{name}}/k", True),
        ("[{]a,b[}]", "/w/{a,b}", True),
        ("cl\u00e9.txt", "/w/cle\u0301.txt", True),
        ("cle\u0301.txt", "/w/CL\u00c9.txt", True),
        ("/", "/etc", True),
    ],
)
def test_what_a_path_rule_covers(rule: str, path: str, denied: bool) -> None:
    assert (DenyRules(paths=(rule,)).match(Action("Read", path)) is not None) is denied


@pytest.mark.parametrize(
    ("rule", "patterns"),
    [
        ("/w/app/secret/*", ("secret/*",)),
        ("/w/*/keys", ("*/keys", "keys")),
        ("/etc/*", ()),
        ("/w", ("*",)),
        ("/W/APP", ("*",)),
        ("app/x", ("*/app/x", "app/x", "x")),
        ("**/.env", ("*/.env", ".env")),
        ("/w/[a-b]pp/k", ("k",)),
        ("/w/app/\u00e9", ("\u00e9", "e\u0301")),
    ],
)
def test_path_rules_relative_to_a_folder(rule: str, patterns: tuple[str, ...]) -> None:
    assert denied_below([rule], "/w/app") == patterns


@pytest.mark.parametrize(
    ("session", "definition", "expected"),
    [
        (Mode.ASK, None, Mode.ASK),
        (Mode.AUTO, None, Mode.AUTO),
        (Mode.ASK, Mode.AUTO, Mode.ASK),
        (Mode.ACCEPT_EDITS, Mode.AUTO, Mode.ACCEPT_EDITS),
        (Mode.AUTO, Mode.ASK, Mode.ASK),
        (Mode.AUTO, Mode.ACCEPT_EDITS, Mode.ACCEPT_EDITS),
    ],
)
def test_a_definition_narrows_and_never_widens(
    session: Mode, definition: Mode | None, expected: Mode
) -> None:
    assert effective_mode(session, definition) is expected


@repeatable(100)
@given(st.text(max_size=200))
def test_any_command_can_be_taken_apart(text: str) -> None:
    assert all(part == " ".join(part.split()) for part in command_parts(text))


@pytest.mark.parametrize("rules", [{"tools": ("",)}, {"paths": ("x" * 513,)}, {"commands": ("a",) * 257}])
def test_rules_are_bounded(rules: dict[str, tuple[str, ...]]) -> None:
    with pytest.raises(SidequestError) as caught:
        DenyRules(**rules)
    assert caught.value.code is ErrorCode.SETTINGS_INVALID


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("../x", "cannot be told"),
        ("a/../../x", "cannot be told"),
        ("**/../x", "cannot be told"),
        ("~/../x", "cannot be told"),
        ("$HOME/.ssh", "variable"),
        ("/home/${USER}/x", "variable"),
        ("~user/.ssh", "by name"),
        ("!secret", "takes another one back"),
        ("conf\\key", "separated by /"),
        ("*.{env,pem", "braces"),
        ("key{1..3}", "braces"),
        ("{a,b}" * 7, "more than 64"),
        (".", "names nothing"),
        ("a/..", "names nothing"),
    ],
)
def test_a_path_rule_that_would_match_nothing_is_refused_by_name(rule: str, why: str) -> None:
    with pytest.raises(SidequestError, match=why) as caught:
        DenyRules(paths=("*.pem", rule))
    assert caught.value.code is ErrorCode.SETTINGS_INVALID
    assert repr(rule) in caught.value.cause


@pytest.mark.timeout(20)
def test_a_giant_path_is_decided() -> None:
    rules = DenyRules(paths=tuple(f"**/x{number}/*.{{key,pem}}" for number in range(256)))
    assert rules.match(Action("Read", "/" + "d/" * 50_000 + "x")) is None


def test_a_mode_that_is_none_names_those_that_are() -> None:
    with pytest.raises(SidequestError, match="ask, accept-edits, auto"):
        parse_mode("yolo")


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("git status", {"git"}),
        ("git status; rm -rf x", {"git", "rm"}),
        ("cd x && git log | head", {"cd", "git", "head"}),
        ("git status\nrm x", {"git", "rm"}),
        ("git log 'a; rm x'", {"git", "rm"}),
        ("./run.sh a", {"./run.sh"}),
        ("ls ${x}", {"ls"}),
        ("ls ${x} && { git log; }", {"ls", "git"}),
    ],
)
def test_a_grant_remembers_the_first_words_of_all_parts(command: str, names: set[str]) -> None:
    assert grants_of(Action("Bash", command=command)) == {f"Bash:{name}" for name in names}


@pytest.mark.parametrize(
    "command",
    [
        "git $(rm x)",
        "git `rm x`",
        "git log > f",
        "git < f",
        "sudo git",
        "/usr/bin/sudo git",
        "env git",
        "sh -c git",
        "bash -c git",
        "python -c x",
        "python3.11 -c x",
        "gawk x",
        "ls | xargs rm",
        "flock x rm",
        "coproc rm",
        "setarch x rm",
        "chrt 1 rm",
        "taskset 1 rm",
        "runuser x",
        "pkexec rm",
        "systemd-run rm",
        "unbuffer rm",
        "at now",
        "${x} y",
        "ls ${x:-y}",
        "ls ${x@P}",
        "eval git",
        "X=1 git",
        "'git' x",
        "$x",
        "if git; then git; fi",
        "find . -exec rm {} +",
        "find . -execdir rm {} +",
        "find . -ok rm {} +",
        "git \x00",
        "g\\\nit",
        "git\u00a0status",
        "",
    ],
)
def test_a_command_that_could_do_anything_is_never_granted_for_the_session(command: str) -> None:
    assert grants_of(Action("Bash", command=command)) == frozenset()


@pytest.mark.parametrize(
    ("action", "grants"),
    [
        (EDIT, {"Edit"}),
        (EDIT_OUTSIDE, {"Edit:/etc"}),
        (Action("Read", "/etc/ssl/openssl.cnf", inside=False), {"Read:/etc/ssl"}),
        (Action("Read", "/vmlinuz", inside=False), {"Read:/"}),
        (Action("Grep", "/etc/ssl", inside=False), {"Grep:/etc/ssl"}),
        (Action("Glob", "/", inside=False), {"Glob:/"}),
        (Action("Read", "x\x00y", inside=False), set()),
        (TASK, set()),
    ],
)
def test_other_tools_are_granted_inside_as_a_whole_and_outside_by_folder(
    action: Action, grants: set[str]
) -> None:
    assert grants_of(action) == grants
