"""A definition file, as bytes -> a definition and what there is to say about it.

Nothing here raises and nothing is run: a file that cannot be loaded gives one diagnostic with its place and
its reasons, and never hides its neighbours (definitions-in-the-wild, rules 1 to 8; specification 4).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sidequest.subagents.definition import MAX_NAME_CHARS, Scope, SubagentDefinition, normalise_name
from sidequest.subagents.diagnostics import Diagnostic, Log, Severity
from sidequest.subagents.fields import Fields, scalar
from sidequest.subagents.frontmatter import MAX_DOCUMENT_BYTES, Document, Field, Value, read_document
from sidequest.subagents.keys import Key
from sidequest.subagents.rights import read_rights
from sidequest.subagents.values import (
    read_contexts,
    read_max_cost,
    read_max_seconds,
    read_max_tokens,
    read_max_turns,
    read_models,
    read_thinking,
)

__all__ = ["MAX_DOCUMENT_BYTES", "Diagnostic", "Parsed", "Severity", "parse_definition"]

_DERIVED_CHARS = 200
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class Parsed:
    """What reading one file gave."""

    definition: SubagentDefinition | None
    """None when the file does not load; `diagnostics` then holds exactly one error."""
    diagnostics: tuple[Diagnostic, ...]
    name: str
    """The id the file claims, also when it does not load; empty when not even its file name gives one."""


def parse_definition(data: bytes | str, *, path: str, scope: Scope = Scope.USER) -> Parsed:
    """Read one definition file. Never raises, whatever the bytes are.

    `path` is shown in diagnostics, and its last part is the name of a file that declares none; `scope`
    decides whether a permission that widens is honoured.
    """
    log = Log(path)
    document = read_document(data.encode("utf-8", "replace") if isinstance(data, str) else data, log)
    fields = Fields(document.fields, log)
    name, shown = _identity(document, fields, path, log)
    if log.failed:
        return Parsed(None, log.diagnostics(), name)
    definition = _build(document, fields, name, shown, path, scope, log)
    return Parsed(definition, log.diagnostics(), name)


def without_unprintable(text: str) -> str:
    """Return `text` as it is read from a file: without control characters, line breaks and tabs kept."""
    return _UNPRINTABLE.sub("", text)


def _build(
    document: Document, fields: Fields, name: str, shown: str, path: str, scope: Scope, log: Log
) -> SubagentDefinition | None:
    body = _body(document, fields, log)
    description = _description(fields, body, log)
    model, fallbacks = read_models(fields, log)
    rights = read_rights(fields, scope, log)
    context, allowed = read_contexts(fields, log)
    thinking = read_thinking(fields, log)
    max_tokens, max_turns = read_max_tokens(fields, log), read_max_turns(fields, log)
    max_seconds, max_cost = read_max_seconds(fields, log), read_max_cost(fields, log)
    foreign = fields.foreign()
    if log.failed:
        return None
    return SubagentDefinition(
        name=name,
        shown_name=shown,
        description=description,
        body=body,
        tools=rights.tools,
        inherit_tools=rights.inherit,
        disallowed_tools=rights.disallowed,
        model=model,
        fallback_models=fallbacks,
        thinking=thinking,
        permission=rights.permission,
        max_tokens=max_tokens,
        max_turns=max_turns,
        max_seconds=max_seconds,
        max_cost_usd=max_cost,
        context=context,
        allowed_contexts=allowed,
        scope=scope,
        path=path,
        reader=document.reader,
        foreign=foreign,
    )


def _identity(document: Document, fields: Fields, path: str, log: Log) -> tuple[str, str]:
    """Return the id and the shown name: what is declared, else the file's name without `.agent`."""
    declared, line = fields.text(Key.NAME)
    declared = " ".join(without_unprintable(declared or document.claimed).split())
    stem = re.sub(r"(?:\.agent)?\.md$", "", re.split(r"[/\\]", path)[-1], flags=re.IGNORECASE)
    name = normalise_name(declared)
    if declared and not name:
        log.note(
            f"The name {declared!r} has no letters or digits of ASCII, so the id is the file's name.", line
        )
    elif len(declared) > MAX_NAME_CHARS and len(name) == MAX_NAME_CHARS:
        log.note(f"The name is longer than {MAX_NAME_CHARS} characters; the id is {name}.", line)
    name = name or normalise_name(stem)
    if not name:
        log.error("There is no usable name: give a `name` of letters, digits and dashes.", line)
    return name, declared or stem


def _body(document: Document, fields: Fields, log: Log) -> str:
    body = without_unprintable(document.body).strip()
    if not body:
        body = _flat(fields.one(Key.PROMPT)).strip()
    elif fields.all(Key.PROMPT):
        fields.drop(Key.PROMPT)
    if not body:
        log.error("There is no prompt: write it below the frontmatter.")
    return body


def _description(fields: Fields, body: str, log: Log) -> str:
    field = fields.one(Key.DESCRIPTION)
    description = _flat(field).strip()
    if description:
        return description
    line = field.line if field else None
    first = _first_sentence(body) if fields else ""
    if first:
        log.warn("There is no description; the first line of the prompt stands in for it.", line)
    elif body:
        log.error("There is no description: say in the frontmatter when to use this subagent.", line)
    return first


def _flat(field: Field | None) -> str:
    return without_unprintable(_text(field.value)) if field else ""


def _text(value: Value) -> str:
    if isinstance(value, str):
        return "" if scalar(value) == "" else value
    parts = value if isinstance(value, list) else [f"{key}: {_text(inner)}" for key, inner in value.items()]
    return "\n".join(_text(part) for part in parts)


def _first_sentence(body: str) -> str:
    lines = [line.strip() for line in body.split("\n") if line.strip()]
    prose = [line for line in lines if line[0].isalnum()]
    chosen = " ".join((prose or lines or [""])[0].lstrip("#*->` ").split())
    return chosen if len(chosen) <= _DERIVED_CHARS else chosen[: _DERIVED_CHARS - 1].rstrip() + "…"
