"""One key with a new value -> its lines, in the style in which the old value was written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from sidequest.subagents.keys import Key
from sidequest.subagents.tool_names import canonical_tool
from sidequest.subagents.write import as_yaml

_SPOKEN = frozenset({Key.NAME, Key.DESCRIPTION})
"""Keys whose text may hold ` #`, which is then no comment."""
_ITEM = re.compile(r"(\s*)-\s+(.*)")
_BLOCK_TEXT = re.compile(r"[^:]*:\s*\|[-+]?\s*")
_PLAIN_ITEM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./*|-]*(?::[A-Za-z0-9_./*|-]+)*")


def value_lines(key: Key, name: str, value: Any, old: Sequence[str]) -> list[str]:
    """Return the lines of `name: value`; `old` are the lines that hold the key now, or none.

    A list stays a comma list, a list in brackets, or one item per line; items that stay keep their lines and
    the comments above them; a comment behind a value of one line stays; a text in a `|` block stays one.
    """
    if not old:
        return as_yaml({name: value}).splitlines()
    if isinstance(value, list):
        return _list_lines(key, name, value, old)
    if isinstance(value, str) and _BLOCK_TEXT.fullmatch(old[0]):
        indent = next((re.match(r"\s*", line) for line in old[1:] if line.strip()), None)
        space = (indent[0] if indent else "") or "  "
        return [f"{name}: |-", *(f"{space}{line}" if line.strip() else "" for line in value.split("\n"))]
    remark = "" if key in _SPOKEN or len(old) > 1 else _remark_behind(old[0])
    return [as_yaml({name: value}).rstrip("\n") + remark]


def _list_lines(key: Key, name: str, value: list[str], old: Sequence[str]) -> list[str]:
    header = old[0].partition(":")[2].strip()
    if not header or header.startswith("#"):
        return _block_lines(key, name, value, old)
    remark = _remark_behind(old[0]) if len(old) == 1 else ""
    if header.startswith("["):
        return [f"{name}: {_in_brackets(value)}{remark}"]
    if value and all(_PLAIN_ITEM.fullmatch(item) for item in value):
        comma = ", " if ", " in header or "," not in header else ","
        return [f"{name}: {comma.join(value)}{remark}"]
    return as_yaml({name: value}).splitlines()


def _in_brackets(value: list[str]) -> str:
    return (
        "["
        + ", ".join(
            as_yaml({"x": item}).removeprefix("x: ").rstrip("\n") if not _PLAIN_ITEM.fullmatch(item) else item
            for item in value
        )
        + "]"
    )


def _block_lines(key: Key, name: str, value: list[str], old: Sequence[str]) -> list[str]:
    """Keep the lines of items that stay, each with the comments above it; comments of others stay too."""
    known: dict[str, list[str]] = {}
    loose: list[str] = []
    above: list[str] = []
    indent = "  "
    for line in old[1:]:
        item = _ITEM.fullmatch(line)
        if item is None:
            above.append(line)
            continue
        indent = item[1]
        text = _item_text(item[2])
        text = (canonical_tool(text) or text) if key in (Key.TOOLS, Key.DISALLOWED_TOOLS) else text
        if text in value and text not in known:
            known[text] = [*above, line]
        else:
            loose += above
        above = []
    remarks = [line for line in (*loose, *above) if line.strip().startswith("#")]
    if not value:
        return [f"{name}: []", *remarks]
    header = f"{name}:{old[0].partition(':')[2]}"
    new = [line for item in value for line in known.get(item) or [f"{indent}{_item(item)}"]]
    return [header, *remarks, *new]


def _item(text: str) -> str:
    return as_yaml({"x": [text]}).splitlines()[1].strip()


def _item_text(text: str) -> str:
    return re.split(r"\s#", text, maxsplit=1)[0].strip().strip("\"'").strip()


def _remark_behind(line: str) -> str:
    """Return the comment behind the value of a line, with the blanks before it; empty when there is none."""
    import yaml

    try:
        root = yaml.compose(line, Loader=yaml.BaseLoader)
    except yaml.YAMLError:
        return ""
    if not isinstance(root, yaml.MappingNode) or not root.value:
        return ""
    rest = line[root.value[-1][1].end_mark.column :].rstrip()
    return rest if re.match(r"\s+#", rest) else ""
