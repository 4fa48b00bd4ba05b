"""`offline/extractive`: the embedded engine as a pydantic-ai model.

It is not a language model. It runs in this process, without network and without weights, and gives the same
answer to the same request: it searches, reads and quotes (see `sidequest.models.offline`). First runs, the
demo and the benchmarks use it, so that they need no account.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pydantic_ai.exceptions import ModelContextWindowExceededError, ModelHTTPError
from pydantic_ai.messages import (
    FinishReason,
    ModelMessage,
    ModelResponse,
    ModelResponsePart,
    ModelResponseStreamEvent,
    TextPart,
    ToolCallPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import RunContext
from pydantic_ai.usage import RequestUsage

from sidequest.core.tokens import CHARS_PER_TOKEN
from sidequest.models.offline.engine import respond
from sidequest.models.offline.entries import Request, tool_kind
from sidequest.models.offline.wire import count_request, entries_of, tool_of

SYSTEM = "offline"
"""The system of this model, where others name their provider."""
Sleep = Callable[[float], Awaitable[object]]
"""Waits a number of seconds."""


class ExtractiveModel(Model[Any]):
    """The offline engine behind pydantic-ai's model interface.

    `window` is the context window in tokens, exclusive: a request that counts `window` or more is refused as
    a provider would refuse it. `max_tokens` is the most it writes in one response; a request may ask for
    less. Tokens are `ceil(characters / 4)` over all text, tool schemas and instructions. `delay_s` makes each
    response wait that many seconds first, so that a person can watch; 0 means no waiting.

    Raises:
        ModelHTTPError: status 400, also a `ModelContextWindowExceededError`, when a request does not fit.
    """

    def __init__(
        self,
        window: int = 32_000,
        max_tokens: int = 2_000,
        name: str = "extractive",
        *,
        delay_s: float = 0.0,
        sleep: Sleep = asyncio.sleep,
        settings: ModelSettings | None = None,
    ) -> None:
        profile = ModelProfile(
            context_window=window,
            supports_image_input=False,
            supports_document_input=False,
            supports_audio_file_input=False,
            supports_video_input=False,
        )
        super().__init__(settings=settings, profile=profile)
        self._name = name
        self._window = window
        self._max_tokens = max_tokens
        self._delay_s = delay_s
        self._sleep = sleep

    @property
    def model_name(self) -> str:
        """Name without the system, `extractive` unless another was given."""
        return self._name

    @property
    def system(self) -> str:
        """Always `offline`."""
        return SYSTEM

    @property
    def key(self) -> str:
        """System and name, as users write it: `offline/extractive`."""
        return f"{SYSTEM}/{self._name}"

    @property
    def max_tokens(self) -> int:
        """Most output tokens of one response."""
        return self._max_tokens

    async def count_tokens(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> RequestUsage:
        """Return what a request would count, without refusing it."""
        _, parameters = self.prepare_request(model_settings, model_request_parameters)
        return RequestUsage(input_tokens=count_request(messages, parameters))

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Answer one request.

        Raises:
            ModelHTTPError: the request counts `window` tokens or more.
        """
        answer = await self._answer(messages, model_settings, model_request_parameters)
        return ModelResponse(
            parts=list(answer.parts),
            usage=answer.usage,
            model_name=self._name,
            provider_name=SYSTEM,
            finish_reason=answer.finish_reason,
        )

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """Answer one request word by word; the whole is what `request` gives.

        Raises:
            ModelHTTPError: the request counts `window` tokens or more.
        """
        answer = await self._answer(messages, model_settings, model_request_parameters)
        stream = _ExtractiveStream(model_request_parameters, answer, self._name)
        stream.finish_reason = answer.finish_reason
        yield stream

    async def _answer(
        self,
        messages: Sequence[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> _Answer:
        settings, parameters = self.prepare_request(model_settings, model_request_parameters)
        tokens = count_request(messages, parameters)
        if tokens >= self._window:
            raise _overflow(self._name, self._window, tokens)
        if self._delay_s > 0:
            await self._sleep(self._delay_s)
        asked = (settings or {}).get("max_tokens") or self._max_tokens
        limit = min(asked, self._max_tokens)
        tools = () if (settings or {}).get("tool_choice") == "none" else parameters.function_tools
        request = Request(
            entries=entries_of(messages),
            tools={tool_kind(tool.name): tool_of(tool) for tool in tools},
            max_chars=limit * CHARS_PER_TOKEN,
            window=self._window,
        )
        return _answer_of(request, tokens, limit, _fingerprint(messages, tokens))


@dataclass(frozen=True, slots=True)
class _Answer:
    parts: tuple[TextPart | ToolCallPart, ...]
    usage: RequestUsage
    finish_reason: FinishReason


def _answer_of(request: Request, tokens: int, limit: int, fingerprint: str) -> _Answer:
    reply = respond(request)
    text = reply.text[: limit * CHARS_PER_TOKEN]
    calls = [
        ToolCallPart(call.tool, dict(call.args), tool_call_id=_call_id(fingerprint, position, call.args))
        for position, call in enumerate(reply.calls)
    ]
    written = len(text) + sum(len(call.tool_name) + len(call.args_as_json_str()) for call in calls)
    cut = len(text) < len(reply.text)
    finish: FinishReason = "tool_call" if calls else "length" if cut else "stop"
    parts: list[TextPart | ToolCallPart] = [TextPart(text)] if text else []
    usage = RequestUsage(input_tokens=tokens, output_tokens=math.ceil(written / CHARS_PER_TOKEN))
    return _Answer((*parts, *calls), usage, finish)


def _overflow(name: str, window: int, tokens: int) -> ModelHTTPError:
    """Return the refusal in the words and with the code that OpenAI-compatible servers use."""
    message = (
        f"This model's maximum context length is {window} tokens. "
        f"However, your messages resulted in {tokens} tokens."
    )
    body = {"error": {"message": message, "type": "invalid_request_error", "code": "context_length_exceeded"}}
    return ModelHTTPError.for_category(
        ModelContextWindowExceededError,
        status_code=400,
        model_name=name,
        body=body,
        provider_error_code="context_length_exceeded",
        provider_error_type="invalid_request_error",
    )


def _fingerprint(messages: Sequence[ModelMessage], tokens: int) -> str:
    """Tell apart requests that may look alike: other runs, and other moments of the same run."""
    newest = messages[-1] if messages else None
    moment = newest.timestamp.isoformat() if newest is not None and newest.timestamp else ""
    run = newest.run_id if newest is not None else ""
    return f"{run}|{moment}|{len(messages)}|{tokens}"


def _call_id(fingerprint: str, position: int, args: object) -> str:
    """Return an id that no other call of any run shares, and that the same request always gets."""
    seed = f"{fingerprint}|{position}|{json.dumps(args, sort_keys=True, default=str)}"
    return f"call_{hashlib.sha256(seed.encode()).hexdigest()[:20]}"


@dataclass
class _ExtractiveStream(StreamedResponse):
    """Gives a finished answer out in word-sized pieces."""

    _answer: _Answer
    _model_name: str
    _timestamp: datetime = field(default_factory=lambda: datetime.now(UTC))

    async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
        self._usage = RequestUsage(input_tokens=self._answer.usage.input_tokens)
        for position, part in enumerate(self._answer.parts):
            for event in self._events(position, part):
                yield event
        self._usage = self._answer.usage

    def _events(self, position: int, part: ModelResponsePart) -> Iterator[ModelResponseStreamEvent]:
        if isinstance(part, TextPart):
            for word in re.findall(r"\s*\S+\s*", part.content):
                yield from self._parts_manager.handle_text_delta(vendor_part_id=position, content=word)
        else:
            yield self._parts_manager.handle_part(vendor_part_id=position, part=part)

    async def close_stream(self) -> None:
        """Do nothing: there is no connection."""

    @property
    def model_name(self) -> str:
        """Name of the model."""
        return self._model_name

    @property
    def provider_name(self) -> str:
        """Always `offline`."""
        return SYSTEM

    @property
    def provider_url(self) -> None:
        """There is none."""
        return

    @property
    def timestamp(self) -> datetime:
        """When the answer was made."""
        return self._timestamp
