"""Errors as each provider words them; sources of the sentences are in `overflow-messages.md`, section 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.support.counting import tokens_of
from tests.support.neutral import Reject, Seen, WireFormat

_ANTHROPIC_TYPES: Mapping[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_OPENAI_CODES: Mapping[int, str] = {
    401: "invalid_api_key",
    404: "model_not_found",
    429: "rate_limit_exceeded",
}


def error(
    wire: WireFormat,
    status: int,
    message: str,
    *,
    code: str | None = None,
    param: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Reject:
    """Return an error in the shape of `wire`.

    `code` overrides what follows from the status: the error type for Anthropic, the code for OpenAI.
    """
    body: dict[str, Any]
    if wire == "anthropic":
        kind = code or _ANTHROPIC_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
        body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_test"}
    else:
        kind = "server_error" if status >= 500 else "tokens" if status == 429 else "invalid_request_error"
        code = code or _OPENAI_CODES.get(status)
        body = {"error": {"message": message, "type": kind, "param": param, "code": code}}
    return Reject(status, body, headers or {})


def overflow(seen: Seen, window: int) -> Reject:
    """Return the answer to a request whose input alone fills `window` tokens: the kind IN."""
    match seen.format:
        case "anthropic":
            return error("anthropic", 400, f"prompt is too long: {seen.tokens} tokens > {window} maximum")
        case "openai-responses":
            text = (
                "Your input exceeds the context window of this model. Please adjust your input and try again."
            )
            return error("openai-responses", 400, text, code="context_length_exceeded", param="input")
        case "openai-chat":
            text = _chat_overflow(seen, window)
            return error("openai-chat", 400, text, code="context_length_exceeded", param="messages")


def _chat_overflow(seen: Seen, window: int) -> str:
    text = (
        f"This model's maximum context length is {window} tokens. "
        f"However, your messages resulted in {seen.tokens} tokens"
    )
    if not seen.tools:
        return f"{text}. Please reduce the length of the messages."
    functions = tokens_of(tool.wire for tool in seen.tools)
    split = f"({seen.tokens - functions} in the messages, {functions} in the functions)"
    return f"{text} {split}. Please reduce the length of the messages or functions."


def sum_overflow(seen: Seen, window: int, output: int) -> Reject:
    """Return the answer when the input fits `window` and input plus `output` does not: the kind SUM.

    OpenAI documents no such sentence for Responses, so the one of vLLM stands in, which serves that API too.
    """
    total = seen.tokens + output
    match seen.format:
        case "anthropic":
            text = (
                f"input length and `max_tokens` exceed context limit: {seen.tokens} + {output} > {window}, "
                "decrease input length or `max_tokens` and try again"
            )
            return error("anthropic", 400, text)
        case "openai-responses":
            text = (
                f"This model's maximum context length is {window} tokens. However, you requested {output} "
                f"output tokens and your prompt contains at least {seen.tokens} input tokens, for a total of "
                f"at least {total} tokens. Please reduce the length of the input prompt or the number of "
                "requested output tokens."
            )
            return error("openai-responses", 400, text)
        case "openai-chat":
            text = (
                f"This model's maximum context length is {window} tokens. However, you requested {total} "
                f"tokens ({seen.tokens} in the messages, {output} in the completion). "
                "Please reduce the length of the messages or completion."
            )
            return error("openai-chat", 400, text, code="context_length_exceeded", param="messages")


def rate_limited(seen: Seen, retry_after: float) -> Reject:
    """Return a 429 that asks to wait `retry_after` seconds."""
    text = f"Rate limit reached for {seen.model}. Please try again in {retry_after:g}s."
    return error(seen.format, 429, text, headers={"retry-after": f"{retry_after:g}"})
