"""The queue of questions: answers name ids, never mix, and nobody waits for a human who is not there."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from sidequest.core.events import Event, ToolEnded
from sidequest.core.permissions import Action, DenyRules, Mode
from sidequest.runtime.permissions import Answer, Questions, Rights
from tests.support.scripted_model import ScriptedModel, calling, saying
from tests.support.sessions import helper, session

BASH = Action("Bash", command="ls")


async def waiting(questions: Questions, count: int) -> None:
    """Give way until `count` questions wait."""
    while len(questions) < count:  # noqa: ASYNC110 - the queue tells surfaces, and this is none
        await asyncio.sleep(0)


def test_L10_the_questions_of_two_delegates_stand_in_one_queue_with_the_name_of_who_asks(
    tmp_path: Path,
) -> None:
    parent = ScriptedModel(
        calling(("Task", {"agent": "one", "task": "Run it."}), ("Task", {"agent": "two", "task": "Run it."})),
        saying("Waiting."),
        saying("Done."),
    )
    child = ScriptedModel(*[calling(("Bash", {"command": "touch made"}))] * 2, saying("Ran it."), repeat=True)
    shown: list[tuple[str, ...]] = []

    async def case() -> None:
        definitions = [helper(name, tools=("Bash",)) for name in ("one", "two")]
        async with session(
            tmp_path, parent, child, permission_mode=Mode.ASK, definitions=definitions
        ) as opened:
            questions = opened.rights.questions

            def answer_the_head() -> None:
                head = questions.head
                if head is not None:
                    shown.append(head.asker)
                    questions.answer(head.id, Answer(head.action.tool == "Task"))

            def changed() -> None:
                asyncio.get_running_loop().call_soon(answer_the_head)

            questions.surface(changed)
            assert (await opened.prompt("Delegate.")).ok
            assert len(questions) == 0

    asyncio.run(case())
    assert sorted(set(shown)) == [("parent",), ("parent", "one"), ("parent", "two")]
    assert not (tmp_path / "made").exists()


def test_L11_a_session_that_may_not_delegate_refuses_task_before_anything_starts(tmp_path: Path) -> None:
    """There is no Plan or Goal mode here; a deny rule for Task is what such a mode would be."""
    parent = ScriptedModel(calling(("Task", {"agent": "helper", "task": "Help."})), saying("Alone then."))
    child = ScriptedModel()

    async def case() -> None:
        async with session(tmp_path, parent, child, deny=DenyRules(tools=("Task",))) as opened:
            assert (await opened.prompt("Delegate.")).ok
            assert opened.delegations.records.all() == []

    asyncio.run(case())
    assert (
        "TOOL_DENIED: Task was denied by a deny rule of the settings (tools: Task)"
        in parent.asked[1].results[0]
    )


def test_a_call_that_is_denied_is_told_at_once_and_a_question_names_its_delegation(tmp_path: Path) -> None:
    command = ("Bash", {"command": "make"})
    parent = ScriptedModel(
        calling(command),
        calling(("Task", {"agent": "helper", "task": "Help."})),
        saying("So."),
        saying("Done."),
    )
    child = ScriptedModel(calling(command), saying("Without it, then."))
    ids: list[str | None] = []

    async def case() -> None:
        runner = helper(tools=("Bash",))
        async with session(tmp_path, parent, child, definitions=[runner], permission_mode=Mode.ASK) as opened:
            told: list[Event] = []
            opened.log.subscribe(lambda numbered: told.append(numbered.event))
            questions = opened.rights.questions

            def deny() -> None:
                for question in questions.waiting:
                    ids.append(question.delegation_id)
                    allowed = question.confirmation is not None
                    questions.answer(question.id, Answer(allowed))

            def soon() -> None:
                asyncio.get_running_loop().call_soon(deny)

            questions.surface(soon)
            assert (await opened.prompt("Make it.")).ok
            (record,) = opened.delegations.records.all()
            assert ids == [None, None, record.id]
            ends = [event for event in told if isinstance(event, ToolEnded) and event.tool == "Bash"]
            assert [event.delegation_id for event in ends] == [None, record.id]
            assert all(event.reason.startswith("TOOL_DENIED: Bash (make) was denied") for event in ends)
            outcome = record.outcome
            assert outcome is not None and outcome.tool_calls == 1

    asyncio.run(case())


def test_an_answer_names_its_question_and_a_stale_one_does_nothing() -> None:
    async def case() -> None:
        questions = Questions()
        questions.surface(lambda: None)
        first = asyncio.create_task(questions.ask(("parent",), BASH, {}, "why"))
        second = asyncio.create_task(questions.ask(("parent", "fixer"), Action("Edit", "/w/a"), {}, "why"))
        await waiting(questions, 2)
        head = questions.head
        assert head is not None
        assert head.asker == ("parent",)
        assert not questions.answer("somebody else's", Answer(True))
        assert questions.answer(head.id, Answer(False, note="not now"))
        assert not questions.answer(head.id, Answer(True)), "the same question again"
        assert (await first).note == "not now"
        head = questions.head
        assert head is not None
        assert questions.answer(head.id, Answer(True))
        assert (await second).allowed

    asyncio.run(case())


def test_allowed_for_the_session_is_not_asked_again() -> None:
    async def case() -> None:
        questions = Questions()
        questions.surface(lambda: None)
        asked = asyncio.create_task(questions.ask(("parent",), BASH, {}, "why"))
        await waiting(questions, 1)
        assert questions.head is not None
        questions.answer(questions.head.id, Answer(True, for_session=True))
        assert (await asked).allowed
        assert (await questions.ask(("parent", "x"), BASH, {}, "why")).allowed
        assert len(questions) == 0

    asyncio.run(case())


def test_allowed_for_the_session_answers_equal_questions_that_wait_and_no_others() -> None:
    async def case() -> None:
        questions, told = Questions(), list[int]()
        questions.surface(lambda: told.append(len(questions)))
        commands = ["git status", "make", "git log", "git push; make", "git diff", "sudo git log"]
        asked = [
            asyncio.create_task(questions.ask(("parent", str(n)), Action("Bash", command=command), {}, "why"))
            for n, command in enumerate(commands)
        ]
        await waiting(questions, len(commands))
        first = questions.waiting[0]
        questions.answer(first.id, Answer(True, for_session=True))
        assert [question.action.command for question in questions.waiting] == [
            "make",
            "git push; make",
            "sudo git log",
        ]
        assert told[-1] == 3
        assert all([(await asked[n]).allowed for n in (0, 2, 4)])
        questions.deny_all()
        assert not any([(await asked[n]).allowed for n in (1, 3, 5)])

    asyncio.run(case())


def test_a_refusal_and_a_single_yes_answer_one_question() -> None:
    async def case() -> None:
        questions = Questions()
        questions.surface(lambda: None)
        asked = [asyncio.create_task(questions.ask(("parent",), BASH, {}, "why")) for _ in range(3)]
        await waiting(questions, 3)
        for allowed in (True, False):
            assert questions.head is not None
            questions.answer(questions.head.id, Answer(allowed))
        assert len(questions) == 1
        questions.deny_all()
        await asyncio.gather(*asked)

    asyncio.run(case())


@pytest.mark.parametrize(
    ("granted", "later", "asked_again"),
    [
        ("git status", "git log", False),
        ("git status", "git status; rm -rf x", True),
        ("git status; rm -rf x", "rm -rf y && git log", False),
        ("git status", "git $(rm -rf x)", True),
        ("sudo ls", "sudo ls", True),
    ],
)
def test_a_grant_of_one_command_does_not_cover_another(granted: str, later: str, asked_again: bool) -> None:
    async def case() -> None:
        questions = Questions()
        questions.surface(lambda: None)
        for command, allowed in ((granted, True), (later, False)):
            action = Action("Bash", command=command)
            asked = asyncio.create_task(questions.ask(("parent",), action, {}, "why"))
            await asyncio.sleep(0)
            if questions.head is None:
                assert not asked_again
                assert (await asked).allowed
                return
            questions.answer(questions.head.id, Answer(allowed, for_session=True))
            await asked
        assert asked_again

    asyncio.run(case())


@pytest.mark.parametrize(
    ("later", "asked_again"),
    [
        ("/data/logs/b.txt", False),
        ("/data/logs/deep/b.txt", True),
        ("/data/b.txt", True),
        ("/home/me/.ssh/id", True),
    ],
)
def test_a_grant_of_one_folder_outside_does_not_cover_another(later: str, asked_again: bool) -> None:
    async def case() -> None:
        questions = Questions()
        questions.surface(lambda: None)
        first = Action("Read", "/data/logs/a.txt", inside=False)
        asked = asyncio.create_task(questions.ask(("parent",), first, {}, "why"))
        await waiting(questions, 1)
        assert questions.head is not None
        questions.answer(questions.head.id, Answer(True, for_session=True))
        await asked
        again = asyncio.create_task(
            questions.ask(("parent",), Action("Read", later, inside=False), {}, "why")
        )
        await asyncio.sleep(0)
        assert (len(questions) == 1) is asked_again
        questions.deny_all()
        await again

    asyncio.run(case())


def test_when_the_last_surface_leaves_what_waits_is_denied_soon() -> None:
    async def case() -> None:
        questions = Questions(no_surface_wait_s=0.01)
        leaving = [questions.surface(lambda: None) for _ in range(2)]
        asked = asyncio.create_task(questions.ask(("parent",), BASH, {}, "why"))
        await waiting(questions, 1)
        leaving[0]()
        leaving[0]()
        await asyncio.sleep(0.03)
        assert not asked.done(), "the other surface can still answer"
        leaving[1]()
        answer = await asyncio.wait_for(asked, 30)
        assert (answer.allowed, "nobody" in answer.note) == (False, True)

    asyncio.run(case())


def test_a_surface_that_comes_in_time_may_take_its_time() -> None:
    async def case() -> None:
        questions = Questions(no_surface_wait_s=0.3)
        asked = asyncio.create_task(questions.ask(("parent",), BASH, {}, "why"))
        await waiting(questions, 1)
        questions.surface(lambda: None)
        await asyncio.sleep(0.4)
        assert questions.head is not None
        questions.answer(questions.head.id, Answer(True))
        assert (await asked).allowed
        assert not questions._clocks

    asyncio.run(case())


def test_without_a_surface_the_call_is_denied_soon_and_says_so() -> None:
    async def case() -> None:
        answer = await Questions(no_surface_wait_s=0.01).ask(("parent",), BASH, {}, "why")
        assert (answer.allowed, "nobody" in answer.note) == (False, True)

    asyncio.run(case())


def test_L10_stop_denies_all() -> None:
    async def case() -> None:
        questions = Questions()
        questions.surface(lambda: None)
        asked = [asyncio.create_task(questions.ask(("parent",), BASH, {}, "why")) for _ in range(5)]
        await waiting(questions, 5)
        questions.deny_all()
        assert [(await one).allowed for one in asked] == [False] * 5

    asyncio.run(case())


@pytest.mark.parametrize("seed", range(5))
def test_ten_delegates_with_two_questions_each_all_settle_whatever_the_order_of_the_answers(
    seed: int,
) -> None:
    async def case() -> None:
        rng = random.Random(seed)
        questions = Questions()
        seen: list[str] = []
        decided: dict[str, bool] = {}
        outcomes: dict[str, bool] = {}

        async def delegate(number: int) -> None:
            for step in range(2):
                path = f"/w/{number}-{step}"
                answer = await questions.ask(("parent", f"d{number}"), Action("Edit", path), {}, "why")
                outcomes[path] = answer.allowed

        async def person() -> None:
            while len(outcomes) < 20:
                seen.extend(q.id for q in questions._queue if q.id not in seen)
                for question_id in rng.sample(seen, min(3, len(seen))):
                    path = next((str(q.action.path) for q in questions._queue if q.id == question_id), "")
                    allowed = rng.random() < 0.5
                    taken = questions.answer(question_id, Answer(allowed))
                    assert taken is bool(path), "an answer counts exactly while its question waits"
                    assert not questions.answer(question_id, Answer(not allowed)), "the same answer twice"
                    if taken:
                        decided[path] = allowed
                assert not questions.answer(f"stale-{rng.random()}", Answer(True))
                await asyncio.sleep(0)

        questions.surface(lambda: None)
        await asyncio.wait_for(asyncio.gather(person(), *(delegate(n) for n in range(10))), 30)
        assert outcomes == decided
        assert len(questions) == 0

    asyncio.run(case())


@pytest.mark.parametrize(
    ("tool", "arguments", "outside"),
    [
        ("Read", {"path": "a.txt"}, False),
        ("Read", {"path": "../a.txt"}, True),
        ("Write", {"path": "link/a.txt"}, True),
        ("Read", {"path": "/etc/passwd"}, True),
        ("Read", {"path": "x\x00y"}, True),
    ],
)
def test_where_a_path_really_lies(
    tmp_path: Path, tool: str, arguments: dict[str, Any], outside: bool
) -> None:
    root = tmp_path / "w"
    root.mkdir()
    (root / "link").symlink_to(tmp_path)
    assert Rights(roots=(root.resolve(),)).action(tool, arguments).inside is not outside


def test_a_delegates_command_is_denied_with_the_reason_and_the_run_goes_on(tmp_path: Path) -> None:
    child = ScriptedModel(calling(("Bash", {"command": "touch made"})), saying("It was denied."))

    async def case() -> None:
        options = {"permission_mode": Mode.ASK, "definitions": [helper(tools=("Bash",))]}
        async with session(tmp_path, ScriptedModel(), child, **options) as opened:
            opened.rights.questions.no_surface_wait_s = 0.01
            outcome = await opened.delegate("helper", "Run it.")
        assert outcome.report == "It was denied."
        assert not (tmp_path / "made").exists()
        assert "TOOL_DENIED" in child.asked[-1].results[0]
        assert "denied by the session: nobody is here" in child.asked[-1].results[0]

    asyncio.run(case())


def test_a_deny_rule_holds_for_parent_and_delegate_in_auto(tmp_path: Path) -> None:
    parent = ScriptedModel(calling(("Bash", {"command": "touch made"})), saying("Done."))

    async def case() -> None:
        async with session(tmp_path, parent, deny=DenyRules(commands=("touch",))) as opened:
            await opened.prompt("Make it.")
        assert not (tmp_path / "made").exists()
        assert "a deny rule" in parent.asked[-1].results[0]

    asyncio.run(case())
