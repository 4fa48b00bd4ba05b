"""The settings of one run, and of no other: output cap and thinking level (decision record 0210)."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from sidequest.core.budget import stricter_cap
from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.models.bindings import ModelBinding, ThinkingLevel

if TYPE_CHECKING:
    from pydantic_ai.settings import ModelSettings, ThinkingEffort

_EFFORTS: tuple[ThinkingEffort, ...] = ("minimal", "low", "medium", "high", "xhigh", "max")


def run_settings(
    binding: ModelBinding, *, cap: int | None = None, thinking: ThinkingLevel | None = None
) -> ModelSettings:
    """Return new pydantic-ai settings for a run on `binding`.

    `max_tokens` is the stricter of `cap` and the model's own limit, in tokens, and absent when neither is
    known; None and 0 mean no cap (specification 8.17). `thinking` None takes the binding's default; `off`
    becomes False, `omit` and no level at all leave the field out.
    Worked number: a cap of 64,000 on a model that writes 8,192 gives `max_tokens` 8,192.

    Raises:
        SidequestError: `SETTINGS_INVALID` for a level that does not exist.
    """
    settings: ModelSettings = {}
    limit = stricter_cap(cap, binding.max_tokens)
    if limit is not None:
        settings["max_tokens"] = limit
    level = thinking or binding.thinking
    if level is None or level == "omit":
        return settings
    if level == "off":
        settings["thinking"] = False
    elif level in _EFFORTS:
        settings["thinking"] = _within(limit, level, binding)
    else:
        raise SidequestError(
            ErrorCode.SETTINGS_INVALID,
            f"{level!r} is no thinking level.",
            f"Use one of: {', '.join(get_args(ThinkingLevel))}.",
        )
    return settings


def _within(limit: int | None, level: ThinkingEffort, binding: ModelBinding) -> ThinkingEffort | bool:
    """Lower `level` until the thinking it buys fits the output limit.

    Older Claude models take thinking as a number of tokens and reject a request whose output limit is not
    above it, so a small cap with a high level would fail every time. pydantic-ai clamps all other models.
    """
    if limit is None or binding.api != "anthropic":
        return level
    from pydantic_ai.profiles.anthropic import ANTHROPIC_THINKING_BUDGET_MAP, anthropic_model_profile

    profile = anthropic_model_profile(binding.name) or {}
    if profile.get("anthropic_supports_adaptive_thinking"):
        return level
    for effort in reversed(_EFFORTS[: _EFFORTS.index(level) + 1]):
        if ANTHROPIC_THINKING_BUDGET_MAP[effort] < limit:
            return effort
    return False
