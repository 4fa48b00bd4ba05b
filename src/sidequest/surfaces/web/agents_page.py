"""The page Subagents: every definition in its group, what became of it, and what can be done with it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from nicegui import ui

from sidequest.core.errors import SidequestError
from sidequest.subagents.definition import ASSIGNABLE_TOOLS, MUTATING_TOOLS
from sidequest.surfaces.app.agent_shapes import Agent, AgentList, Group, Remark, Trust
from sidequest.surfaces.app.agents import Agents
from sidequest.surfaces.text import count, duration, money, one_line, printable, some
from sidequest.surfaces.web import agent_editor
from sidequest.surfaces.web.frame import BUILD_S, frame
from sidequest.surfaces.web.tags import Tag

if TYPE_CHECKING:
    from sidequest.surfaces.app.application import Application

_GROUPS = {
    "builtin": (
        "Built-in",
        "They come with sidequest. One of your own with the same name comes before them.",
    ),
    "mine": ("Mine", "Used in every folder."),
    "project": ("This project", "They belong to the folder that is worked in."),
    "foreign": ("This project, for other programs", "Read where they are; sidequest never writes there."),
    "named": ("Named for this server", "A folder of --agents-dir or of the settings."),
}
_STATES = {
    "active": ("", ""),
    "shadowed": ("shadowed", ""),
    "blocked": ("blocked", "warn"),
    "untrusted": ("not trusted", "warn"),
    "disabled": ("off", ""),
    "invalid": ("does not load", "bad"),
    "over-cap": ("over the limit", "warn"),
}
"""A word and a tone for each state."""
_FILES_NAMED = 8
"""Most files that the question of trust names; all of them are listed below it."""
_COPY = (
    "() => { const say = (done) => emit(done); if (!navigator.clipboard) return say(false);"
    " navigator.clipboard.writeText(%s).then(() => say(true), () => say(false)); }"
)


def add_pages(application: Application) -> None:
    """Serve `/agents`, `/agents/new` and `/agents/edit`."""
    agent_editor.add_pages(application)

    @ui.page("/agents", response_timeout=BUILD_S)
    async def page(saved: str = "") -> None:
        with frame(application, "Subagents", at="agents", stylesheets=("form.css", "agents.css")):
            await _Page(Agents(application), saved).build()


class _Page:
    """The page of one browser tab."""

    def __init__(self, agents: Agents, saved: str) -> None:
        self.agents = agents
        self.saved = saved

    async def build(self) -> None:
        self.client = ui.context.client
        with Tag("div", classes="page-head"):
            Tag("h1", "Subagents")
            Tag("a", "New subagent", "button primary", href="/agents/new")
        Tag(
            "p",
            "Workers that a session hands tasks to. Each works in a context window of its own.",
            "quiet-text lead",
        )
        self.notice = Tag("div", classes="notice good", role="status", hidden=True)
        self.list = Tag("div", classes="groups")
        self.dialogs = Tag("div")
        await self.refresh()

    async def refresh(self, focused: str = "") -> None:
        """Show the files as they are now, with the focus where it was."""
        try:
            found = await asyncio.to_thread(self.agents.every)
        except SidequestError as error:
            self.say(f"{error.cause} {error.remedy}", "bad")
            self.list.clear()
            return
        self.list.clear()
        with self.list:
            for remark in found.remarks:
                if remark.severity != "note":
                    _notice(f"{remark.path}: {remark.message}", "warn")
            trusted_is_said = False
            for group in found.groups:
                with Tag("section", classes="group", aria_label=_GROUPS[group.kind][0]):
                    _group_head(group)
                    if group.kind in ("project", "foreign") and not trusted_is_said:
                        trusted_is_said = True
                        self._trust(found.trust)
                    if not group.agents:
                        _empty()
                        continue
                    with Tag("ul", classes="agent-list"):
                        for place, agent in enumerate(group.agents):
                            _Row(self, agent, f"{group.kind}-{group.folder or ''}-{place}")
        if self.saved:
            self._say_saved(found)
        if focused:
            self.focus(focused)

    def focus(self, html_id: str) -> None:
        """Move the focus to an element, whatever became of the one that had it."""
        self.client.run_javascript(f"document.getElementById({json.dumps(html_id)})?.focus()")

    def say(self, text: str, tone: str = "good") -> None:
        """Show one line above the list; empty takes it away."""
        self.notice.clear()
        self.notice.classes(replace=f"notice {tone}")
        self.notice.attribute("hidden", not text)
        with self.notice:
            Tag("p", printable(text))

    def _say_saved(self, found: AgentList) -> None:
        agents = [agent for group in found.groups for agent in group.agents]
        made = next((agent for agent in agents if agent.name == self.saved and agent.editable), None)
        self.saved = ""
        if made is not None:
            self.say(f"Saved in {made.place}. It counts from the next prompt on.")

    def _trust(self, trust: Trust) -> None:
        with Tag("div", classes="notice" if trust.trusted else "notice warn"):
            if trust.trusted:
                Tag("p", "You trust this folder as it is now. A change of these files ends that.")
                button = Tag("button", "Trust it no longer", "button", type="button", id="trust")
            else:
                changed = "They changed since you trusted them. " if trust.changed else ""
                Tag(
                    "p",
                    f"{changed}Definitions of a project are off until you trust the folder: read them first. "
                    f"It is about {some(len(trust.files), 'file')}: {_files_words(trust.files)}.",
                )
                button = Tag("button", "Trust this folder", "button", type="button", id="trust")

        async def change() -> None:
            def do() -> object:
                return self.agents.set_trust(trusted=not trust.trusted, mark=trust.mark)

            await self.do(do, "trust")

        button.on("click", change)

    async def do(self, action: Callable[[], object], focused: str = "", done: str = "") -> None:
        """Do something with the files; a refusal is shown."""
        try:
            await asyncio.to_thread(action)
        except SidequestError as error:
            self.say(f"{error.cause} {error.remedy}", "bad")
        else:
            self.say(done)
        await self.refresh(focused)

    async def delete(self, agent: Agent, focused: str) -> None:
        """Ask, then delete the file."""
        mark = (await asyncio.to_thread(lambda: self.agents.read(agent.name, path=agent.path))).mark
        with self.dialogs, ui.dialog() as dialog, Tag("div", classes="card dialog", role="alertdialog"):
            Tag("h2", f"Delete {one_line(agent.shown_name or agent.place)}?")
            Tag("p", f"The file {printable(agent.place)} is removed. It cannot be brought back.")
            if agent.shadows:
                Tag("p", f"Then {_file_word(agent.shadows[0])} counts again.")
            with Tag("div", classes="dialog-ends"):
                keep = Tag("button", "Keep it", "button quiet", type="button", autofocus=True)
                keep.on("click", lambda: dialog.submit(False))
                gone = Tag("button", "Delete", "button danger", type="button")
                gone.on("click", lambda: dialog.submit(True))
        if await dialog:
            await self.do(
                lambda: self.agents.remove(agent.name, mark=mark, path=agent.path),
                done=f"Deleted {agent.place}.",
            )
        else:
            self.focus(focused)


def _files_words(files: tuple[str, ...]) -> str:
    more = f" and {len(files) - _FILES_NAMED} more" if len(files) > _FILES_NAMED else ""
    return ", ".join(map(one_line, files[:_FILES_NAMED])) + more


def _file_word(path: str) -> str:
    """Return how a file is called in a sentence."""
    if path.startswith("builtin/"):
        return f"the built-in {path.removeprefix('builtin/').removesuffix('.md')}"
    return printable(path)


def _group_head(group: Group) -> None:
    title, about = _GROUPS[group.kind]
    with Tag("div", classes="group-head"):
        Tag("h2", title)
        if group.folder:
            Tag("span", printable(group.folder), "small mono")
    Tag("p", about, "small")


def _empty() -> None:
    with Tag("p", classes="quiet-text none-yet"):
        Tag("span", "You have none yet. Begin with a blank one, or copy a built-in as yours.")


def _notice(text: str, tone: str) -> None:
    with Tag("div", classes=f"notice {tone}"):
        Tag("p", printable(text))


class _Row:
    """One definition."""

    def __init__(self, page: _Page, agent: Agent, key: str) -> None:
        self.page, self.agent, self.key = page, agent, key
        dim = "" if agent.state == "active" else " dim"
        with Tag("li", classes=f"agent{dim}"):
            with Tag("div", classes="agent-head"):
                Tag("h3", one_line(agent.shown_name) or "(no name)", "agent-name")
                if agent.shown_name != agent.name and agent.name:
                    Tag("span", agent.name, "small mono")
                word, tone = _STATES[agent.state]
                if word:
                    Tag("span", word, f"chip {tone}")
                self._switch()
            if agent.description:
                Tag("p", one_line(agent.description, 400), "agent-about")
            if agent.state != "invalid" and (agent.tools or agent.inherit_tools):
                self._tools()
            self._facts()
            for found in agent.diagnostics:
                _remark(found)
            self._actions()

    def _switch(self) -> None:
        agent = self.agent
        if agent.state == "untrusted" or not agent.name:
            return
        html_id = f"switch-{self.key}"
        toggle = Tag(
            "button",
            classes="toggle",
            type="button",
            id=html_id,
            role="switch",
            aria_checked="true" if agent.enabled else "false",
            aria_label=f"{one_line(agent.shown_name)} is on",
        )

        async def change() -> None:
            def do() -> object:
                return self.page.agents.switch(
                    agent.name, on=not agent.enabled, scope=agent.scope, path=agent.path
                )

            await self.page.do(do, html_id)

        toggle.on("click", change)

    def _tools(self) -> None:
        agent = self.agent
        with Tag("ul", classes="chips", aria_label="Tools"):
            if agent.inherit_tools:
                _tool_chip("all of the session", mutating=agent.can_mutate)
            for tool in agent.tools:
                if tool not in agent.disallowed_tools:
                    known = tool in ASSIGNABLE_TOOLS
                    _tool_chip(tool, mutating=tool in MUTATING_TOOLS, quiet=not known)
            for tool in agent.disallowed_tools:
                Tag("li", f"not {one_line(tool, 60)}", "chip")

    def _facts(self) -> None:
        agent = self.agent
        if agent.runs_on or agent.model_note:
            with Tag("p", classes="small"):
                where = f"Runs on {agent.runs_on}" if agent.runs_on else "No model can run it"
                Tag("span", " · ".join([where, *_limits(agent)]))
            if agent.model_note:
                Tag("p", printable(agent.model_note), "small warn-text")
        if agent.state not in ("active", "invalid", "disabled", "untrusted"):
            Tag("p", printable(agent.reason).capitalize() + ".", "small")
        if agent.shadows:
            Tag("p", f"Comes before {', '.join(map(_file_word, agent.shadows))}.", "small")

    def _actions(self) -> None:
        agent = self.agent
        self.folding: list[Tag] = []
        with Tag("div", classes="agent-actions"):
            if agent.editable and agent.state != "invalid":
                where = urlencode({"name": agent.name, "path": agent.path or ""})
                Tag("a", "Edit", "link", href=f"/agents/edit?{where}", aria_label=f"Edit {agent.name}")
            if agent.state != "invalid":
                source = urlencode({"copy": agent.name, "scope": agent.scope, "path": agent.path or ""})
                label = "Copy" if agent.editable else "Copy as mine"
                Tag("a", label, "link", href=f"/agents/new?{source}", aria_label=f"{label}: {agent.name}")
            self._text()
            if agent.scope != "builtin":
                self._reveal()
            if agent.editable:
                button = Tag("button", "Delete", "link danger", type="button", id=f"delete-{self.key}")
                button.attribute("aria_label", f"Delete {agent.name or agent.place}")
                button.on("click", lambda: self.page.delete(agent, f"delete-{self.key}"))
        self.below = Tag("div", classes="agent-below", hidden=True)

    def _text(self) -> None:
        agent = self.agent
        button = Tag("button", "Show file", "link", type="button", aria_expanded="false")
        self.folding.append(button)

        async def show() -> None:
            if self._close(button):
                return
            try:
                file = await asyncio.to_thread(
                    lambda: self.page.agents.read(agent.name, scope=agent.scope, path=agent.path)
                )
            except SidequestError as error:
                self.page.say(f"{error.cause} {error.remedy}", "bad")
                return
            self._open(button)
            with self.below:
                Tag("pre", printable(file.text) or "The file was not read.", "file-text", tabindex=0)

        button.on("click", show)

    def _reveal(self) -> None:
        path = self.agent.path or ""
        button = Tag("button", "Reveal", "link", type="button", aria_expanded="false")
        self.folding.append(button)

        def show(event: object) -> None:
            if self._close(button):
                return
            copied = getattr(event, "args", False) is True
            self._open(button)
            with self.below, Tag("p", classes="reveal"):
                Tag("code", printable(path))
                Tag("span", "copied" if copied else "select it to copy it", "small", role="status")

        button.on("click", show, js_handler=_COPY % json.dumps(path))

    def _close(self, button: Tag) -> bool:
        """Fold away what is shown below, and say whether that was what `button` shows."""
        was = button._props.get("aria-expanded") == "true"
        for other in self.folding:
            other.attribute("aria_expanded", "false")
        self.below.clear()
        self.below.attribute("hidden", True)
        return was

    def _open(self, button: Tag) -> None:
        button.attribute("aria_expanded", "true")
        self.below.attribute("hidden", None)


def _tool_chip(tool: str, *, mutating: bool, quiet: bool = False) -> None:
    tone = "mutating" if mutating else "quiet" if quiet else ""
    with Tag("li", classes=f"chip {tone}", title="Can change files or run commands" if mutating else None):
        Tag("span", one_line(tool, 60))
        if mutating:
            Tag("span", "can change things", "visually-hidden")


def _limits(agent: Agent) -> list[str]:
    limits = [
        f"{count(agent.max_tokens)} output tokens" if agent.max_tokens else "",
        some(agent.max_turns, "turn") if agent.max_turns else "",
        duration(agent.max_seconds) if agent.max_seconds else "",
        money(agent.max_cost_usd) if agent.max_cost_usd else "",
        f"permission {agent.permission}" if agent.permission != "inherit" else "",
        f"context {agent.context}" if agent.context else "",
        f"thinking {agent.thinking_level}" if agent.thinking_level else "",
    ]
    return [limit for limit in limits if limit]


def _remark(found: Remark) -> None:
    tone = {"error": "bad", "warning": "warn"}.get(found.severity, "")
    place = f"Line {found.line}" if found.line is not None else "File"
    with Tag("p", classes=f"remark {tone}"):
        Tag("span", place, "remark-place")
        Tag("span", printable(found.message))
