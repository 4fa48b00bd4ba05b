"""What a run did about a failed request, as seen on the wire."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.support.acts import call, is_summary
from tests.support.chain import Chain, Link, run_chain
from tests.support.neutral import Answer, InStreamError, Reject, Reply, Seen
from tests.support.virtual_time import now

BRIEF = "Fetch a and report."
SUMMARY = "## Goal\nReport.\n\n## Critical Context\n- a was fetched"
CHUNK = ("plain words of a result " * 250)[:4_000]


async def fetch(key: str) -> str:
    """Fetch what is stored under a key."""
    return f"{key}: {CHUNK}"


@dataclass
class Failing:
    """A model that fetches once, then fails `times` times, then reports; summaries fail too with `stubborn`.

    `failure` gives the failure from the request.
    """

    failure: Any
    times: int = 1
    stubborn: bool = False
    first: bool = False
    """Fail at the very first request, when there is no work yet."""
    failed: list[Seen] = field(default_factory=list)
    """Work requests that failed, in order."""
    later: list[Seen] = field(default_factory=list)
    """Work requests after the first failure."""
    summaries: list[Seen] = field(default_factory=list)
    failed_at: list[float] = field(default_factory=list)
    """Virtual seconds."""
    later_at: list[float] = field(default_factory=list)

    def __call__(self, seen: Seen) -> Answer:
        if is_summary(seen):
            self.summaries.append(seen)
            return self._fail(seen) if self.stubborn else Reply(SUMMARY)
        if self.failed:
            self.later.append(seen)
            self.later_at.append(now())
        if not self.first and not self.failed and not seen.tool_results:
            return call("fetch", key="a")
        if self.stubborn or len(self.failed) < self.times:
            self.failed.append(seen)
            self.failed_at.append(now())
            return self._fail(seen)
        return Reply("Done.")

    def _fail(self, seen: Seen) -> Answer:
        answer: Answer = self.failure(seen) if callable(self.failure) else self.failure
        # A summary is never streamed, and most SDKs keep nothing of an error in a 200 that is not.
        whole = isinstance(answer, InStreamError) and not seen.stream and not seen.tool_names
        return Reject(400, answer.message) if whole and isinstance(answer, InStreamError) else answer


def remedy(script: Failing, chain: Chain) -> set[str]:
    """Return what was done about the first failure of `script`, in words.

    `summary`: one was asked for. `smaller`, `lower`, `without limit`, `unchanged`, `waited N`: the next one
    to the same model had less input, a lower output limit, none, the very same bytes, came N virtual seconds
    later. `switched`: the alternative did the rest.
    """
    failed, again = script.failed[0], next(iter(script.later), None)
    words = {"summary"} if script.summaries else set()
    if chain.outcome.model == "test/2":
        words.add("switched")
    if again is None:
        return words
    if again.tokens < failed.tokens:
        words.add("smaller")
    if again.max_tokens is None and failed.max_tokens is not None:
        words.add("without limit")
    elif (again.max_tokens or 0) < (failed.max_tokens or 0):
        words.add("lower")
    if again.raw == failed.raw:
        words.add("unchanged")
    if waited := script.later_at[0] - script.failed_at[0]:
        words.add(f"waited {waited:g}")
    return words


def failing(
    script: Failing,
    api: str,
    *,
    window: int = 1_000_000,
    max_tokens: int | None = 3_000,
    timeout: float = 600.0,
    **options: Any,
) -> Chain:
    """Run a delegation on a model that fails, with an alternative that does not."""
    link = Link(script, api=api, window=window, max_tokens=max_tokens, timeout=timeout)
    return run_chain(link, Link(["Done by the other."]), task=BRIEF, tools=[fetch], **options)
