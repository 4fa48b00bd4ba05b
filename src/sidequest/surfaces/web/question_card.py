"""The permission question of a session that waits longest, and its answers."""

from __future__ import annotations

import asyncio
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from nicegui import ui

from sidequest.core.permissions import EDIT_TOOLS
from sidequest.runtime.permissions import Answer
from sidequest.surfaces.asked import content_lines, granted_for_session, shown_path, task_lines
from sidequest.surfaces.text import one_line, short_id, some
from sidequest.surfaces.web.delegation_card import name_of
from sidequest.surfaces.web.form import focus
from sidequest.surfaces.web.tags import Tag

if TYPE_CHECKING:
    from sidequest.core.confirmation import Confirmation
    from sidequest.runtime.permissions import Question
    from sidequest.surfaces.web.session_desk import SessionDesk

MAX_LINES = 400
"""Most lines of a command, a change or a task that are shown at once; the rest is opened by a button."""
MAX_CHARS = 40_000
"""Most characters of them."""

READING_S = 0.5
"""A question is not allowed sooner than this after it was shown: that click was meant for the one before.

The page itself waits a little longer (`static/session.js`).
"""


class QuestionCard:
    """Shows the head of the queue; it goes when somebody answered it, here or elsewhere."""

    def __init__(self, desk: SessionDesk) -> None:
        self._desk = desk
        self._shown: str | None = None
        self._allowing: list[Tag] = []
        """The buttons that allow what is shown."""
        self._whole = True
        """Whether all of it has been shown: before that nothing is allowed."""
        self._since_s = 0.0
        """When the question that is shown came here, by the event loop's clock."""
        self._note_id = ""
        self.element = Tag(
            "section",
            classes="question",
            hidden=True,
            role="alertdialog",
            aria_label="Permission question",
            tabindex=-1,
        )

    def show(self) -> None:
        """Show what waits now."""
        live = self._desk.application.live.get(self._desk.session_id)
        questions = live.session.rights.questions if live is not None else None
        head = questions.head if questions is not None else None
        if live is None or questions is None or head is None:
            self._shown = None
            self.element.attribute("hidden", value=True)
            self.element.clear()
            return
        if head.id != self._shown:
            self._shown, self._since_s = head.id, _now_s()
            self.element.clear()
            with self.element:
                self._build(head, live.session.workspace.root)
            self.element.attribute("hidden", value=False)
        more = len(questions) - 1
        self._more.text = f"{some(more, 'more question')} waiting" if more else ""

    def _build(self, question: Question, root: Path) -> None:
        self._allowing = []
        if question.confirmation is not None:
            self._confirm(question, question.confirmation)
            return
        action = question.action
        who = self._who(question)
        target = f" {one_line(shown_path(action.path, root))}" if action.path else ""
        self._head(who, f"{one_line(action.tool, 40)}{target}")
        Tag("p", one_line(question.reason, 300), "small")
        whole = self._content(list(content_lines(question, root)), edit=action.tool in EDIT_TOOLS)
        granted = granted_for_session(action)
        with Tag("div", classes="actions"):
            self._allow(question, whole=whole)
            if granted:
                self._allow(question, granted, whole=whole)
            self._deny(question)
        if granted:
            Tag("p", f"For this session: {granted}", "small")

    def _head(self, who: str, what: str) -> None:
        with Tag("div", classes="question-head"):
            with Tag("p"):
                Tag("strong", who)
                Tag("span", " asks: ")
                Tag("strong", what)
            self._more = Tag("span", classes="chip warn")

    def _confirm(self, question: Question, asked: Confirmation) -> None:
        """Ask whether a subagent may start that can do more than read."""
        who = self._who(question)
        self._head(who, f"start {one_line(asked.agent, 40)} on {one_line(asked.model, 80)}")
        with Tag("ul", classes="capabilities"):
            for capability in asked.capabilities:
                Tag("li", f"It can {one_line(capability.text, 300)}")
        whole = self._content(list(task_lines(asked)), label="Its task")
        granted = f"starts of {one_line(asked.agent, 40)}"
        with Tag("div", classes="actions"):
            self._allow(question, whole=whole)
            self._allow(question, granted, whole=whole)
            self._deny(question)
        Tag("p", f"For this session: {granted}", "small")

    def _allow(self, question: Question, granted: str = "", *, whole: bool) -> None:
        """Offer to allow it once, or for the session, which then holds for what `granted` says."""
        words, classes = ("Allow for this session", "button") if granted else ("Allow once", "button primary")
        # session.js makes the button usable when the question was there long enough.
        button = Tag(
            "button",
            words,
            classes,
            type="button",
            title=granted or None,
            disabled=True,
            data_allows=question.id if whole else None,
        )
        self._allowing.append(button)
        answer = Answer(True, for_session=bool(granted))
        button.on(
            "click",
            lambda event: self._answer(str(event.args), answer),
            js_handler="(event) => emit(event.currentTarget.dataset.allows)",
        )

    def _deny(self, question: Question) -> None:
        note = Tag(
            "input",
            classes="field note",
            type="text",
            placeholder="Say why not (optional)",
            aria_label="Note for the model when it is denied",
            maxlength=500,
        )
        deny = Tag("button", "Deny", "button danger", type="button", data_denies=question.id)
        deny.on(
            "click",
            lambda event: self._denied(event.args),
            js_handler="(event) => emit([event.currentTarget.dataset.denies, "
            f'document.getElementById("{note.html_id}").value])',
        )

    def _content(self, content: list[str], *, edit: bool = False, label: str = "What it would do") -> bool:
        """Show `content`, as much as is read at once; return whether that is all of it."""
        # A diff of a file with a key in it does not take that key to the browser.
        lines: list[str] = self._desk.application.store.masked(content)
        self._whole = True
        if not lines:
            return True
        first = _readable(lines)
        box = Tag("div", classes="code", tabindex=0, role="group", aria_label=label)
        with box:
            _put(lines[:first], edit=edit)
        if first == len(lines):
            return True
        rest, self._whole = lines[first:], False
        more = Tag("button", f"Show the other {some(len(rest), 'line')}", "button", type="button")
        hint = Tag("p", "It can be allowed when all of it has been shown.", "small")

        def show_all() -> None:
            with box:
                _put(rest, edit=edit)
            more.delete()
            hint.delete()
            self._whole, self._since_s = True, _now_s()
            for button in self._allowing:
                button.attribute("data_allows", self._shown)

        more.on("click", show_all)
        return False

    def _who(self, question: Question) -> str:
        """Return who asks, from the session's agent down: `Parent agent › #2 fixer (1a2b3c4d)`."""
        first, *rest = question.asker
        named = [one_line(part, 40) for part in ("Parent agent" if first == "parent" else first, *rest)]
        work = self._desk.watched.view.works.get(question.delegation_id or "")
        if work is not None:
            named[-1] = name_of(work)
        elif question.delegation_id is not None:
            named[-1] += f" ({short_id(question.delegation_id)})"
        return " › ".join(named)

    def _denied(self, given: object) -> None:
        if isinstance(given, list) and len(given) == 2:
            self._answer(str(given[0]), Answer(False, note=str(given[1] or "").strip()))

    def _answer(self, question_id: str, answer: Answer) -> None:
        """Give the answer to the question that was shown where it was clicked, and to no other one."""
        shown = question_id == self._shown
        if shown and answer.allowed and not (self._whole and _now_s() - self._since_s >= READING_S):
            return
        live = self._desk.application.live.get(self._desk.session_id)
        if not shown or live is None or not live.session.rights.questions.answer(question_id, answer):
            self._desk.complain("This question was answered already.")
        self.show()
        self._go_on()

    def _go_on(self) -> None:
        """Move the focus: the button that was pressed is gone. To the next question, or where one writes."""
        with self.element:
            if self._shown is not None:
                focus(self.element.html_id)
            else:
                ui.run_javascript('document.querySelector(".composer-text")?.focus()')


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _readable(lines: list[str]) -> int:
    """Return how many of `lines` are shown at once."""
    chars = 0
    for number, line in enumerate(lines[:MAX_LINES]):
        chars += len(line)
        if chars > MAX_CHARS:
            return number
    return min(len(lines), MAX_LINES)


def _put(lines: list[str], *, edit: bool) -> None:
    """Put lines into the box at hand; those of one kind that follow each other are one element."""
    for kind, same in groupby(lines, _kind if edit else lambda line: ""):
        Tag("div", "\n".join(line or " " for line in same), f"code-line {kind}".strip())


def _kind(line: str) -> str:
    """Return the class of a line of a change; the two lines that name the file are no change."""
    if line.startswith(("--- ", "+++ ", "@@")):
        return "place"
    return {"+": "added", "-": "removed"}.get(line[:1], "")
