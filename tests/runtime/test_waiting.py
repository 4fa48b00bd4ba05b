"""Waiting for a person is no run time: of the agent that asks, and of nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import sidequest.runtime.session as session_module
from sidequest.core.outcome import Status, StopReason
from sidequest.core.permissions import Action, Mode
from sidequest.runtime.limits import Limits, LimitWatch
from sidequest.runtime.permissions import Answer, Questions, Rights
from sidequest.runtime.waiting import Deadline, RunTime
from tests.support.scripted_model import ScriptedModel, calling
from tests.support.sessions import session
from tests.support.team import Team, worker
from tests.support.virtual_time import now, run_virtual

HOUR = 3600.0
LOOKUP = calling(("lookup", {"key": "a"}))


def answering(questions: Questions, after_s: float) -> Callable[[], None]:
    """Be the surface of a person who answers each question after a while."""
    seen: set[str] = set()

    def changed() -> None:
        for question in questions.waiting:
            if question.id not in seen:
                seen.add(question.id)
                loop = asyncio.get_running_loop()
                loop.call_later(after_s, questions.answer, question.id, Answer(True))

    return questions.surface(changed)


def asking_team(model: ScriptedModel, seconds: float) -> tuple[Team, Questions]:
    """Return one worker whose tool is asked for, and who may work for `seconds`."""
    rights = Rights(Mode.ASK)
    options = {"rights": rights, "clock": now, "grace_s": 5.0}
    return Team(model, (worker(max_seconds=seconds),), options=options), rights.questions


def virtually(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtual(main())


def test_a_delegation_whose_question_waits_for_hours_is_not_cut() -> None:
    async def case() -> None:
        model = ScriptedModel(LOOKUP, LOOKUP, "Looked twice.")
        team, questions = asking_team(model, seconds=60.0)
        answering(questions, HOUR)
        outcome = await team.outcome()
        assert (outcome.status, outcome.report) == (Status.COMPLETED, "Looked twice.")
        assert now() == pytest.approx(2 * HOUR)

    virtually(case)


def test_its_own_work_counts_before_and_behind_the_question() -> None:
    async def slow(asked: Any) -> Any:
        await asyncio.sleep(40)
        return LOOKUP

    async def case() -> None:
        team, questions = asking_team(ScriptedModel(slow, repeat=True), seconds=60.0)
        answering(questions, HOUR)
        outcome = await team.outcome()
        assert outcome.stop_reason is StopReason.TIME_LIMIT
        assert now() == pytest.approx(HOUR + 60.0)

    virtually(case)


def test_a_stop_ends_one_that_waits() -> None:
    async def case() -> None:
        team, questions = asking_team(ScriptedModel(LOOKUP), seconds=60.0)
        asked = asyncio.Event()
        questions.surface(asked.set)
        record = team.start()
        await asked.wait()
        await team.delegations.stop([record])
        assert record.status is Status.STOPPED
        await asyncio.sleep(HOUR)
        assert record.status is Status.STOPPED

    virtually(case)


def test_a_question_of_one_delegation_is_run_time_of_another() -> None:
    async def endless(asked: Any) -> str:
        await asyncio.sleep(10 * HOUR)
        return "never"

    async def case() -> None:
        rights = Rights(Mode.ASK)
        definitions = (worker("asks", max_seconds=60.0), worker("works", max_seconds=60.0))
        by_agent = {"asks": ScriptedModel(LOOKUP, "Looked."), "works": ScriptedModel(endless)}
        team = Team(ScriptedModel(), definitions, by_agent=by_agent, options={"rights": rights, "clock": now})
        answering(rights.questions, HOUR)
        asks, works = team.start(agent="asks"), team.start(agent="works")
        await team.delegations.wait([works])
        assert works.outcome is not None and works.outcome.stop_reason is StopReason.TIME_LIMIT
        assert now() == pytest.approx(60.0)
        await team.delegations.wait([asks])
        assert asks.status is Status.COMPLETED

    virtually(case)


def test_a_turn_of_the_session_does_not_count_what_its_own_questions_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "LimitWatch", partial(LimitWatch, clock=now))
    model = ScriptedModel(
        calling(("Write", {"path": "a.txt", "content": "a"})), calling(("Read", {"path": "a.txt"})), "Done."
    )

    async def case() -> None:
        limits = Limits(seconds=60.0)
        async with session(tmp_path, model, permission_mode=Mode.ASK, limits=limits) as opened:
            answering(opened.rights.questions, HOUR)
            result = await opened.prompt("Write it.")
            assert (result.ok, result.stop_reason) == (True, StopReason.STOP)
            assert now() >= HOUR

    virtually(case)


def test_the_clock_of_a_limit_stands_still_between_pause_and_resume() -> None:
    time = [0.0]
    watch = LimitWatch(Limits(seconds=100), clock=lambda: time[0])
    watch.start()
    time[0] = 50
    watch.pause()
    time[0] = 5000
    assert watch.coming(1) is None
    watch.resume()
    time[0] = 5029
    assert watch.coming(1) is None
    time[0] = 5030
    assert watch.coming(1) is StopReason.TIME_LIMIT


def test_calls_that_ask_at_the_same_time_hold_the_time_once() -> None:
    class Noted:
        def __init__(self) -> None:
            self.steps: list[str] = []

        def pause(self) -> None:
            self.steps.append("pause")

        def resume(self) -> None:
            self.steps.append("resume")

    async def case() -> None:
        questions, run_time, noted = Questions(), RunTime(), Noted()
        run_time.measured_by(noted)
        questions.surface(lambda: None)
        with run_time.of_this_agent():
            asked = [
                asyncio.create_task(questions.ask(("parent",), Action("Bash", command=name), {}, "why"))
                for name in ("ls", "make")
            ]
        await asyncio.sleep(0)
        for _ in range(2):
            assert questions.head is not None and noted.steps == ["pause"]
            questions.answer(questions.head.id, Answer(True))
            await asyncio.sleep(0)
        await asyncio.gather(*asked)
        assert noted.steps == ["pause", "resume"]

    asyncio.run(case())


def test_a_deadline_that_was_cancelled_never_strikes() -> None:
    async def case() -> None:
        struck: list[float] = []
        deadline = Deadline(10.0, lambda: struck.append(now()))
        other = Deadline(10.0, lambda: struck.append(now()))
        other.pause()
        other.cancel()
        other.resume()
        await asyncio.sleep(100)
        deadline.pause()
        deadline.resume()
        await asyncio.sleep(100)
        assert struck == [10.0]

    virtually(case)
