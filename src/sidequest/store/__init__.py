"""Everything that outlives the process: sessions, transcripts, delegations, checkpoints, events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.store.rows import (
    Chain,
    CheckpointRow,
    DelegationProgress,
    DelegationRow,
    EventRow,
    Grant,
    Holder,
    Lease,
    Match,
    NewCheckpoint,
    NewDelegation,
    NewMessage,
    NewSession,
    Page,
    Problem,
    SessionRow,
    StoredMessage,
    StoredResult,
    Truncated,
)

if TYPE_CHECKING:
    from sidequest.store.store import Store

__all__ = [
    "Chain",
    "CheckpointRow",
    "DelegationProgress",
    "DelegationRow",
    "EventRow",
    "Grant",
    "Holder",
    "Lease",
    "Match",
    "NewCheckpoint",
    "NewDelegation",
    "NewMessage",
    "NewSession",
    "Page",
    "Problem",
    "SessionRow",
    "Store",
    "StoredMessage",
    "StoredResult",
    "Truncated",
]


def __getattr__(name: str) -> Any:
    """Load `Store` when it is first asked for.

    Raises:
        SidequestError: `MISSING_EXTRA` when the database library is not installed.
    """
    if name != "Store":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from sidequest.store.store import Store
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "sqlalchemy":
            raise
        raise SidequestError(
            ErrorCode.MISSING_EXTRA,
            "Sessions cannot be stored: the database library is not installed.",
            "Install it with: pip install 'sidequest[app]'.",
        ) from error
    return Store
