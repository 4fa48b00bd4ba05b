"""The embedded model as a parent: it delegates, waits, and answers from the reports it is given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import ModelRequestParameters

from sidequest.core.compaction import summary_message
from sidequest.core.outcome import DEGRADED_NOTE
from sidequest.core.summary import SUMMARY_TASK, serialise
from sidequest.models.extractive import ExtractiveModel
from tests.models.offline_bench import calls_of, user

ROSTER = "Hand over a task.\n\nSubagents:\n- fixer (tools: Edit): repairs\n- explorer (tools: Read): searches"
FOUND = "Found:\n\n- src/a.py:3: LIMIT = 4"


def ident(number: int) -> str:
    """Return the id of the n-th delegation."""
    return f"00000000-0000-4000-8000-{number:012d}"


@dataclass
class Desk:
    """Task and TaskWait as the runtime offers them, with reports made up by `report`."""

    report: Callable[[str], str] = lambda task: FOUND
    description: str = ROSTER
    statuses: list[str] = field(default_factory=lambda: ["completed"])
    """Status at each wait; the last one stays."""
    refusal: str | None = None
    briefs: list[str] = field(default_factory=list)
    agents: list[str] = field(default_factory=list)
    waits: list[Any] = field(default_factory=list)

    def Task(self, agent: str, task: str, description: str | None = None, context: str | None = None) -> str:
        self.agents.append(agent)
        self.briefs.append(task)
        return self.refusal or f"Delegation {ident(len(self.briefs))} started: {agent}. Call TaskWait."

    def TaskWait(self, delegationIds: list[str] | None = None, timeoutSeconds: int = 600) -> str:
        self.waits.append(delegationIds)
        status = self.statuses[min(len(self.waits), len(self.statuses)) - 1]
        blocks = [
            f"## explorer ({ident(number)}) - {status}\n[context independent, 2 turns]\n"
            f'<delegation-report agent="explorer">\n{self.report(brief)}\n</delegation-report>'
            for number, brief in enumerate(self.briefs, 1)
        ]
        return "\n\n".join(blocks)

    def ask(self, question: str | None, history: Sequence[ModelMessage] = ()) -> Any:
        """Run the parent on one message."""
        agent = Agent(ExtractiveModel())
        agent.tool_plain(name="Task", description=self.description)(self.Task)
        agent.tool_plain(name="TaskWait", description="Wait for delegations.")(self.TaskWait)
        return asyncio.run(agent.run(question, message_history=list(history)))


def test_a_question_becomes_one_task_a_wait_and_an_answer_that_quotes() -> None:
    desk = Desk()
    result = desk.ask("Where is LIMIT_ONE set?")
    assert [call.tool_name for call in calls_of(result.all_messages())] == ["Task", "TaskWait"]
    assert desk.agents == ["explorer"]
    assert "Question: Where is LIMIT_ONE set?" in desk.briefs[0]
    assert desk.waits == [[ident(1)]]
    assert "- src/a.py:3: LIMIT = 4" in result.output
    assert "Offline extractive engine" in result.output


@pytest.mark.parametrize(
    "question",
    [
        "Where are LIMIT_ONE and retryDelay defined?",
        "Where is LIMIT_ONE and what is the value of retryDelay?",
        "Answer both:\n1. Where is LIMIT_ONE?\n2. Where is retryDelay?",
        "Where is LIMIT_ONE? Where is retryDelay?",
    ],
)
def test_separate_subjects_are_delegated_side_by_side(question: str) -> None:
    desk = Desk()
    result = desk.ask(question)
    first = calls_of(result.all_messages()[:2])
    assert [call.tool_name for call in first] == ["Task", "Task"]
    one, other = sorted(desk.briefs, key=lambda brief: "retryDelay" in brief)
    assert "LIMIT_ONE" in one and "retryDelay" not in one
    assert "retryDelay" in other and "LIMIT_ONE" not in other
    assert [sorted(ids) for ids in desk.waits] == [[ident(1), ident(2)]]


def test_one_subject_is_not_split() -> None:
    desk = Desk()
    desk.ask("How do summaries and results survive?")
    assert len(desk.briefs) == 1


def test_at_most_four_run_side_by_side_and_no_subject_is_lost() -> None:
    desk = Desk()
    desk.ask("Where are one_a, two_b, three_c, four_d, five_e and six_f defined?")
    assert len(desk.briefs) == 4
    assert all(
        name in "\n".join(desk.briefs) for name in ("one_a", "two_b", "three_c", "four_d", "five_e", "six_f")
    )


@pytest.mark.parametrize(
    ("description", "question", "agent"),
    [
        (ROSTER, "Where is x_y?", "explorer"),
        ("- reviewer (tools: Read): reviews\n- fixer (tools: Edit): repairs", "Where is x_y?", "reviewer"),
        (ROSTER, "Ask the fixer to find x_y.", "fixer"),
    ],
)
def test_the_agent_is_the_one_named_else_explorer_else_the_first(
    description: str, question: str, agent: str
) -> None:
    desk = Desk(description=description)
    desk.ask(question)
    assert desk.agents == [agent]


@pytest.mark.parametrize("message", ["hello", "Thanks!", "Who are you?", "How are you today?"])
def test_a_greeting_gets_a_sentence_about_what_it_is(message: str) -> None:
    result = Desk().ask(message)
    assert calls_of(result.all_messages()) == []
    assert "not a language model" in result.output
    assert "`sidequest models list`" in result.output


@pytest.mark.parametrize(
    "message", ["Write a function that adds numbers.", "Please fix the bug in budget.py"]
)
def test_work_it_cannot_do_is_refused_without_a_delegation(message: str) -> None:
    result = Desk().ask(message)
    assert calls_of(result.all_messages()) == []
    assert "I cannot write or change anything" in result.output


def test_nothing_found_is_said_plainly() -> None:
    result = Desk(report=lambda task: "Nothing was found for `x_y`.").ask("Where is x_y?")
    assert result.output.startswith("No line that answers the question was found.")


def test_a_note_of_lost_history_is_repeated() -> None:
    result = Desk(report=lambda task: f"{DEGRADED_NOTE}\n\n{FOUND}").ask("Where is x_y?")
    assert DEGRADED_NOTE in result.output
    assert "- src/a.py:3: LIMIT = 4" in result.output


def test_a_failed_delegation_is_not_shown_as_an_answer() -> None:
    failed = "explorer failed after 3 turns [PROVIDER_ERROR]: the server is gone."
    result = Desk(report=lambda task: failed, statuses=["failed"]).ask("Where is x_y?")
    assert "explorer ended as failed." in result.output
    assert failed in result.output


def test_a_task_that_was_refused_is_told_with_its_reason() -> None:
    result = Desk(refusal="10 delegations run already.").ask("Where is x_y?")
    assert "The delegation was not started: 10 delegations run already." in result.output


def test_an_id_that_is_not_known_any_more_is_not_waited_for_again() -> None:
    class Forgetful(Desk):
        def TaskWait(self, delegationIds: list[str] | None = None, timeoutSeconds: int = 600) -> str:
            self.waits.append(delegationIds)
            return f"No delegation has one of these ids: {ident(1)}. Call TaskList to see them."

    desk = Forgetful()
    assert "explorer ended as unknown." in desk.ask("Where is x_y?").output
    assert len(desk.waits) == 1


def test_long_reports_are_quoted_in_part_and_counted() -> None:
    many = "\n".join(f"- src/a.py:{number}: LIMIT = {number}" for number in range(1, 31))
    assert (
        "(22 more lines are in the report.)"
        in Desk(report=lambda task: many).ask("How does LIMIT_A work?").output
    )
    assert "LIMIT = 30" in Desk(report=lambda task: many).ask("List all LIMIT_A lines").output


def test_it_waits_again_for_what_still_runs() -> None:
    desk = Desk(statuses=["running", "completed"])
    assert "- src/a.py:3: LIMIT = 4" in desk.ask("Where is x_y?").output
    assert len(desk.waits) == 2


def test_it_does_not_wait_for_ever() -> None:
    desk = Desk(statuses=["running"])
    assert "is still running; its report arrives by itself." in desk.ask("Where is x_y?").output
    assert len(desk.waits) == 4


def test_a_report_that_arrives_by_itself_is_answered_like_one_that_was_waited_for() -> None:
    desk = Desk(statuses=["running"])
    history = desk.ask("Where is x_y?").all_messages()
    delivered = (
        "Delegations settled. Their reports follow.\n\n"
        f"## explorer ({ident(1)}) - completed\n"
        f'<delegation-report agent="explorer">\n{FOUND}\n</delegation-report>'
    )
    result = desk.ask(delivered, history)
    assert len(desk.briefs) == 1
    assert result.output.startswith("- src/a.py:3: LIMIT = 4")


def compacted(*messages: ModelMessage) -> ModelMessage:
    """Return the summary that the model itself writes of a session."""
    prompt = f"<conversation>\n{serialise(messages)}\n</conversation>\n\n{SUMMARY_TASK}"
    reply = asyncio.run(ExtractiveModel().request([user(prompt)], None, ModelRequestParameters()))
    return summary_message(reply.text or "")


def test_after_a_compaction_a_finished_delegation_is_answered_and_not_started_again() -> None:
    question = "Where is LIMIT_ONE set?"
    made = Desk(report=lambda task: f"{DEGRADED_NOTE}\n\n- src/a.py:3: LIMIT_ONE = 4").ask(question)
    desk = Desk()
    result = desk.ask(None, [compacted(*made.all_messages()[:-1]), user(question)])
    assert desk.briefs == []
    assert "- src/a.py:3: LIMIT_ONE = 4" in result.output
    assert DEGRADED_NOTE in result.output


def test_after_a_compaction_a_running_delegation_is_waited_for() -> None:
    question = "Where is LIMIT_ONE set?"
    made = Desk().ask(question).all_messages()[:3]
    desk = Desk(briefs=["as before"])
    result = desk.ask(None, [compacted(*made), user(question)])
    assert desk.waits == [[ident(1)]]
    assert "- src/a.py:3: LIMIT = 4" in result.output


def test_a_second_question_is_delegated_anew_and_knows_what_it_refers_to() -> None:
    desk = Desk()
    history = desk.ask("Where is LIMIT_ONE set?").all_messages()
    desk.ask("And where is it used?", history)
    assert len(desk.briefs) == 2
    assert "And where is it used? (This is about `LIMIT_ONE`.)" in desk.briefs[1]
