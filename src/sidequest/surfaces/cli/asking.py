"""Permission questions at a terminal: the oldest one is shown, one key answers it.

Nothing waits in the event loop: the keys come from a reader of the loop, and progress is held back as long
as a question stands. What was typed before a question could be read does not answer it, and what was not
shown cannot be allowed: of a long command or change a key shows the rest first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.text import Text

from sidequest.core.permissions import EDIT_TOOLS, Action, grants_of
from sidequest.runtime.permissions import NOBODY, Answer, Question, Questions
from sidequest.surfaces.asked import content_lines, granted_for_session, shown_path
from sidequest.surfaces.cli.keys import END_OF_INPUT, Keys
from sidequest.surfaces.cli.screen import put
from sidequest.surfaces.text import one_line, some

MAX_SHOWN_LINES = 200
"""Most lines on the screen that a change or a command takes at once; of more, a key shows the rest."""
READING_TIME_S = 0.3
"""Keys within this time after a question appeared belong to what was there before."""


@dataclass
class Asking:
    """Shows the head of the queue and answers it by its id; enter it inside the running event loop."""

    questions: Questions
    root: Path
    console: Console
    keys: Keys
    hold: Callable[[], None]
    """Called before a question is shown: progress waits."""
    release: Callable[[], None]
    """Called when no question stands any more."""
    clock: Callable[[], float] = time.monotonic
    _shown: Question | None = None
    _rest: list[Text] = field(default_factory=list)
    """What of the question has not been shown; while there is some, it cannot be allowed."""
    _since: float = 0.0
    _leave: Callable[[], None] | None = None

    def __enter__(self) -> Asking:
        self._leave = self.questions.surface(self._changed)
        self._changed()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._gone()
        if self._shown is not None:
            self._hide()

    def _gone(self) -> None:
        leave, self._leave = self._leave, None
        if leave is not None:
            leave()

    def _changed(self) -> None:
        head = self.questions.head
        if self._leave is None or (
            head is not None and self._shown is not None and head.id == self._shown.id
        ):
            return
        if head is None:
            if self._shown is not None:
                self._hide()
            return
        if self._shown is None:
            self.hold()
        self._shown = head
        for line in head_lines(head, self.root):
            put(self.console, line)
        self._put_content(_content(head, self.root), MAX_SHOWN_LINES)
        self.keys.start(self._on_key)

    def _put_content(self, lines: list[Text], room: int | None) -> None:
        """Show `lines`, as many as take `room` lines on the screen (None: all), and the keys."""
        width = max(1, self.console.width)
        shown = 0
        for line in lines:
            needed = 1 + line.cell_len // width
            if room is not None and needed > room:
                break
            room = None if room is None else room - needed
            put(self.console, line)
            shown += 1
        self._rest = lines[shown:]
        if self._shown is not None:
            put(self.console, keys_line(self._shown, len(self._rest)))
        self._since = self.clock()

    def _hide(self) -> None:
        self._shown = None
        self.keys.stop()
        self.release()

    def _on_key(self, key: str) -> None:
        question = self._shown
        if question is None:
            return
        if key == END_OF_INPUT:
            self._gone()  # the others are denied because nobody is here
            self._hide()
            self.questions.answer(question.id, NOBODY)
            return
        if self.clock() - self._since < READING_TIME_S:
            return
        if key.lower() == SHOW_KEY and self._rest:
            self._put_content(self._rest, None)
            return
        found = _ANSWERS.get(key.lower())
        if found is None or (found[0].allowed and self._rest):
            return
        answer, said = found
        if answer.for_session and question.confirmation is None and not grants_of(question.action):
            return
        put(self.console, Text(f"  {said}", "green" if answer.allowed else "yellow"))
        self.questions.answer(question.id, answer)


SHOW_KEY = "s"
_ANSWERS = {
    "y": (Answer(True), "allowed"),
    "n": (Answer(False), "denied"),
    "a": (Answer(True, for_session=True), "allowed for this session"),
}


def question_lines(question: Question, root: Path) -> Iterator[Text]:
    """Give the lines of a question: who asks for what and why, what it is in full, and the keys."""
    yield from head_lines(question, root)
    yield from _content(question, root)
    yield keys_line(question)


def head_lines(question: Question, root: Path) -> Iterator[Text]:
    """Give the lines that say who asks for what, and why."""
    action = question.action
    who = " > ".join(one_line(part) for part in question.asker)
    yield Text()
    if question.confirmation is not None:
        asked = question.confirmation
        yield Text(f"? {who} asks: start {one_line(asked.agent)} on {one_line(asked.model)}", "bold")
        return
    target = f" {one_line(shown_path(action.path, root))}" if action.path else ""
    yield (
        Text(f"? {who}", "bold")
        .append(f" asks: {one_line(action.tool)}{target}", "bold")
        .append(f"   ({one_line(question.reason)})", "dim")
    )


def keys_line(question: Question, unseen: int = 0) -> Text:
    """Return the keys that answer `question`; with `unseen` lines left, the one that shows them."""
    if unseen:
        return Text(f"  {SHOW_KEY} show the other {some(unseen, 'line')}, before it can be allowed   n deny")
    if question.confirmation is not None:
        agent = one_line(question.confirmation.agent)
        return Text(f"  y allow once   n deny   a allow for this session: {agent}")
    return Text("  y allow   n deny").append(_session_key(question.action))


def _content(question: Question, root: Path) -> list[Text]:
    edit = question.action.tool in EDIT_TOOLS
    styles = {"+": "green", "-": "red"} if edit else {}
    return [Text("    ").append(line, styles.get(line[:1], "")) for line in content_lines(question, root)]


def _session_key(action: Action) -> str:
    granted = granted_for_session(action)
    return f"   a allow for this session: {granted}" if granted else ""
