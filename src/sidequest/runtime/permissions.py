"""One queue of questions for a whole session, and the capability that asks before a tool runs.

A question has an id; an answer names it, and one that names another does nothing. Any surface may show the
head of the queue and answer. Without a surface that can, the call is denied after a short time: nobody waits
for a human who is not there.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import RunContext, ToolDefinition

from sidequest.core.confirmation import Confirmation
from sidequest.core.errors import ErrorCode
from sidequest.core.path_rules import folded
from sidequest.core.permissions import (
    EDIT_TOOLS,
    PROTECTED,
    Action,
    Decision,
    DenyRules,
    Mode,
    Verdict,
    command_parts,
    decide,
    effective_mode,
    grants_of,
)
from sidequest.runtime.links import names_of, resolved, with_links_followed
from sidequest.runtime.outside import let_through
from sidequest.runtime.waiting import waiting_for_a_person

NO_SURFACE_WAIT_S = 1.0
"""How long a question waits when no surface can answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person decided."""

    allowed: bool
    for_session: bool = False
    """Whether the same kind of action is allowed from now on."""
    note: str = ""
    """What the model is told with a refusal."""
    by_person: bool = True
    """False when nobody was there to ask: the refusal is then the session's."""


NOBODY = Answer(False, note="nobody is here who could be asked", by_person=False)
"""How a question ends that nobody can answer."""


@dataclass
class Question:
    """A tool call that waits for a person."""

    id: str
    asker: tuple[str, ...]
    """Who asks, from the session's agent down: `("parent",)` or `("parent", "fixer")`."""
    action: Action
    arguments: dict[str, Any]
    reason: str
    reply: asyncio.Future[Answer]
    delegation_id: str | None = None
    """The delegation that asks; None for the session's own agent."""
    confirmation: Confirmation | None = None
    """What is confirmed when the call would start a subagent (`Task`); None for every other call."""


@dataclass
class Questions:
    """The queue of a session. Answers never mix: each question has a future of its own."""

    no_surface_wait_s: float = NO_SURFACE_WAIT_S
    on_granted: Callable[[frozenset[str]], None] = field(default=lambda rules: None)
    """Told what is allowed for the session from now on, as `grants_of` names it."""
    _queue: list[Question] = field(default_factory=list, init=False)
    _grants: set[str] = field(default_factory=set, init=False)
    _surfaces: dict[object, Callable[[], None]] = field(default_factory=dict, init=False)
    _clocks: dict[str, asyncio.TimerHandle] = field(default_factory=dict, init=False)
    """When questions without a surface are denied, by their ids."""

    @property
    def head(self) -> Question | None:
        """The oldest question that waits, or None."""
        return self._queue[0] if self._queue else None

    @property
    def waiting(self) -> tuple[Question, ...]:
        """Every question that waits, oldest first."""
        return tuple(self._queue)

    @property
    def granted(self) -> frozenset[str]:
        """What is allowed for the session."""
        return frozenset(self._grants)

    def grant(self, rules: Iterable[str]) -> None:
        """Allow for the session what a person allowed for it in an earlier process."""
        self._grants.update(rules)

    def __len__(self) -> int:
        return len(self._queue)

    def surface(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Register a surface that can answer; `changed` is called when the queue changes. Returns its end."""
        key = object()
        self._surfaces[key] = changed
        self._set_clocks()

        def leave() -> None:
            self._surfaces.pop(key, None)
            self._set_clocks()

        return leave

    async def ask(
        self,
        asker: tuple[str, ...],
        action: Action,
        arguments: dict[str, Any],
        why: str,
        *,
        delegation_id: str | None = None,
        confirmation: Confirmation | None = None,
    ) -> Answer:
        """Put a question into the queue and wait for its answer; remembered grants answer at once."""
        if self._is_granted(action):
            return Answer(True)
        reply = asyncio.get_running_loop().create_future()
        question = Question(
            uuid.uuid4().hex, asker, action, arguments, why, reply, delegation_id, confirmation
        )
        self._queue.append(question)
        try:
            self._set_clocks()
            self._tell()
            with waiting_for_a_person():
                return await question.reply
        finally:
            if question in self._queue:
                self._queue.remove(question)
                self._tell()
            self._set_clocks()

    def answer(self, question_id: str, answer: Answer) -> bool:
        """Answer the question `question_id`; False when it is not waiting (any more), and nothing happens.

        What is allowed for the session is allowed for others that wait, too, as far as that covers them.
        """
        for question in self._queue:
            if question.id == question_id and not question.reply.done():
                question.reply.set_result(answer)
                self._queue.remove(question)
                if answer.allowed and answer.for_session:
                    self._grants |= grants_of(question.action)
                    self.on_granted(grants_of(question.action))
                    self._allow_granted()
                self._tell()
                return True
        return False

    def _is_granted(self, action: Action) -> bool:
        needed = grants_of(action)
        return bool(needed) and needed <= self._grants

    def _allow_granted(self) -> None:
        for question in [waiting for waiting in self._queue if self._is_granted(waiting.action)]:
            if not question.reply.done():
                question.reply.set_result(Answer(True))
            self._queue.remove(question)

    def deny_all(self, note: str = "the work was stopped") -> None:
        """Deny everything that waits."""
        for question in list(self._queue):
            self.answer(question.id, Answer(False, note=note))

    def _set_clocks(self) -> None:
        """Let the clock of each question run while nobody could answer it, and of no other."""
        waiting = {} if self._surfaces else {question.id: question for question in self._queue}
        for question_id in self._clocks.keys() - waiting.keys():
            self._clocks.pop(question_id).cancel()
        for question_id in waiting.keys() - self._clocks.keys():
            loop = waiting[question_id].reply.get_loop()
            self._clocks[question_id] = loop.call_later(
                self.no_surface_wait_s, self.answer, question_id, NOBODY
            )

    def _tell(self) -> None:
        for changed in tuple(self._surfaces.values()):
            changed()


@dataclass
class Rights:
    """What a session allows: its mode, its deny rules, the queue, and the folders that are its own."""

    mode: Mode = Mode.AUTO
    rules: DenyRules = field(default_factory=DenyRules)
    questions: Questions = field(default_factory=Questions)
    roots: tuple[Path, ...] = ()
    """The workspace and the scratch folder, resolved."""
    host_tools: frozenset[str] = frozenset()
    """Names of tools that the host program gave itself: a mode does not ask about them, a deny rule and a
    definition's own `permission` do."""
    here: Callable[[str], str] = field(default=lambda path: path)
    """Where a path leads that an earlier process gave out; every other one is given back."""

    def action(self, tool: str, arguments: dict[str, Any]) -> Action:
        """Return what a call of `tool` would do."""
        command = arguments.get("command") if tool == "Bash" else None
        named = arguments.get("path")
        if not isinstance(named, str) or not self.roots:
            return Action(tool, command=command if isinstance(command, str) else None)
        try:
            named = self.here(named) if tool not in EDIT_TOOLS else named
            names = names_of(named, self.roots[0])
            path = Path(resolved(named, self.roots[0]))
            inside = any(path.is_relative_to(root) for root in self.roots)
        except (OSError, ValueError):
            return Action(tool, named, inside=False)
        below = [step for name in names for root in self.roots for step in _steps_below(name, root)]
        protected = PROTECTED in map(folded, below)
        return Action(tool, str(path), inside=inside, names=names, protected=protected)


def _steps_below(path: str, root: Path) -> tuple[str, ...]:
    return Path(path).relative_to(root).parts if Path(path).is_relative_to(root) else ()


@dataclass
class PermissionGate(AbstractCapability[Any]):
    """Decides before each tool call of a run, and asks when the decision is a person's."""

    rights: Rights
    asker: tuple[str, ...]
    definition_mode: Mode | None = None
    """A definition's `permission`; it narrows the session's mode and never widens it."""
    delegation_id: str | None = None
    """The delegation whose calls these are; None for the session's own agent."""
    denied: Callable[[ToolCallPart], None] | None = None
    """Told of each call that is not let through, before it fails."""

    async def before_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
    ) -> dict[str, Any]:
        """Let the call through, or fail it with who denied it and why."""
        action = self.rights.action(call.tool_name, args)
        decision = self.decision(action)
        if decision.verdict is Verdict.ASK:
            decision = await self.asked(action, dict(args), decision)
        allowed = decision.verdict is Verdict.ALLOW
        let_through(action.path if allowed and not action.inside else None)
        if allowed:
            return args
        if self.denied is not None:
            self.denied(call)
        raise ToolFailed(
            f"{ErrorCode.TOOL_DENIED}: {denial(action, decision)} Do not try it in another way; go on "
            "without it, or say in your report what is missing."
        )

    def decision(self, action: Action) -> Decision:
        """Return what mode, definition and rules say about `action`."""
        rules = with_links_followed(self.rights.rules, self.rights.roots)
        decision = decide(action, effective_mode(self.rights.mode, self.definition_mode), rules)
        if decision.verdict is not Verdict.DENY and action.tool in EDIT_TOOLS and not action.inside:
            return Decision(Verdict.DENY, "the workspace: tools change no file outside of it")
        of_host = action.tool in self.rights.host_tools and self.definition_mode is None
        if of_host and decision.verdict is Verdict.ASK:
            return Decision(Verdict.ALLOW, "a tool of the host program")
        return decision

    async def asked(self, action: Action, arguments: dict[str, Any], decision: Decision) -> Decision:
        """Ask the queue about an action that `decision` leaves to a person, and return what was decided."""
        answer = await self.rights.questions.ask(
            self.asker, action, arguments, decision.reason, delegation_id=self.delegation_id
        )
        if answer.allowed:
            return Decision(Verdict.ALLOW, "the user")
        who = "the user" if answer.by_person else "the session"
        return Decision(Verdict.DENY, f"{who}: {answer.note}" if answer.note else who)


def denial(action: Action, decision: Decision) -> str:
    """Return the sentence that says what was denied, and by whom or what."""
    return f"{describe(action)} was denied by {decision.reason}."


def describe(action: Action) -> str:
    """Return an action in a few words, for a model or a person."""
    if action.command is not None:
        parts = command_parts(action.command)
        return f"{action.tool} ({' ; '.join(parts)[:120]})"
    return f"{action.tool} of {action.path}" if action.path else action.tool
