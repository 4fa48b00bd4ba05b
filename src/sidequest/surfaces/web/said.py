"""The pieces of a conversation: prompts, answers, tool calls, notices, compactions, failures."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import TYPE_CHECKING, TypeAlias

from nicegui import background_tasks, ui

from sidequest.surfaces.app.entries import (
    RUNNING,
    Answer,
    Divider,
    Line,
    Prompt,
    ToolLine,
    Trouble,
)
from sidequest.surfaces.app.live import forked
from sidequest.surfaces.app.reading import result_of
from sidequest.surfaces.app.troubles import is_a_stop, remedy_of, title_of_trouble
from sidequest.surfaces.text import count, one_line, printable
from sidequest.surfaces.web.markdown import MarkdownBox
from sidequest.surfaces.web.tags import Tag

if TYPE_CHECKING:
    from sidequest.surfaces.web.session_desk import SessionDesk

Spoken: TypeAlias = Prompt | Answer | ToolLine | Line | Divider | Trouble
RESULT_CHARS = 6_000
"""How much of a tool's result is shown at first."""
PROMPT_CHARS = 12_000
"""How much of a prompt is shown."""
_OWN_TOOLS = {
    "TaskWait": "Wait for subagents",
    "TaskList": "List the delegations",
    "TaskStop": "Stop subagents",
    "Task": "Delegation refused",
    "new_context": "Ask for a compaction",
}
"""What our own tools do, in words; their arguments are ids."""
_ENDS = {
    RUNNING: ("running", ""),
    "success": ("done", "good"),
    "failed": ("failed", "bad"),
    "denied": ("denied", "warn"),
    "interrupted": ("interrupted", "warn"),
}


def sameness(value: Spoken) -> Hashable:
    """Return what makes a value recognisable when it is read from the store after it was told."""
    match value:
        case Prompt(text=text) | Answer(text=text):
            return text
        case ToolLine(call_id=call, tool=tool):
            return call, tool
        case Divider(tokens_before=before, tokens_after=after):
            return before, after
        case Trouble(code=code):
            return code
        case Line(key=key):
            return key
        case _:
            raise TypeError(f"nothing is said by {value!r}")


def spoken(desk: SessionDesk, value: Spoken, lane: str | None = None) -> SpokenPiece:
    """Return the piece for a value; `lane` is the delegation whose steps it belongs to, None for none."""
    match value:
        case Prompt():
            return PromptPiece(value, brief=lane is not None)
        case Answer():
            return AnswerPiece(desk, value, forkable=lane is None)
        case ToolLine():
            return ToolPiece(desk, value, lane)
        case Line():
            return LinePiece(value)
        case Divider():
            return DividerPiece(desk, value)
        case Trouble():
            return TroublePiece(value)


class PromptPiece:
    """What a person asked."""

    def __init__(self, prompt: Prompt, *, brief: bool) -> None:
        label = "Brief" if brief else "You"
        with Tag("article", classes="said prompt", aria_label=label) as self.element:
            Tag("h3", label, "visually-hidden")
            self._text = Tag("div", classes="prompt-text")
        self.show(prompt)

    def show(self, value: Spoken) -> None:
        """Show another prompt."""
        if isinstance(value, Prompt):
            text = printable(value.text)
            more = len(text) - PROMPT_CHARS
            self._text.text = text if more <= 0 else f"{text[:PROMPT_CHARS]}\n… {count(more)} more characters"


class AnswerPiece:
    """What an agent said."""

    def __init__(self, desk: SessionDesk, answer: Answer, *, forkable: bool) -> None:
        self._desk = desk
        self._forkable = forkable
        self._message_id: str | None = None
        with Tag("article", classes="said answer", aria_label="Answer") as self.element:
            self._box = MarkdownBox()
            self._fork = Tag(
                "button", "Fork from here", "link-button fork", type="button", title="A copy that ends here"
            )
            self._fork.on("click", self._copy)
        self.show(answer)

    def show(self, value: Spoken) -> None:
        """Show more of the answer."""
        if not isinstance(value, Answer):
            return
        self._box.set_text(value.text)
        self._message_id = value.message_id
        self.element.classes(**{"add" if value.growing else "remove": "growing"})
        self._fork.attribute("hidden", not self._forkable or value.message_id is None or not value.last)

    async def _copy(self) -> None:
        await fork_session(self._desk, self._message_id)


async def fork_session(desk: SessionDesk, through: str | None) -> None:
    """Copy the session up to a message, None for all of it, and go to the copy."""
    made: list[str] = []

    async def copy() -> None:
        made.append((await forked(desk.application.store, desk.session_id, through)).id)

    if await desk.attempt(copy()):
        ui.navigate.to(f"/sessions/{made[0]}")


class Disclosure:
    """A line that opens and closes what is below it; `fill` puts it there when it is opened."""

    def __init__(self, classes: str, fill: Callable[[Tag], Awaitable[None]]) -> None:
        self._fill = fill
        self.open = False
        self.button = Tag("button", classes=classes, type="button", aria_expanded="false")
        self.body = Tag("div", classes="disclosed", hidden=True)
        self.button.attribute("aria_controls", self.body.html_id)
        self.button.on("click", self.toggle)

    async def toggle(self) -> None:
        """Open what is closed, close what is open."""
        self.open = not self.open
        self.button.attribute("aria_expanded", "true" if self.open else "false")
        self.body.attribute("hidden", not self.open)
        if self.open:
            await self._fill(self.body)

    def refill(self) -> None:
        """Fill what is open once more: there is more to read than when it was opened."""
        if self.open:
            background_tasks.create(self._fill(self.body), name="more to read")


class ToolPiece:
    """A tool call in one line; what it gave is read when it is opened."""

    def __init__(self, desk: SessionDesk, line: ToolLine, lane: str | None) -> None:
        self._desk, self._lane, self._line = desk, lane, line
        with Tag("div", classes="tool") as self.element:
            self._what = Disclosure("tool-line", self._read)
            with self._what.button:
                self._sign = Tag("span", classes="tool-sign", aria_hidden="true")
                self._name = Tag("span", classes="tool-name")
                self._summary = Tag("span", classes="tool-summary")
                self._end = Tag("span", classes="tool-end")
        self.show(line)

    def show(self, value: Spoken) -> None:
        """Show how the call ended."""
        if not isinstance(value, ToolLine):
            return
        before, self._line = self._line, value
        words, kind = _ENDS.get(value.ended, (value.ended, "warn"))
        own = _OWN_TOOLS.get(value.tool)
        self._name.text = own or one_line(value.tool, 60)
        self._summary.text = "" if own else one_line(value.summary)
        self._end.text = words
        self.element.classes(replace=f"tool {kind or 'running'}")
        if (value.ended, value.message_id) != (before.ended, before.message_id):
            self._what.refill()

    async def _read(self, body: Tag) -> None:
        line = self._line
        found: list[str | None] = []

        async def read() -> None:
            found.append(
                await result_of(
                    self._desk.application,
                    self._desk.session_id,
                    self._lane,
                    line.message_id,
                    line.call_id,
                )
            )

        if not await self._desk.attempt(read()):
            return
        body.clear()
        with body:
            if found[0] is None:
                Tag("p", "Nothing is stored of a result yet.", "small")
                return
            bounded_text(printable(found[0]))


def bounded_text(text: str, limit: int = RESULT_CHARS) -> None:
    """Put a text as it is onto the page: the first `limit` characters, and the rest when it is asked for."""
    pre = Tag("pre", text[:limit] if text else "(empty)", "plain", tabindex=0)
    if len(text) > limit:
        more = Tag("button", f"Show all ({count(len(text))} characters)", "link-button", type="button")

        def show_all() -> None:
            pre.text = text
            more.attribute("hidden", value=True)

        more.on("click", show_all)


class LinePiece:
    """A notice."""

    def __init__(self, line: Line) -> None:
        self.element = Tag("p", classes="line")
        self.show(line)

    def show(self, value: Spoken) -> None:
        """Show another notice."""
        if isinstance(value, Line):
            self.element.text = one_line(value.text)


class DividerPiece:
    """A compaction of the session; its summary is read when it is opened."""

    def __init__(self, desk: SessionDesk, divider: Divider) -> None:
        self._desk = desk
        self._divider = divider
        with Tag("div", classes="divider", role="group", aria_label="Context compacted") as self.element:
            self._what = Disclosure("divider-line", self._read)
            with self._what.button:
                self._words = Tag("span")
        self.show(divider)

    def show(self, value: Spoken) -> None:
        """Show the sizes before and after."""
        if not isinstance(value, Divider):
            return
        before, self._divider = self._divider, value
        self._words.text = compaction_words(value)
        self.element.classes(**{"add" if value.degraded else "remove": "degraded"})
        if value.summary != before.summary:
            self._what.refill()

    async def _read(self, body: Tag) -> None:
        body.clear()
        with body:
            if self._divider.summary is None:
                Tag("p", "The summary can be read when this turn is over.", "small")
            elif self._divider.degraded:
                Tag("p", self._divider.summary, "small")
            else:
                MarkdownBox(self._divider.summary)


def compaction_words(divider: Divider) -> str:
    """Return what a compaction did, in one line."""
    after = "" if divider.tokens_after is None else f" → {count(divider.tokens_after)}"
    what = "Context reduced without a summary" if divider.degraded else "Context compacted"
    return f"{what}: {count(divider.tokens_before)}{after} tokens"


class TroublePiece:
    """How a turn failed, and what can be done."""

    def __init__(self, trouble: Trouble) -> None:
        with Tag("div", classes="trouble") as self.element:
            self._title = Tag("p", classes="trouble-title")
            self._text = Tag("p", classes="trouble-text")
            self._remedy = Tag("p", classes="trouble-remedy")
        self.show(trouble)

    def show(self, value: Spoken) -> None:
        """Show another failure."""
        if not isinstance(value, Trouble):
            return
        stopped = is_a_stop(value.code)
        self.element.classes(**{"add" if stopped else "remove": "stopped"})
        self._title.text = title_of_trouble(value.code)
        self._text.text = "" if stopped else printable(value.text)
        self._text.attribute("hidden", not self._text.text)
        remedy = remedy_of(value.code)
        self._remedy.text = remedy
        self._remedy.attribute("hidden", not remedy)


SpokenPiece: TypeAlias = PromptPiece | AnswerPiece | ToolPiece | LinePiece | DividerPiece | TroublePiece
