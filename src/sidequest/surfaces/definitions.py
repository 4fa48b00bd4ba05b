"""A catalog entry in words and as plain values: its state, what was understood, what was not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sidequest.subagents.catalog import MAX_SUBAGENT_DEFINITIONS, Catalog, Entry, EntryState
from sidequest.subagents.definition import Permission, Reader, Scope, SubagentDefinition
from sidequest.subagents.diagnostics import Diagnostic, Severity
from sidequest.surfaces.paths import Shortener
from sidequest.surfaces.planned_model import PlannedModel
from sidequest.surfaces.text import count, duration, money, one_line

STATES = {
    EntryState.ACTIVE: "active",
    EntryState.SHADOWED: "shadowed",
    EntryState.BLOCKED: "blocked",
    EntryState.UNTRUSTED: "off",
    EntryState.DISABLED: "off",
    EntryState.INVALID: "invalid",
    EntryState.OVER_CAP: "off",
}
"""One word for each state."""


def why(entry: Entry, place: Shortener, trust: str = "run `sidequest trust`") -> str:
    """Return why an entry is not active, in a few words; empty when it is. `trust` says how one trusts it."""
    by = place.short(entry.by)
    first = next((found for found in entry.diagnostics if found.severity is Severity.ERROR), None)
    return {
        EntryState.ACTIVE: "",
        EntryState.SHADOWED: f"shadowed by {by}",
        EntryState.BLOCKED: f"blocked by {by}, which does not load",
        EntryState.UNTRUSTED: f"not trusted: look at it, then {trust}",
        EntryState.DISABLED: "switched off",
        EntryState.INVALID: one_line(first.message) if first else "does not load",
        EntryState.OVER_CAP: f"over the limit of {MAX_SUBAGENT_DEFINITIONS} active subagents",
    }[entry.state]


def group_of(entry: Entry, place: Shortener) -> str:
    """Return the heading an entry is listed under: its scope, and its folder unless it is a builtin."""
    if entry.scope is Scope.BUILTIN or entry.path is None:
        return entry.scope.value
    return f"{entry.scope.value}  {place.short(str(Path(entry.path).parent)) or '.'}"


def shadows(entry: Entry, catalog: Catalog) -> list[str]:
    """Return the files that `entry` keeps from being active."""
    holder = entry.path or entry.scope.value
    return [other.path or other.scope.value for other in catalog.entries if other.by == holder]


def facts(
    entry: Entry, plan: PlannedModel | None, catalog: Catalog, place: Shortener
) -> Iterator[tuple[str, str]]:
    """Give what was understood, as label and value; what a file leaves at its default is left out."""
    # Why a file does not load is what its diagnostic says.
    reason = "" if entry.state is EntryState.INVALID else why(entry, place)
    yield "state", f"{STATES[entry.state]}: {reason}" if reason else STATES[entry.state]
    hidden = [place.short(path) for path in shadows(entry, catalog)]
    if hidden:
        yield "shadows", ", ".join(hidden)
    definition = entry.definition
    if definition is None:
        return
    if definition.reader is Reader.LENIENT:
        yield "read", "line by line, because it is not valid YAML"
    yield "tools", definition.tools_label
    yield from _stated(definition)
    if plan is not None:
        yield "runs on", plan.label + (f"  ({one_line(plan.note)})" if plan.note else "")
        if plan.binding is not None:
            budget = plan.binding.budget(definition.max_tokens)
            yield "budget", f"{count(budget.hard_limit)} of {count(budget.window)} tokens for a request"


def _stated(definition: SubagentDefinition) -> Iterator[tuple[str, str]]:
    values = (
        ("taken away", ", ".join(definition.disallowed_tools)),
        ("permission", "" if definition.permission is Permission.INHERIT else definition.permission.value),
        ("model", str(definition.model or "")),
        ("fallbacks", ", ".join(map(str, definition.fallback_models))),
        ("thinking", definition.thinking.value if definition.thinking else ""),
        ("max tokens", count(definition.max_tokens) if definition.max_tokens else ""),
        ("max turns", count(definition.max_turns) if definition.max_turns else ""),
        ("max time", duration(definition.max_seconds) if definition.max_seconds else ""),
        ("max cost", money(definition.max_cost_usd) if definition.max_cost_usd else ""),
        ("context", definition.context.value if definition.context else ""),
        ("contexts", ", ".join(definition.allowed_contexts)),
    )
    yield from ((label, value) for label, value in values if value)


def as_dict(entry: Entry, plan: PlannedModel | None, catalog: Catalog) -> dict[str, Any]:
    """Return an entry as plain values, with everything that was understood of it."""
    data: dict[str, Any] = {
        "name": entry.name,
        "scope": entry.scope.value,
        "path": entry.path,
        "state": entry.state.value,
        "by": entry.by,
        "shadows": shadows(entry, catalog),
        "diagnostics": [diagnostic_dict(found) for found in entry.diagnostics],
    }
    definition = entry.definition
    if definition is not None:
        data |= {
            "shownName": definition.shown_name,
            "description": definition.description,
            "tools": list(definition.tools),
            "inheritTools": definition.inherit_tools,
            "disallowedTools": list(definition.disallowed_tools),
            "permission": definition.permission.value,
            "model": str(definition.model) if definition.model else None,
            "fallbackModels": [str(pin) for pin in definition.fallback_models],
            "thinkingLevel": definition.thinking.value if definition.thinking else None,
            "maxTokens": definition.max_tokens,
            "maxTurns": definition.max_turns,
            "maxSeconds": definition.max_seconds,
            "maxCostUsd": definition.max_cost_usd,
            "context": definition.context.value if definition.context else None,
            "allowedContexts": [mode.value for mode in definition.allowed_contexts],
            "reader": definition.reader.value,
            "ignored": list(definition.foreign),
        }
    if plan is not None:
        data |= {"runsOn": plan.binding.key if plan.binding else None, "modelNote": plan.note or None}
    return data


def diagnostic_dict(found: Diagnostic) -> dict[str, Any]:
    """Return a diagnostic as plain values."""
    return {
        "path": found.path,
        "line": found.line,
        "severity": found.severity.value,
        "message": found.message,
    }
