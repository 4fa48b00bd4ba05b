"""Which context mode a delegation runs in: three layers, the nearest wins (record context-modes)."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

from sidequest.core.errors import ErrorCode, SidequestError


class ContextMode(StrEnum):
    """What a delegate sees of its parent's conversation."""

    INDEPENDENT = "independent"
    """Nothing: the task, the definition and the project's instructions."""
    FORK = "fork"
    """The parent's active branch, as it was at the moment of the spawn."""


_ALIASES = {
    "independent": ContextMode.INDEPENDENT,
    "fresh": ContextMode.INDEPENDENT,
    "fork": ContextMode.FORK,
}


def parse_context_mode(text: str) -> ContextMode | None:
    """Return the mode that `text` names, or None; `fresh` means `independent` (specification 8.19)."""
    return _ALIASES.get(text.strip().lower())


def resolve_context_mode(
    *,
    spawn: ContextMode | None = None,
    definition: ContextMode | None = None,
    session: ContextMode | None = None,
    allowed: Collection[ContextMode] = (),
    agent: str = "",
) -> ContextMode:
    """Decide the mode: spawn override, then definition default, then session default, then `independent`.

    `allowed` empty means that every mode is allowed. An explicit `spawn` outside `allowed` is an error; a
    default outside it falls to the next layer, at last to the first allowed mode (specification 5.1).

    Raises:
        SidequestError: `SUBAGENT_INVALID`, naming the allowed modes.
    """
    permitted = tuple(allowed) or tuple(ContextMode)
    if spawn is not None and spawn not in permitted:
        names = ", ".join(permitted)
        raise SidequestError(
            ErrorCode.SUBAGENT_INVALID,
            f"{agent or 'This subagent'} does not run with context {spawn}.",
            f"Use one of: {names}, or leave context out.",
        )
    for layer in (spawn, definition, session, ContextMode.INDEPENDENT):
        if layer is not None and layer in permitted:
            return layer
    return permitted[0]
