"""What reported usage teaches about a model: how far our estimate is off, and whether a prompt was cut.

The factor multiplies the heuristic and is never below 1: it rises at once to what a provider counted and
falls slowly, so that one odd report does not undo what was learned (DESIGN, needs.md 8). Silent truncation is
seen by the ratio test of `overflow-messages.md` section 3: a longer prompt whose report stays on a window or
falls far behind, or a count that falls below half of its own running ratio.

Blind spot: a server that truncates the very first prompt and reports no round number looks like a frugal
tokenizer, until a longer prompt is not reported longer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

MAX_FACTOR = 3.0
"""Reports beyond three times our estimate are taken for misreports, not for a dense tokenizer."""
MIN_RATIO = 0.1
"""Reports below a tenth of our estimate count only part of the prompt (cache reads left out)."""
FALL = 0.1
"""Share of the way down to the reported ratio that one report moves the factor."""
TRUNCATION_RATIO = 0.5
SHORTFALL = 0.75
"""A report below this share of what a longer prompt should have is a cut. Above it may be honest: a provider
that drops earlier reasoning counts a little less for a longer history."""
MIN_TRUNCATION_TOKENS = 1_000
"""Below this estimate a small report says nothing about truncation."""
MIN_LEARNED_WINDOW = 1_024


def prompt_tokens(input_tokens: int, cached: int) -> int:
    """Return the whole prompt, in tokens, whichever way a provider counts what went through its cache.

    `input_tokens` should include `cached`, the cache reads and writes; when it is the smaller of the two it
    does not. Worked number: 2,000 reported beside 10,000 read from a cache are 12,000.
    """
    return input_tokens + cached if cached > input_tokens else input_tokens


@dataclass(frozen=True, slots=True)
class Report:
    """What one answer reported about its request; both in tokens."""

    estimate: int
    """Our plain heuristic of the whole request."""
    reported: int
    """Prompt tokens as the provider counted them, cache reads and writes included."""
    dips: int = 0
    """How many longer prompts after it were reported smaller."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """What is known about one model from its own reports; immutable, `observe` returns the next one."""

    factor: float = 1.0
    """Multiplies the heuristic estimate; from 1 to 3, inclusive."""
    ratio: float = 1.0
    """Running ratio of reported prompt tokens to the heuristic estimate."""
    reports: int = 0

    def observe(self, estimate: int, reported: int) -> Calibration:
        """Learn from one answer; `estimate` is the plain heuristic of the whole request, both in tokens.

        Zero usage is no usage. Worked numbers: an estimate of 1,000 that is reported as 1,400 makes the
        factor 1.4 at once; a following report of 1,000 for 1,000 lowers it to 1.36.
        """
        if reported <= 0 or estimate <= 0:
            return self
        ratio = reported / estimate
        if not MIN_RATIO <= ratio <= MAX_FACTOR:
            return self
        factor = ratio if ratio > self.factor else self.factor + FALL * (ratio - self.factor)
        running = ratio if self.reports == 0 else 0.7 * self.ratio + 0.3 * ratio
        return Calibration(max(1.0, factor), running, self.reports + 1)

    def reject(self, estimate: int, counted: int) -> Calibration:
        """Learn from a rejection that states how many tokens it counted."""
        if estimate <= 0 or counted <= estimate:
            return self
        return replace(self, factor=max(self.factor, min(MAX_FACTOR, counted / estimate)))

    @staticmethod
    def reference(last: Report | None, new: Report) -> Report:
        """Return the report that the next one is compared with: a smaller one for a longer prompt is not.

        So a server that cuts a little of each prompt is found when it does so again, or by much.
        """
        fell = last is not None and last.estimate < new.estimate and new.reported < last.reported
        return replace(last, dips=last.dips + 1) if last is not None and fell else new

    def truncated(self, estimate: int, reported: int, last: Report | None = None) -> bool:
        """Say whether this report looks like a prompt that was cut without a word; ask before `observe`.

        `last` is the report before it in the same history, None after the history was rewritten.
        """
        if reported <= 0 or estimate < MIN_TRUNCATION_TOKENS:
            return False
        ratio = reported / estimate
        if ratio < MIN_RATIO:
            return False
        if last is not None and last.estimate < estimate and reported <= last.reported:
            # A server that keeps its window full reports that window for every longer prompt; another count
            # that does not move is made up.
            if like_a_window(reported):
                return True
            if reported < last.reported and last.dips:
                return True
            expected = last.reported * estimate / last.estimate
            return reported < min(last.reported, SHORTFALL * expected)
        # Without a report to compare with the ratio alone proves nothing: a drawn table, or a change from
        # Korean to English, halves it as well. Then the count itself has to look like a window.
        reference = min(1.0, self.ratio) if self.reports else 1.0
        return ratio < TRUNCATION_RATIO * reference and like_a_window(reported)


def _round(tokens: int) -> bool:
    return tokens > 0 and (tokens % 1_000 == 0 or tokens % 1_024 == 0)


def like_a_window(reported: int) -> bool:
    """Say whether a count of tokens looks like a window, or like the half of one that Ollama keeps.

    Worked numbers: 16,000, 16,384 and 8,002 do, 14,800 does not.
    """
    return _round(reported) or _round((reported - 2) * 2)


def cut_by_window(prompt: int, answer: int, limit: int | None) -> bool:
    """Say whether an answer that was cut for its length was cut by a full window and not by an output limit.

    `prompt` and `answer` are reported tokens, `limit` the output limit that was sent, None when none was.
    Prompt and answer together have to look like a window, and the answer must be well below its limit;
    without one it must not look like a limit itself. Worked numbers: 2,007 and 41 tokens are a window of
    2,048; 2,007 and 400 with a limit of 400 are an output limit.
    """
    if prompt <= 0 or answer <= 0:
        return False
    if not any(map(_round, (prompt + answer, prompt + answer + 1))):
        return False
    return answer < limit * 9 // 10 if limit is not None else not _round(answer)


def effective_window(reported: int) -> int:
    """Return the window that a silent truncation shows, in tokens.

    Ollama keeps half of its window and two tokens, so a count of `N / 2 + 2` with a round `N` means `N`;
    any other count is taken as the window itself. Worked number: 8,002 reported tokens mean 16,000.
    """
    doubled = (reported - 2) * 2
    return max(MIN_LEARNED_WINDOW, doubled if _round(doubled) else reported)
