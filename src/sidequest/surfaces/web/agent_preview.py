"""Beside the editor: the file that results, the model that would run, and what that leaves for a request."""

from __future__ import annotations

from sidequest.surfaces.app.agent_shapes import Budget, Preview
from sidequest.surfaces.text import count, printable
from sidequest.surfaces.web.tags import Tag


class AgentPreview:
    """Builds the preview in the current place; `show` fills it."""

    def __init__(self) -> None:
        with Tag("section", classes="card budget", aria_label="Budget"):
            Tag("h2", "Budget")
            self._budget = Tag("div", classes="budget-text")
        with Tag("section", classes="card", aria_label="File"):
            Tag("h2", "File")
            self._place = Tag("p", classes="small mono place")
            self._text = Tag("pre", classes="file-text", tabindex=0)

    def show(self, preview: Preview) -> None:
        """Show what a draft would become."""
        self._place.text = printable(preview.place)
        self._text.text = printable(preview.text)
        self._budget.clear()
        with self._budget:
            if preview.budget is not None:
                _show_budget(preview.budget)
            if preview.model_note or preview.budget is None:
                Tag("p", printable(preview.model_note) or "No model can run it.", "small warn-text")

    def refuse(self, message: str) -> None:
        """Say why there is no preview."""
        self._text.text = printable(message)


def _show_budget(budget: Budget) -> None:
    with Tag("p"):
        Tag("strong", count(budget.hard_limit))
        Tag("span", f" of {count(budget.window)} tokens are left for a request on ")
        Tag("span", printable(budget.model), "mono")
        Tag("span", ".")
    prompt = min(budget.prompt, budget.hard_limit)
    with Tag("div", classes="bar", aria_hidden="true"):
        for name, tokens in (
            ("prompt", prompt),
            ("room", budget.hard_limit - prompt),
            ("headroom", budget.headroom),
        ):
            Tag("span", classes=f"bar-{name}").style(f"flex-grow: {tokens}")
    with Tag("dl", classes="numbers"):
        for name, label, tokens in (
            ("prompt", "The prompt takes about", budget.prompt),
            ("room", "Room for the task and its work", max(0, budget.hard_limit - budget.prompt)),
            ("headroom", "Headroom, kept free for the answer", budget.headroom),
            ("", "Most output of one response", budget.output),
        ):
            with Tag("div"):
                Tag("dt", label, f"key key-{name}" if name else "key")
                Tag("dd", count(tokens))
    if budget.window_source in ("unknown", "assumed"):
        Tag("p", "The window of this model is a guess. State it in the settings.", "small warn-text")
