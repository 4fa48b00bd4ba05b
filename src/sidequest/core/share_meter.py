"""Measures what fills a request, by kind, of histories that grow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from pydantic_ai.messages import ModelMessage, ModelRequest, NativeToolReturnPart, ToolReturnPart

from sidequest.core.shares import Shares
from sidequest.core.tokens import Overhead, part_weight
from sidequest.core.transcript import mark_of


def shares_of(message: ModelMessage) -> Shares:
    """Return the shares of one message."""
    weights = dict.fromkeys(("summary", "user", "assistant", "results"), 0.0)
    for part in message.parts:
        if isinstance(part, ToolReturnPart | NativeToolReturnPart):
            kind = "results"
        elif not isinstance(message, ModelRequest):
            kind = "assistant"
        else:
            kind = "summary" if mark_of(part) == "summary" else "user"
        weights[kind] += part_weight(part)
    return Shares(**{kind: math.ceil(weight) for kind, weight in weights.items()})


class ShareMeter:
    """The shares of one growing list: only what is new since the last call is weighed."""

    def __init__(self) -> None:
        self._seen: list[tuple[ModelMessage, Shares]] = []

    def measure(self, messages: Sequence[ModelMessage], overhead: Overhead) -> Shares:
        """Return what fills a request with these messages; messages are recognised by identity."""
        same = 0
        for (known, _), current in zip(self._seen, messages, strict=False):
            if known is not current:
                break
            same += 1
        del self._seen[same:]
        self._seen += [(message, shares_of(message)) for message in messages[same:]]
        total = Shares()
        for _, shares in self._seen:
            total = total.plus(shares)
        return replace(total, instructions=overhead.instructions, tools=overhead.tools)
