"""`sidequest budget`: the formula of specification 1.2 with its numbers filled in."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sidequest.core.budget import (
    MAX_KEEP_RECENT_TOKENS,
    MIN_KEEP_RECENT_TOKENS,
    RESERVE_FLOOR_TOKENS,
    SUMMARY_PROMPT_SAFETY_TOKENS,
    ContextBudget,
    stricter_cap,
)
from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.models.bindings import OFFLINE_KEY
from sidequest.surfaces.cli.errors import Exit
from sidequest.surfaces.text import count, one_line

if TYPE_CHECKING:
    from sidequest.models.bindings import ModelBinding

_COMMAND_LINE = "the command line"
_NUMBER = re.compile(r"[+-]?\d[\d_,]*")

SOURCES = {
    "user": "your settings",
    "server": "the server that serves it",
    "catalog": "the catalog of genai-prices",
    "assumed": "assumed: the small default of such a server",
    "unknown": "assumed: nobody states one",
}
"""Where a number of a model comes from, in words."""


@dataclass(frozen=True, slots=True)
class Question:
    """What `sidequest budget` is asked."""

    subject: str
    """A model's name, or a window in tokens."""
    max_tokens: int | None = None
    """Output cap in tokens; None and 0 mean none."""
    window: int | None = None
    """Window in tokens that beats what is known; None and 0 mean none."""
    as_json: bool = False


@dataclass(frozen=True, slots=True)
class Basis:
    """The two numbers a budget is made of, and who states them."""

    title: str
    window: int | None
    window_from: str
    max_tokens: int | None
    max_tokens_from: str
    model: str | None = None
    warning: str = ""
    """What makes the numbers doubtful; empty when nothing does."""


def execute(question: Question) -> int:
    """Print the budget and return the exit code.

    Raises:
        SidequestError: the model is not known, or a number is below 0.
    """
    for option, number in (("--max-tokens", question.max_tokens), ("--window", question.window)):
        if number is not None and number < 0:
            raise SidequestError(
                ErrorCode.USAGE, f"{option} {number} is below 0.", "Give a number of tokens."
            )
    basis = _basis(question)
    budget = ContextBudget.of(basis.window, basis.max_tokens)
    if question.as_json:
        from sidequest.surfaces.cli.jsonlines import print_json

        print_json(as_dict(budget, basis))
    else:
        print("\n".join(formula(budget, basis)))
    if basis.warning:
        print(f"warning: {basis.warning}", file=sys.stderr)
    return Exit.DONE


def _basis(question: Question) -> Basis:
    text = question.subject.strip()
    if _NUMBER.fullmatch(text):
        stated = int(re.sub("[_,]", "", text))
        if stated <= 0:
            raise SidequestError(
                ErrorCode.USAGE, f"{text} is no window.", "Give a number of tokens above 0, or a model."
            )
        window = question.window or stated
        return Basis(
            f"a window of {count(window)}",
            window,
            _COMMAND_LINE if window else SOURCES["unknown"],
            question.max_tokens,
            _COMMAND_LINE if question.max_tokens else SOURCES["unknown"],
        )
    return _basis_of_model(question)


def _basis_of_model(question: Question) -> Basis:
    import asyncio

    from sidequest.surfaces.assemble import knowing_local_windows, registry_of
    from sidequest.surfaces.settings import load_settings

    registry = registry_of(load_settings())
    registry = asyncio.run(knowing_local_windows(registry, question.subject))
    binding = registry.resolve(question.subject)
    max_tokens = stricter_cap(question.max_tokens, binding.max_tokens)
    capped = max_tokens is not None and max_tokens != binding.max_tokens
    return Basis(
        binding.key,
        question.window or binding.window,
        _COMMAND_LINE if question.window else source_of(binding, binding.window_source),
        max_tokens,
        _COMMAND_LINE if capped else source_of(binding, binding.max_tokens_source),
        binding.key,
        _doubt(binding) if not question.window else "",
    )


def _doubt(binding: ModelBinding) -> str:
    """Say that nothing knows the model, which is often a name that is misspelt."""
    if binding.window is not None:
        return ""
    from sidequest.models.catalog_facts import near_names

    near = [f"{binding.provider}/{name}" for name in near_names(binding.vendor, binding.name)]
    cure = f"Did you mean {', '.join(near)}?" if near else "Its context_window in the settings would be used."
    return f"no catalog knows {one_line(binding.key)}, so its window is assumed. {cure}"


def source_of(binding: ModelBinding, source: str) -> str:
    """Return in words who states a number of `binding`."""
    if binding.key == OFFLINE_KEY and source == "server":
        return "built in"
    return SOURCES[source]


def as_dict(budget: ContextBudget, basis: Basis) -> dict[str, object]:
    """Return the budget as plain values; all sizes in tokens."""
    return {
        "model": basis.model,
        "warning": basis.warning or None,
        "window": budget.window,
        "windowFrom": basis.window_from,
        "maxTokens": budget.max_tokens,
        "maxTokensFrom": basis.max_tokens_from,
        "output": budget.output,
        "reserveFloor": _floor(budget),
        "requestHeadroom": budget.headroom,
        "hardLimit": budget.hard_limit,
        "keepRecent": budget.keep_recent,
        "summaryOutput": budget.summary_output,
        "summaryInput": budget.summary_input,
    }


def formula(budget: ContextBudget, basis: Basis) -> Iterator[str]:
    """Give the formula line by line: letter, name, value, and below the terms their numbers.

    Fractions are floored, except the 5 %, which is rounded up; no term is below 1.
    """
    w, m, limit = budget.window, budget.max_tokens, budget.hard_limit
    quarter, half, share = max(1, w // 4), max(1, w // 2), -(-w * 5 // 100)
    small, large = count(MIN_KEEP_RECENT_TOKENS), count(MAX_KEEP_RECENT_TOKENS)
    floor, safety = count(RESERVE_FLOOR_TOKENS), count(SUMMARY_PROMPT_SAFETY_TOKENS)
    out, head = count(budget.output), count(budget.headroom)
    yield f"context budget in tokens: {basis.title}"
    yield ""
    yield _row("W", "window", w, basis.window_from)
    yield _row("M", "max output", m, basis.max_tokens_from)
    yield _row("O", "output", budget.output, "min(M, W / 4)")
    yield _numbers(f"min({count(m)}, {count(quarter)})")
    yield _row("F", "reserve floor", _floor(budget), f"min({floor}, W / 2)")
    yield _numbers(f"min({floor}, {count(half)})")
    yield _row("H", "headroom", budget.headroom, "min(W - 1, max(F, O, 5 % of W))")
    yield _numbers(f"min({count(w - 1)}, max({count(_floor(budget))}, {out}, {count(share)}))")
    yield _row("L", "hard limit", limit, "W - H, the first size that is too large")
    yield _numbers(f"{count(w)} - {head}")
    yield _row("K", "keep recent", budget.keep_recent, f"min(max({small}, min({large}, L / 5)), L / 2)")
    kept = f"max({small}, min({large}, {count(limit // 5)}))"
    yield _numbers(f"min({kept}, {count(max(1, limit // 2))})")
    yield _row("", "summary out", budget.summary_output, "min(80 % of H, M)")
    yield _numbers(f"min({count(budget.headroom * 8 // 10)}, {count(m)})")
    yield _row("", "summary in", budget.summary_input, f"max(1, W - summary out - {safety})")
    yield _numbers(f"max(1, {count(w)} - {count(budget.summary_output)} - {safety})")


def _floor(budget: ContextBudget) -> int:
    return min(RESERVE_FLOOR_TOKENS, max(1, budget.window // 2))


def _row(letter: str, name: str, value: int, terms: str) -> str:
    return f"{letter:<3}{name:<14}{count(value):>10}   {terms}"


def _numbers(terms: str) -> str:
    return f"{'':<27} = {terms}"
