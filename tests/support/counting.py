"""Tokens as this provider counts them: UTF-8 bytes divided by four, whatever the tokenizer of a client.

Bytes, not characters: a Chinese character is three bytes and so most of a token, as with real tokenizers. A
client that estimates by characters alone is therefore found out.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.support.neutral import ParsedRequest, Reply, SeenMessage, Usage
from tests.support.wire_common import argument_text

IMAGE_TOKENS = 1_200
"""Tokens of one image, as specification 1.4 counts them (4,800 characters)."""


def tokens_of(texts: Iterable[str], images: int = 0) -> int:
    """Return ceil(bytes / 4) of all texts together, plus 1,200 per image.

    Worked number: "hello" and "世界" are 5 + 6 bytes and so 3 tokens.
    """
    size = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
    return -(-size // 4) + images * IMAGE_TOKENS


def message_texts(message: SeenMessage) -> list[str]:
    """Everything of a message that is counted as text; ids are not."""
    texts = [message.text, message.thinking]
    for call in message.tool_calls:
        texts += [call.name, call.arguments]
    return texts + [result.text for result in message.tool_results]


def count_request(request: ParsedRequest) -> int:
    """Return the input tokens of a request: system, messages, tool JSON as sent, and images."""
    texts = [request.system, *(tool.wire for tool in request.tools)]
    for message in request.messages:
        texts += message_texts(message)
    return tokens_of(texts, sum(message.images for message in request.messages))


def usage_of(reply: Reply, input_tokens: int) -> Usage:
    """Return what is reported with `reply`: its own usage, or the counted one."""
    if reply.usage is not None:
        return reply.usage
    texts = [reply.text or "", reply.thinking or ""]
    for name, arguments in reply.tool_calls:
        texts += [name, argument_text(arguments)]
    return Usage(input_tokens, tokens_of(texts), reply.cached_tokens)


def newest_that_fit(messages: tuple[SeenMessage, ...], limit: int) -> tuple[SeenMessage, ...]:
    """Return the newest messages that fit `limit` tokens, or the end of the last one if none does."""
    kept: list[SeenMessage] = []
    left = limit
    for message in reversed(messages):
        left -= tokens_of(message_texts(message), message.images)
        if left < 0:
            break
        kept.insert(0, message)
    if kept or not messages:
        return tuple(kept)
    end = "\n".join(filter(None, message_texts(messages[-1]))).encode()[-4 * limit :].decode(errors="ignore")
    return (SeenMessage(messages[-1].role, end),)
