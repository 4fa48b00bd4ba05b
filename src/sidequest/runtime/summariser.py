"""A summariser that asks the run's own model (specification 8.26).

Same credentials, headers and thinking level as the work it summarises, no tools, one user message. Only
failures that waiting can cure are tried again, with a policy of its own (specification 2.6): three times,
after 2, 4 and 8 seconds. It never spends the run's retry budget.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from pydantic_ai.messages import InstructionPart, ModelRequest, UserPromptPart
from pydantic_ai.models import ModelRequestParameters
from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_exponential

from sidequest.core.errors import bounded_message
from sidequest.core.summary import Summarise, SummaryFailed, SummaryReply, SummaryRequest
from sidequest.runtime.costs import Price, catalog_price, usage_of

if TYPE_CHECKING:
    from pydantic_ai.models import Model
    from pydantic_ai.settings import ModelSettings

Sleep = Callable[[float], Awaitable[None]]
"""Waits for that many seconds; tests pass one that does not."""

MAX_TRIES = 4


def model_summariser(
    model: Model,
    settings: ModelSettings | None,
    is_transient: Callable[[Exception], bool],
    sleep: Sleep = asyncio.sleep,
    price: Price = catalog_price,
) -> Summarise:
    """Return a summariser that asks `model`.

    `settings` are those of the run; the output limit of the summary replaces theirs. `is_transient` says
    which failures waiting may cure, `price` what an answer cost.
    """

    async def summarise(request: SummaryRequest) -> SummaryReply:
        own: ModelSettings = {**(settings or {}), "max_tokens": request.max_tokens}
        own.pop("tool_choice", None)
        parameters = ModelRequestParameters(instruction_parts=[InstructionPart(content=request.instructions)])
        messages = [ModelRequest(parts=[UserPromptPart(request.prompt)], instructions=request.instructions)]
        try:
            async for attempt in AsyncRetrying(
                stop=stop_after_attempt(MAX_TRIES),
                wait=wait_exponential(multiplier=2, max=8),
                retry=retry_if_exception(lambda e: isinstance(e, Exception) and is_transient(e)),
                sleep=sleep,
                reraise=True,
            ):
                with attempt:
                    response = await model.request(list(messages), own, parameters)
        except Exception as error:
            raise SummaryFailed(bounded_message(f"{type(error).__name__}: {error}", 300)) from error
        text = "".join(part.content for part in response.parts if part.part_kind == "text")
        return SummaryReply(text, response.finish_reason == "length", usage_of(response, price))

    return summarise
