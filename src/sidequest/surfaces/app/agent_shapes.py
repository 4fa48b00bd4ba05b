"""Subagents as pages and API show them: files in groups, what became of each, and what one would run on."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from sidequest.core.budget import ContextBudget
from sidequest.models.bindings import ModelBinding
from sidequest.subagents.catalog import Catalog, Entry
from sidequest.subagents.definition import Scope
from sidequest.subagents.diagnostics import Diagnostic
from sidequest.surfaces.app.agent_drafts import FieldProblem
from sidequest.surfaces.app.shapes import Shape
from sidequest.surfaces.definitions import shadows, why
from sidequest.surfaces.paths import Shortener
from sidequest.surfaces.planned_model import PlannedModel

GroupKind = Literal["builtin", "mine", "project", "foreign", "named"]


class Remark(Shape):
    """What there is to say about a file or a folder."""

    path: str
    line: int | None = Field(description="Line in the file, the first is 1; null: about the whole.")
    severity: str
    message: str

    @classmethod
    def of(cls, found: Diagnostic) -> Remark:
        """Return a diagnostic as it is shown."""
        return cls(path=found.path, line=found.line, severity=found.severity.value, message=found.message)


class Budget(Shape):
    """What a model leaves for a request of a subagent, in tokens."""

    model: str = Field(description="Key of the model.")
    window: int
    window_source: str = Field(description="Who stated the window; `unknown` takes 128,000.")
    output: int = Field(description="Output budget: the maximum output, at most a quarter of the window.")
    headroom: int
    hard_limit: int = Field(description="The first request size that is too large.")
    prompt: int = Field(description="Estimate of the part of each request that the prompt takes.")

    @classmethod
    def of(cls, binding: ModelBinding, budget: ContextBudget, prompt: int) -> Budget:
        """Return the budget of a model as it is shown; `prompt` in tokens."""
        return cls(
            model=binding.key,
            window=budget.window,
            window_source=binding.window_source,
            output=budget.output,
            headroom=budget.headroom,
            hard_limit=budget.hard_limit,
            prompt=prompt,
        )


class Agent(Shape):
    """One definition file, or a builtin, and what became of it."""

    name: str = Field(description="The id it claims; empty when not even its file name gives one.")
    shown_name: str
    scope: str
    path: str | None
    place: str = Field(description="The path as a person writes it.")
    state: str
    reason: str = Field(description="Why it is not active; empty when it is.")
    by: str | None = Field(description="Path of the file that has the name instead.")
    shadows: tuple[str, ...] = Field(description="Files that this one keeps from being active.")
    enabled: bool = Field(description="Whether the user's switch is on.")
    editable: bool = Field(description="Whether it is a file of the user's own folder that can be changed.")
    description: str = ""
    tools: tuple[str, ...] = ()
    inherit_tools: bool = False
    disallowed_tools: tuple[str, ...] = ()
    can_mutate: bool = False
    model: str | None = None
    fallback_models: tuple[str, ...] = ()
    thinking_level: str | None = None
    permission: str = "inherit"
    max_tokens: int | None = None
    max_turns: int | None = None
    max_seconds: float | None = None
    max_cost_usd: float | None = None
    context: str | None = None
    allowed_contexts: tuple[str, ...] = ()
    ignored: tuple[str, ...] = Field(
        default=(), description="Keys of the file that are kept there and not used."
    )
    reader: str | None = Field(
        default=None, description="`strict` for YAML, `lenient` when read line by line."
    )
    runs_on: str | None = Field(
        default=None, description="Key of the model that would run; null when none can."
    )
    model_note: str = Field(
        default="", description="Why that is not the model it asks for; empty when it is."
    )
    diagnostics: tuple[Remark, ...] = ()

    @classmethod
    def of(
        cls, entry: Entry, plan: PlannedModel | None, catalog: Catalog, place: Shortener, *, enabled: bool
    ) -> Agent:
        """Return an entry of a catalog as it is shown; `enabled` says whether the user's switch is on."""
        known: dict[str, Any] = {
            "name": entry.name,
            "shown_name": entry.name,
            "scope": entry.scope.value,
            "path": entry.path,
            "place": place.short(entry.path),
            "state": entry.state.value,
            "reason": why(entry, place, "trust its folder"),
            "by": entry.by,
            "shadows": tuple(shadows(entry, catalog)),
            "enabled": enabled,
            "editable": entry.scope is Scope.USER,
            "diagnostics": tuple(Remark.of(found) for found in entry.diagnostics),
        }
        own = entry.definition
        if own is not None:
            known |= {
                "shown_name": own.shown_name,
                "description": own.description,
                "tools": own.tools,
                "inherit_tools": own.inherit_tools,
                "disallowed_tools": own.disallowed_tools,
                "can_mutate": own.can_mutate,
                "model": str(own.model) if own.model else None,
                "fallback_models": tuple(map(str, own.fallback_models)),
                "thinking_level": own.thinking and own.thinking.value,
                "permission": own.permission.value,
                "max_tokens": own.max_tokens,
                "max_turns": own.max_turns,
                "max_seconds": own.max_seconds,
                "max_cost_usd": own.max_cost_usd,
                "context": own.context and own.context.value,
                "allowed_contexts": tuple(mode.value for mode in own.allowed_contexts),
                "ignored": own.foreign,
                "reader": own.reader.value,
            }
        if plan is not None:
            known |= {"runs_on": plan.binding.key if plan.binding else None, "model_note": plan.note}
        return cls.model_validate(known)


class AgentFile(Agent):
    """A definition with its prompt and the mark that a save is checked against."""

    body: str | None = Field(description="The prompt; null when the file does not load.")
    text: str = Field(description="The whole file, unreadable characters replaced.")
    mark: str = Field(description="Changes when the file does; give it back with a change.")
    budget: Budget | None = None


class Group(Shape):
    """The definitions of one folder, or the builtins."""

    kind: GroupKind
    folder: str | None = Field(description="The folder as a person writes it; null for the builtins.")
    trusted: bool
    agents: tuple[Agent, ...]


class Trust(Shape):
    """Whether the definitions and instructions of the folder that is worked in are used."""

    folder: str
    trusted: bool
    changed: bool = Field(description="Whether it was trusted and its files changed since.")
    files: tuple[str, ...] = Field(description="The files this is about.")
    mark: str = Field(description="Changes when one of the files does; trust is given to what was shown.")


class AgentList(Shape):
    """Every definition there is, in groups."""

    groups: tuple[Group, ...]
    remarks: tuple[Remark, ...] = Field(description="About folders and the catalog as a whole.")
    trust: Trust


class Preview(Shape):
    """What a draft would become."""

    name: str = Field(description="The id; empty while the name gives none.")
    place: str = Field(description="The file, as a person writes it.")
    text: str = Field(description="The file; what is still missing in the draft is shown as an ellipsis.")
    bytes: int = Field(description="Size of the file.")
    problems: tuple[FieldProblem, ...]
    runs_on: str | None
    model_note: str
    budget: Budget | None
