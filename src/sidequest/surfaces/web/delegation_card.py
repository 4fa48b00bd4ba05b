"""The card of a delegation: who works on what, how far it is, how full its context is, how it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidequest.core.outcome import DEGRADED_NOTE, Status
from sidequest.surfaces.storing import now_ms
from sidequest.surfaces.text import count, duration, money, one_line, short_id, some
from sidequest.surfaces.web.delegation_details import DelegationDetails
from sidequest.surfaces.web.gauge import Gauge
from sidequest.surfaces.web.tags import Tag

if TYPE_CHECKING:
    from sidequest.surfaces.app.work import Work
    from sidequest.surfaces.web.session_desk import SessionDesk

STATUS_WORDS = {
    Status.RUNNING: ("working", "accent"),
    Status.COMPLETED: ("completed", "good"),
    Status.PARTIAL: ("partial", "warn"),
    Status.FAILED: ("failed", "bad"),
    Status.STOPPED: ("stopped", ""),
    Status.INTERRUPTED: ("interrupted", "warn"),
}
"""What each status is called, and the class of its chip."""


def status_words(work: Work) -> tuple[str, str]:
    """Return where a delegation stands in words, and the class of its chip."""
    return ("asks you", "warn") if work.asking else STATUS_WORDS[work.status]


class DelegationCard:
    """One delegation inside a conversation."""

    def __init__(self, desk: SessionDesk, work: Work) -> None:
        self._desk = desk
        self._work = work
        self._details: DelegationDetails | None = None
        with Tag("article", classes="delegation") as self.element:
            with Tag("button", classes="delegation-head", type="button", aria_expanded="false") as self._head:
                Tag("span", classes="dot", aria_hidden="true")
                with Tag("span", classes="delegation-title"):
                    self._agent = Tag("span", classes="delegation-agent")
                    self._label = Tag("span", classes="delegation-label")
                self._status = Tag("span", classes="chip")
                self._elapsed = Tag("span", classes="delegation-elapsed")
                Tag("span", classes="chevron", aria_hidden="true")
            self._gauge = Gauge("Context of this delegation")
            self._facts = Tag("p", classes="delegation-facts")
            self._now = Tag("p", classes="delegation-now", hidden=True)
            self._said = Tag("p", classes="delegation-said", hidden=True)
            self._more = Tag("div", classes="delegation-more", hidden=True)
        self._head.attribute("aria_controls", self._more.html_id)
        self._head.on("click", self._toggle)
        self.show(work)

    def show(self, work: Work) -> None:
        """Show how far it is."""
        self._work = work
        view = work.view
        words, kind = status_words(work)
        self.element.classes(replace=f"delegation {work.status.value}")
        self.element.attribute("aria_label", f"Delegation {view.number}: {view.agent}, {words}")
        self._agent.text = one_line(view.agent, 40)
        self._label.text = one_line(view.label or work.task, 120)
        self._status.text = words
        self._status.classes(replace=f"chip {kind}")
        self._gauge.show(
            view.at.tokens,
            view.at.hard_limit,
            work.marks,
            shrinks=view.at.compactions,
            lost=view.at.degradations,
        )
        self._facts.text = facts_of(work)
        now = _doing(work)
        self._now.text = now
        self._now.attribute("hidden", not now)
        said = plainly(work)
        self._said.text = said
        self._said.attribute("hidden", not said)
        self.tick()
        if self._details is not None:
            self._details.show(work)

    def tick(self) -> None:
        """Let the clock of a running delegation go on."""
        self._elapsed.text = duration(self._work.view.elapsed_s(now_ms()))

    @property
    def running(self) -> bool:
        """Whether its clock goes."""
        return self._work.running

    async def _toggle(self) -> None:
        opened = self._more.props.get("hidden") is not None
        self._more.attribute("hidden", not opened)
        self._head.attribute("aria_expanded", "true" if opened else "false")
        if opened and self._details is None:
            with self._more:
                self._details = DelegationDetails(self._desk, self._work)
            await self._details.load()


def facts_of(work: Work) -> str:
    """Return model, context mode and counts in one line; what is not known is said to be so."""
    view, usage = work.view, work.usage
    asked = work.asked_model
    model = view.model if view.model == asked or not asked else f"{view.model} (asked for {asked})"
    parts = [model, view.context_mode, some(view.at.turns, "turn"), some(view.at.tools, "tool call")]
    if usage is not None:
        parts += [f"{count(usage.total_tokens)} tokens used", money(usage.cost_usd)]
    elif not work.running:
        parts.append("use and price unknown")
    return " · ".join(parts)


def plainly(work: Work) -> str:
    """Return what is not as one would expect of a report, in sentences; empty when nothing is."""
    said = []
    if work.degraded:
        said.append(DEGRADED_NOTE.removeprefix("Note: ").capitalize())
    outcome = work.outcome
    why = outcome.failure.message if outcome is not None and outcome.failure is not None else ""
    match work.status:
        case Status.PARTIAL:
            said.append(f"The report is partial. {why}".strip())
        case Status.FAILED:
            said.append(why or "It failed.")
        case Status.INTERRUPTED:
            said.append("Its process ended while it worked. It can be resumed.")
    if outcome is not None and outcome.unfinished_tool:
        said.append(f"A call of {outcome.unfinished_tool} was running when it ended.")
    return " ".join(said)


def _doing(work: Work) -> str:
    at = work.view.at
    if not work.running:
        return ""
    if work.asking:
        return "Waits for your permission"
    if at.waiting_for:
        return f"Waiting: {at.waiting_for}"
    if at.tool_running:
        return one_line(f"{at.tool} {at.tool_summary}", 160)
    return "Thinking"


def name_of(work: Work) -> str:
    """Return a delegation in a few words: its number, its subagent, the beginning of its id."""
    return f"#{work.view.number} {one_line(work.view.agent, 40)} ({short_id(work.id)})"
