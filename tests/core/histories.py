"""Random histories that a provider would accept, with everything that has broken a compaction somewhere.

Parallel and interrupted calls, ids that come back, images, one giant message, scripts that are not Latin,
failed and empty responses, reported sizes, earlier summaries, forks and resumed chains.
"""

from __future__ import annotations

from itertools import count

from hypothesis import strategies as st
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    RetryFeedbackPart,
    RetryInfo,
    SystemPromptPart,
    ToolReturnPart,
)

from sidequest.core.budget import ContextBudget
from sidequest.core.compaction import summary_message
from sidequest.core.transcript import marked
from tests.core.builders import Summariser, brief, call, failing, image, prose, result, results, says, user

UNITS = [
    "the quick brown fox jumps over the lazy dog\n",
    "the quick brown fox jumps over the lazy dog ",
    "人人生而自由,在尊严和权利上一律平等。",
    "Все люди рождаются свободными и равными. ",
    "يولد جميع الناس أحراراً متساوين. ",
    "🎉🚀\n",
    "aB3+/xYz9",
    "a=1;b(c,d);",
]
OUTPUT_SIZES = [0, 40, 400, 1_500, 3_000, 3_000, 20_000]
SPOKEN_SIZES = [0, 5, 40, 40, 400, 400, 400, 12_000]
BUDGETS = [
    ContextBudget.of(window, max_tokens)
    for window in (4_096, 8_000, 16_000, 32_000)
    for max_tokens in (None, 1_024)
]
_numbers = count()


def _texts(sizes: list[int]) -> st.SearchStrategy[str]:
    return st.builds(
        lambda unit, size: (unit * (size // len(unit) + 1))[:size],
        st.sampled_from(UNITS),
        st.sampled_from(sizes),
    )


outputs, texts = _texts(OUTPUT_SIZES), _texts(SPOKEN_SIZES)
flags = st.booleans()
rarely = st.sampled_from([False, False, False, True])
reports = st.sampled_from([0, 0, 0, 900, 5_000, 40_000])
briefs = st.builds(
    lambda text, size: text + prose(size), st.text(min_size=1, max_size=20), st.sampled_from([0, 200, 3_000])
)
budgets = st.sampled_from(BUDGETS)
systems = st.sampled_from([0, 0, 0, 40, 3_000]).map(
    lambda size: [ModelRequest(parts=[SystemPromptPart(prose(size))])] if size else []
)
"""What opens a history: a system prompt, or nothing."""


def marks_of(part: ToolReturnPart) -> tuple[str, str]:
    """The first and the last line that `_output` gave to a result."""
    return f"<first {part.metadata}>", f"<last {part.metadata}>"


@st.composite
def _output(draw, call_id: str) -> ToolReturnPart:
    # Of one width, so that an example has the same size each time it is replayed.
    number = f"{next(_numbers) % 1_000_000:06}"
    content = f"<first {number}>\n{draw(outputs)}\n<last {number}>"
    part = result([content, image()] if draw(rarely) else content, call_id)
    part.metadata = number
    part.outcome = draw(st.sampled_from(["success", "success", "failed", "denied", "interrupted"]))
    return part


@st.composite
def _calls(draw) -> list[ModelMessage]:
    ids = [f"call_{number}" for number in range(draw(st.integers(1, 3)))]
    calls = [
        call(call_id, draw(st.sampled_from(["Read", "Edit", "Bash"])), path=f"{call_id}.py")
        for call_id in ids
    ]
    facts = draw(st.sampled_from([{}, {}, {}, {"state": "interrupted"}, {"finish_reason": "tool_call"}]))
    text, thinking = (draw(texts) if draw(rarely) else "" for _ in range(2))
    response = says(text, *calls, thinking=thinking, reported=draw(reports), **facts)
    parts = [draw(_output(call_id)) for call_id in draw(st.permutations(ids))]
    if draw(rarely):
        return [response, *(results(part) for part in parts)]
    return [response, results(*parts)]


@st.composite
def _talk(draw) -> list[ModelMessage]:
    said = draw(st.sampled_from(["text", "error", "nothing", "text without an answer"]))
    match said:
        case "text":
            return [
                says(draw(texts) or "ok", reported=draw(reports)),
                ModelRequest(parts=[marked("7", "report")]),
            ]
        case "error":
            return [says("half", finish_reason="error"), ModelRequest(parts=[marked("try again", "notice")])]
        case "nothing":
            feedback = RetryFeedbackPart("say something", retry=RetryInfo("no_output"))
            return [says(), ModelRequest(parts=[feedback])]
        case _:
            return [says("thinking aloud")]


@st.composite
def rounds(draw, most: int = 6) -> list[ModelMessage]:
    """Whole rounds; the last message is a request, or there are none."""
    made: list[ModelMessage] = []
    for _ in range(draw(st.integers(0, most))):
        made += draw(_calls()) if draw(st.sampled_from([True, True, False])) else draw(_talk())
    if made and made[-1].kind == "response":
        made.append(ModelRequest(parts=[marked("a file changed", "notice")]))
    return made


@st.composite
def delegations(draw, text: str) -> list[ModelMessage]:
    """The history of a delegation with the brief `text`: fresh, forked, compacted before, or resumed."""
    kind = draw(st.sampled_from(["fresh", "fresh", "fork", "compacted", "resumed"]))
    before: list[ModelMessage] = []
    if kind == "fork":
        before = [user(draw(texts) or "hello"), *draw(rounds(2))]
    elif kind == "compacted":
        before = [summary_message(f"## Goal\n{draw(texts)}")]
    elif kind == "resumed":
        before = [ModelRequest(parts=[marked("the first task", "original")])]
        before += [summary_message("so far"), brief("an older instruction"), *draw(rounds(2))]
    return [*draw(systems), *before, brief(text), *draw(rounds())]


@st.composite
def sessions(draw) -> list[ModelMessage]:
    """The history of a session, whose prompts carry no mark."""
    made: list[ModelMessage] = [*draw(systems), *([summary_message("so far")] if draw(flags) else [])]
    for _ in range(draw(st.integers(1, 3))):
        made += [user(draw(texts) or "hello"), *draw(rounds(3))]
    return made


SUMMARISERS = {
    "good": lambda: Summariser("## Goal\nFind it."),
    "long": lambda: Summariser(prose(2_000)),
    "too large": lambda: Summariser(prose(200_000)),
    "empty": lambda: Summariser(" \n"),
    "cut off": lambda: Summariser(truncated=True),
    "failing": failing,
}
summarisers = st.sampled_from(list(SUMMARISERS))
