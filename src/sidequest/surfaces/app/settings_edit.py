"""The text of a settings file with some values changed; comments, order and everything else stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AbstractTable, Array

from sidequest.core.errors import ErrorCode, SidequestError

Path = tuple[str, ...]
"""Names of tables and at last of a key: `("deny", "tools")`."""


def with_values(text: str, changes: Mapping[Path, Any]) -> str:
    """Return `text` with each value of `changes` at its place; None takes a key out, `{}` adds a table.

    A key that has its value already is left alone. A table that becomes empty by taking keys out stays.

    Raises:
        SidequestError: `SETTINGS_INVALID` when the text is not TOML, or cannot be changed so.
    """
    try:
        document = tomlkit.parse(text)
        wanted = tomlkit.parse(text).unwrap()
        for path, value in changes.items():
            _put(document, path, value)
            _put_plain(wanted, path, value)
        changed = tomlkit.dumps(document)
        if changed.endswith("\n\n") and not text.endswith("\n\n"):
            # The blank line before a table that was taken out.
            changed = changed.rstrip("\n") + "\n"
        if _without_empty(tomlkit.parse(changed).unwrap()) == _without_empty(wanted):
            return changed
    except (TOMLKitError, ValueError) as error:
        raise _refused(str(error)) from error
    raise _refused("a change would be read as something else")


def _refused(reason: str) -> SidequestError:
    return SidequestError(
        ErrorCode.SETTINGS_INVALID,
        f"The settings file cannot be changed here: {reason.rstrip('.')}.",
        "Correct it in a text editor.",
    )


def _put(table: Any, path: Path, value: Any) -> None:
    for name in path[:-1]:
        if not isinstance(table.get(name), AbstractTable):
            if value is None:
                return
            table[name] = tomlkit.table(is_super_table=name == "models")
        table = table[name]
    last = path[-1]
    if value is None:
        if last in table:
            del table[last]
    elif value == {}:
        if last not in table:
            table[last] = tomlkit.table()
    elif last not in table or table[last].unwrap() != value:
        known = table.get(last)
        if isinstance(known, Array) and isinstance(value, Sequence) and _edited(known, value):
            return
        table[last] = value


def _edited(known: Array, wanted: Sequence[str]) -> bool:
    """Change a list entry by entry, so that its comments stay; say whether that gave what was wanted."""
    for entry in known.unwrap():
        if entry not in wanted:
            known.remove(entry)
    for entry in wanted:
        if entry not in known.unwrap():
            known.append(entry)
    return bool(known.unwrap() == list(wanted))


def _without_empty(values: dict[str, Any]) -> dict[str, Any]:
    """Leave out tables with nothing in them: the one above the last of a kind may go with it."""
    return {name: value for name, value in values.items() if value != {}}


def _put_plain(table: dict[str, Any], path: Path, value: Any) -> None:
    for name in path[:-1]:
        if not isinstance(table.get(name), dict):
            if value is None:
                return
            table[name] = {}
        table = table[name]
    if value is None:
        table.pop(path[-1], None)
    elif value == {}:
        table.setdefault(path[-1], {})
    else:
        table[path[-1]] = value
