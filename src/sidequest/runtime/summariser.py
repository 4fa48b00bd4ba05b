"""A summariser that asks the run's own model (specification 8.26).

Same credentials, headers and thinking level as the work it summarises, no tools, one user message. Only
failures that waiting can cure are tried again, with a policy of its own (specification 2.6): three times,
after 2, 4 and 8 seconds. It never spends the run's retry budget. A request that was refused for its output
limit is asked once more without one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from pydantic_ai.messages import InstructionPart, ModelRequest, ModelResponse, UserPromptPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.wrapper import WrapperModel
from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_exponential

from sidequest.core.calibration import prompt_tokens
from sidequest.core.errors import bounded_message
from sidequest.core.provider_errors import Kind, classify, facts_from_exception
from sidequest.core.summary import Summarise, SummaryFailed, SummaryReply, SummaryRequest
from sidequest.core.tokens import estimate_text
from sidequest.runtime.costs import Price, catalog_price, usage_of
from sidequest.runtime.endings import broken_off, cut_by_limit

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models import Model
    from pydantic_ai.settings import ModelSettings

Sleep = Callable[[float], Awaitable[None]]
"""Waits for that many seconds; tests pass one that does not."""

MAX_TRIES = 4
SUMMARY_DEADLINE_S = 300.0
"""How long one answer may take, in seconds: half of what the clients of most providers wait by themselves.
The work stands still meanwhile, and there is a way on without a summary. What waits for a rate limit is not
asked yet and does not count."""


def model_summariser(
    model: Model,
    settings: ModelSettings | None,
    is_transient: Callable[[Exception], bool],
    sleep: Sleep = asyncio.sleep,
    price: Price = catalog_price,
    *,
    window: int | None = None,
    gate: Callable[[Model], Model] = lambda model: model,
    send_output_limit: bool = True,
    refused: Callable[[Exception], None] = lambda error: None,
    was_cut: Callable[[int, int], bool] = lambda estimate, reported: False,
    deadline_s: float = SUMMARY_DEADLINE_S,
) -> Summarise:
    """Return a summariser that asks `model`.

    `settings` are those of the run; the output limit of the summary replaces theirs, and none is sent without
    `send_output_limit`. `is_transient` says which failures waiting may cure, `price` what an answer cost.
    `window` is the model's, in tokens: a refusal without a word that comes near it is not about the output
    limit; None means unknown. `gate` makes a model let requests through in their turn. `refused` is told of a
    failure that ended it. `was_cut` says whether a prompt was cut without a word, given our count and the
    provider's, in tokens.
    `deadline_s` is in seconds, for each try.
    """
    asked = gate(_InTime(model, deadline_s))

    async def ask(request: SummaryRequest, own: ModelSettings) -> ModelResponse:
        parameters = ModelRequestParameters(instruction_parts=[InstructionPart(content=request.instructions)])
        messages = [ModelRequest(parts=[UserPromptPart(request.prompt)], instructions=request.instructions)]
        async for attempt in AsyncRetrying(
            stop=stop_after_attempt(MAX_TRIES),
            wait=wait_exponential(multiplier=2, max=8),
            retry=retry_if_exception(lambda e: _may_pass(e) and isinstance(e, Exception) and is_transient(e)),
            sleep=sleep,
            reraise=True,
        ):
            with attempt:
                return await asked.request(list(messages), own, parameters)
        raise AssertionError("unreachable: the last try returns or raises")

    async def summarise(request: SummaryRequest) -> SummaryReply:
        own: ModelSettings = {**(settings or {}), "max_tokens": request.max_tokens}
        own.pop("tool_choice", None)
        if not send_output_limit:
            own.pop("max_tokens", None)
        try:
            try:
                response = await ask(request, own)
            except Exception as error:
                if "max_tokens" not in own or not _about_output(error, _size(request), window):
                    raise
                own.pop("max_tokens")
                response = await ask(request, own)
        except Exception as error:
            refused(error)
            raise SummaryFailed(bounded_message(f"{type(error).__name__}: {error}", 300)) from error
        text = "".join(part.content for part in response.parts if part.part_kind == "text")
        cut = cut_by_limit(response)
        return SummaryReply(text, cut, usage_of(response, price), _unsound(request, response))

    def _unsound(request: SummaryRequest, response: ModelResponse) -> str:
        if response.finish_reason == "content_filter":
            return "a content filter ended it"
        if word := broken_off(response):
            return f"the provider ended it ({word})"
        usage = response.usage
        reported = prompt_tokens(usage.input_tokens, usage.cache_read_tokens + usage.cache_write_tokens)
        estimate = _size(request)
        if was_cut(estimate, reported):
            return f"the server saw {reported} of {estimate} tokens"
        return ""

    return summarise


class _TookTooLong(Exception):
    """The deadline of a summary is over; asking again would wait as long again."""


class _InTime(WrapperModel):
    """A model that answers within `seconds`, or fails with `_TookTooLong`."""

    def __init__(self, wrapped: Model, seconds: float) -> None:
        super().__init__(wrapped)
        self._seconds = seconds

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Ask the wrapped model."""
        clock = asyncio.timeout(self._seconds)
        try:
            async with clock:
                return await self.wrapped.request(messages, model_settings, model_request_parameters)
        except TimeoutError as error:
            if not clock.expired():
                raise
            raise _TookTooLong(f"no summary within {self._seconds:g} s") from error


def _may_pass(error: BaseException) -> bool:
    return not isinstance(error, _TookTooLong)


def _size(request: SummaryRequest) -> int:
    return estimate_text(request.instructions) + estimate_text(request.prompt)


def _about_output(error: Exception, size: int, window: int | None) -> bool:
    """Say whether a request of `size` tokens may have been refused for the output limit that it carried."""
    meaning = classify(facts_from_exception(error, estimate=size, window=window))
    return meaning.kind is Kind.OUTPUT or (meaning.opaque and _may_pass(error))
