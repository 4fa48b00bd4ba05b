"""`offline/extractive` with a long history: what one more page that was read costs.

The model ranks everything that it has seen before each answer. Answers from a history of 30,000 tokens and
from a tenth of it are timed; the least of several counts. Guards against: work that grows faster than the
history, which a delegation in a large window would feel.
Run it with `make bench`, or alone: `.venv/bin/python benchmarks/bench_offline.py`.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition

from benchmarks.report import Bound, finish
from sidequest.models.extractive import ExtractiveModel

PAGES, LINES = 20, 160
REPEATS = 9
QUESTION = "How is the signature of a partial bound, and where is `_POSITIONAL_ONLY`?"
TOOLS = ModelRequestParameters(
    function_tools=[
        ToolDefinition(name=name, parameters_json_schema={"type": "object", "properties": {"path": {}}})
        for name in ("Read", "Grep")
    ]
)


def history(pages: int) -> list[ModelMessage]:
    """A question, and pages of the standard library's `inspect.py` as Read shows them."""
    source = Path(inspect.__file__).read_text().splitlines()
    messages: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart(QUESTION)])]
    for number in range(pages):
        first = number * LINES
        page = "".join(f"{at + 1:6d}\t{source[at]}\n" for at in range(first, first + LINES))
        call = ToolCallPart("Read", {"path": "inspect.py", "offset": first}, tool_call_id=f"c{number}")
        messages.append(ModelResponse(parts=[call]))
        result = ToolReturnPart(
            "Read", f"[inspect.py | {len(source)} lines]\n{page}", tool_call_id=f"c{number}"
        )
        messages.append(ModelRequest(parts=[result]))
    return messages


def answer(pages: int) -> tuple[float, int]:
    """Return the seconds of CPU that an answer takes, and the tokens it is drawn from."""
    messages, model = history(pages), ExtractiveModel(window=200_000)
    seconds = []
    for _ in range(REPEATS):
        started = time.process_time()
        response = asyncio.run(model.request(messages, None, TOOLS))
        seconds.append(time.process_time() - started)
    return min(seconds), response.usage.input_tokens


def main() -> None:
    """Measure both."""
    short, few = answer(PAGES // 10)
    long, many = answer(PAGES)
    growth = (long / short) / (many / few)
    numbers = {
        "tokens": [few, many],
        "milliseconds": [round(short * 1000, 2), round(long * 1000, 2)],
        "growth": round(growth, 2),
    }
    finish("offline", numbers, [Bound("growth", growth, 1.5)])


if __name__ == "__main__":
    main()
