"""The ladder before every request: unchanged, compacted, degraded, overflow (specification 3.9).

`compact` is pure but for the `summarise` callable it is given. It always ends, it never returns a list that
is not smaller, and it never returns a list that a provider would refuse.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextContent,
    UserPromptPart,
    is_multi_modal_content,
)

from sidequest.core.budget import ContextBudget
from sidequest.core.outcome import Usage
from sidequest.core.summary import (
    FileLists,
    Summarise,
    SummaryFailed,
    build_request,
    collect_files,
    cut_middle,
    framed_summary,
    split_file_lists,
)
from sidequest.core.tokens import TokenMeter, estimate, estimate_message, estimate_text, without_usage
from sidequest.core.transcript import (
    find_brief,
    head_summary,
    head_system,
    mark_of,
    marked,
    split_rounds,
    user_text,
)

Retention = Literal["active_turn", "completed_turn"]
"""Whether the newest instruction is still being worked on (kept verbatim) or answered (summarised)."""

SUMMARY_PREFACE = (
    "Earlier conversation was compacted. What follows is a summary of it, written for you to go on from; "
    "it is not a new request."
)
RECALL_POINTER = "The messages it replaces can be searched and read with the tool recall."
LOSS_NOTICE = (
    "Earlier conversation was discarded without a summary, because it no longer fit. What follows is only "
    "its newest part: do not take it for all that was said or done, and look or ask again where you need "
    "more. Files and other effects of earlier work are as they were."
)
LOSS_RECALL_POINTER = "The discarded messages can be searched and read with the tool recall."
TRUNCATION_MARKER = "\n[… this message crossed the retained context budget and its middle was cut …]\n"
FILE_LIST_SHARE = 16
"""Each file list of a summary takes at most this part of `hard_limit`."""
OMITTED_MEDIA = "[an image or a file of this message was left out]"


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The request fits as it is."""

    tokens: int


@dataclass(frozen=True, slots=True)
class Compacted:
    """History was replaced by a summary."""

    messages: list[ModelMessage]
    """What to send instead; a new list, never the one that was given."""
    tokens_before: int
    tokens_after: int
    summary: str
    usage: Usage = Usage()
    """What the summary request cost."""


@dataclass(frozen=True, slots=True)
class Degraded:
    """History was replaced by nothing but the system prompts, the brief and the newest rounds that fit."""

    messages: list[ModelMessage]
    tokens_before: int
    tokens_after: int
    reason: str
    """Why there was no summary, in one short sentence, for records."""
    usage: Usage = Usage()
    """What a summary request cost that could not be used."""


@dataclass(frozen=True, slots=True)
class Overflow:
    """Nothing that may be dropped makes the request fit."""

    tokens: int
    hard_limit: int
    fixed: int
    """Tokens of instructions and tool schemas, which no compaction can shrink."""
    usage: Usage = Usage()
    reason: str = ""
    """Why there is no summary; empty when none was asked for."""


CompactionOutcome: TypeAlias = Unchanged | Compacted | Degraded | Overflow


def summary_message(summary: str, *, recall: bool = False) -> ModelRequest:
    """Return the user-role message that stands for compacted history (specification 2.3).

    `recall` says that the tool of that name can read what was replaced.
    """
    preface = f"{SUMMARY_PREFACE} {RECALL_POINTER}" if recall else SUMMARY_PREFACE
    return ModelRequest(parts=[marked(f"{preface}\n\n<summary>\n{summary}\n</summary>", "summary")])


def summary_body(text: str) -> str:
    """Return the summary inside a message made by `summary_message`."""
    start, end = text.find("<summary>\n"), text.rfind("\n</summary>")
    return text[start + len("<summary>\n") : end] if 0 <= start < end else text


def retention_of(messages: Sequence[ModelMessage]) -> Retention:
    """Return `completed_turn` when the newest message is a final answer, else `active_turn` (2.4)."""
    newest = messages[-1] if messages else None
    if isinstance(newest, ModelResponse) and newest.finish_reason != "tool_call" and not newest.tool_calls:
        return "completed_turn"
    return "active_turn"


async def compact(
    messages: Sequence[ModelMessage],
    *,
    budget: ContextBudget,
    summarise: Summarise,
    overhead: int = 0,
    retention: Retention | None = None,
    force: bool = False,
    focus: str | None = None,
    meter: TokenMeter | None = None,
    factor: float = 1.0,
    optional: bool = False,
    recall: bool = False,
    tell_loss: bool = False,
) -> CompactionOutcome:
    """Apply the ladder to `messages`, which are not modified.

    `overhead` is the tokens of instructions and tool schemas sent with them. `force` compacts although the
    estimate is under the limit, for a provider that said otherwise; the result is then smaller all the
    same. `retention` None means: decide from the newest message. `factor`, at least 1, multiplies our
    estimates: what the model's own reports taught about them. `optional` asks for a compaction that nothing
    demands: when it cannot be made, a request that fits stays unchanged. `recall` lets the summary name the
    tool that reads what it replaced. `tell_loss` puts a notice in front of a degraded history, where it fits:
    the model then knows that there was more, and how it is read with `recall`.

    One summary is asked for at most. It counts only when it is not empty, not cut off, smaller than what it
    replaces, and the result fits; otherwise the ladder goes on to the brief and the newest rounds.

    Worked case (D2): three results of 3,000 characters with a window of 4,096 and 1,024 output tokens are
    over the limit of 2,048; one summary request is made, and the result is the summary and the brief.
    """
    meter = meter or TokenMeter()
    tokens = meter.measure(messages, overhead, factor)
    if budget.fits(tokens) and not force and not optional:
        return Unchanged(tokens)
    fixed = math.ceil(overhead * factor)
    if not budget.fits(fixed):
        return Overflow(tokens, budget.hard_limit, fixed)
    keep_active = (retention or retention_of(messages)) == "active_turn"
    # A provider that says or reported more than our count outranks it: what is sent next must be smaller.
    ceiling = min(math.floor(budget.hard_limit / factor), meter.heuristic(messages, overhead))
    attempt = await _summarised(
        messages, budget, summarise, overhead, keep_active, ceiling, focus, factor, recall
    )
    if not isinstance(attempt, _Failed):
        return replace(attempt, tokens_before=tokens, tokens_after=math.ceil(attempt.tokens_after * factor))
    if optional and not force and budget.fits(tokens):
        return Unchanged(tokens)
    limit = ceiling - overhead
    notice = loss_notice(recall=recall) if tell_loss else None
    reduced = _reduced(messages, limit, notice, recall=recall) if keep_active else None
    if reduced is None:
        return Overflow(tokens, budget.hard_limit, fixed, attempt.usage, attempt.reason)
    after = math.ceil(estimate(reduced, overhead) * factor)
    return Degraded(reduced, tokens, after, attempt.reason, attempt.usage)


NOT_SMALLER = "the summary is not smaller than what it replaces"
"""Why a summary of a short conversation is not taken."""


MIN_CARRIED_CHARS, MAX_CARRIED_CHARS = 256, 12_000
"""Bounds of a summary that is carried on when no new one could be made, in characters (specification 2.7)."""


def loss_notice(*, recall: bool = False) -> ModelRequest:
    """Return what a model is told in front of a history that lost its older part (specification 2.7)."""
    text = f"{LOSS_NOTICE} {LOSS_RECALL_POINTER}" if recall else LOSS_NOTICE
    return ModelRequest(parts=[marked(text, "notice")])


def _reduced(
    messages: Sequence[ModelMessage], limit: int, notice: ModelRequest | None, *, recall: bool
) -> list[ModelMessage] | None:
    """Degrade; in a session, which has `notice`, the summary of earlier turns stays in front of it (2.7)."""
    fronts: list[tuple[ModelRequest, ...]] = [()]
    if notice is not None:
        fronts.insert(0, (notice,))
        head = head_summary(messages)
        if head is not None:
            carried = summary_message(_carried(summary_body(head), limit), recall=recall)
            fronts.insert(0, (carried, notice))
    for front in fronts:
        room = limit - sum(map(estimate_message, front))
        reduced = degraded_messages(messages, limit=room, keep=room * 3 // 4, front=front)
        if reduced is not None:
            return reduced
    return None


def _carried(summary: str, limit: int) -> str:
    """Bound a summary that is carried on: in characters (specification 2.7), and to a quarter of `limit`.

    Worked number: of 20,000 Latin characters 6,000 stay below a limit of 8,000 tokens.
    """
    chars = max(MIN_CARRIED_CHARS, min(MAX_CARRIED_CHARS, limit * 3 // 4))
    text = cut_middle(summary, chars)
    while estimate_text(text) > limit // 4 and chars > MIN_CARRIED_CHARS:
        chars = max(MIN_CARRIED_CHARS, chars // 2)
        text = cut_middle(summary, chars)
    return text


@dataclass(frozen=True, slots=True)
class _Failed:
    reason: str
    usage: Usage = Usage()


async def _summarised(
    messages: Sequence[ModelMessage],
    budget: ContextBudget,
    summarise: Summarise,
    overhead: int,
    keep_active: bool,
    ceiling: int,
    focus: str | None,
    factor: float,
    recall: bool,
) -> Compacted | _Failed:
    system = head_system(messages)
    room = ceiling - overhead
    if keep_active and _brief_fills(messages, room - estimate_message(ModelRequest(parts=system))):
        return _Failed("the brief alone does not fit")
    head = head_summary(messages)
    previous, files = split_file_lists(summary_body(head)) if head is not None else (None, FileLists())
    request = build_request(messages, previous, budget, focus, factor)
    if request is None:
        return _Failed("the conversation does not fit a summary request")
    try:
        reply = await summarise(request)
    except SummaryFailed as error:
        return _Failed(f"the summary request failed: {error}")
    text = reply.text.strip()
    if not text:
        return _Failed("the summary was empty", reply.usage)
    if reply.truncated:
        return _Failed("the summary was cut off", reply.usage)
    if reply.unsound:
        return _Failed(f"the summary cannot be relied on: {reply.unsound}", reply.usage)
    text = framed_summary(text) + collect_files(messages, files).render(budget.hard_limit // FILE_LIST_SHARE)
    first = _behind(system, summary_message(text, recall=recall))
    compacted: list[ModelMessage] = [first]
    if keep_active:
        compacted += _retained(messages, budget, room - estimate_message(first))
    after = estimate(compacted, overhead)
    if after >= estimate([without_usage(m) for m in messages], overhead):
        return _Failed(NOT_SMALLER, reply.usage)
    if after >= ceiling:
        return _Failed("the summary leaves no room", reply.usage)
    return Compacted(compacted, 0, after, text, reply.usage)


def _behind(system: Sequence[SystemPromptPart], request: ModelRequest) -> ModelRequest:
    """Put system prompts in front of a request: providers take only those that open the first one."""
    return replace(request, parts=[*system, *request.parts]) if system else request


def _brief_fills(messages: Sequence[ModelMessage], room: int) -> bool:
    """Say whether the brief, which stays verbatim, leaves no room: then a summary would be asked in vain."""
    if room <= 0:
        return True
    found = find_brief(messages)
    if found is None or mark_of(found[1]) != "brief":
        return False
    return estimate_message(ModelRequest(parts=[found[1]])) >= room


def _retained(messages: Sequence[ModelMessage], budget: ContextBudget, room: int) -> list[ModelMessage]:
    """Return the instruction being worked on: verbatim if it fits or is a brief, else cut (8.5)."""
    found = find_brief(messages)
    if found is None:
        return []
    part = found[1]
    whole = ModelRequest(parts=[part])
    if mark_of(part) == "brief" or estimate_message(whole) < room:
        return [whole]
    limit = min(budget.retained_user, max(1, room - 1))
    text = user_text(part)
    if not isinstance(part.content, str) and any(map(is_multi_modal_content, part.content)):
        text = f"{text}\n{OMITTED_MEDIA}".lstrip()
    return [ModelRequest(parts=[replace(part, content=[TextContent(_truncate(text, limit))])])]


def _truncate(text: str, tokens: int) -> str:
    """Cut the middle of `text` to `tokens`: three quarters head, one quarter tail (specification 2.3)."""
    size = estimate_text(text)
    if size <= tokens:
        return text
    limit = tokens * len(text) // size
    # A text's tokens are not spread evenly over its characters: a dense head makes the first cut too large.
    while (available := limit - len(TRUNCATION_MARKER)) > 0:
        head = -(-available * 3 // 4)
        cut = text[:head] + TRUNCATION_MARKER + text[len(text) - (available - head) :]
        if estimate_text(cut) <= tokens:
            return cut
        limit = limit * 9 // 10
    return TRUNCATION_MARKER.strip()[: max(1, limit)]


def degraded_messages(
    messages: Sequence[ModelMessage],
    *,
    limit: int,
    keep: int | None = None,
    front: Sequence[ModelRequest] = (),
) -> list[ModelMessage] | None:
    """Return the brief and the newest whole rounds below `limit` tokens, or None when the brief does not fit.

    The brief is verbatim, and so are the system prompts that open the history. Rounds are a contiguous
    suffix: the first one from the end that does not fit ends it, failed and empty responses are passed over,
    and no result is left without its call. A summary in front is not kept (specification 8.3); a resumed
    chain's original task is, if it fits beside the brief (8.2). `keep`, at most `limit`, is where rounds end:
    filling up to the limit would degrade the next turn again. `front` stands in front of all but the system
    prompts and is not counted. Sizes are the heuristic, never reported usage.
    """
    found = find_brief(messages)
    if found is None:
        return None
    index, part = found
    system = head_system(messages)
    brief = ModelRequest(parts=[part])
    total = estimate_message(brief) + estimate_message(ModelRequest(parts=system))
    if total >= limit:
        return None
    kept_in_front = [*front, brief]
    original = _original_task(messages[:index], user_text(part))
    if original is not None and total + estimate_message(original) < limit:
        kept_in_front.insert(len(front), original)
        total += estimate_message(original)
    _, rounds = split_rounds(messages[index + 1 :])
    kept: list[ModelMessage] = []
    for round_ in reversed(rounds):
        if _unusable(round_.response):
            continue
        block = [without_usage(message) for message in round_.messages]
        cost = sum(map(estimate_message, block))
        if total + cost >= (limit if keep is None else keep):
            break
        kept[:0] = block
        total += cost
    while kept and isinstance(kept[-1], ModelResponse):  # the request after it went with a failed response
        kept.pop()
    return [_behind(system, kept_in_front[0]), *kept_in_front[1:], *kept]


def _original_task(messages: Sequence[ModelMessage], instruction: str) -> ModelRequest | None:
    """Return the first task of a resumed chain, or None when it is the instruction itself."""
    for message in messages:
        for part in message.parts:
            if isinstance(part, UserPromptPart) and mark_of(part) == "original":
                return ModelRequest(parts=[part]) if user_text(part) != instruction else None
    return None


def _unusable(response: ModelResponse) -> bool:
    return not response.parts or response.finish_reason == "error" or response.state == "interrupted"
