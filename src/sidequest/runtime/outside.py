"""What a call may read outside of the workspace: nothing, unless the gate has let just that through.

Gate and tool run one after the other in one task, so what was let through is a variable of its context: no
sibling sees it, and a call that came past no gate reads nothing.
"""

from __future__ import annotations

from contextvars import ContextVar
from pathlib import Path

_LET_THROUGH: ContextVar[str | None] = ContextVar("let_through", default=None)


def let_through(path: str | None) -> None:
    """Let the coming call read `path`, a resolved file or folder; None lets it read nothing outside."""
    _LET_THROUGH.set(path)


def is_let_through(real: str) -> bool:
    """Say whether the resolved path `real` is what was let through, or lies below it."""
    allowed = _LET_THROUGH.get()
    return allowed is not None and Path(allowed).is_absolute() and Path(real).is_relative_to(allowed)
