"""From a Task call to the plan of a run: everything that is checked before a delegation starts."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic_ai.messages import ModelMessage
from pydantic_ai.toolsets import AbstractToolset, CombinedToolset

from sidequest.core.context_modes import ContextMode, resolve_context_mode
from sidequest.core.enclosures import Attachment, Snippet, with_enclosures
from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.outcome import Status
from sidequest.core.permissions import Mode, effective_mode
from sidequest.core.provider_errors import Pattern
from sidequest.core.tokens import compact_json, estimate_message, estimate_text
from sidequest.core.transcript import Seed, brief_request, seed, snapshot
from sidequest.runtime.chains import MAX_READ_LINES
from sidequest.runtime.delegation import Plan, SharedPrefix
from sidequest.runtime.journal import Journal
from sidequest.runtime.limits import Limits
from sidequest.runtime.model_choice import Choice, ModelChooser
from sidequest.runtime.past import PastPlan, PastRun
from sidequest.runtime.permissions import PermissionGate, Rights
from sidequest.runtime.prefix import GrantedOnly, Prefix, PrefixToolset
from sidequest.runtime.prompts import FORK_RULES, FORK_WRAPPER, delegate_instructions
from sidequest.runtime.recall import Recall
from sidequest.runtime.records import RESUMABLE, DelegationRecord, Records
from sidequest.runtime.toolbox import Toolbox
from sidequest.subagents.catalog import Catalog
from sidequest.subagents.definition import Permission, SubagentDefinition
from sidequest.subagents.tool_names import denies


@dataclass(frozen=True, slots=True)
class StartRequest:
    """What a Task call asks for."""

    agent: str
    task: str
    label: str = ""
    model: str | None = None
    context: ContextMode | None = None
    resume: str | None = None
    """Id of an earlier delegation whose work this one goes on with, or None."""
    tool_call_id: str | None = None
    """The parent's call that asks, or None when nobody's call does."""
    attachments: tuple[Attachment, ...] = ()
    """Texts of files that go with the task; of an independent delegation only."""
    snippets: tuple[Snippet, ...] = ()


@dataclass(frozen=True)
class Checked:
    """What a request leads to."""

    definition: SubagentDefinition
    task: str
    brief: str
    """The task and what is put with it."""
    choice: Choice
    names: tuple[str, ...]
    """The tools that are granted."""
    context_mode: ContextMode
    earlier: DelegationRecord | None
    """The delegation whose work is gone on with, or None."""


@dataclass(frozen=True)
class Planner:
    """Checks what is asked for and plans its run, as the session stands now."""

    catalog: Catalog
    models: ModelChooser
    toolbox: Toolbox
    records: Records
    max_running: int
    max_total: int
    project_instructions: str
    default_context: ContextMode | None
    patterns: tuple[Pattern, ...]
    rights: Rights | None
    journal: Journal | None

    def check(self, request: StartRequest) -> Checked:
        """Return what `request` leads to, and start nothing. The order is that of specification 3.3.

        Raises:
            SidequestError: what is wrong and what can be done.
        """
        definition = self.catalog.require(request.agent)
        if request.resume and (request.model or request.context):
            which = "model" if request.model else "context"
            raise _refused(f"{which} cannot be given together with resume.", f"Leave {which} out.")
        enclosed = bool(request.attachments or request.snippets)
        if request.resume and enclosed:
            raise _refused(
                "attachments and snippets cannot be given together with resume.",
                "Leave them out; name in the task what the subagent should read.",
            )
        task = request.task.strip()
        if not task:
            raise _refused("The task is empty.", "Write the task the subagent should do, self-contained.")
        before = self.records.latest(request.resume) if request.resume else None
        recorded = self.models.recorded(before.model, definition) if before else None
        choice = recorded or self.models.choose(definition, request.model)
        names = definition.granted_tools(self.toolbox.names)
        if not names:
            raise _no_tools(definition, self.toolbox)
        running = len(self.records.running())
        if running >= self.max_running:
            raise SidequestError(
                ErrorCode.AGENT_BUSY,
                f"{running} delegations are running, which is the limit.",
                "Wait for one with TaskWait or stop one with TaskStop, then try again.",
                retriable=True,
                running=running,
            )
        if self.records.begun >= self.max_total:
            raise SidequestError(
                ErrorCode.AGENT_BUSY,
                f"This session has started {self.records.begun} delegations, which is all it may.",
                "Do the rest without delegating, or ask the user to raise max_total.",
                total=self.records.begun,
            )
        earlier = self._resumable(request.resume, definition) if request.resume else None
        if earlier is not None:
            self._require_nothing_gained(earlier, definition)
        mode = resolve_context_mode(
            spawn=request.context,
            definition=definition.context,
            session=self.default_context,
            allowed=definition.allowed_contexts,
            agent=definition.name,
        )
        if earlier is not None:
            mode = earlier.run.plan.context_mode
        elif enclosed and mode is ContextMode.FORK:
            raise _refused(
                "attachments and snippets cannot be given together with context fork, which sees the whole "
                "conversation.",
                "Leave them out, or give context independent.",
            )
        brief = with_enclosures(task, request.attachments, request.snippets)
        return Checked(definition, task, brief, choice, names, mode, earlier)

    def plan(
        self, checked: Checked, parent: Sequence[ModelMessage] = (), prefix: Prefix | None = None
    ) -> Plan:
        """Return how `checked` is run; `parent` and `prefix` are those of `Delegations.start`."""
        plan = self._own_plan(checked, parent)
        if plan.context_mode is ContextMode.FORK and checked.earlier is None and prefix is not None:
            return self._under_prefix(plan, checked.definition, checked.task, prefix)
        return plan

    def _own_plan(self, checked: Checked, parent: Sequence[ModelMessage]) -> Plan:
        delegation_id = str(uuid.uuid4())
        definition, names, choice = checked.definition, checked.names, checked.choice
        task, earlier, mode = checked.task, checked.earlier, checked.context_mode
        workspace = self.toolbox.workspace
        scratch = str(workspace.scratch) if workspace and workspace.scratch else None
        instructions = delegate_instructions(
            definition, names, scratch=scratch, project_instructions=self.project_instructions
        )
        brief, history, lost = checked.brief, list[ModelMessage](), False
        if earlier is not None:
            seeded = self._seed(earlier, task, instructions, choice, definition)
            already_lost = earlier.outcome is not None and earlier.outcome.degraded
            cut = isinstance(earlier.run, PastRun) and earlier.run.cut
            history, lost = seeded.messages, already_lost or cut or seeded.lost
        elif mode is ContextMode.FORK:
            brief = FORK_WRAPPER.format(name=definition.name, role=definition.description, task=task)
            history = snapshot(parent, same_model=self.models.is_session_model(choice.model.key))
        return Plan(
            delegation_id=delegation_id,
            agent=definition.name,
            brief=brief,
            instructions=instructions,
            model=choice.model,
            toolset=self._toolset(definition, names, delegation_id, earlier),
            tool_names=names,
            context_mode=mode,
            history=history,
            history_lost=lost,
            alternatives=choice.alternatives,
            cap=definition.max_tokens,
            limits=Limits(definition.max_turns, definition.max_seconds, definition.max_cost_usd),
            gate=self._gate(definition, delegation_id),
            spill=workspace.spill if workspace else None,
            patterns=self.patterns,
        )

    def _under_prefix(self, plan: Plan, definition: SubagentDefinition, task: str, prefix: Prefix) -> Plan:
        """Return the plan of a fork that begins as its parent does; another model has no cache to keep."""
        if not self.models.is_session_model(plan.model.key) or not prefix.covers(plan.tool_names):
            return plan
        extra = {"recall"} if self.journal is not None else set[str]()
        granted = frozenset(plan.tool_names) | (extra & {tool.name for tool in prefix.tools})
        role = FORK_RULES.format(
            instructions=delegate_instructions(definition, plan.tool_names), tools=", ".join(plan.tool_names)
        )
        return replace(
            plan,
            brief=FORK_WRAPPER.format(name=definition.name, role=role, task=task),
            shared=SharedPrefix(
                prefix.instructions, PrefixToolset(plan.toolset, prefix), GrantedOnly(granted)
            ),
        )

    def _gate(self, definition: SubagentDefinition, delegation_id: str) -> PermissionGate | None:
        if self.rights is None:
            return None
        return PermissionGate(self.rights, ("parent", definition.name), _mode_of(definition), delegation_id)

    def _toolset(
        self,
        definition: SubagentDefinition,
        names: tuple[str, ...],
        delegation_id: str,
        earlier: DelegationRecord | None,
    ) -> AbstractToolset[Any]:
        """Return the granted tools, and recall over the chain's own rows where those are stored."""
        granted = self.toolbox.toolset(names)
        if self.journal is None or any(denies(denial, "recall") for denial in definition.disallowed_tools):
            return granted
        chain = [r.id for r in self.records.all() if r.chain == earlier.chain] if earlier else []
        recall = Recall(self.journal.store, self.journal.session_id, [*chain, delegation_id])
        return CombinedToolset([granted, recall.toolset()])

    def _seed(
        self,
        earlier: DelegationRecord,
        task: str,
        instructions: str,
        choice: Choice,
        definition: SubagentDefinition,
    ) -> Seed:
        """Seed a resumed run so that it starts below the limit, the new instruction included (8.8)."""
        budget = choice.model.budget(definition.max_tokens)
        names = definition.granted_tools(self.toolbox.names)
        overhead = max(earlier.run.overhead, estimate_text(instructions) + self._tool_tokens(names))
        limit = budget.hard_limit - overhead - estimate_message(brief_request(task))
        return seed(earlier.original_task, earlier.run.messages, limit=max(1, limit))

    def room_of_resume(self, earlier: DelegationRecord) -> int:
        """Return how many tokens a request has room for that goes on with `earlier`, 0 when none can."""
        try:
            definition = self.catalog.require(earlier.agent)
            choice = self.models.recorded(earlier.model, definition) or self.models.choose(definition, None)
        except SidequestError:
            return 0
        return choice.model.budget(definition.max_tokens).hard_limit

    def _tool_tokens(self, names: Sequence[str]) -> int:
        """Return the tokens of the schemas a delegate with these tools is sent: a past run did not say."""
        tools = dict(self.toolbox.extra.tools) if self.toolbox.extra is not None else {}
        if self.toolbox.workspace is not None:
            tools |= self.toolbox.workspace.toolset(names).tools
        offered = [tool for name, tool in tools.items() if name in names]
        if self.journal is not None:
            offered += Recall(self.journal.store, self.journal.session_id).toolset().tools.values()
        return sum(
            estimate_text(f"{t.name}{t.description or ''}{compact_json(t.function_schema.json_schema)}")
            for t in offered
        )

    def _resumable(self, delegation_id: str, definition: SubagentDefinition) -> DelegationRecord:
        record = self.records.latest(delegation_id)
        kept = self.records.resumable()
        known = [r.id for r in kept]
        usable = f"Use one of: {', '.join(known)}, or leave resume out." if known else "Leave resume out."
        if record is None:
            raise _refused(f"There is no delegation {delegation_id} to resume.", usable)
        if record.agent != definition.name:
            raise _refused(
                f"Delegation {delegation_id} belongs to {record.agent}.",
                f"Resume it with agent {record.agent}, or leave resume out.",
            )
        if record.status is Status.RUNNING:
            raise _refused(
                f"Delegation {delegation_id} is still running.", "Call TaskWait for it first, then resume it."
            )
        if record.status not in RESUMABLE:
            raise _refused(f"Delegation {delegation_id} was {record.status} and cannot be resumed.", usable)
        if isinstance(record.run, PastRun) and record.run.damage is not None:
            damage = record.run.damage
            raise SidequestError(
                ErrorCode.STORE_DAMAGED,
                f"Delegation {delegation_id} cannot be gone on with: {damage.cause}",
                "Delegate the work anew, with resume left out.",
            )
        if not self.records.has_work(record):
            raise _refused(f"Delegation {delegation_id} did nothing that could be gone on with.", usable)
        if record.reads.lines > MAX_READ_LINES:
            raise _refused(
                f"Delegation {delegation_id} has read {record.reads.lines} lines, too many to go on with.",
                usable,
            )
        if record not in kept:
            raise _refused(f"Delegation {delegation_id} is no longer kept for resuming.", usable)
        return record

    def require_nothing_gained(self, delegation_id: str) -> None:
        """Refuse a chain whose definition allows more than when it ran last: a resume grants nothing new.

        So is one whose context mode the definition no longer allows.

        Raises:
            SidequestError: `SUBAGENT_INVALID` with what was gained, or the mode; `SUBAGENT_UNKNOWN` when the
                definition is gone.
        """
        record = self.records.latest(delegation_id)
        if record is not None:
            self._require_nothing_gained(record, self.catalog.require(record.agent))

    def _require_nothing_gained(self, earlier: DelegationRecord, definition: SubagentDefinition) -> None:
        then = earlier.run.plan
        allowed = definition.allowed_contexts
        if allowed and then.context_mode not in allowed:
            raise _refused(
                f"{definition.name} no longer runs with context {then.context_mode}, as that delegation did; "
                f"it allows: {', '.join(allowed)}.",
                "Allow it again, or delegate the work anew, with resume left out.",
            )
        offered = self.toolbox.names
        before = then.granted(offered) if isinstance(then, PastPlan) else then.tool_names
        gained = [name for name in definition.granted_tools(offered) if name not in before]
        if gained:
            raise _refused(
                f"{definition.name} was given more tools since that delegation ran: {', '.join(gained)}.",
                "Take them away again, or delegate the work anew, with resume left out.",
            )
        if self.rights is None:
            return
        if isinstance(then, PastPlan):
            mode_then = then.mode
        else:
            mode_then = then.gate.definition_mode if then.gate is not None else None
        was = effective_mode(self.rights.mode, mode_then)
        now = effective_mode(self.rights.mode, _mode_of(definition))
        if effective_mode(was, now) is not now:
            raise _refused(
                f"{definition.name} may do more without asking since that delegation ran: permission was "
                f"{was}, and is {now}.",
                "Set it back, or delegate the work anew, with resume left out.",
            )


def _mode_of(definition: SubagentDefinition) -> Mode | None:
    """Return how the definition has actions approved, None as the session does it."""
    own = definition.permission
    return None if own is Permission.INHERIT else Mode(own.value)


def _refused(cause: str, remedy: str) -> SidequestError:
    return SidequestError(ErrorCode.SUBAGENT_INVALID, cause, remedy)


def _no_tools(definition: SubagentDefinition, toolbox: Toolbox) -> SidequestError:
    offered = ", ".join(toolbox.names) or "none"
    return SidequestError(
        ErrorCode.SUBAGENT_INVALID,
        f"{definition.name} has no usable tool here: it names {definition.tools_label}, "
        f"the session offers {offered}.",
        "Delegate to another subagent, or change the tools of the definition."
        if toolbox.names
        else "Give it a workspace, the folder to work in: `Delegation(workspace=...)` in a library. "
        "Its tools come with 'sidequest[app]'.",
    )
