"""The embedded model as a summariser, and a worker that goes on from what it wrote."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from sidequest.core.budget import ContextBudget
from sidequest.core.compaction import Compacted, compact, summary_message
from sidequest.core.summary import SUMMARY_TASK, UPDATE_TASK, SummaryReply, SummaryRequest, serialise
from sidequest.core.transcript import brief_request
from sidequest.models.extractive import ExtractiveModel
from tests.models.offline_bench import Workspace, calls_of, user

HEADINGS = [
    "## Goal",
    "## Constraints & Preferences",
    "## Progress",
    "### Done",
    "### In Progress",
    "### Blocked",
    "## Key Decisions",
    "## Next Steps",
    "## Critical Context",
]


def summarise(
    conversation: str, previous: str = "", *, window: int = 200_000, max_tokens: int | None = None
) -> str:
    """Ask the model for a summary as the runtime does, and return its text."""
    parts = [f"<conversation>\n{conversation}\n</conversation>"]
    parts += [f"<previous-summary>\n{previous}\n</previous-summary>"] if previous else []
    prompt = "\n\n".join([*parts, UPDATE_TASK if previous else SUMMARY_TASK])
    model = ExtractiveModel(window=window)
    settings = {"max_tokens": max_tokens} if max_tokens else None
    response = asyncio.run(model.request([user(prompt)], settings, ModelRequestParameters()))
    assert response.finish_reason == "stop"
    return response.text or ""


def read_call(path: str, lines: list[str], goal: str = "Report every FACT in a.txt.") -> str:
    """Return a conversation in which one file was read."""
    numbered = "\n".join(f"{number:6d}\t{line}" for number, line in enumerate(lines, 1))
    return (
        f'[User]: {goal}\n\n[Assistant tool calls]: Read(path="{path}")\n\n'
        f"[Tool result]: [{path} | {len(lines)} lines]\n{numbered}"
    )


FILLER = [f"grey stones lie in row {number} of the field" for number in range(300)]


def test_the_structure_is_the_one_that_is_asked_for() -> None:
    text = summarise(read_call("a.txt", ["FACT one", *FILLER]))
    positions = [text.index(heading) for heading in HEADINGS]
    assert positions == sorted(positions)


def test_a_fact_survives_on_the_first_line_and_on_the_last() -> None:
    text = summarise(read_call("a.txt", ["FACT one is red", *FILLER, "FACT two is blue"]))
    assert "- a.txt:1: FACT one is red" in text
    assert "- a.txt:302: FACT two is blue" in text


def test_a_line_that_only_looks_like_a_fact_survives() -> None:
    text = summarise(read_call("a.txt", [*FILLER, "RETRY_LIMIT = 7"], goal="What is the speed of light?"))
    assert "- a.txt:301: RETRY_LIMIT = 7" in text


def test_facts_of_other_tools_survive_without_a_path() -> None:
    output = "\n".join(["FACT from the shell", *FILLER])
    text = summarise(
        f'[User]: Report every FACT.\n\n[Assistant tool calls]: Bash(command="x")\n\n[Tool result]: {output}'
    )
    assert "- FACT from the shell" in text


def test_the_summary_is_much_smaller_and_within_its_output_limit() -> None:
    conversation = read_call("a.txt", [f"FACT {number} is a long line of text" for number in range(2_000)])
    assert len(summarise(conversation)) < 0.4 * len(conversation)
    assert len(summarise(conversation, max_tokens=300)) <= 1_200


def test_a_small_window_gets_a_small_summary() -> None:
    conversation = read_call("a.txt", [f"FACT {number} is a long line of text" for number in range(300)])
    assert len(summarise(conversation, window=8_000)) <= 8_000 * 4 / 6


def test_goal_and_rules_of_the_user_are_kept() -> None:
    text = summarise(
        "[User]: Never touch the vendor folder.\n\n[Assistant]: Good.\n\n[User]: Where is MAX_TRIES set?"
    )
    assert text.startswith("## Goal\nWhere is MAX_TRIES set?\n")
    assert "- Never touch the vendor folder." in text


def test_what_an_earlier_summary_held_is_carried_on() -> None:
    goal = "Report every FACT in a.txt and b.txt."
    first = summarise(read_call("a.txt", ["FACT one is red", *FILLER], goal))
    second = summarise(read_call("b.txt", [*FILLER, "FACT two is blue"], goal), first)
    assert "- a.txt:1: FACT one is red" in second
    assert "- b.txt:301: FACT two is blue" in second
    assert "- [x] Read a.txt lines 1-301 of 301" in second
    assert "- [x] Read b.txt lines 1-301 of 301" in second


def test_a_failed_call_is_blocked_not_done() -> None:
    text = summarise(
        '[User]: Where is x_y?\n\n[Assistant tool calls]: Read(path="a.txt")\n\n'
        '[Tool result]: {"error": "Permission denied."}'
    )
    assert "### Blocked\n- Read a.txt lines 1-end: " in text
    assert "[x] Read" not in text


def test_a_failed_call_is_not_made_again_after_a_summary(tmp_path: Path) -> None:
    summary = summarise(
        "[User]: Where is MAX_TRIES?\n\n"
        '[Assistant tool calls]: Grep(pattern="MAX_TRIES", literal=true)\n\n'
        '[Tool result]: {"error": "Denied."}'
    )
    workspace = Workspace(tmp_path).write()
    start = [summary_message(summary), user("Where is MAX_TRIES?")]
    asyncio.run(workspace.agent().run(message_history=start))
    assert workspace.calls
    assert "Grep MAX_TRIES ." not in workspace.calls


def test_several_calls_in_one_message_get_their_results_in_order() -> None:
    text = summarise(
        "[User]: Where is x_y?\n\n"
        '[Assistant tool calls]: Grep(pattern="x_y", literal=true); Glob(pattern="**/(;")\n\n'
        "[Tool result]: src/a.py:3:x_y = 1\n\n[Tool result]: src/a.py"
    )
    assert '- [x] Grep "x_y" (literal): 1 lines' in text
    assert '- [x] Glob "**/(;": 1 paths' in text
    assert "- src/a.py:3: x_y = 1" in text


def test_reports_of_subagents_and_open_delegations_are_kept() -> None:
    one, two = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
    text = summarise(
        "[User]: Where are x_y and v_w?\n\n"
        '[Assistant tool calls]: Task(agent="explorer", task="Where is x_y?"); '
        'Task(agent="explorer", task="Where is v_w?")\n\n'
        f"[Tool result]: Started {one}.\n\n[Tool result]: Started {two}.\n\n"
        "[Assistant tool calls]: TaskWait()\n\n"
        f"[Tool result]: ## explorer ({one}) - completed\n- src/a.py:3: x_y = 1"
    )
    assert f"- [x] Task explorer ({one}): Where is x_y? - completed" in text
    assert f"- [ ] Task explorer ({two}): Where is v_w? - running" in text
    assert "- src/a.py:3: x_y = 1" in text


def test_a_call_whose_arguments_were_cut_does_not_shift_the_others() -> None:
    text = summarise(
        "[User]: Where is x_y?\n\n"
        '[Assistant tool calls]: Write(path="a.py", content="x\n[… 900 characters cut …]\ny"); '
        'Glob(pattern="*.py")\n\n'
        "[Tool result]: Written.\n\n[Tool result]: src/a.py"
    )
    assert '- [x] Glob "*.py": 1 paths' in text


SWEEP = (
    "[User]: Read every file in notes/ and report each FACT.\n\n"
    '[Assistant tool calls]: Glob(pattern="**/*", path="notes")\n\n[Tool result]: '
    + "\n".join(f"notes/{number:02d}.txt" for number in range(30))
    + '\n\n[Assistant tool calls]: Read(path="notes/00.txt")\n\n[Tool result]: [notes/00.txt | 300 lines]\n'
    + "\n".join(f"{number:6d}\t{line}" for number, line in enumerate(FILLER, 1))
)


def test_unread_files_of_a_sweep_stay_listed() -> None:
    text = summarise(SWEEP)
    assert '- [x] Glob "**/*" under notes: 30 paths' in text
    assert "- [x] Read notes/00.txt lines 1-300 of 300" in text
    assert "- [ ] Step 2 is done" in text
    assert all(f"- [ ] Read notes/{number:02d}.txt" in text for number in range(1, 30))


def test_a_listing_that_cannot_be_kept_whole_is_made_again() -> None:
    text = summarise(SWEEP, window=1_000_000, max_tokens=300)
    assert "notes/29.txt" not in text
    assert "[x] Glob" not in text


def test_a_line_cut_in_its_middle_is_not_quoted_with_a_wrong_number() -> None:
    conversation = read_call("a.txt", [*FILLER, "FACT two is blue"])
    cut = f"{conversation[:4_000]}\n[… 9000 characters cut …]\n01\tFACT two is blue"
    assert "FACT two is blue" not in summarise(cut).split("## Critical Context")[1]


@pytest.mark.parametrize(
    "question", ["How does the retry wait, and what is the hard limit?", "List all paint colours"]
)
def test_a_worker_goes_on_from_a_summary_without_repeating_a_step(tmp_path: Path, question: str) -> None:
    workspace = Workspace(tmp_path).write()
    history = asyncio.run(workspace.agent().run(question)).all_messages()
    whole, calls = workspace.report(question), len(calls_of(history))
    for done in range(1, calls + 1):
        workspace.calls.clear()
        made = history[: 1 + 2 * done]
        before = {str(call.args) for call in calls_of(made)}
        result = asyncio.run(continued(workspace, made, question))
        assert not before & {str(call.args) for call in calls_of(result)}
        assert next(line for line in answer(result) if line.startswith("- ")) in whole
        if done < calls:
            assert f"Step {done + 1} of at most" in str(result)


async def continued(workspace: Workspace, made: list[ModelMessage], question: str) -> list[ModelMessage]:
    """Replace a history by its summary and the brief, as a compaction does, and let the worker go on."""
    model = ExtractiveModel(window=200_000)
    prompt = f"<conversation>\n{serialise(made)}\n</conversation>\n\n{SUMMARY_TASK}"
    reply = await model.request([user(prompt)], None, ModelRequestParameters())
    start = [summary_message(reply.text or ""), user(question)]
    return (await workspace.agent().run(message_history=start)).all_messages()


def answer(messages: list[ModelMessage]) -> list[str]:
    """Return the lines of the final text."""
    return [part.content for part in messages[-1].parts if part.part_kind == "text"][-1].splitlines()


def test_a_window_that_is_far_too_small_loses_no_fact(tmp_path: Path) -> None:
    filler = "grey stones lie in a row of the field\n" * 80
    files = {f"note-{n:02d}.txt": f"FACT {n} on top\n{filler}FACT {n} below\n" for n in range(1, 13)}
    workspace = Workspace(tmp_path).write(files)
    model = ExtractiveModel(window=8_000)
    report, compactions = asyncio.run(
        driven(workspace, model, "Read note-01.txt to note-12.txt, each once. Report all facts.")
    )
    assert report.startswith("Found 24 matching lines in 12 files.")
    assert compactions > 2
    assert len(set(workspace.calls)) == len(workspace.calls)


async def driven(workspace: Workspace, model: ExtractiveModel, brief: str) -> tuple[str, int]:
    """Run a worker under the compaction ladder, one request at a time; return report and compactions."""
    budget = ContextBudget.for_model(model, max_tokens=model.max_tokens)
    tools = ModelRequestParameters(function_tools=[ToolDefinition(name="Read")])
    messages: list[ModelMessage] = [brief_request(brief)]
    compactions = 0

    async def summarise_with_model(request: SummaryRequest) -> SummaryReply:
        settings = ModelSettings(max_tokens=request.max_tokens)
        reply = await model.request([user(request.prompt)], settings, ModelRequestParameters())
        return SummaryReply(reply.text or "", reply.finish_reason == "length")

    while True:
        outcome = await compact(messages, budget=budget, summarise=summarise_with_model, overhead=100)
        if isinstance(outcome, Compacted):
            messages, compactions = outcome.messages, compactions + 1
        response = await model.request(messages, None, tools)
        calls = calls_of([response])
        if not calls:
            return response.text or "", compactions
        results = [ToolReturnPart("Read", workspace.Read(**c.args_as_dict()), c.tool_call_id) for c in calls]
        messages += [response, ModelRequest(parts=results)]


def test_a_worker_that_lost_its_history_keeps_its_best_line_and_ends(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path).write()
    question = "How does the retry wait, and what is the hard limit?"
    history = asyncio.run(workspace.agent().run(question)).all_messages()
    degraded = [history[0], *history[-5:-1]]
    result = asyncio.run(workspace.agent().run(message_history=degraded)).all_messages()
    assert len(calls_of(result)) <= 14
    assert any("hard_limit" in line for line in answer(result))
