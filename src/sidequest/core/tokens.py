"""How many tokens a request will take, counted without a tokenizer (specification 1.4, DESIGN).

One estimator serves the trigger, the cut and the display. It starts from the plain heuristic
`ceil(characters / 4)` and only ever goes up: characters of scripts that are not Latin and long unbroken
runs (base64, minified code) weigh more, and a provider's own count replaces ours when it is larger.

Blind spots: characters are Python code points, not UTF-16 units, so an astral character counts once before
its weight; the weights are upper ends of what current tokenizers need and not exact for any of them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic_ai.messages import BaseToolCallPart as _ToolCall
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelResponse,
    NativeToolReturnPart,
    TextContent,
    ToolReturnPart,
)
from pydantic_ai.usage import RequestUsage

CHARS_PER_TOKEN = 4
IMAGE_TOKENS = 1_200
"""Flat price of an image: 4,800 characters (specification 1.4)."""
DOCUMENT_BYTES_PER_TOKEN = 64
"""Tokens of a binary document that is not an image are estimated from its size, but never below an image."""
FILE_FRAME_TOKENS = 30
"""What providers put around a text file: a line before and a line after it with its name and type."""
MAX_REPORT_RATIO = 4
"""A report of more than this many times our own count of what it covers is broken, and no anchor."""

MEDIA_KINDS = frozenset({"image-url", "audio-url", "document-url", "video-url", "uploaded-file", "binary"})
"""The kinds of content that are not text in a message: images, recordings and files."""
_TEXT_MEDIA = re.compile(
    r"text/.+|.+\+(json|xml|yaml)"
    r"|application/(x-)?(json|jsonl|json-lines|ndjson|csv|xml|yaml|toml|javascript|ecmascript|typescript)"
)

_SCRIPT_WEIGHTS: tuple[tuple[re.Pattern[str], float], ...] = tuple(
    (re.compile(pattern), weight - 1 / CHARS_PER_TOKEN)
    for pattern, weight in (
        # Han, kana, hangul, CJK punctuation and full-width forms: about one token a character.
        ("[\u3000-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\U00020000-\U0002ebef]+", 1.0),
        # Cyrillic, Greek.
        ("[\u0370-\u052f]+", 0.5),
        # Hebrew, Arabic and their neighbours.
        ("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]+", 0.6),
        # Armenian, Georgian, scripts of India, Thai, Lao, Tibetan, Burmese, Khmer.
        ("[\u0530-\u058f\u0900-\u10ff\u1780-\u17ff]+", 1.0),
        # Symbols, box drawing, emoji and other astral characters, and scripts that tokenizers spell in
        # bytes: single hangul letters, Ethiopic, Cherokee, Mongolian, Tifinagh, Yi and their neighbours.
        ("[\u1100-\u177f\u1800-\u1cff\u2190-\u2dff\ua000-\uabff\U00010000-\U0001ffff]+", 2.0),
    )
)
_LONG_RUN_CHARS = 60
"""From this length on a run counts as unbroken: lines of wrapped base64 (76) and hashes (64) are above it."""
_UNBROKEN_RUNS: tuple[tuple[re.Pattern[str], float], ...] = (
    # Minified code and compact data: about half a token a character.
    (re.compile(rf"[!-~]{{{_LONG_RUN_CHARS},}}"), 0.25),
    # Base64 and hex come on top of that: about three quarters of a token a character in all.
    (re.compile(rf"[A-Za-z0-9+/=_\-]{{{_LONG_RUN_CHARS},}}"), 0.25),
)
"""Runs of ASCII without a space, and what each of their characters adds."""
_GAPS = (" ", "\n", "\t")
"""What parts nearly all runs, the most frequent first."""

_DIGIT_EXTRA = 0.25
"""Added per digit where more than a third of a text is digits: tables of numbers."""


def _may_have_a_long_run(text: str) -> bool:
    """Say whether any run could be unbroken: False is certain, True is for a search to find out.

    Prose, code and tables have a gap in every window of that length; to hop from one to the next is
    many times quicker than to search.
    """
    start = 0
    while (end := start + _LONG_RUN_CHARS) <= len(text):
        for gap in _GAPS:
            found = text.rfind(gap, start, end)
            if found >= 0:
                break
        else:
            return True
        start = found + 1
    return False


def text_weight(text: str) -> float:
    """Return the unrounded token weight of `text`.

    Worked numbers: five Latin letters weigh 1.25; four Han characters weigh 4.0.
    """
    weight = len(text) / CHARS_PER_TOKEN
    if not text.isascii():
        for pattern, extra in _SCRIPT_WEIGHTS:
            weight += extra * sum(map(len, pattern.findall(text)))
    if len(text) >= _LONG_RUN_CHARS:
        if _may_have_a_long_run(text):
            for pattern, extra in _UNBROKEN_RUNS:
                weight += extra * sum(map(len, pattern.findall(text)))
        encoded = text.encode("utf-8", "replace")
        digits = len(encoded) - len(encoded.translate(None, b"0123456789"))
        if 3 * digits > len(text):
            weight += _DIGIT_EXTRA * digits
    return weight


def estimate_text(text: str) -> int:
    """Return the tokens of `text`, rounded up; 0 for the empty text.

    Worked number: `"small"` has five characters and takes 2 tokens (specification 1.4).
    """
    return math.ceil(text_weight(text))


_COMPACT = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, default=str)


def compact_json(value: object) -> str:
    """Serialise `value` with compact separators, as it travels; values JSON does not know become text."""
    return _COMPACT.encode(value)


def is_media(item: object) -> bool:
    """Say whether `item` is an image, a recording or a file; a file of text is one too."""
    return isinstance(item, BinaryContent) or getattr(item, "kind", "") in MEDIA_KINDS


def file_text(item: object) -> str | None:
    """Return the text of a file that providers send as text (JSON, CSV and the like), or None.

    The media type decides, without its parameters; bytes that are not UTF-8 become replacement characters.
    """
    if not isinstance(item, BinaryContent):
        return None
    media_type = item.media_type.split(";", 1)[0].strip().lower()
    return item.data.decode("utf-8", "replace") if _TEXT_MEDIA.fullmatch(media_type) else None


def _content_weight(content: object) -> float:
    """Weigh the content of a user prompt or a tool result: text, media, or anything serialisable."""
    if content is None:
        return 0.0
    if isinstance(content, str):
        return text_weight(content)
    if isinstance(content, TextContent):
        return text_weight(content.content)
    if isinstance(content, BinaryContent):
        if (text := file_text(content)) is not None:
            return text_weight(text) + FILE_FRAME_TOKENS
        if content.is_image:
            return IMAGE_TOKENS
        return max(IMAGE_TOKENS, len(content.data) / DOCUMENT_BYTES_PER_TOKEN)
    if is_media(content):
        return IMAGE_TOKENS
    if isinstance(content, Sequence):
        return sum(_content_weight(item) for item in content)
    if isinstance(content, Mapping):
        return text_weight(compact_json(content))
    return text_weight(str(content))


def part_weight(part: object) -> float:
    """Return the unrounded token weight of one part of a message."""
    if isinstance(part, _ToolCall):
        args = part.args if isinstance(part.args, str) else compact_json(part.args or {})
        return text_weight(part.tool_name) + text_weight(args)
    if isinstance(part, ToolReturnPart | NativeToolReturnPart):
        # As it is sent: a list or a mapping becomes JSON, and files travel beside it.
        return text_weight(part.model_response_str()) + sum(map(_content_weight, part.files))
    return _content_weight(getattr(part, "content", None))


def estimate_message(message: ModelMessage) -> int:
    """Return the tokens of one message, rounded up per message; usage and ids are not counted.

    Instructions recorded on a request are not part of it: they are sent once, as overhead.
    """
    return math.ceil(sum(map(part_weight, message.parts)))


def reported_tokens(message: ModelMessage) -> int:
    """Return the total usage that came with a response, in tokens; 0 when there is none to trust.

    Zero usage is no usage, and an interrupted response reports nothing that can be relied on.
    """
    if not isinstance(message, ModelResponse) or message.state != "complete":
        return 0
    if message.finish_reason == "error":
        return 0
    return message.usage.input_tokens + message.usage.output_tokens


def without_usage(message: ModelMessage) -> ModelMessage:
    """Return `message` without its usage: after history was dropped it still tells the old size."""
    if isinstance(message, ModelResponse) and reported_tokens(message):
        return replace(message, usage=RequestUsage())
    return message


@dataclass(frozen=True, slots=True)
class Overhead:
    """What a request carries beside its messages, in tokens: instructions and tool schemas.

    The schema of a structured output counts where it is sent: as a tool, or in the instructions.
    """

    instructions: int = 0
    tools: int = 0

    @property
    def total(self) -> int:
        """Both together."""
        return self.instructions + self.tools


def estimate(messages: Sequence[ModelMessage], overhead: int = 0) -> int:
    """Return the tokens of a request with these messages; `overhead` is what goes with them.

    The larger of two counts (specification 8.13): the heuristic sum plus `overhead`, and the usage that the
    newest response reported plus the heuristic for what came after it (that usage includes the overhead).
    A report of more than `MAX_REPORT_RATIO` times the heuristic of what it covers does not count. Worked
    number: 4,000 tokens reported for 1,000 of our count are an anchor, 4,001 are none.
    """
    return TokenMeter().measure(messages, overhead)


class TokenMeter:
    """A running estimate for one growing list: only what is new since the last call is weighed.

    Messages are recognised by identity, so a rewritten history is measured afresh from where it differs.
    """

    def __init__(self) -> None:
        self._seen: list[ModelMessage] = []
        self._costs: list[int] = []

    def measure(self, messages: Sequence[ModelMessage], overhead: int = 0, factor: float = 1.0) -> int:
        """Return what `estimate` returns, with everything that was not reported multiplied by `factor`.

        `factor` is what a model's reports taught about our heuristic, at least 1.
        """
        self._advance(messages)
        heuristic = math.ceil((sum(self._costs) + overhead) * factor)
        covered, after = sum(self._costs) + overhead, 0
        for message, cost in zip(reversed(messages), reversed(self._costs), strict=True):
            anchor = reported_tokens(message)
            # A server that counts wrong would otherwise force a compaction before every request.
            if 0 < anchor <= MAX_REPORT_RATIO * covered:
                return max(heuristic, anchor + math.ceil(after * factor))
            covered, after = covered - cost, after + cost
        return heuristic

    def heuristic(self, messages: Sequence[ModelMessage], overhead: int = 0) -> int:
        """Return the heuristic sum alone, without any reported usage."""
        self._advance(messages)
        return sum(self._costs) + overhead

    def _advance(self, messages: Sequence[ModelMessage]) -> None:
        same = 0
        for known, current in zip(self._seen, messages, strict=False):
            if known is not current:
                break
            same += 1
        if same < len(self._seen):
            del self._seen[same:]
            del self._costs[same:]
        for message in messages[same:]:
            self._seen.append(message)
            self._costs.append(estimate_message(message))
