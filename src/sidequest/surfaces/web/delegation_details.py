"""What a card shows when it is opened: brief, report, models, steps; and stopping and resuming the work."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from nicegui import background_tasks

from sidequest.core.outcome import Status
from sidequest.surfaces.app.entries import Delegated
from sidequest.surfaces.app.history import history
from sidequest.surfaces.text import count, one_line, printable
from sidequest.surfaces.web.keyed import KeyedList
from sidequest.surfaces.web.markdown import MarkdownBox
from sidequest.surfaces.web.said import Disclosure, Spoken, bounded_text, sameness, spoken
from sidequest.surfaces.web.tags import Tag

if TYPE_CHECKING:
    from sidequest.store import DelegationRow
    from sidequest.surfaces.app.work import Work
    from sidequest.surfaces.web.session_desk import SessionDesk

STEPS = 80
"""Most steps that are shown, the newest ones."""
STEPS_PAUSE_S = 1.0
"""How often the steps of a running delegation are read anew, at most."""


class DelegationDetails:
    """The opened part of a card."""

    def __init__(self, desk: SessionDesk, work: Work) -> None:
        self._desk = desk
        self._work = work
        self._reading = False
        self._from = Tag("p", classes="small", hidden=True)
        with Tag("section", classes="part", hidden=True) as self._models:
            Tag("h4", "Models")
            self._model_list = Tag("ol", classes="models")
        self._shown_models: object = None
        with Tag("section", classes="part", hidden=True) as self._notices:
            Tag("h4", "Notices")
            self._notice_text = Tag("p", classes="plain-lines")
        with Tag("section", classes="part") as self._report:
            self._report_title = Tag("h4", "Report")
            self._box = MarkdownBox()
            self._no_report = Tag("p", classes="small")
        with Tag("section", classes="part"):
            self._brief = Disclosure("part-head", self._read_brief)
            with self._brief.button:
                Tag("span", "Brief")
        with Tag("section", classes="part"):
            self._steps = Disclosure("part-head", self._read_steps)
            with self._steps.button:
                Tag("span", "Steps")
            with self._steps.body:
                self._older = Tag("p", classes="small", hidden=True)
                self._list: KeyedList[Spoken] = KeyedList(
                    Tag("div", classes="steps"),
                    key=lambda value: value.key,
                    sameness=sameness,
                    make=lambda value: spoken(desk, value, work.id),
                )
        with Tag("div", classes="actions"):
            self._context = Tag("button", "Context", "button small-button", type="button")
            self._context.on("click", self._inspect)
            self._stop = Tag("button", "Stop", "button small-button danger", type="button")
            self._stop.on("click", self._stop_it)
            self._resume = Tag(
                "button", "Resume", "button small-button", type="button", aria_expanded="false"
            )
            self._resume.on("click", self._open_resume)
        with Tag("div", classes="resume", hidden=True) as self._form:
            self._field = Tag(
                "textarea",
                classes="field",
                rows=2,
                placeholder="What should the subagent do next?",
                aria_label="Instruction for the subagent",
            )
            send = Tag("button", "Resume with this instruction", "button small-button primary", type="button")
            self._refused = Tag("p", classes="complaint", role="alert", hidden=True)
            send.on(
                "click",
                lambda event: self._resume_it(str(event.args)),
                js_handler=f'() => emit(document.getElementById("{self._field.html_id}").value)',
            )
        self.show(work)

    async def load(self) -> None:
        """Read what only the store knows: whose work it goes on with."""
        row = await self._row()
        if row is not None and row.resumed_from is not None:
            before = self._desk.watched.view.works.get(row.resumed_from)
            number = f" #{before.view.number}" if before else ""
            self._from.text = f"Goes on with the work of delegation{number}."
            self._from.attribute("hidden", value=False)

    def show(self, work: Work) -> None:
        """Show how far it is."""
        changed = work != self._work
        self._work = work
        complete = work.running or work.status in (Status.COMPLETED, Status.PARTIAL)
        self._report_title.text = "Report" if complete else "Last output"
        self._box.set_text(work.report)
        self._box.element.attribute("hidden", not work.report)
        self._no_report.text = "It has not reported yet." if work.running else "It left no report."
        self._no_report.attribute("hidden", bool(work.report))
        self._notices.attribute("hidden", not work.notices)
        self._notice_text.text = "\n".join(one_line(text) for text in work.notices)
        self._show_models(work)
        self._stop.attribute("hidden", not work.running)
        self._resume.attribute("hidden", not work.resumable)
        if not work.resumable and self._resume.props.get("aria-expanded") == "true":
            self._open_resume()
        if changed and self._steps.open and not self._reading:
            background_tasks.create(self._read_later(), name="steps of a delegation")

    def _show_models(self, work: Work) -> None:
        shown = (work.switches, work.view.model)
        if shown == self._shown_models:
            return
        self._shown_models = shown
        self._models.attribute("hidden", not work.switches)
        self._model_list.clear()
        with self._model_list:
            for failure in work.switches:
                with Tag("li"):
                    Tag("span", failure.model, "mono")
                    Tag("span", f" failed ({failure.code.value}): {one_line(failure.message, 300)}")
            with Tag("li"):
                Tag("span", work.view.model, "mono")
                Tag("span", " ran")

    async def _row(self) -> DelegationRow | None:
        found: list[DelegationRow] = []

        async def read() -> None:
            store = self._desk.application.store
            found.append(await store.delegations.get(self._desk.session_id, self._work.id))

        return found[0] if await self._desk.attempt(read()) else None

    async def _read_brief(self, body: Tag) -> None:
        row = await self._row()
        body.clear()
        with body:
            bounded_text(printable(row.brief if row else self._work.task))

    async def _read_steps(self, body: Tag) -> None:
        store, session_id = self._desk.application.store, self._desk.session_id

        async def read() -> None:
            messages = await store.transcript.load(session_id, self._work.id)
            steps = [entry for entry in history(messages) if not isinstance(entry, Delegated)]
            self._older.text = f"The first {count(max(0, len(steps) - STEPS))} steps are not shown."
            self._older.attribute("hidden", len(steps) <= STEPS)
            self._list.show(steps[-STEPS:])

        await self._desk.attempt(read())

    async def _read_later(self) -> None:
        self._reading = True
        try:
            await asyncio.sleep(STEPS_PAUSE_S)
            if not self._steps.body.is_deleted:
                await self._read_steps(self._steps.body)
        finally:
            self._reading = False

    async def _inspect(self) -> None:
        if self._desk.inspect is not None:
            await self._desk.inspect(self._work.id)

    async def _stop_it(self) -> None:
        desk = self._desk
        await desk.attempt(desk.application.live.stop(desk.session_id, self._work.id))

    def _open_resume(self) -> None:
        opened = self._form.props.get("hidden") is not None
        self._form.attribute("hidden", not opened)
        self._resume.attribute("aria_expanded", "true" if opened else "false")
        self._refuse("")

    def _refuse(self, text: str) -> None:
        self._refused.text = text
        self._refused.attribute("hidden", not text)

    async def _resume_it(self, instruction: str) -> None:
        desk = self._desk
        self._refuse("")
        resume = desk.application.live.resume(desk.session_id, self._work.id, instruction)
        await desk.attempt(resume, complain=self._refuse)
