"""`sidequest run`, `delegate` and `delegations resume`: open a session, watch it work, show how it ended."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from sidequest.core.errors import ErrorCode, Failure, SidequestError
from sidequest.core.events import EventLog, Notice, Numbered
from sidequest.core.outcome import Outcome, Status, report_text
from sidequest.core.permissions import EDIT_TOOLS, Mode, effective_mode
from sidequest.runtime.session import Session, TurnResult
from sidequest.subagents.definition import Permission
from sidequest.surfaces.assemble import (
    Parts,
    Place,
    assemble,
    context_mode,
    default_notice,
    definition_notices,
    open_session,
    permission_mode,
    with_limits,
)
from sidequest.surfaces.cli.asking import Asking
from sidequest.surfaces.cli.errors import Exit, complain_of
from sidequest.surfaces.cli.interrupts import Interrupts
from sidequest.surfaces.cli.jsonlines import (
    JsonView,
    failure_as_dict,
    outcome_result,
    print_json,
    turn_result,
)
from sidequest.surfaces.cli.keys import TerminalKeys
from sidequest.surfaces.cli.private_memory import keep_memory_private
from sidequest.surfaces.cli.screen import Screen, put
from sidequest.surfaces.cli.summary import (
    outcome_facts,
    put_facts,
    stored_facts,
    turn_facts,
    warning_of,
    warning_of_turn,
)
from sidequest.surfaces.kept import Kept, keeping
from sidequest.surfaces.settings import unknown_variables
from sidequest.surfaces.storing import Keeping
from sidequest.surfaces.text import printable

if TYPE_CHECKING:
    from sidequest.store import Chain


@dataclass(frozen=True, slots=True)
class Job:
    """What `run`, `delegate` and `delegations resume` are asked to do."""

    text: str | None
    """Prompt or task; `-` means standard input, and so does None when that is not a terminal."""
    agent: str | None
    """The subagent to delegate to; None means the parent agent, or that of the delegation to go on with."""
    place: Place
    model: str | None = None
    context: str | None = None
    as_json: bool = False
    quiet: bool = False
    keep: Keeping = field(default_factory=Keeping)
    permission_mode: str | None = None
    """How actions are approved; None takes the mode of the settings."""
    follow: bool = False
    """Whether a session that is continued is worked on in its own folder instead of `place`."""
    attachments: tuple[Path, ...] = ()
    """Files that are put with the task of a delegation, absolute."""

    @property
    def delegates(self) -> bool:
        """Whether the result is that of one delegation."""
        return self.agent is not None or self.keep.delegation is not None


@dataclass(frozen=True, slots=True)
class Done:
    """How a job ended."""

    result: TurnResult | Outcome
    session_id: str | None
    """The session that is stored, None when none is."""
    unsaved: Failure | None = None
    """Why the end could not be stored, None when it is or when the result says it itself."""
    signal_code: int | None = None
    """The exit code of the signal that asked it to end, None when none did."""


class View(AbstractContextManager["View"], Protocol):
    """Shows the events of a session while it works."""

    def pause(self) -> None:
        """Leave the screen to a question; there are no events until `resume`."""
        ...

    def resume(self) -> None:
        """Take the screen back."""
        ...

    def __call__(self, numbered: Numbered) -> None:
        """Take an event; may raise `BrokenPipeError`."""
        ...

    def say(self, text: str) -> None:
        """Tell the person something that is no event."""
        ...


def execute(job: Job) -> int:
    """Do the job and return the exit code.

    Raises:
        SidequestError: nothing was started.
    """
    keep_memory_private()
    job.keep.check()
    what = "instruction" if job.keep.delegation else "task" if job.agent else "prompt"
    text = _read(job.text, what)
    parts = assemble(job.place)
    context_mode(job.context)
    permission_mode(job.permission_mode)
    done = asyncio.run(_work(job, text, parts))
    screen = Screen.of_process()
    code = _show(done, job, screen)
    return code if done.signal_code is None else done.signal_code


def _read(text: str | None, what: str) -> str:
    if sys.stdin is not None and (text == "-" or (text is None and not sys.stdin.isatty())):
        raw = getattr(sys.stdin, "buffer", None)
        text = raw.read().decode("utf-8", "replace") if raw is not None else sys.stdin.read()
    if text is None or not text.strip():
        raise SidequestError(
            ErrorCode.USAGE, f"The {what} is empty.", "Write it as an argument, or send it to standard input."
        )
    return text


async def _work(job: Job, text: str, parts: Parts) -> Done:
    async with keeping(job.keep, parts) as kept:
        if kept is not None and (place := kept.place(job.place, follow=job.follow)) != job.place:
            parts = assemble(place)
        done = await _watched(job, text, parts, kept)
    return replace(done, session_id=kept.session_id if kept else None)


async def _watched(job: Job, text: str, parts: Parts, kept: Kept | None) -> Done:
    screen = Screen.of_process()
    stream = screen.live and not job.as_json and not job.quiet
    mode = context_mode(job.context)
    model = kept.model(parts, job.model) if kept else job.model
    result: TurnResult | Outcome | None = None
    keys = None if job.as_json else TerminalKeys.of_process()
    if job.delegates:
        parts = replace(parts, catalog=with_limits(parts.catalog, parts.settings))
    opening = open_session(
        parts, model=model, context=mode, stream=stream, mode=permission_mode(job.permission_mode)
    )
    session = await opening
    view = _view(job, screen, kept.row.delegations if kept and kept.row else 0)
    watch = Interrupts(
        session,
        lambda: view.say("stopping; press Ctrl-C again to quit at once"),
        terminal=stream,
        on_quit=keys.stop if keys else None,
    )
    try:
        # To the end of closing: what is ended there must not be left over by a signal.
        with watch:
            async with session:
                feed = _Feed(view, session.log, watch.stop)
                if kept is not None:
                    await kept.attach(session, f"{job.agent}: {text}" if job.agent else "")
                    kept.require_rights(session)
                _notices(session, parts, model, kept)
                if keys is None and (denied := _denied(session, job, kept)):
                    session.log.emit(Notice(None, denied))
                session.log.subscribe(feed)
                if watch.signal is not None:
                    raise KeyboardInterrupt
                with view, _asking(session, screen, keys, feed):
                    result = await _ask(session, job, text, mode is not None, kept)
                if feed.broken:
                    raise BrokenPipeError
    except SidequestError as error:
        # Before there is a result nothing was started; after that it is the store that failed.
        if result is None:
            raise
        return Done(result, None, error.failure if result.failure is None else None, watch.exit_code)
    return Done(result, None, None, watch.exit_code)


def _denied(session: Session, job: Job, kept: Kept | None) -> str | None:
    """Return what to say where nobody can be asked, None when nothing would be asked for."""
    name = kept.chain.agent if kept is not None and kept.chain is not None else job.agent
    definition = session.catalog.get(name) if name else None
    offered = session.delegations.toolbox.names
    granted = set(definition.granted_tools(offered) if definition else offered)
    own = definition.permission if definition else Permission.INHERIT
    mode = effective_mode(session.rights.mode, None if own is Permission.INHERIT else Mode(own.value))
    edits = bool(granted & EDIT_TOOLS) and mode is Mode.ASK
    commands = "Bash" in granted and mode is not Mode.AUTO
    if not edits and not commands:
        return None
    what = " and ".join([*(["edits"] if edits else []), *(["commands"] if commands else [])]).capitalize()
    if definition is not None and mode is not session.rights.mode:
        return f"{what} will be denied: {definition.name} has permission {mode} and nobody can be asked here."
    modes = "auto" if commands and not edits else "accept-edits or auto"
    return f"{what} will be denied: nobody can be asked here. Use --permission-mode {modes}."


def _asking(
    session: Session, screen: Screen, keys: TerminalKeys | None, feed: _Feed
) -> AbstractContextManager[object]:
    if keys is None:
        return nullcontext()
    questions, root = session.rights.questions, session.workspace.root
    return Asking(questions, root, screen.err, keys, feed.hold, feed.release)


async def _ask(
    session: Session, job: Job, text: str, explicit_context: bool, kept: Kept | None
) -> TurnResult | Outcome:
    if kept is not None and kept.chain is not None:
        return await _resume(session, kept.chain, text)
    if job.agent is None:
        return await session.prompt(text)
    # Naming the session's own model overrides a pin of the definition: the person asked for that model.
    model = session.models.session.key if job.model else None
    context = session.options.default_context if explicit_context else None
    return await session.delegate(job.agent, text, model=model, context=context, attachments=job.attachments)


async def _resume(session: Session, chain: Chain, text: str) -> Outcome:
    try:
        return await session.delegate(chain.agent, text, resume=chain.latest.id)
    except SidequestError as error:
        if "resume" not in error.remedy:
            raise
        # Its remedy is for a model that calls Task.
        remedy = f"Delegate the work anew: `sidequest delegate {chain.agent}`."
        raise SidequestError(error.code, error.cause, remedy) from error


def _view(job: Job, screen: Screen, earlier: int) -> View:
    from sidequest.surfaces.cli.live import LiveView
    from sidequest.surfaces.cli.plain import PlainView

    reports = not job.delegates
    if job.as_json:
        return JsonView()
    if job.quiet:
        return QuietView(lambda text: put(screen.err, text))
    if screen.live:
        return LiveView(screen.err, screen.glyphs, reports=reports, earlier=earlier)
    return PlainView(screen.err, reports=reports, earlier=earlier)


class _Feed:
    """Gives a view the events of a session, and stops the work when nobody reads them any more.

    What was said before the work began comes with its first event, so a refused job says only why.
    """

    def __init__(self, view: View, log: EventLog, on_broken: Callable[[], None]) -> None:
        self.broken = False
        self._view = view
        self._log = log
        self._on_broken = on_broken
        self._seen = 0
        self._held = False

    def hold(self) -> None:
        """Show nothing until `release`."""
        self._held = True
        self._view.pause()

    def release(self) -> None:
        """Show what came meanwhile, and what comes."""
        self._held = False
        self._view.resume()
        self()

    def __call__(self, numbered: Numbered | None = None) -> None:
        if self.broken or self._held:
            return
        try:
            for event in self._log.after(self._seen):
                self._seen = event.number
                self._view(event)
        except BrokenPipeError:
            self.broken = True
            self._on_broken()


class QuietView(AbstractContextManager["QuietView"]):
    """Shows nothing but remarks."""

    def __init__(self, put_line: Callable[[str], None]) -> None:
        self._put = put_line

    def __exit__(self, *error: object) -> None:
        return None

    def pause(self) -> None:
        """Do nothing: nothing moves here."""

    def resume(self) -> None:
        """Do nothing."""

    def __call__(self, numbered: Numbered) -> None:
        """Pass over an event."""

    def say(self, text: str) -> None:
        """Print a remark."""
        self._put(text)


def _notices(session: Session, parts: Parts, model: str | None, kept: Kept | None) -> None:
    notice = default_notice(parts, model, session.models.session)
    stored = kept.notices if kept else []
    untrusted = parts.trust_notice()
    first = [text for text in (notice, untrusted) if text]
    for text in (*unknown_variables(), *first, *stored, *definition_notices(parts.catalog)):
        session.log.emit(Notice(None, text))


def _show(done: Done, job: Job, screen: Screen) -> int:
    result = done.result
    if job.as_json:
        print_json(_as_dict(done))
    else:
        _answer(_text_of(result), job, screen)
        if not job.quiet:
            put(screen.err)
            facts = turn_facts(result) if isinstance(result, TurnResult) else outcome_facts(result)
            put_facts(screen, itertools.chain(facts, stored_facts(result, done.session_id)))
        warning = warning_of_turn(result) if isinstance(result, TurnResult) else warning_of(result)
        if warning:
            put(screen.err, warning, "yellow")
    _complain(result.failure if not _usable(result) else done.unsaved)
    return Exit.DONE if _usable(result) and done.unsaved is None else Exit.FAILED


def _text_of(result: TurnResult | Outcome) -> str:
    """Return what goes to standard output; a delegation that said nothing leaves it to the error."""
    if isinstance(result, TurnResult):
        return result.text
    return report_text(result) if result.report.strip() else ""


def _usable(result: TurnResult | Outcome) -> bool:
    if isinstance(result, TurnResult):
        return result.ok
    return result.status in (Status.COMPLETED, Status.PARTIAL)


def _as_dict(done: Done) -> dict[str, Any]:
    result = done.result
    data = turn_result(result) if isinstance(result, TurnResult) else outcome_result(result)
    if done.unsaved is not None:
        data |= {"ok": False, "error": failure_as_dict(done.unsaved)}
    return {**data, "sessionId": done.session_id}


def _answer(text: str, job: Job, screen: Screen) -> None:
    """Print the answer, or as much of it as there is, set apart from progress on the same screen."""
    if not text.strip():
        return
    if screen.live and not job.quiet:
        put(screen.err)
    put(screen.out, printable(text).strip())


def _complain(failure: Failure | None) -> None:
    """Say why it failed; a stop that the person asked for needs no words."""
    if failure is not None and failure.code is not ErrorCode.TURN_ABORTED:
        complain_of(failure)
