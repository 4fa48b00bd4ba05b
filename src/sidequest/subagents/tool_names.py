"""The names of tools: ours, how other harnesses spell them, and the ones no delegate may hold.

Every table maps a spelling to a tool of the *same meaning*; a name that means more than ours (for example
`mcp__shell__run`) stays as written and grants nothing unless the session offers exactly that tool.
"""

from __future__ import annotations

import re
from enum import StrEnum
from fnmatch import fnmatchcase


class AssignableTool(StrEnum):
    """The six tools a definition can name (DESIGN "Where we leave the specification on purpose")."""

    READ = "Read"
    GLOB = "Glob"
    GREP = "Grep"
    BASH = "Bash"
    EDIT = "Edit"
    WRITE = "Write"


READ_ONLY_TOOLS: tuple[str, ...] = (AssignableTool.READ, AssignableTool.GLOB, AssignableTool.GREP)
"""What a definition gets that names no tools, or whose `tools` cannot be understood."""
MUTATING_TOOLS: tuple[str, ...] = (AssignableTool.BASH, AssignableTool.EDIT, AssignableTool.WRITE)
"""Tools that can change something outside the conversation (specification 4.4)."""
ASSIGNABLE_TOOLS: tuple[str, ...] = tuple(AssignableTool)
"""What a star grants, in the order in which surfaces show them."""

DENIED_TO_DELEGATES: frozenset[str] = frozenset(
    {
        "Task",
        "TaskWait",
        "TaskList",
        "TaskStop",
        "EnterPlanMode",
        "EnterGoalMode",
        "asktool",
        "new_context",
        "ToolSearch",
        "task",
        "task_wait",
        "task_list",
        "task_stop",
        "enter_plan_mode",
        "enter_goal_mode",
        "AskTool",
        "ask_tool",
        "NewContext",
        "tool_search",
        "Agent",
        "agent",
    }
)
"""Tools no delegate ever holds (specification 4.4), in the spellings people use. `Agent` is the spawn tool
of other harnesses."""

UNAVAILABLE_TOOLS: frozenset[str] = frozenset({"browserpreview"})
"""Assignable in the specification, known here, and not available (DESIGN), as plain words."""

_SPELLINGS: dict[str, tuple[str, ...]] = {
    AssignableTool.READ: (
        "read readfile readfiles readmanyfiles view viewfile openfile cat read/readfile fsread",
    ),
    AssignableTool.GLOB: (
        "glob globfiles find findfile findfiles ls list listdir listdirectory listfiles filesearch",
        "search/filesearch search/listdirectory",
    ),
    AssignableTool.GREP: (
        "grep search grepsearch searchfiles searchfilecontent searchtext textsearch rg ripgrep codebase",
        "codesearch search/codebase search/textsearch",
    ),
    AssignableTool.BASH: (
        "bash shell terminal execute exec runcommand runcommands executecommand execcommand runinterminal",
        "runshellcommand runterminalcmd runterminalcommand execute/runinterminal vscode/runcommand",
    ),
    AssignableTool.EDIT: (
        "edit multiedit editfile editfiles replace strreplace replaceinfile applypatch patch edit/editfiles",
    ),
    AssignableTool.WRITE: ("write writefile writetofile create createfile newfile edit/createfile",),
}
_BY_WORD = {word: tool for tool, lines in _SPELLINGS.items() for line in lines for word in line.split()}

PLAIN_TOOL_WORDS: frozenset[str] = frozenset({"read", "glob", "grep", "find", "ls", "bash", "edit", "write"})
"""Words that mean a tool even under a key that usually lists talents."""

_ELSEWHERE = (
    "webfetch websearch fetch web web/fetch todo todowrite todoread skill notebookedit notebookread lsp "
    "killshell bashoutput problems changes usages runtests testfailure githubrepo extensions askuser "
    "askuserquestion exitplanmode sendmessage googlewebsearch savememory vscodeapi new opensimplebrowser "
    "doomloop question planenter planexit"
)
KNOWN_ELSEWHERE: frozenset[str] = frozenset(_ELSEWHERE.split())
"""Words other harnesses use for tools that have no counterpart among the six."""


def plain_word(name: str) -> str:
    """Return `name` in lower case without `-`, `_` and blanks: `read_file` gives `readfile`."""
    return re.sub(r"[-_\s]", "", name).lower()


_DENIED_WORDS = frozenset(plain_word(name) for name in DENIED_TO_DELEGATES)


def canonical_tool(name: str) -> str | None:
    """Return the one of our six that `name` means, in our spelling, or None."""
    return _BY_WORD.get(plain_word(name))


def is_denied(name: str) -> bool:
    """Say whether `name` is, in any spelling, a tool no delegate may hold."""
    return plain_word(name) in _DENIED_WORDS


def is_pattern(name: str) -> bool:
    """Say whether `name` is a pattern such as `mcp__berths__*`."""
    return "*" in name or "?" in name


def is_star(name: str) -> bool:
    """Say whether `name` means every assignable tool: wildcards and nothing else."""
    return is_pattern(name) and not any(character.isalnum() for character in name)


def is_server_tool(name: str) -> bool:
    """Say whether `name` has the shape of a tool on an MCP server, or of a pattern for such tools.

    `mcp__server__tool`, `server/tool` and `microsoft.docs.mcp` have it; a single word has not.
    """
    return bool(re.search(r"[A-Za-z0-9]", name)) and (
        "__" in name or "/" in name or "." in name or (is_pattern(name) and not is_star(name))
    )


def takes_something(denied: str) -> bool:
    """Say whether the denial `denied` is understood here: it names tools, or surely none of the six.

    `shell_exec`, `functions.exec` and `shell*` are not: they mean a tool of ours under a name of another
    program, or nothing.
    """
    base = denied.split("(", 1)[0].strip()
    if canonical_tool(base) or is_star(base) or is_denied(base):
        return True
    if any(denies(base, tool) for tool in ASSIGNABLE_TOOLS):
        return True
    if plain_word(base) in KNOWN_ELSEWHERE | UNAVAILABLE_TOOLS | {"inherit", "none"}:
        return True
    if not is_server_tool(base):
        return False
    if base.lower().startswith("mcp__"):
        return True
    meant = canonical_tool(re.split(r"__|[/.]", base)[-1])
    return bool(re.search(r"__|[/.]", base)) and meant not in MUTATING_TOOLS


def _same(listed: str, offered: str) -> bool:
    if "__" in listed or "__" in offered or "/" in listed or "." in listed:
        return listed == offered
    return plain_word(listed) == plain_word(offered)


def _assignable(offered: str) -> bool:
    return any(_same(tool, offered) for tool in ASSIGNABLE_TOOLS)


def grants(listed: str, offered: str) -> bool:
    """Say whether the entry `listed` of a definition grants the tool the session calls `offered`.

    A pattern grants tools by `fnmatch`, but never one of the six: those are named, or granted by a star.
    `server/tool` also reads as `mcp__server__tool`.
    """
    if is_star(listed):
        return _assignable(offered)
    listed = canonical_tool(listed) or listed
    spellings = [listed]
    if listed.count("/") == 1:
        spellings.append("mcp__" + listed.replace("/", "__"))
    if is_pattern(listed):
        return not _assignable(offered) and any(fnmatchcase(offered, word) for word in spellings)
    return any(_same(word, offered) for word in spellings)


def denies(listed: str, offered: str) -> bool:
    """Say whether the denial `listed` takes the tool `offered` away; wider than `grants` on purpose.

    Case does not count, patterns reach the six as well, and `Bash(rm:*)` denies all of `Bash`.
    """
    base = listed.split("(", 1)[0].strip() or listed
    spellings = [base, canonical_tool(base) or base]
    if base.count("/") == 1:
        spellings.append("mcp__" + base.replace("/", "__"))
    if is_pattern(base):
        return any(fnmatchcase(offered.lower(), word.lower()) for word in spellings)
    return any(plain_word(word) == plain_word(offered) for word in spellings)
