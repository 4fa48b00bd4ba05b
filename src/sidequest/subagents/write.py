"""A definition -> the text of its file: what `parse` reads back as the same definition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sidequest.subagents.definition import Permission, SubagentDefinition, normalise_name
from sidequest.subagents.diagnostics import Log
from sidequest.subagents.frontmatter import read_document
from sidequest.subagents.keys import Key, key_of


def render(definition: SubagentDefinition, *, original: bytes | None = None) -> str:
    """Return the Markdown document of `definition`: frontmatter, a blank line, the body.

    Values that equal the default are left out, except `tools`. Keys of other programs that stand in
    `original`, another file, are carried over untouched (specification 8.18); its comments are not. To change
    a file that is there use `rewrite`, which keeps everything.
    A name without letters of ASCII is written as it is shown, so the file must be called `<name>.md`.
    A list of tools in which none is known here gets the read-only ones when it is read back.
    """
    head = as_yaml({key.value: value for key, value in stated_values(definition).items()})
    return f"---\n{head}{_foreign_lines(original)}---\n\n{definition.body.strip()}\n"


def as_yaml(values: Mapping[str, Any]) -> str:
    """Return keys and values as lines of a frontmatter, every text on one line."""
    import yaml

    class _Dumper(yaml.SafeDumper):
        """Writes a text with line breaks in double quotes, so that every value is one line."""

        def represent_text(self, text: str) -> yaml.ScalarNode:
            style = '"' if "\n" in text else None
            return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    _Dumper.add_representer(str, _Dumper.represent_text)
    text: str = yaml.dump(dict(values), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10**9)
    return text


def stated_values(definition: SubagentDefinition) -> dict[Key, Any]:
    """Return what a file of `definition` states, in the order of a new file; defaults are left out."""
    shown = definition.shown_name
    inherit = ["inherit"] if definition.inherit_tools else []
    values: dict[Key, Any] = {
        Key.NAME: shown if normalise_name(shown) in (definition.name, "") else definition.name,
        Key.DESCRIPTION: definition.description,
        Key.TOOLS: [*inherit, *map(str, definition.tools)],
        Key.DISALLOWED_TOOLS: [*map(str, definition.disallowed_tools)],
        Key.MODEL: str(definition.model) if definition.model else None,
        Key.FALLBACK_MODELS: [str(pin) for pin in definition.fallback_models],
        Key.THINKING: definition.thinking and definition.thinking.value,
        Key.PERMISSION: (
            definition.permission.value if definition.permission is not Permission.INHERIT else None
        ),
        Key.MAX_TOKENS: definition.max_tokens,
        Key.MAX_TURNS: definition.max_turns,
        Key.MAX_SECONDS: definition.max_seconds,
        Key.MAX_COST: definition.max_cost_usd,
        Key.CONTEXT: definition.context and definition.context.value,
        Key.ALLOWED_CONTEXTS: [mode.value for mode in definition.allowed_contexts],
    }
    return {key: value for key, value in values.items() if value or key is Key.TOOLS}


def _foreign_lines(original: bytes | None) -> str:
    if original is None:
        return ""
    fields = read_document(original, Log("")).fields
    lines = [line for field in fields if key_of(field.name) is None for line in field.source]
    return "".join(f"{line}\n" for line in lines)
