"""Histories as values: lists of messages in, lists of messages out.

A *round* is one response with all that answers it, the unit that is kept or dropped (DESIGN, "Words").
The brief and a summary are marked with metadata that travels with the message and never reaches a model,
so nothing has to guess which user message is which.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    RetryPromptPart,
    SystemPromptPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from sidequest.core.tokens import estimate_message, without_usage

Mark = Literal["brief", "original", "summary", "report", "notice"]
"""What a user-role text is: the run's instruction, a chain's first task, a summary, a report, a notice."""

_KEY = "sidequest"


class TranscriptError(ValueError):
    """A history that no provider would accept; `problems` lists every fault found."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


def marked(text: str, mark: Mark, ids: Sequence[str] = ()) -> UserPromptPart:
    """Return a user-role part that carries `text` to the model and `mark` to us.

    `ids` are the delegations whose reports the text delivers.
    """
    metadata: dict[str, Any] = {_KEY: mark}
    if ids:
        metadata["ids"] = list(ids)
    return UserPromptPart(content=[TextContent(content=text, metadata=metadata)])


def delivered_ids(request: ModelRequest) -> list[str]:
    """Return the ids of the delegations whose reports a request hands to the parent by itself."""
    return [
        item
        for part in request.parts
        if isinstance(part, UserPromptPart) and mark_of(part) == "report"
        for content in part.content or ()
        if isinstance(content, TextContent) and isinstance(content.metadata, dict)
        for item in content.metadata.get("ids", ())
    ]


def reports_in(history: Sequence[ModelMessage]) -> set[str]:
    """Return the ids of the delegations whose reports `history` holds, handed over or asked for."""
    found: set[str] = set()
    for request in history:
        if not isinstance(request, ModelRequest):
            continue
        found.update(delivered_ids(request))
        for part in request.parts:
            if isinstance(part, ToolReturnPart) and isinstance(part.metadata, dict):
                found.update(part.metadata.get("delivered", ()))
    return found


def mark_of(part: object) -> Mark | None:
    """Return the mark of a user-role part, or None for text that a person or another program wrote."""
    if isinstance(part, UserPromptPart) and not isinstance(part.content, str):
        for item in part.content or ():
            if isinstance(item, TextContent) and isinstance(item.metadata, dict):
                mark = item.metadata.get(_KEY)
                if mark is not None:
                    return mark  # type: ignore[no-any-return]
    return None


def user_text(part: UserPromptPart) -> str:
    """Return the text of a user-role part; media are left out."""
    if isinstance(part.content, str):
        return part.content
    pieces = [
        item if isinstance(item, str) else item.content
        for item in part.content or ()
        if isinstance(item, str | TextContent)
    ]
    return "\n".join(pieces)


def brief_request(brief: str) -> ModelRequest:
    """Return the request that hands a delegate its brief, marked so that it survives everything."""
    return ModelRequest(parts=[marked(brief, "brief")])


def find_brief(messages: Sequence[ModelMessage]) -> tuple[int, UserPromptPart] | None:
    """Return index and part of the instruction being worked on, or None when there is none.

    The newest marked brief; in a session, whose prompts are not marked, the newest user message. An unmarked
    part beside tool results is none: it holds the media or remarks that a tool returned.
    """
    newest: tuple[int, UserPromptPart] | None = None
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if not isinstance(message, ModelRequest):
            continue
        of_a_tool = any(map(is_tool_result, message.parts))
        for part in reversed(message.parts):
            if not isinstance(part, UserPromptPart):
                continue
            mark = mark_of(part)
            if mark == "brief":
                return index, part
            if mark is None and newest is None and not of_a_tool:
                newest = index, part
    return newest


def head_system(messages: Sequence[ModelMessage]) -> list[SystemPromptPart]:
    """Return the system prompts before the first response, in order; those for one request only are not."""
    head, _ = split_rounds(messages)
    return [
        part
        for request in head
        for part in request.parts
        if isinstance(part, SystemPromptPart) and part.scope == "conversation"
    ]


def head_summary(messages: Sequence[ModelMessage]) -> str | None:
    """Return the newest compaction summary before the first response, or None.

    It is the first message of a compacted history; in a resumed one the original task stands before it.
    """
    newest: str | None = None
    for request in split_rounds(messages)[0]:
        for part in request.parts:
            if mark_of(part) == "summary" and isinstance(part, UserPromptPart):
                newest = user_text(part)
    return newest


@dataclass(frozen=True, slots=True)
class Round:
    """One response and the requests that follow it, up to the next response."""

    response: ModelResponse
    requests: tuple[ModelRequest, ...] = ()

    @property
    def messages(self) -> tuple[ModelMessage, ...]:
        """The round as messages, in order."""
        return (self.response, *self.requests)


def split_rounds(messages: Iterable[ModelMessage]) -> tuple[list[ModelRequest], list[Round]]:
    """Return the requests before the first response, and the rounds after them, in order."""
    head: list[ModelRequest] = []
    rounds: list[Round] = []
    for message in messages:
        if isinstance(message, ModelResponse):
            rounds.append(Round(message))
        elif rounds:
            rounds[-1] = Round(rounds[-1].response, (*rounds[-1].requests, message))
        else:
            head.append(message)
    return head, rounds


def tool_calls(message: ModelMessage) -> list[ToolCallPart]:
    """Return the calls of a response that we have to answer (a provider's own tools are not among them)."""
    return [part for part in message.parts if isinstance(part, ToolCallPart)]


def is_tool_result(part: object) -> bool:
    """Say whether `part` answers a tool call; old histories hold tool-bound retry prompts that do too."""
    if isinstance(part, ToolReturnPart):
        return True
    return isinstance(part, RetryPromptPart) and part.tool_name is not None


def _result_ids(message: ModelRequest) -> Iterator[str]:
    for part in message.parts:
        if isinstance(part, ToolReturnPart | RetryPromptPart) and is_tool_result(part):
            yield part.tool_call_id


class Validator:
    """Checks a growing history; what was found valid before is not looked at again.

    Ids must be unique among the calls of one response. They may come back in a later round: local servers
    number their calls afresh at each turn, and results belong to the nearest response before them.
    """

    def __init__(self) -> None:
        self._seen: list[ModelMessage] = []
        self._pending: set[str] = set()

    def check(self, messages: Sequence[ModelMessage]) -> None:
        """Check `messages` as they would leave the process.

        Raises:
            TranscriptError: a call without its result, a result without its call, a repeated id, an empty
                list, or a list that does not begin and end with a request.
        """
        same = sum(1 for _ in _common_prefix(self._seen, messages))
        if same < len(self._seen):
            self._seen, self._pending, same = [], set(), 0
        problems: list[str] = []
        for index in range(same, len(messages)):
            problems += self._step(index, messages[index])
            self._seen.append(messages[index])
        if not messages or not isinstance(messages[0], ModelRequest):
            problems.append("the history does not begin with a request")
        elif not isinstance(messages[-1], ModelRequest):
            problems.append("the history does not end with a request")
        if self._pending:
            problems.append(f"calls without a result: {', '.join(sorted(self._pending))}")
        if problems:
            self._seen, self._pending = [], set()
            raise TranscriptError(problems)

    def _step(self, index: int, message: ModelMessage) -> list[str]:
        problems: list[str] = []
        if isinstance(message, ModelResponse):
            if self._pending:
                problems.append(
                    f"message {index} follows unanswered calls: {', '.join(sorted(self._pending))}"
                )
            ids = [call.tool_call_id for call in tool_calls(message)]
            if len(set(ids)) != len(ids):
                problems.append(f"message {index} repeats a call id")
            self._pending = set(ids)
            return problems
        for call_id in _result_ids(message):
            if call_id not in self._pending:
                problems.append(f"message {index} answers the unknown call {call_id}")
            self._pending.discard(call_id)
        return problems


def _common_prefix(left: Sequence[Any], right: Sequence[Any]) -> Iterator[None]:
    for a, b in zip(left, right, strict=False):
        if a is not b:
            return
        yield None


def validate(messages: Sequence[ModelMessage]) -> None:
    """Check a whole list; see `Validator.check` for what is checked and raised."""
    Validator().check(messages)


def _copy(message: ModelMessage) -> ModelMessage:
    if isinstance(message, ModelRequest):
        return replace(message, parts=list(message.parts))
    return replace(message, parts=list(message.parts))


def snapshot(messages: Sequence[ModelMessage], *, same_model: bool) -> list[ModelMessage]:
    """Return a fork's copy of a parent's active branch, as it is at this moment (specification 5.3).

    Cut at the last complete exchange: a response whose calls are not all answered is left out, with its
    siblings. Tool output is untouched. Usage is zeroed, because it anchors another request, and without
    `same_model` reasoning signed by the provider is dropped. The parent's messages are not modified.
    """
    complete = list(messages)
    while complete:
        try:
            validate([*complete, ModelRequest(parts=[])])
            break
        except TranscriptError:
            complete.pop()
    kept: list[ModelMessage] = []
    for message in complete:
        copy = without_usage(_copy(message))
        if isinstance(copy, ModelResponse) and not same_model:
            parts = [p for p in copy.parts if not (isinstance(p, ThinkingPart) and p.signature)]
            if not parts:
                continue
            copy = replace(copy, parts=parts, provider_response_id=None)
        kept.append(copy)
    return kept


def _without_calls(message: ModelResponse) -> ModelResponse | None:
    """Return the response without its calls, ended normally, or None when nothing is left of it."""
    parts = [part for part in message.parts if not isinstance(part, ToolCallPart)]
    if not any(isinstance(part, TextPart | ThinkingPart) and part.content.strip() for part in parts):
        return None
    return replace(message, parts=parts, finish_reason="stop")


def _without_results(request: ModelRequest) -> ModelRequest | None:
    parts: list[ModelRequestPart] = [part for part in request.parts if not is_tool_result(part)]
    return replace(request, parts=parts) if parts else None


@dataclass(frozen=True, slots=True)
class Seed:
    """What a resumed delegation starts from."""

    messages: list[ModelMessage]
    lost: bool
    """Whether anything of the history was left out: what is reported then comes from lost history."""


def seed(original_task: str, history: Sequence[ModelMessage], *, limit: int) -> Seed:
    """Return the history a resumed delegation starts from, below `limit` tokens (specification 3.11).

    The original task comes first and is never dropped, even alone over `limit`. While the rest is too
    large, first the oldest tool calls go together with their results (text of the carrier stays), then
    whole rounds, oldest first. A summary stands for more than any round: it stays until all rounds have
    gone, unless it does not fit beside the task alone; then it goes first, so that rounds can stay. Sizes
    are the per-message heuristic, never reported usage. `limit` is exclusive: the caller subtracts the new
    instruction and the fixed overhead from `hard_limit` first.
    """
    first = ModelRequest(parts=[marked(original_task, "original")])
    head, rounds = split_rounds(_without_repeats(history, original_task))
    blocks: list[list[ModelMessage]] = [[request] for request in head]
    blocks += [[without_usage(message) for message in round_.messages] for round_ in rounds]
    costs = [sum(map(estimate_message, block)) for block in blocks]
    own = estimate_message(first)
    total = own + sum(costs)

    summaries = [place for place, block in enumerate(blocks) if any(map(_holds_summary, block))]
    fit = own + sum(costs[place] for place in summaries) < limit
    plain = [place for place in range(len(blocks)) if place not in summaries]
    # Places in the order in which something goes, and whether the words beside the calls stay.
    steps = [(place, True) for place in plain if any(map(tool_calls, blocks[place]))]
    steps += [(place, False) for place in plain]
    whole = [(place, False) for place in summaries]
    lost = False
    for place, keeps_text in [*steps, *whole] if fit else [*whole, *steps]:
        if total < limit:
            break
        lost = True
        total -= costs[place]
        blocks[place] = _strip_tools(blocks[place]) if keeps_text else []
        costs[place] = sum(map(estimate_message, blocks[place]))
        total += costs[place]
    return Seed([first, *(message for block in blocks for message in block)], lost)


def _holds_summary(message: ModelMessage) -> bool:
    return any(mark_of(part) == "summary" for part in message.parts)


def _without_repeats(history: Sequence[ModelMessage], task: str) -> Iterator[ModelMessage]:
    """Yield the history without user messages whose text is exactly `task`."""
    for message in history:
        if not isinstance(message, ModelRequest):
            yield message
            continue
        kept = [part for part in message.parts if not _repeats(part, task)]
        if len(kept) == len(message.parts):
            yield message
        elif kept:
            yield replace(message, parts=kept)


def _repeats(part: ModelRequestPart, task: str) -> bool:
    return isinstance(part, UserPromptPart) and user_text(part).strip() == task.strip()


def _strip_tools(block: Sequence[ModelMessage]) -> list[ModelMessage]:
    stripped: list[ModelMessage] = []
    for message in block:
        kept = _without_calls(message) if isinstance(message, ModelResponse) else _without_results(message)
        if kept is not None:
            stripped.append(kept)
    return stripped
