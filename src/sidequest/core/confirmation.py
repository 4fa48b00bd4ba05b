"""What a person confirms before a subagent starts, for once or for the session (record context-modes).

Risky are edits, commands, and a model dearer than the session's. Reading is not, and `fork` is not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from sidequest.core.permissions import EDIT_TOOLS, Action, DenyRules, Mode

EDITS = "edits"
COMMANDS = "commands"


class Beside(StrEnum):
    """What a model costs beside the session's model."""

    NOT_MORE = "not more"
    MORE = "more"
    UNKNOWN = "unknown"
    """One of the two prices is not known, which is said and not guessed."""


@dataclass(frozen=True, slots=True)
class ModelCost:
    """A model that a delegation may run on."""

    key: str
    beside: Beside
    prices: str = ""
    """Both prices, for a person: `$15 and $75 for a million tokens ..., the session's $3 and $15`."""


@dataclass(frozen=True, slots=True)
class Capability:
    """Something a delegation could do that a person should know of before it starts."""

    key: str
    """What is remembered: `edits`, `commands`, or `model:` and a key."""
    text: str
    """Goes on from "it can"."""


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What a person is asked before a delegation starts."""

    agent: str
    model: str
    """Key of the model it starts on."""
    task: str
    capabilities: tuple[Capability, ...]


def risky(
    tools: Collection[str],
    models: Iterable[ModelCost],
    *,
    mode: Mode,
    rules: DenyRules,
    contained: bool = False,
    vouched: bool = False,
) -> tuple[Capability, ...]:
    """Return what must be confirmed before a delegation starts that has `tools` and may run on `models`.

    `contained` says that commands run in a sandbox; `vouched` that whoever ships the definition answers for
    its commands, each of which is asked for all the same. Nothing is asked with `auto`; `accept-edits` does
    not ask about edits alone. What a deny rule takes away as a whole is no capability.
    """
    if mode is Mode.AUTO:
        return ()
    held = [tool for tool in tools if rules.match(Action(tool)) is None]
    found: list[Capability] = []
    if "Bash" in held and not vouched:
        where = "in a sandbox" if contained else "that reach outside this folder too"
        found.append(Capability(COMMANDS, f"run commands {where}"))
    for model in {model.key: model for model in models}.values():
        if model.beside is Beside.MORE:
            found.append(
                Capability(f"model:{model.key}", f"run on {model.key}, which costs more ({model.prices})")
            )
        elif model.beside is Beside.UNKNOWN:
            found.append(
                Capability(f"model:{model.key}", f"run on {model.key}, which may cost more ({model.prices})")
            )
    if not EDIT_TOOLS.isdisjoint(held) and (found or mode is Mode.ASK):
        found.insert(0, Capability(EDITS, "edit files in this folder"))
    return tuple(found)
