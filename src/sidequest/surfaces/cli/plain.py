"""Progress as plain lines, for a pipe, a log or a dumb terminal: no control codes, nothing is redrawn."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console

from sidequest.core.events import DelegationSettled, DelegationStarted, Numbered
from sidequest.core.outcome import Outcome, Status
from sidequest.surfaces.cli.narration import Line, Tone, name_of, narrate
from sidequest.surfaces.cli.screen import put
from sidequest.surfaces.text import Glyphs, count, duration, excerpt, one_line, some
from sidequest.surfaces.view_state import DelegationView, ViewState, reduce

REPORT_LINES = 12
"""Most lines of a delegation's report that progress shows; the parent's answer is the result."""

TONES = {
    Status.COMPLETED: Tone.GOOD,
    Status.PARTIAL: Tone.WARN,
    Status.FAILED: Tone.BAD,
    Status.STOPPED: Tone.WARN,
    Status.INTERRUPTED: Tone.WARN,
}
"""How an ended delegation is shown."""


def sign_of(status: Status, glyphs: Glyphs) -> str:
    """Return the sign of a delegation's status."""
    signs = {
        Status.RUNNING: glyphs.running,
        Status.COMPLETED: glyphs.good,
        Status.PARTIAL: glyphs.warn,
        Status.FAILED: glyphs.bad,
    }
    return signs.get(status, glyphs.stopped)


class PlainView:
    """Prints a line for every event worth one.

    `reports` says whether the report of a delegation is part of the progress; it is not when it is the
    result itself; `earlier` is how many delegations the session had before.
    """

    def __init__(self, console: Console, *, reports: bool, earlier: int = 0) -> None:
        self._console = console
        self._reports = reports
        self._state = ViewState(earlier=earlier)

    def __enter__(self) -> PlainView:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def pause(self) -> None:
        """Do nothing: nothing moves here."""

    def resume(self) -> None:
        """Do nothing."""

    def __call__(self, numbered: Numbered) -> None:
        """Take an event."""
        before, self._state = self._state, reduce(self._state, numbered)
        for line in narrate(before, numbered, self._state):
            self._put(line)
        view = self._state.find(numbered.event.delegation_id)
        if view is not None and isinstance(numbered.event, DelegationStarted):
            self._put(Line(f"started on {view.model}: {one_line(view.label)}", who=name_of(view)))
        elif view is not None and isinstance(numbered.event, DelegationSettled):
            self._settled(view, numbered.event.outcome)

    def say(self, text: str) -> None:
        """Print a remark of the surface itself."""
        self._put(Line(text, Tone.QUIET))

    def _settled(self, view: DelegationView, outcome: Outcome) -> None:
        self._put(
            Line(
                settled_line(outcome, why=self._reports), TONES.get(outcome.status, Tone.PLAIN), name_of(view)
            )
        )
        for line in report_lines(outcome) if self._reports else ():
            put(self._console, f"  | {line}")

    def _put(self, line: Line) -> None:
        put(self._console, f"{line.who}  {line.text}" if line.who else line.text)


def settled_line(outcome: Outcome, *, why: bool = True) -> str:
    """Return how a delegation ended, in one line; without `why` its failure is told elsewhere."""
    usage = outcome.usage
    spent = f"{count(usage.input_tokens)} in + {count(usage.output_tokens)} out tokens"
    done = f"{some(outcome.turns, 'turn')}, {some(outcome.tool_calls, 'tool')}, {spent}"
    head = f"{outcome.status.value} in {duration(outcome.elapsed_s)}: {done}"
    return f"{head}. {one_line(outcome.failure.message, 300)}" if outcome.failure and why else head


def report_lines(outcome: Outcome) -> list[str]:
    """Return the first lines of a report, or of the last text of a delegation that did not finish."""
    return excerpt(outcome.report, REPORT_LINES)
