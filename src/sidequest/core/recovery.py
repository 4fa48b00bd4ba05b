"""What to do about a failed request: a decision value, from what the failure meant and what was tried.

Counters are per request, not per run: all but guesses are reset by a response that came through
(specification 3.7). A rate limit or an output limit never compacts, and a request that was too long is never
sent again unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from sidequest.core.errors import ErrorCode
from sidequest.core.provider_errors import Kind, Meaning

MAX_RATE_RETRIES = 10
MAX_TRANSIENT_RETRIES = 10
MAX_REFUSED_RETRIES = 2
"""Retries, one and two seconds later, where this machine itself refuses the connection."""
MAX_RETRY_AFTER_S = 900.0
"""A wait beyond this, in seconds, is a quota of the day: another model goes on, or the run says so."""
RATE_BASE_S, RATE_CAP_S, RATE_JITTER = 2.0, 30.0, 0.25
TRANSIENT_BASE_S, TRANSIENT_CAP_S = 1.0, 8.0
MIN_USEFUL_OUTPUT_TOKENS = 256
"""Below this an answer is not worth asking for: the input is compacted instead."""
MAX_OUTPUT_REDUCTIONS = 2
MAX_GUESSES = 3
"""How often refusals of one model that say nothing are taken for an overflow although the window is far: a
guess that was wrong would otherwise be paid for again and again."""
SAFETY_TOKENS = 64
"""Kept free when the output is set from numbers that a provider stated: its count may move a little."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Send the same request again after `seconds`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class CompactNow:
    """Compact although our estimate said it fits, then send; `window` is what the error stated, in tokens."""

    window: int | None = None


@dataclass(frozen=True, slots=True)
class LowerOutput:
    """Send again with at most `max_tokens` of output."""

    max_tokens: int


@dataclass(frozen=True, slots=True)
class DropOutputLimit:
    """Send again without any output limit: the refusal had no text (specification 3.7, last row)."""


@dataclass(frozen=True, slots=True)
class ShrinkMedia:
    """Replace media by a note, clip the largest tool result, and send again."""


@dataclass(frozen=True, slots=True)
class RepairHistory:
    """Repair calls and results that do not pair, and send again."""


@dataclass(frozen=True, slots=True)
class NextModel:
    """This model cannot do it: go on with the next alternative, or fail."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Neither waiting nor another model helps: the owner cancelled."""


Action: TypeAlias = (
    Wait | CompactNow | LowerOutput | DropOutputLimit | ShrinkMedia | RepairHistory | NextModel | GiveUp
)


@dataclass
class Recovery:
    """What was tried for the request at hand; `reset` after each response, a new one for each model."""

    rate_retries: int = 0
    transient_retries: int = 0
    output_reductions: int = 0
    compacted: bool = False
    repaired: bool = False
    shrunk: bool = False
    limit_dropped: bool = False
    guesses: int = 0
    """Over all requests to the model, and so not reset."""

    def reset(self) -> None:
        """Forget what was tried for a request: a response came through."""
        self.__init__(guesses=self.guesses)  # type: ignore[misc]

    def decide(self, meaning: Meaning, *, jitter: float = 0.0, output_limit: int | None = None) -> Action:
        """Return the next step and remember it.

        `jitter` is a random number from 0 (inclusive) to 1 (exclusive). `output_limit` is the output limit
        in tokens that the failed request carried, None when it carried none.
        Worked numbers: the third 429 without `retry-after` and with jitter 0 waits 8 s; the fifth broken
        connection waits 8 s.
        """
        match meaning.kind:
            case Kind.CANCELLED:
                return GiveUp()
            case Kind.RATE:
                return self._rate(meaning, jitter)
            case Kind.INPUT:
                return self._compact(meaning)
            case Kind.SUM:
                return self._sum(meaning, output_limit)
            case Kind.OUTPUT:
                return self._output(meaning, output_limit)
            case Kind.BYTES:
                if not self.shrunk:
                    self.shrunk = True
                    return ShrinkMedia()
                return NextModel()
            case Kind.BROKEN:
                if not self.repaired:
                    self.repaired = True
                    return RepairHistory()
                return NextModel()
            case _:
                return self._other(meaning)

    def _rate(self, meaning: Meaning, jitter: float) -> Action:
        too_long = meaning.retry_after_s is not None and meaning.retry_after_s > MAX_RETRY_AFTER_S
        if meaning.incurable or too_long or self.rate_retries >= MAX_RATE_RETRIES:
            return NextModel()
        self.rate_retries += 1
        if meaning.retry_after_s is not None:
            return Wait(meaning.retry_after_s)
        delay: float = RATE_BASE_S * 2 ** (self.rate_retries - 1)
        return Wait(min(RATE_CAP_S, delay * (1 + RATE_JITTER * jitter)))

    def _compact(self, meaning: Meaning) -> Action:
        if self.compacted or meaning.irreducible:
            return NextModel()
        self.compacted = True
        return CompactNow(meaning.limit_tokens)

    def _sum(self, meaning: Meaning, output_limit: int | None) -> Action:
        if meaning.input_tokens is not None and meaning.limit_tokens is not None:
            room = meaning.limit_tokens - meaning.input_tokens - SAFETY_TOKENS
            useful = room >= MIN_USEFUL_OUTPUT_TOKENS and (output_limit is None or room < output_limit)
            if useful and self.output_reductions < MAX_OUTPUT_REDUCTIONS:
                self.output_reductions += 1
                return LowerOutput(room)
        return self._compact(meaning)

    def _output(self, meaning: Meaning, output_limit: int | None) -> Action:
        if self.output_reductions >= MAX_OUTPUT_REDUCTIONS:
            return NextModel()
        self.output_reductions += 1
        stated = meaning.limit_tokens
        # A cap that the request kept already would let the same request go out again.
        if stated is not None and stated > 0 and (output_limit is None or stated < output_limit):
            return LowerOutput(stated)
        if output_limit is not None and output_limit > 1:
            return LowerOutput(output_limit // 2)
        if self.limit_dropped:
            return NextModel()
        self.limit_dropped = True
        return DropOutputLimit()

    def _other(self, meaning: Meaning) -> Action:
        if meaning.near_limit and not self.compacted:
            return self._compact(meaning)
        # A 413 without a word is about the size, also far from the window that we believe in.
        guess = meaning.code is ErrorCode.CONTEXT_TOO_LARGE and self.guesses < MAX_GUESSES
        if guess and not self.compacted:
            self.guesses += 1
            return self._compact(meaning)
        if meaning.opaque and not self.limit_dropped:
            self.limit_dropped = True
            return DropOutputLimit()
        most = MAX_REFUSED_RETRIES if meaning.nobody_listens else MAX_TRANSIENT_RETRIES
        if not meaning.retriable or self.transient_retries >= most:
            return NextModel()
        self.transient_retries += 1
        if meaning.retry_after_s is not None:
            return Wait(meaning.retry_after_s)
        return Wait(min(TRANSIENT_CAP_S, TRANSIENT_BASE_S * 2 ** (self.transient_retries - 1)))
