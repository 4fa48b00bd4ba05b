"""The fields of a subagent in the editor, and the draft that they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidequest.core.budget import MAX_OUTPUT_CAP_TOKENS
from sidequest.core.context_modes import ContextMode
from sidequest.subagents.definition import (
    ASSIGNABLE_TOOLS,
    MUTATING_TOOLS,
    AssignableTool,
    Permission,
    Thinking,
)
from sidequest.subagents.parse import MAX_DOCUMENT_BYTES
from sidequest.surfaces.app.agent_drafts import Draft
from sidequest.surfaces.app.agent_shapes import Preview
from sidequest.surfaces.text import count, one_line
from sidequest.surfaces.web.fallbacks import Fallbacks
from sidequest.surfaces.web.form import Choices, Form, Values, one
from sidequest.surfaces.web.permission_words import MODE_WORDS
from sidequest.surfaces.web.tags import Tag

if TYPE_CHECKING:
    from sidequest.surfaces.app.application import Application

NEAR = 0.8
"""From this share of the largest file on, its size is shown as near the limit."""
_THINKING_WORDS = {"": "As the session does", Thinking.OMIT.value: "omit (send no setting)"}
_MUTATING = {
    tool: "runs commands" if tool is AssignableTool.BASH else "changes files" for tool in MUTATING_TOOLS
}
_PERMISSIONS = {
    Permission.INHERIT: "As the session does it",
    **{Permission(mode.value): words for mode, words in MODE_WORDS.items()},
}
_CONTEXTS = {
    ContextMode.INDEPENDENT: "Independent: the task alone",
    ContextMode.FORK: "Fork: the conversation so far",
}


def model_choices(application: Application) -> Choices:
    """Return the configured models to choose from, those that lack something with a remark."""
    registry = application.parts().registry
    return [
        (binding.key, binding.key if binding.ready else f"{binding.key} (not ready)")
        for binding in registry.listed()
    ]


class AgentFields:
    """Builds the fields of `draft` in a form."""

    def __init__(
        self, form: Form, draft: Draft, models: Choices, *, editing: bool, active: bool = True
    ) -> None:
        self.form = form
        self.slug = form.text("name", "Name", draft.name, hint=" ", autofocus=not editing)
        form.area(
            "description",
            "Description",
            draft.description,
            rows=2,
            hint="When to use it: a parent agent chooses by this.",
        )
        self._tools(draft)
        self.size = form.area("body", "Prompt", draft.body, rows=14, mono=True, hint=" ")
        with Tag("details", classes="folded", open=editing):
            Tag("summary", "Advanced")
            with Tag("div", classes="form"):
                with form.boxes("active", "Active"):
                    form.box("active", "yes", "Parent agents may use it", ticked=active)
                self._advanced(draft, models)

    def _tools(self, draft: Draft) -> None:
        with self.form.boxes("tools", "Tools"):
            self.form.box("inheritTools", "yes", "All of the session (inherit)", ticked=draft.inherit_tools)
            for tool in ASSIGNABLE_TOOLS:
                self.form.box("tools", tool, tool, ticked=tool in draft.tools, mark=_MUTATING.get(tool, ""))
            for tool in draft.tools:
                if tool not in ASSIGNABLE_TOOLS:
                    self.form.box("tools", tool, one_line(tool, 60), ticked=True)

    def _advanced(self, draft: Draft, models: Choices) -> None:
        form = self.form
        pinned = [*models]
        if draft.model and all(draft.model != key for key, _ in models):
            pinned.append((draft.model, f"{draft.model} (not configured)"))
        with Tag("div", classes="pair"):
            form.choice("model", "Model", draft.model or "", [("", "Same as the session"), *pinned])
            levels = [("", _THINKING_WORDS[""])] + [
                (level.value, _THINKING_WORDS.get(level.value, level.value)) for level in Thinking
            ]
            form.choice("thinkingLevel", "Thinking", draft.thinking_level or "", levels)
        self.fallbacks = Fallbacks(form, list(draft.fallback_models or ()), models)
        with Tag("div", classes="pair"):
            modes = [(mode.value, words) for mode, words in _CONTEXTS.items()]
            form.choice("context", "Context", draft.context or "", [("", "As the session does"), *modes])
            with form.boxes("allowedContexts", "Allowed contexts", hint="None ticked: both."):
                for mode in ContextMode:
                    ticked = mode.value in draft.allowed_contexts
                    form.box("allowedContexts", mode.value, mode.value.capitalize(), ticked=ticked)
        with Tag("div", classes="pair"):
            self.cap = form.text(
                "maxTokens",
                "Max output tokens",
                _number(draft.max_tokens),
                kind="number",
                placeholder="follow the model",
                hint=f"For each response, 1 to {count(MAX_OUTPUT_CAP_TOKENS)}.",
            )
            form.text(
                "maxTurns",
                "Turn limit",
                _number(draft.max_turns),
                kind="number",
                placeholder="no limit",
                hint="Most requests of one run; before the last it is asked for its report.",
            )
        words = [(permission.value, text) for permission, text in _PERMISSIONS.items()]
        hint = "It narrows what the session allows and never widens it."
        form.choice("permission", "Permission", draft.permission, words, hint=hint)

    def show(self, preview: Preview, *, new: bool) -> None:
        """Show what follows from the fields: the id, the size, what an empty cap means."""
        self.slug.text = (
            f"Its id is {preview.name}."
            if preview.name and new
            else (f"Stays in {preview.place}." if preview.name else "Letters and digits of it make the id.")
        )
        share = preview.bytes / MAX_DOCUMENT_BYTES
        self.size.text = f"{count(preview.bytes)} of {count(MAX_DOCUMENT_BYTES)} bytes, the whole file."
        self.size.classes(replace="hint over" if share > 1 else "hint near" if share >= NEAR else "hint")
        if preview.budget is not None:
            self.cap.text = (
                f"For each response, 1 to {count(MAX_OUTPUT_CAP_TOKENS)}. "
                f"Empty follows the model: {preview.budget.model}."
            )


def _number(value: object) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def draft_of(values: Values, first: Draft, fallbacks: tuple[str, ...]) -> Draft:
    """Return the draft that the fields hold; what has no field is as in `first`."""
    held: dict[str, object] = {
        "name": one(values, "name"),
        "description": one(values, "description"),
        "tools": tuple(values.get("tools", ())),
        "inherit_tools": "inheritTools" in values,
        "body": one(values, "body"),
        "model": one(values, "model") or None,
        "thinking_level": one(values, "thinkingLevel") or None,
        "fallback_models": fallbacks,
        "context": one(values, "context") or None,
        "allowed_contexts": tuple(values.get("allowedContexts", ())),
        "permission": one(values, "permission") or Permission.INHERIT.value,
        "max_tokens": _as_before(one(values, "maxTokens"), first.max_tokens),
        "max_turns": _as_before(one(values, "maxTurns"), first.max_turns),
    }
    for name in ("name", "description", "body"):
        # A browser may change blanks at the ends; that is no change of the file.
        before = getattr(first, name)
        if str(held[name]).strip() == before.strip():
            held[name] = before
    if set(first.tools) == set(values.get("tools", ())):
        held["tools"] = first.tools
    return first.model_copy(update=held)


def _as_before(text: str, before: object) -> object:
    return before if text.strip() == _number(before) else text.strip() or None
