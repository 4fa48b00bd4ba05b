"""Progress on a terminal: what ended scrolls away as lines, what runs is redrawn below them.

The numbers come from `view_state`, the lines from `narration`; here they get their place and their colour.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from sidequest.core.events import DelegationSettled, Numbered
from sidequest.core.outcome import Outcome
from sidequest.surfaces.cli.narration import Line, Tone, name_of, narrate
from sidequest.surfaces.cli.plain import TONES, report_lines, sign_of
from sidequest.surfaces.cli.screen import WIDE, fitted, pad, put, widest
from sidequest.surfaces.text import UNICODE, Glyphs, count, duration, gauge, one_line, printable, some
from sidequest.surfaces.view_state import AgentView, DelegationView, ViewState, reduce

REFRESHES_PER_SECOND = 8
TAIL_LINES = 8
"""Most lines of a growing answer that are shown before it is complete."""
BLOCK_LINES = 4
NEARLY_FULL = 0.9
"""Share of the limit from which a gauge is shown as a warning."""
_INDENT = "    "


@dataclass(frozen=True, slots=True)
class Frame:
    """The room and the signs one picture is drawn with."""

    width: int
    """Columns."""
    height: int
    """Lines of the terminal."""
    now_ms: int
    glyphs: Glyphs = UNICODE

    @property
    def cells(self) -> int:
        """How many signs a gauge has: 8, on a wide terminal 16."""
        return 16 if self.width >= WIDE else 8


def picture(state: ViewState, frame: Frame, *, stopping: bool = False) -> list[Text]:
    """Return the lines below the scrolled ones: the growing answer, what runs, the parent."""
    lines: list[Text] = []
    for part in (_tail(state.text, frame), _delegations(state.running, frame)):
        if part:
            lines += [Text(), *part]
    if stopping:
        lines += [Text(), Text("stopping; press Ctrl-C again to quit at once", Tone.WARN)]
    elif state.parent.turns and not state.ended:
        lines += [Text(), _parent_line(state, frame)]
    return [fitted(line, frame.width) for line in lines]


def settled_block(view: DelegationView, outcome: Outcome, frame: Frame) -> Iterator[Text]:
    """Give the lines that stay on the screen when a delegation has ended: facts, and the report's first."""
    tone, sign = TONES.get(outcome.status, Tone.PLAIN), sign_of(outcome.status, frame.glyphs)
    spent = f"{count(outcome.usage.input_tokens)} in + {count(outcome.usage.output_tokens)} out tokens"
    yield fitted(_title(view, sign, tone), frame.width)
    facts = Text(_INDENT).append(outcome.status.value, tone)
    facts.append(f"   {some(outcome.turns, 'turn')}   {some(outcome.tool_calls, 'tool')}", Tone.QUIET)
    facts.append(f"   {duration(outcome.elapsed_s)}   {outcome.model}", Tone.QUIET)
    yield fitted(facts, frame.width)
    yield fitted(_context(view.at, frame).append(f"   {spent}", Tone.QUIET), frame.width)
    if outcome.failure is not None:
        yield Text(f"{_INDENT}{one_line(outcome.failure.message)}", tone)
    for line in report_lines(outcome):
        yield fitted(Text(f"{_INDENT}{frame.glyphs.bar} {line}"), frame.width)


def _delegations(running: tuple[DelegationView, ...], frame: Frame) -> list[Text]:
    room = frame.height - TAIL_LINES
    if len(running) * (BLOCK_LINES + 1) <= room:
        blocks = [list(_block(view, frame)) for view in running]
        return [line for number, block in enumerate(blocks) for line in ([Text()] if number else []) + block]
    shown = running if len(running) < room else running[: max(1, room - 1)]
    names = widest([name_of(view) for view in shown])
    sizes = widest([_sizes(view.at) for view in shown])
    rows = [_row(view, frame, names, sizes) for view in shown]
    if len(shown) < len(running):
        rows.append(Text(f"  and {len(running) - len(shown)} more running", Tone.QUIET))
    return rows


def _block(view: DelegationView, frame: Frame) -> Iterator[Text]:
    yield _title(view, frame.glyphs.running, Tone.PLAIN)
    facts = f"turn {view.at.turns}   {some(view.at.tools, 'tool')}   {_elapsed(view, frame)}   {view.model}"
    yield Text(_INDENT + "running   " + facts, Tone.QUIET)
    yield _context(view.at, frame)
    yield Text(_INDENT).append_text(_doing(view.at))


def _row(view: DelegationView, frame: Frame, names: int, sizes: int) -> Text:
    row = Text(f"{frame.glyphs.running} ").append(pad(name_of(view), names), "bold")
    row.append(f"  {_elapsed(view, frame):>6}  ").append_text(_bar(view.at, frame, sizes))
    return row.append("  ").append_text(_doing(view.at))


def _title(view: DelegationView, sign: str, tone: Tone) -> Text:
    title = Text(f"{sign} ", tone).append(name_of(view), "bold")
    return title.append(f"  {one_line(view.label)}", "default")


def _doing(at: AgentView) -> Text:
    if at.waiting_for:
        return Text(at.waiting_for, Tone.WARN)
    if not at.tool:
        return Text("thinking", Tone.QUIET)
    called = Text(at.tool, Tone.PLAIN if at.tool_running else Tone.QUIET)
    return called.append(f"  {one_line(at.tool_summary)}", Tone.QUIET)


def _context(at: AgentView, frame: Frame) -> Text:
    line = Text(_INDENT).append_text(_bar(at, frame))
    if at.compactions:
        line.append(f"   compacted {at.compactions}x", "cyan")
    if at.degradations:
        line.append(f"   degraded {at.degradations}x", Tone.WARN)
    return line


def _bar(at: AgentView, frame: Frame, sizes: int = 0) -> Text:
    full = at.hard_limit > 0 and at.tokens >= NEARLY_FULL * at.hard_limit
    bar = Text(gauge(at.tokens, at.hard_limit, frame.cells, frame.glyphs), Tone.WARN if full else "cyan")
    return bar.append(f" {_sizes(at):>{sizes}}" if sizes else f" {_sizes(at)}", "default")


def _sizes(at: AgentView) -> str:
    return f"{count(at.tokens)} / {count(at.hard_limit)}"


def _parent_line(state: ViewState, frame: Frame) -> Text:
    at = state.parent
    passed = duration((frame.now_ms - (state.started_at_ms or frame.now_ms)) / 1000)
    line = Text(f"{frame.glyphs.running} parent", Tone.QUIET)
    line.append(f"  turn {at.turns}   {some(at.tools, 'tool')}   {passed}   ", Tone.QUIET)
    line.append_text(_bar(at, frame))
    if at.compactions:
        line.append(f"   compacted {at.compactions}x", "cyan")
    return line.append(f"   {at.waiting_for}", Tone.WARN) if at.waiting_for else line


def _elapsed(view: DelegationView, frame: Frame) -> str:
    return duration(view.elapsed_s(frame.now_ms))


def _tail(text: str, frame: Frame) -> list[Text]:
    """Return the last lines of an answer that is being written."""
    recent = printable(text)[-TAIL_LINES * frame.width :].strip()
    if not recent:
        return []
    wide = Console(width=frame.width, color_system=None)
    return list(Text(recent).wrap(wide, frame.width))[-TAIL_LINES:]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class LiveView:
    """Redraws what runs, several times a second, from a thread of its own.

    With `reports` a delegation that ended leaves a block with the first lines of its report; without, the
    report is the result itself and comes later. `earlier` is how many delegations the session had before.
    """

    def __init__(
        self, console: Console, glyphs: Glyphs = UNICODE, *, reports: bool, earlier: int = 0
    ) -> None:
        self._console = console
        self._glyphs = glyphs
        self._reports = reports
        self._state = ViewState(earlier=earlier)
        self._stopping = False
        self._after_block = False
        self._live = self._new_live()

    def _new_live(self) -> Live:
        return Live(
            get_renderable=self._draw,
            console=self._console,
            refresh_per_second=REFRESHES_PER_SECOND,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> LiveView:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def pause(self) -> None:
        """Remove what is redrawn, so that a question can stand there."""
        self._live.stop()

    def resume(self) -> None:
        """Draw again below what was printed meanwhile."""
        self._live = self._new_live()  # a stopped one would move up over what was printed meanwhile
        self._live.start()

    def __call__(self, numbered: Numbered) -> None:
        """Take an event."""
        before, self._state = self._state, reduce(self._state, numbered)
        for line in narrate(before, numbered, self._state):
            if not (line.is_tool and line.who):
                self._put(line)
        view = self._state.find(numbered.event.delegation_id)
        if self._reports and view is not None and isinstance(numbered.event, DelegationSettled):
            block = settled_block(view, numbered.event.outcome, self._frame())
            # Rich prints above the newest picture it knows: let that be one without this delegation.
            self._live.refresh()
            self._console.print(Group(Text(), *block))
            self._after_block = True

    def say(self, text: str) -> None:
        """Show that the first Ctrl-C was seen."""
        self._stopping = True
        self._live.refresh()

    def _put(self, line: Line) -> None:
        if self._after_block:
            put(self._console)
            self._after_block = False
        if line.is_tool:
            text = Text(f"{self._glyphs.bullet} {line.text}", line.tone)
            put(self._console, fitted(text, self._console.width))
        elif line.who:
            text = Text(f"  {line.who}  ", "bold").append(line.text, line.tone or "default")
            put(self._console, text)
        else:
            put(self._console, line.text, line.tone)

    def _frame(self) -> Frame:
        return Frame(self._console.width, self._console.height, _now_ms(), self._glyphs)

    def _draw(self) -> Group:
        return Group(*picture(self._state, self._frame(), stopping=self._stopping))
