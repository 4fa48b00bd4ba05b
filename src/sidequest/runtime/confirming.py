"""Asks a person before a subagent with risky capabilities starts: for this once, or for the session."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sidequest.core.confirmation import COMMANDS, EDITS, Capability, Confirmation, risky
from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.permissions import Action, Mode
from sidequest.subagents.definition import Scope, SubagentDefinition

if TYPE_CHECKING:
    from sidequest.runtime.delegations import Delegations
    from sidequest.runtime.permissions import Answer
    from sidequest.runtime.planning import Checked

VOUCHED_FOR = frozenset({"explorer"})
"""Builtins that only read, by their prompt, and look with commands too; each command is asked for."""


@dataclass
class _Known:
    """What a person said about one definition."""

    confirmed: set[str] = field(default_factory=set)
    refusals: int = 0
    newest: Answer | None = None
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass
class Confirmations:
    """What was confirmed in a session, by definition; a changed definition is another one."""

    _known: dict[SubagentDefinition, _Known] = field(default_factory=dict, init=False)

    async def confirm(self, registry: Delegations, checked: Checked, *, consented: bool = False) -> None:
        """Ask about what `checked` could do and nobody has confirmed yet; `consented` takes it as confirmed.

        An answer for the session holds for this definition from then on; one for once starts this delegation
        and no other. Delegations of one definition that wait at the same time share a refusal. It is not
        remembered beyond that: the person may change their mind.

        Raises:
            SidequestError: `TOOL_DENIED`, with what would have to be changed.
        """
        rights = registry.rights
        if rights is None:
            return
        known = self._known.setdefault(checked.definition, _Known())
        wanted = capabilities_of(registry, checked)
        if consented:
            known.confirmed |= {capability.key for capability in wanted}
            return
        refusals = known.refusals
        async with known.asking:
            missing = tuple(item for item in wanted if item.key not in known.confirmed)
            if not missing:
                return
            answer = known.newest if known.refusals > refusals else None
            if answer is None:
                question = Confirmation(
                    checked.definition.name, checked.choice.model.key, checked.task, missing
                )
                answer = await rights.questions.ask(
                    ("parent",),
                    Action("Task"),
                    {"agent": question.agent, "task": question.task, "model": question.model},
                    f"it can {_listed(missing)}",
                    confirmation=question,
                )
            if not answer.allowed:
                known.refusals += 1
                known.newest = answer
                raise _not_started(checked.definition, missing, answer)
            if answer.for_session:
                known.confirmed |= {capability.key for capability in missing}


def capabilities_of(registry: Delegations, checked: Checked) -> tuple[Capability, ...]:
    """Return what must be confirmed before `checked` starts, whatever was confirmed before."""
    rights, choice, workspace = registry.rights, checked.choice, registry.toolbox.workspace
    if rights is None:
        return ()
    keys = [choice.model.key, *(alternative.key for alternative in choice.alternatives)]
    costs = [cost for key in keys if (cost := registry.models.cost_of(key)) is not None]
    definition = checked.definition
    return risky(
        checked.names,
        costs,
        mode=rights.mode,
        rules=rights.rules,
        contained=workspace is not None and workspace.contained,
        vouched=definition.scope is Scope.BUILTIN and definition.name in VOUCHED_FOR,
    )


def _listed(capabilities: tuple[Capability, ...]) -> str:
    *first, last = [capability.text for capability in capabilities]
    return f"{', '.join(first)} and {last}" if first else last


def _not_started(
    definition: SubagentDefinition, missing: tuple[Capability, ...], answer: Answer
) -> SidequestError:
    keys = {capability.key for capability in missing}
    mode = Mode.ACCEPT_EDITS if keys == {EDITS} else Mode.AUTO
    instead = (
        "Delegate to a subagent that only reads, or do it yourself"
        if keys & {EDITS, COMMANDS}
        else "Delegate to a subagent on the session's model, or do it yourself"
    )
    return SidequestError(
        ErrorCode.TOOL_DENIED,
        f"{definition.name} was not started: it can {_listed(missing)}, which a person must confirm, and the "
        f"answer was no{f' ({answer.note})' if answer.note else ''}.",
        f"{instead}. In permission mode {mode}, which only the user can set, it starts without a question.",
    )
