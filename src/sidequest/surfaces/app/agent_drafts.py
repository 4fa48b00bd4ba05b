"""A subagent as it is being written: its fields, what is wrong with each, and the definition they make."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from pydantic import Field, StrictFloat, StrictInt, StrictStr

from sidequest.core.budget import MAX_OUTPUT_CAP_TOKENS
from sidequest.core.context_modes import ContextMode, parse_context_mode
from sidequest.subagents.definition import (
    ASSIGNABLE_TOOLS,
    READ_ONLY_TOOLS,
    ModelPin,
    Permission,
    Scope,
    SubagentDefinition,
    Thinking,
    normalise_name,
)
from sidequest.subagents.parse import without_unprintable
from sidequest.subagents.tool_names import (
    UNAVAILABLE_TOOLS,
    canonical_tool,
    is_denied,
    is_server_tool,
    plain_word,
)
from sidequest.subagents.values import MOST_TURNS, parse_pin
from sidequest.surfaces.app.numbers import how_to_write, number_of
from sidequest.surfaces.app.shapes import Given, Shape
from sidequest.surfaces.text import count

Number = StrictInt | StrictFloat | StrictStr | None
"""A number as a form or a script gives it; null and an empty text mean none."""


class FieldProblem(Shape):
    """What is wrong with one field."""

    field: str = Field(description="Name of the field, as in a draft: `maxTokens`.")
    message: str


class Draft(Given):
    """The fields of a subagent. In an update, fields that are left out stay as the file has them."""

    name: str = Field(default="", description="Shown name; the id is made of its letters and digits.")
    description: str = ""
    tools: tuple[str, ...] = READ_ONLY_TOOLS
    inherit_tools: bool = Field(
        default=False, description="Everything that the session offers, besides `tools`."
    )
    disallowed_tools: tuple[str, ...] = ()
    body: str = Field(default="", description="The prompt.")
    model: str | None = Field(default=None, description="`provider/model` or an alias; null: the session's.")
    thinking_level: str | None = Field(default=None, description="null: as the session does.")
    fallback_models: tuple[str, ...] | None = Field(
        default=None,
        description="`provider/model` or `provider/model|thinking`, in order; [] clears, null keeps.",
    )
    context: str | None = Field(
        default=None, description="Default context mode; null leaves it to the session."
    )
    allowed_contexts: tuple[str, ...] = Field(default=(), description="Empty: every mode.")
    permission: str = "inherit"
    max_tokens: Number = Field(default=None, description="1 to 200,000; null follows the model.")
    max_turns: Number = Field(default=None, description="At least 1; null: no limit.")
    max_seconds: Number = Field(default=None, description="Above 0; null: no limit.")
    max_cost_usd: Number = Field(default=None, description="Above 0; null: no limit.")

    @classmethod
    def of(cls, definition: SubagentDefinition) -> Draft:
        """Return the fields of a definition."""
        return cls(
            name=definition.shown_name,
            description=definition.description,
            tools=definition.tools,
            inherit_tools=definition.inherit_tools,
            disallowed_tools=definition.disallowed_tools,
            body=definition.body,
            model=str(definition.model) if definition.model else None,
            thinking_level=definition.thinking.value if definition.thinking else None,
            fallback_models=tuple(map(str, definition.fallback_models)),
            context=definition.context.value if definition.context else None,
            allowed_contexts=tuple(mode.value for mode in definition.allowed_contexts),
            permission=definition.permission.value,
            max_tokens=definition.max_tokens,
            max_turns=definition.max_turns,
            max_seconds=definition.max_seconds,
            max_cost_usd=definition.max_cost_usd,
        )

    def over(self, before: SubagentDefinition | None) -> Draft:
        """Return the whole draft: what this one leaves out is as in `before`."""
        own = {name: getattr(self, name) for name in self.model_fields_set & Draft.model_fields.keys()}
        if own.get("fallback_models", ()) is None:
            del own["fallback_models"]
        return Draft.of(before).model_copy(update=own) if before else self


def problems_of(
    draft: Draft, before: SubagentDefinition | None, refuse_name: Callable[[str], str | None]
) -> list[FieldProblem]:
    """Return what is wrong with a whole draft, in the order of specification 4.9, at most one for a field.

    A field that says what `before` says is not complained about: the file loads with it. `refuse_name` says
    why a new id cannot be had, or None.
    """
    kept = Draft.of(before) if before else None
    found: dict[str, str] = {}
    for name, message in _problems(draft, before, refuse_name):
        if kept is None or getattr(kept, name) != getattr(draft, name):
            found.setdefault(name, message)
    return [FieldProblem(field=_alias(name), message=message) for name, message in found.items()]


def _alias(name: str) -> str:
    return Draft.model_fields[name].alias or name


def _problems(
    draft: Draft, before: SubagentDefinition | None, refuse_name: Callable[[str], str | None]
) -> Iterator[tuple[str, str]]:
    name = id_of(draft, before)
    if not draft.name.strip():
        yield "name", "Give it a name."
    elif not name:
        yield "name", "The name needs a letter or a digit (a to z, 0 to 9)."
    elif refusal := refuse_name(name):
        yield "name", refusal
    if not draft.description.strip():
        yield "description", "Say when to use it: a parent agent chooses by this text."
    yield from (("tools", message) for message in _tool_problems(draft))
    yield from _model_problems(draft)
    yield from _word_problems(draft)
    for field, most in (("max_tokens", MAX_OUTPUT_CAP_TOKENS), ("max_turns", MOST_TURNS)):
        number = _number(draft, field)
        if number is not None and not (number == int(number) and 0 <= number <= most):
            empty = "follow the model" if field == "max_tokens" else "have no limit"
            said = f"Give a whole number from 1 to {count(most)}, or leave it empty to {empty}."
            yield field, f"{said}{_how(draft, field)}"
    for field in ("max_seconds", "max_cost_usd"):
        number = _number(draft, field)
        if number is not None and not 0 <= number < 1e9:
            yield field, f"Give a number above 0, or leave it empty for no limit.{_how(draft, field)}"
    if not draft.body.strip():
        yield "body", "Write the prompt: it is all the instructions that the subagent gets."


def _tool_problems(draft: Draft) -> Iterator[str]:
    for tool in draft.tools:
        if is_denied(tool):
            yield f"A subagent does not delegate or change the session: take {tool} out."
        elif plain_word(tool) in UNAVAILABLE_TOOLS:
            yield f"{tool} is not available here: take it out."
    if not draft.inherit_tools and not any(
        canonical_tool(tool) or is_server_tool(tool) for tool in draft.tools
    ):
        yield "Choose at least one tool, or let it inherit those of the session."


def _model_problems(draft: Draft) -> Iterator[tuple[str, str]]:
    if draft.model and draft.model.strip() and parse_pin(draft.model) is None:
        yield "model", "Write provider/model, for example openai/gpt-5, or choose one of the list."
    for text in draft.fallback_models or ():
        if parse_pin(text) is None:
            yield "fallback_models", f"{text!r} is no model: write provider/model."


def _word_problems(draft: Draft) -> Iterator[tuple[str, str]]:
    if draft.thinking_level and draft.thinking_level not in list(Thinking):
        yield "thinking_level", f"Choose one of {', '.join(Thinking)}, or none."
    if draft.context and parse_context_mode(draft.context) is None:
        yield "context", f"Choose {' or '.join(ContextMode)}, or none."
    if any(parse_context_mode(word) is None for word in draft.allowed_contexts):
        yield "allowed_contexts", f"Choose among {' and '.join(ContextMode)}."
    elif draft.context and draft.allowed_contexts and draft.context not in draft.allowed_contexts:
        yield "context", f"Allow the mode {draft.context}, or choose another default."
    if draft.permission not in list(Permission):
        yield "permission", f"Choose one of {', '.join(Permission)}."


def id_of(draft: Draft, before: SubagentDefinition | None) -> str:
    """Return the id that the draft would have; a name that did not change keeps the id it has."""
    if before is not None and draft.name.strip() == before.shown_name:
        return before.name
    return normalise_name(draft.name)


def definition_of(draft: Draft, before: SubagentDefinition | None, path: str) -> SubagentDefinition:
    """Return the definition that a whole draft without problems makes, to be stored at `path`.

    Raises:
        SidequestError: `SUBAGENT_INVALID` when it has problems after all.
    """
    tools = [canonical_tool(tool) or tool.strip() for tool in draft.tools]
    known = [tool for tool in ASSIGNABLE_TOOLS if tool in tools]
    if before is not None and set(before.tools) == set(tools):
        ordered = before.tools
    else:
        ordered = tuple(dict.fromkeys([*map(str, known), *tools]))
    fields = {
        "name": id_of(draft, before),
        "shown_name": _clean_line(draft.name),
        "description": _clean(draft.description),
        "body": _clean(draft.body),
        "tools": ordered,
        "inherit_tools": draft.inherit_tools,
        "disallowed_tools": tuple(dict.fromkeys(draft.disallowed_tools)),
        "model": parse_pin(draft.model or ""),
        "fallback_models": _pins(draft.fallback_models or ()),
        "thinking": Thinking(draft.thinking_level) if draft.thinking_level else None,
        "context": parse_context_mode(draft.context or ""),
        "allowed_contexts": tuple(dict.fromkeys(map(ContextMode, draft.allowed_contexts))),
        "permission": Permission(draft.permission),
        "max_tokens": _whole(draft, "max_tokens"),
        "max_turns": _whole(draft, "max_turns"),
        "max_seconds": _number(draft, "max_seconds") or None,
        "max_cost_usd": _number(draft, "max_cost_usd") or None,
        "scope": Scope.USER,
        "path": path,
    }
    if before is None:
        return SubagentDefinition(**fields)  # type: ignore[arg-type]
    if fields["body"] == _clean(before.body):
        fields["body"] = before.body
    return replace(before, **fields)  # type: ignore[arg-type]


def shown_while_incomplete(draft: Draft) -> Draft:
    """Return the draft for a preview: an ellipsis for what is missing, nothing for what cannot be used."""
    changes: dict[str, object] = {
        name: "…" for name in ("name", "description", "body") if not getattr(draft, name).strip()
    }
    wrong = {name for name, _ in _problems(draft, None, lambda name: None)} - changes.keys() - {"name"}
    changes |= {name: Draft.model_fields[name].default for name in wrong}
    return draft.model_copy(update=changes)


def cap_of(draft: Draft) -> int | None:
    """Return the output cap of a draft in tokens, or None while it has none that can be used."""
    number = _number(draft, "max_tokens")
    usable = number is not None and number == int(number) and 1 <= number <= MAX_OUTPUT_CAP_TOKENS
    return int(number) if usable and number is not None else None


def _pins(texts: Sequence[str]) -> tuple[ModelPin, ...]:
    """Return the pins; of those that name one model the first counts (specification 4.3)."""
    pins = [pin for text in texts if (pin := parse_pin(text)) is not None]
    first = {pin.key: pin for pin in reversed(pins)}
    return tuple(first[key] for key in dict.fromkeys(pin.key for pin in pins))


def _number(draft: Draft, field: str) -> float | None:
    """Return the number of a field, None for none, and -1 for what is no number."""
    value: Number = getattr(draft, field)
    if isinstance(value, str):
        if not value.strip():
            return None
        value = number_of(value, field)
        if value is None:
            return -1
    if value is None:
        return None
    return float(value) if abs(value) < 1e15 and math.isfinite(value) else -1


def _how(draft: Draft, field: str) -> str:
    """Return how to write a number, when what was written in the field is none."""
    value = getattr(draft, field)
    return f" {how_to_write(field)}" if isinstance(value, str) and number_of(value, field) is None else ""


def _whole(draft: Draft, field: str) -> int | None:
    number = _number(draft, field)
    return int(number) or None if number is not None else None


def _clean(text: str) -> str:
    return without_unprintable(text.replace("\r\n", "\n").replace("\r", "\n")).strip()


def _clean_line(text: str) -> str:
    return " ".join(_clean(text).split())
