"""How model and provider names are compared and taken apart (specification 3.3 and 4.7)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

_REMARK = re.compile(r"\s*\([^()]*\)\s*$")


def alias_of(text: str) -> str:
    """Return the letters and digits of `text` in lower case; two names are the same when these are.

    Worked example: `GPT-4.1` and `gpt-4-1` both give `gpt41`.
    """
    return "".join(char for char in text.casefold() if char.isalnum())


def without_remark(text: str) -> str:
    """Return `text` without a remark at its end: `Claude Sonnet 4.5 (copilot)` loses the last word."""
    return _REMARK.sub("", text.strip())


def split_key(key: str) -> tuple[str, str]:
    """Split `provider/model` at the first slash; a model id may contain more of them.

    Either part is empty when it is missing: `gpt-5` gives `("", "gpt-5")`.
    """
    provider, slash, name = key.strip().partition("/")
    return (provider.strip(), name.strip()) if slash else ("", provider)


def split_name(text: str, is_provider: Callable[[str], bool]) -> tuple[str, str] | None:
    """Split what a person wrote into provider and model, or return None when it names no provider.

    A colon (pydantic-ai's spelling) separates only if it comes before any slash and what precedes it is a
    provider; otherwise it belongs to the model id, as in `llama3.2:3b`. A slash always separates.
    """
    head, colon, tail = text.partition(":")
    if colon and tail and "/" not in head and is_provider(head.strip()):
        return head.strip(), tail.strip()
    provider, name = split_key(text)
    return (provider, name) if provider and name else None


def is_family_word(text: str, name: str) -> bool:
    """Say whether `text` is one word of letters, such as `sonnet`, that the model id `name` contains."""
    word = text.strip().casefold()
    return word.isalpha() and word in re.split(r"[^a-z]+", name.casefold())


def spellings(providers: Iterable[str], name: str) -> frozenset[str]:
    """Return every alias under which the model `name` of one of `providers` may be meant."""
    model = alias_of(name)
    return frozenset({model, *(alias_of(provider) + model for provider in providers)})
