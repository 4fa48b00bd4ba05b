"""How a provider ended an answer, in its own word where pydantic-ai has none."""

from __future__ import annotations

import re

from pydantic_ai.messages import ModelResponse

_TROUBLE = re.compile(
    r"error|refus|safety|recit|block|prohibit|malformed|insufficient|sensitive|filter|cancel|abort|interrupt",
    re.IGNORECASE,
)


def broken_off(response: ModelResponse) -> str:
    """Return the provider's word for a trouble that ended an answer early, empty when it ended well.

    pydantic-ai maps the words it knows; what a server says beyond them is in the raw reason only, for example
    `insufficient_system_resource`.
    """
    raw = (response.provider_details or {}).get("finish_reason")
    word = raw if isinstance(raw, str) else ""
    if response.finish_reason == "error":
        return word or "error"
    return word if response.finish_reason is None and _TROUBLE.search(word) else ""
