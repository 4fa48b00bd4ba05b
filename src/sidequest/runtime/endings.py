"""How a provider ended an answer, in its own word where pydantic-ai has none."""

from __future__ import annotations

import re

from pydantic_ai.messages import ModelResponse

_CUT = re.compile(r"length|max.?(output.?)?tokens|token.?limit|truncat", re.IGNORECASE)
_WELL = re.compile(
    r"stop(ped|.?sequence|.?str)?|end(.?turn)?|eos(.?token)?|complete[d]?|done|finish(ed)?|success"
    r"|(tool|function).?(calls?|use)|(un)?load",
    re.IGNORECASE,
)
"""What servers say when an answer ended as it should; `load` and `unload` are ollama's."""


def broken_off(response: ModelResponse) -> str:
    """Return the provider's word for a trouble that ended an answer early, else nothing; a cut is none.

    pydantic-ai maps the words it knows; what a server says beyond them is in the raw reason only, for example
    `insufficient_system_resource`. A word that nobody knows is a trouble: an answer is not taken for whole
    because we do not understand how it ended.
    """
    word = _raw_reason(response)
    if response.finish_reason == "error":
        return word or "error"
    understood = response.finish_reason is not None or _WELL.fullmatch(word) or _CUT.search(word)
    return "" if understood else word


def cut_by_limit(response: ModelResponse) -> bool:
    """Say whether the output limit, or the window, ended an answer."""
    unmapped = response.finish_reason is None and _CUT.search(_raw_reason(response)) is not None
    return response.finish_reason == "length" or unmapped


def _raw_reason(response: ModelResponse) -> str:
    raw = (response.provider_details or {}).get("finish_reason")
    return raw if isinstance(raw, str) else ""
