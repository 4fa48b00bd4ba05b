"""Failures in plain words for a person at a page: what it was, and what can be done."""

from __future__ import annotations

from sidequest.core.errors import ErrorCode

_STOPPED = frozenset({ErrorCode.TURN_ABORTED})
_TITLES = {
    ErrorCode.TURN_ABORTED: "Stopped",
    ErrorCode.PROVIDER_RATE_LIMITED: "The provider allows no more requests for now",
    ErrorCode.PROVIDER_ERROR: "The provider failed",
    ErrorCode.PROVIDER_UNAUTHORIZED: "The provider refused the key",
    ErrorCode.NETWORK_ERROR: "The model could not be reached",
    ErrorCode.TIMEOUT: "The model took too long",
    ErrorCode.STREAM_FAILED: "The answer broke off",
    ErrorCode.MODEL_NOT_CONFIGURED: "The model is not configured",
    ErrorCode.EMPTY_MODEL_RESPONSE: "The model gave an empty answer",
    ErrorCode.CONTEXT_TOO_LARGE: "The request does not fit the model",
    ErrorCode.CONTEXT_COMPACTION_FAILED: "The conversation could not be compacted",
    ErrorCode.SUBAGENT_CONTEXT_OVERFLOW: "The work does not fit the model",
    ErrorCode.SUBAGENT_TURN_LIMIT: "The turn limit was reached",
    ErrorCode.SUBAGENT_DURATION_TIMEOUT: "The time limit was reached",
    ErrorCode.SUBAGENT_COST_LIMIT: "The cost limit was reached",
    ErrorCode.STORE_FULL: "The disk is full",
}
_REMEDIES = {
    ErrorCode.TURN_ABORTED: "What was said so far is kept. Write what should be done next.",
    ErrorCode.PROVIDER_UNAUTHORIZED: "Check the key of the provider in Settings.",
    ErrorCode.PROVIDER_RATE_LIMITED: "Wait a little, or choose another model.",
    ErrorCode.PROVIDER_ERROR: "Send it again later, or choose another model.",
    ErrorCode.NETWORK_ERROR: "Check the connection, and that the server of the model runs.",
    ErrorCode.TIMEOUT: "Send it again, or choose another model.",
    ErrorCode.STREAM_FAILED: "Send it again.",
    ErrorCode.MODEL_NOT_CONFIGURED: "Choose another model, or configure it in Settings.",
    ErrorCode.EMPTY_MODEL_RESPONSE: "Send it again, or choose another model.",
    ErrorCode.CONTEXT_TOO_LARGE: "Choose a model with a larger window, or fewer tools.",
    ErrorCode.CONTEXT_COMPACTION_FAILED: "Choose a model with a larger window, or begin another session.",
    ErrorCode.SUBAGENT_TURN_LIMIT: "Ask for less at once, or raise the limit: maxTurns of the subagent.",
    ErrorCode.SUBAGENT_DURATION_TIMEOUT: "Ask for less at once, or raise the time limit in Settings.",
    ErrorCode.SUBAGENT_COST_LIMIT: "Raise the cost limit in Settings, or choose a cheaper model.",
    ErrorCode.INTERNAL: "Send it again; when it stays, report this as a defect.",
}


def title_of_trouble(code: str) -> str:
    """Return what happened in a few words."""
    known = _known(code)
    return _TITLES.get(known, "It failed") if known else "It failed"


def remedy_of(code: str) -> str:
    """Return what a person can do, empty when the words of the failure say it themselves."""
    known = _known(code)
    return _REMEDIES.get(known, "") if known else ""


def is_a_stop(code: str) -> bool:
    """Say whether nothing is wrong: somebody stopped it."""
    return _known(code) in _STOPPED


def _known(code: str) -> ErrorCode | None:
    return ErrorCode(code) if code in ErrorCode.__members__ else None
