"""What the guard costs per turn when the history is long: measuring and validating 5,000 messages.

The check must not grow with history: what was weighed and validated before is recognised by identity. The
first look at a history is paid once and printed apart.
Run it with `make bench`, or alone: `.venv/bin/python benchmarks/bench_guard.py`.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from benchmarks.report import Bound, finish
from sidequest.core.budget import ContextBudget
from sidequest.core.compaction import Unchanged, compact
from sidequest.core.summary import SummaryReply, SummaryRequest
from sidequest.core.tokens import TokenMeter
from sidequest.core.transcript import Validator

MESSAGES = 5_000
REPEATS = 50


def history(count: int) -> list[ModelMessage]:
    """Return `count` messages: a prompt and rounds of one call with its result of 800 characters."""
    messages: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart("Do the task.")])]
    for index in range((count - 1) // 2):
        call = ToolCallPart("Read", {"path": f"file-{index}.txt"}, tool_call_id=f"call-{index}")
        messages.append(ModelResponse(parts=[TextPart("Reading on."), call]))
        messages.append(
            ModelRequest(parts=[ToolReturnPart("Read", "some text " * 80, tool_call_id=f"call-{index}")])
        )
    return messages


async def never(request: SummaryRequest) -> SummaryReply:
    """A summariser that must not be asked here."""
    raise AssertionError("nothing is over the limit")


async def check(messages: list[ModelMessage], meter: TokenMeter, validator: Validator) -> None:
    """Do what the guard does before a request that fits."""
    budget = ContextBudget.of(10_000_000)
    outcome = await compact(list(messages), budget=budget, summarise=never, overhead=1_000, meter=meter)
    assert isinstance(outcome, Unchanged)
    validator.check(messages)


async def cost(count: int) -> tuple[float, float]:
    """Return milliseconds of CPU of the first check and of a later turn's check, the least of many."""
    messages = history(count)
    meter, validator = TokenMeter(), Validator()
    started = time.process_time()
    await check(messages, meter, validator)
    first = time.process_time() - started
    later: list[float] = []
    for index in range(REPEATS):
        call = ToolCallPart("Read", {"path": "next.txt"}, tool_call_id=f"next-{index}")
        messages.append(ModelResponse(parts=[call]))
        messages.append(
            ModelRequest(parts=[ToolReturnPart("Read", "text " * 100, tool_call_id=f"next-{index}")])
        )
        started = time.process_time()
        await check(messages, meter, validator)
        later.append(time.process_time() - started)
    return first * 1000, min(later) * 1000


def main() -> None:
    """Measure a short and a long history in one run."""
    short_first, short = asyncio.run(cost(100))
    long_first, long = asyncio.run(cost(MESSAGES))
    finish(
        "guard",
        {
            "messages": MESSAGES,
            "firstCheckMs": round(long_first, 2),
            "checkMs": round(long, 3),
            "checkMsAt100Messages": round(short, 3),
            "firstCheckMsAt100Messages": round(short_first, 2),
        },
        [Bound("checkMs", long, 5.0)],
    )


if __name__ == "__main__":
    main()
