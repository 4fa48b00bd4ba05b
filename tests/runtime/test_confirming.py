"""A subagent with risky capabilities is confirmed before it starts: once, or for the session."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.events import DelegationStarted
from sidequest.core.permissions import DenyRules, Mode
from sidequest.runtime.permissions import Answer, Question
from sidequest.runtime.session import Session
from sidequest.subagents.catalog import Catalog
from sidequest.subagents.definition import ModelPin, SubagentDefinition
from tests.support.scripted_model import ScriptedModel, calling
from tests.support.sessions import helper, session, told

ONCE, YES, NO = Answer(True), Answer(True, for_session=True), Answer(False, note="not now")
FIXER = helper("fixer", tools=("Read", "Edit", "Bash"))


def task(agent: str = "fixer", **more: Any) -> tuple[str, dict[str, Any]]:
    return "Task", {"agent": agent, "task": f"Do what {agent} does.", **more}


@dataclass
class Case:
    """A parent whose messages hold `calls`; a person gives `answers`, the last one again and again."""

    calls: Sequence[Sequence[tuple[str, dict[str, Any]]]]
    answers: Sequence[Answer] = (YES,)
    definitions: Sequence[SubagentDefinition] = (FIXER,)
    options: dict[str, Any] = field(default_factory=dict)
    asked: list[Question] = field(default_factory=list, init=False)

    def run(self, root: Path) -> list[str]:
        """Return what the Task calls said, and keep who was started."""
        parent = ScriptedModel(*(calling(*some) for some in self.calls), "Idle.", "Done.", repeat=True)
        child = ScriptedModel("Report.", repeat=True)
        options = {"permission_mode": Mode.ASK, "definitions": self.definitions, **self.options}

        async def case() -> None:
            async with session(root, parent, child, **options) as opened:
                self._be_there(opened)
                await opened.prompt("Delegate.")
                self.started = [event.agent for event in told(opened, DelegationStarted)]

        asyncio.run(case())
        self.said = parent.asked[-1].results
        return self.said

    def _be_there(self, opened: Session) -> None:
        questions = opened.rights.questions
        questions.no_surface_wait_s = 0.01
        if not self.answers:
            return

        def changed() -> None:
            head = questions.head
            if head is not None and head not in self.asked:
                self.asked.append(head)
                answer = self.answers[min(len(self.asked), len(self.answers)) - 1]
                asyncio.get_running_loop().call_soon(questions.answer, head.id, answer)

        questions.surface(changed)


def test_the_question_names_subagent_capabilities_and_model(tmp_path: Path) -> None:
    case = Case([[task()]])
    case.run(tmp_path)
    (question,) = case.asked
    asked = question.confirmation
    assert asked is not None
    assert (asked.agent, asked.model, asked.task) == ("fixer", "test/child", "Do what fixer does.")
    assert [item.key for item in asked.capabilities] == ["edits", "commands"]
    assert (
        question.reason
        == "it can edit files in this folder and run commands that reach outside this folder too"
    )
    assert question.asker == ("parent",)
    assert case.started == ["fixer"]


def test_allowed_once_starts_one_delegation_and_the_next_one_asks_again(tmp_path: Path) -> None:
    case = Case([[task(), task()], [task()]], [ONCE, ONCE, NO])
    said = case.run(tmp_path)
    assert (len(case.asked), case.started) == (3, ["fixer"] * 2)
    assert "was not started" in said[-1]


def test_a_definition_allowed_for_the_session_is_asked_about_once_however_often_it_is_started(
    tmp_path: Path,
) -> None:
    case = Case([[task(), task()], [task()]])
    case.run(tmp_path)
    assert (len(case.asked), case.started) == (1, ["fixer"] * 3)


def test_each_definition_is_confirmed_for_itself(tmp_path: Path) -> None:
    definitions = [FIXER, replace(FIXER, name="other")]
    case = Case([[task(), task("other")], [task("other")]], definitions=definitions)
    case.run(tmp_path)
    assert [question.confirmation.agent for question in case.asked if question.confirmation] == [
        "fixer",
        "other",
    ]


def test_a_refusal_starts_nothing_holds_for_those_that_wait_and_may_be_taken_back(tmp_path: Path) -> None:
    case = Case([[task(), task()], [task()]], [NO, YES])
    said = case.run(tmp_path)
    assert [ErrorCode.TOOL_DENIED in text or "was not started" in text for text in said[:2]] == [True, True]
    assert "the answer was no (not now)" in said[0]
    assert (len(case.asked), case.started) == (2, ["fixer"])


def test_with_nobody_there_it_is_denied_soon_and_says_what_to_change(tmp_path: Path) -> None:
    case = Case([[task()]], answers=())
    (said,) = case.run(tmp_path)
    assert case.started == []
    assert "the answer was no (nobody is here who could be asked)" in said
    assert "Delegate to a subagent that only reads, or do it yourself." in said
    assert "In permission mode auto, which only the user can set, it starts without a question." in said


@pytest.mark.parametrize(
    ("definition", "more"),
    [
        (helper("fixer"), {}),
        (FIXER, {"permission_mode": Mode.AUTO}),
        (helper("fixer", tools=("Read", "Write")), {"permission_mode": Mode.ACCEPT_EDITS}),
        (helper("fixer", model=None), {"child_price": 9.0}),
    ],
)
def test_nothing_is_asked_about(tmp_path: Path, definition: SubagentDefinition, more: dict[str, Any]) -> None:
    """Reading, anything in `auto`, edits alone in `accept-edits`, a model that nobody runs on."""
    case = Case([[task(context="fork")]], answers=(), definitions=[definition], options=more)
    case.run(tmp_path)
    assert (case.asked, case.started) == ([], ["fixer"])


def test_the_builtin_explorer_never_asks_and_test_runner_does(tmp_path: Path) -> None:
    active = {definition.name: definition for definition in Catalog.load().active}
    case = Case([[task("explorer"), task("test-runner")]], definitions=list(active.values()))
    case.run(tmp_path)
    assert case.started == ["explorer", "test-runner"]
    assert [question.confirmation.agent for question in case.asked if question.confirmation] == [
        "test-runner"
    ]


def test_an_explorer_of_somebody_else_is_asked_about(tmp_path: Path) -> None:
    case = Case([[task("explorer")]], definitions=[helper("explorer", tools=("Bash",))])
    case.run(tmp_path)
    assert len(case.asked) == 1


@pytest.mark.parametrize(
    ("price", "said"),
    [
        (
            9.0,
            "run on test/child, which costs more ($9 and $9 for a million tokens in and out, the",
        ),
        (None, "run on test/child, which may cost more (its price is not known)"),
    ],
)
def test_a_model_dearer_than_the_sessions_is_confirmed(
    tmp_path: Path, price: float | None, said: str
) -> None:
    case = Case([[task()]], [NO], [helper("fixer")], {"child_price": price})
    (answered,) = case.run(tmp_path)
    assert said in case.asked[0].reason
    assert "Delegate to a subagent on the session's model" in answered


def test_a_dearer_fallback_is_confirmed_too(tmp_path: Path) -> None:
    definition = helper("fixer", model=None, fallback_models=(ModelPin("test/child"),))
    case = Case([[task()]], [NO], [definition], {"child_price": 9.0})
    case.run(tmp_path)
    assert "run on test/child, which costs more" in case.asked[0].reason


def test_what_was_not_confirmed_before_is_asked_for_later(tmp_path: Path) -> None:
    async def case() -> None:
        options: dict[str, Any] = {"permission_mode": Mode.ASK, "definitions": [FIXER]}
        options["deny"] = DenyRules(tools=("Bash",))
        async with session(
            tmp_path, ScriptedModel(), ScriptedModel("Report.", repeat=True), **options
        ) as opened:
            opened.rights.questions.no_surface_wait_s = 0.01
            await opened.delegate("fixer", "Edit it.")
            await opened.delegate("fixer", "Edit it.", named_by_person=False)
            opened.rights.rules = DenyRules()
            with pytest.raises(SidequestError, match="fixer was not started: it can run commands") as caught:
                await opened.delegate("fixer", "Run it.", named_by_person=False)
            assert "edit" not in caught.value.cause

    asyncio.run(case())


def test_who_names_a_subagent_by_hand_has_confirmed_it(tmp_path: Path) -> None:
    async def case() -> None:
        child = ScriptedModel("Report.")
        options: dict[str, Any] = {"permission_mode": Mode.ASK, "definitions": [FIXER]}
        async with session(tmp_path, ScriptedModel(), child, **options) as opened:
            outcome = await opened.delegate("fixer", "Do it.")
        assert outcome.report == "Report."

    asyncio.run(case())


def test_what_another_program_named_is_confirmed(tmp_path: Path) -> None:
    async def case() -> None:
        options: dict[str, Any] = {"permission_mode": Mode.ASK, "definitions": [FIXER]}
        async with session(tmp_path, ScriptedModel(), ScriptedModel(), **options) as opened:
            opened.rights.questions.no_surface_wait_s = 0.01
            with pytest.raises(SidequestError, match="nobody is here") as caught:
                await opened.delegate("fixer", "Do it.", named_by_person=False)
            assert caught.value.code is ErrorCode.TOOL_DENIED
            assert told(opened, DelegationStarted) == []

    asyncio.run(case())


def test_a_stop_ends_a_question_that_waits(tmp_path: Path) -> None:
    async def case() -> None:
        parent = ScriptedModel(calling(task(), task()), "Done.")
        options: dict[str, Any] = {"permission_mode": Mode.ASK, "definitions": [FIXER]}
        async with session(tmp_path, parent, ScriptedModel(), **options) as opened:
            opened.rights.questions.surface(lambda: None)
            turn = asyncio.create_task(opened.prompt("Delegate."))
            async with asyncio.timeout(30):
                while not len(opened.rights.questions):  # noqa: ASYNC110 - the queue tells surfaces only
                    await asyncio.sleep(0)
            await opened.stop()
            await asyncio.wait_for(turn, 30)
            assert len(opened.rights.questions) == 0
            assert told(opened, DelegationStarted) == []

    asyncio.run(case())
