"""The registry of delegations: what it refuses, waits for, stops, resumes and forgets (3.3 to 3.7, 3.11)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart

from sidequest.core.context_modes import ContextMode
from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.events import DelegationSettled, DelegationStarted, RetryScheduled
from sidequest.core.outcome import Status, StopReason
from sidequest.runtime.delegations import MAX_RUNNING, Delegations
from sidequest.runtime.records import MAX_RETAINED
from sidequest.subagents.definition import ModelPin
from tests.support.fast_clock import run_fast
from tests.support.scripted_model import Asked, ScriptedModel, calling
from tests.support.team import Doors, Team, worker

UNAUTHORIZED = ModelHTTPError(401, "m", {"error": {"message": "invalid key"}})


def full(team: Team) -> None:
    """Start as many delegations as may run."""
    for _ in range(MAX_RUNNING):
        team.start()


def refused(team: Team, **fields: Any) -> SidequestError:
    """Return how a start is refused; nothing may have been started by it."""
    before = len(team.delegations.records.all())
    with pytest.raises(SidequestError) as caught:
        team.start(**fields)
    assert len(team.delegations.records.all()) == before
    assert caught.value.remedy or caught.value.code is ErrorCode.MODEL_NOT_CONFIGURED
    return caught.value


def started(definitions: list[Any], *, model: Any = None) -> Team:
    return Team(model or ScriptedModel(Doors()), definitions, extra=ScriptedModel("Extra."))


class TestValidation:
    """Specification 3.3: the order in which a Task is checked. Each case also breaks every later rule."""

    TEAM = (
        worker(),
        worker("pinned", model=ModelPin("nowhere/model")),
        worker("bare", tools=("Bash",)),
    )

    @pytest.mark.parametrize(
        ("fields", "said"),
        [
            ({"agent": "nobody", "task": " ", "model": "x/y", "resume": "z"}, "no subagent named 'nobody'"),
            (
                {"agent": "pinned", "task": " ", "model": "x/y", "resume": "z"},
                "model cannot be given together",
            ),
            ({"task": " ", "context": ContextMode.FORK, "resume": "z"}, "context cannot be given together"),
            ({"agent": "pinned", "task": " \n ", "resume": "z"}, "task is empty"),
            ({"agent": "bare", "model": "x/y"}, "No model x/y"),
            ({"agent": "pinned", "resume": "z"}, "The pin nowhere/model"),
            ({"agent": "bare", "resume": "z"}, "no usable tool"),
            ({"resume": "z"}, f"{MAX_RUNNING} delegations are running"),
        ],
        ids=["unknown", "model+resume", "context+resume", "empty", "override", "pin", "no-tools", "busy"],
    )
    def test_the_first_fault_in_order_is_the_one_that_is_told(self, fields: Any, said: str) -> None:
        async def case() -> None:
            team = started(list(self.TEAM))
            full(team)
            assert said in refused(team, **fields).cause
            await team.delegations.stop()

        asyncio.run(case())

    def test_a_resume_is_checked_last(self) -> None:
        async def case() -> None:
            team = started(list(self.TEAM))
            assert "no delegation z" in refused(team, resume="z").cause

        asyncio.run(case())

    def test_an_unknown_agent_is_answered_with_the_names(self) -> None:
        error = refused(started([worker(), worker("other")]), agent="werker")
        assert error.code is ErrorCode.SUBAGENT_UNKNOWN
        assert "Did you mean worker?" in error.remedy
        assert "other, worker" in error.remedy

    def test_an_agent_is_found_in_any_spelling(self) -> None:
        async def case() -> None:
            team = started([worker("code-reviewer")], model=ScriptedModel("ok"))
            assert (await team.outcome(agent="Code_Reviewer")).agent == "code-reviewer"

        asyncio.run(case())

    def test_an_override_runs_on_that_model(self) -> None:
        async def case() -> None:
            outcome = await started([worker()]).outcome(model="test/extra")
            assert (outcome.model, outcome.report) == ("test/extra", "Extra.")

        asyncio.run(case())

    def test_a_context_outside_the_allowed_ones_is_refused_by_name(self) -> None:
        async def case() -> None:
            team = started([worker(allowed_contexts=(ContextMode.INDEPENDENT,))])
            error = refused(team, context=ContextMode.FORK)
            assert "independent" in error.remedy

        asyncio.run(case())


class TestRunning:
    def test_a_start_returns_at_once_and_is_told_before_anything_of_the_run(self) -> None:
        async def case() -> None:
            team = Team(ScriptedModel("Done."))
            record = team.start("Find it.\nAll of it.")
            assert (record.status, record.label) == (Status.RUNNING, "Find it.")
            assert team.delegations.records.running() == [record]
            await team.delegations.wait([record])
            assert isinstance(team.events[0], DelegationStarted)
            assert isinstance(team.events[-1], DelegationSettled)
            assert {event.delegation_id for event in team.events} == {record.id}
            assert record.completed_at_ms is not None
            assert record.completed_at_ms > record.started_at_ms

        asyncio.run(case())

    def test_L3_the_eleventh_is_refused_and_a_stop_makes_room(self) -> None:
        async def case() -> None:
            team = Team(ScriptedModel(Doors(), repeat=True))
            full(team)
            error = refused(team)
            assert (error.code, error.failure.retriable) == (ErrorCode.AGENT_BUSY, True)
            await team.delegations.stop(team.delegations.records.running()[:1])
            assert team.start().status is Status.RUNNING
            await team.delegations.stop()
            assert team.delegations.records.running() == []

        asyncio.run(case())

    def test_a_session_starts_as_many_as_it_may_in_all_and_says_so(self) -> None:
        async def case() -> None:
            team = Team(ScriptedModel("Done.", repeat=True), options={"max_total": 2})
            for _ in range(2):
                assert (await team.outcome()).status is Status.COMPLETED
            error = refused(team)
            assert (error.code, error.failure.retriable) == (ErrorCode.AGENT_BUSY, False)
            assert "started 2 delegations" in error.cause

        asyncio.run(case())

    def test_the_cap_counts_what_runs_and_not_what_was(self) -> None:
        async def case() -> None:
            team = Team(ScriptedModel("Done.", repeat=True), options={"max_running": 1})
            for _ in range(3):
                assert (await team.outcome()).status is Status.COMPLETED

        asyncio.run(case())

    def test_the_oldest_settled_are_forgotten_and_a_running_one_never(self) -> None:
        async def case() -> None:
            doors = Doors()
            team = Team(
                ScriptedModel("Done.", repeat=True), [worker(), worker("slow")], options={"max_total": 1_000}
            )
            team.delegations.models.by_agent["slow"] = ScriptedModel(doors)  # type: ignore[attr-defined]
            slow, first = team.start(agent="slow"), team.start()
            await team.delegations.wait([first])
            for _ in range(MAX_RETAINED + 1):
                await team.outcome()
            assert team.delegations.records.get(first.id) is first, "its report was not read yet"
            first.delivered = True
            for record in team.delegations.records.undelivered():
                record.delivered = True
            await team.outcome()
            assert team.delegations.records.get(first.id) is None
            assert team.delegations.records.get(slow.id) is slow
            await team.delegations.stop()

        asyncio.run(case())


class TestWaiting:
    """Case L2."""

    @staticmethod
    def run(steps: Callable[[Team, Doors, list[Any]], Coroutine[Any, Any, None]]) -> None:
        async def case() -> None:
            doors = Doors()
            team = Team(ScriptedModel(doors, repeat=True))
            records = [team.start(f"Task {number}.") for number in range(3)]
            await doors.arrived(3)
            await steps(team, doors, records)
            await team.delegations.stop()

        run_fast(case())

    def test_all_waits_for_each(self) -> None:
        async def steps(team: Team, doors: Doors, records: list[Any]) -> None:
            waiting = asyncio.create_task(team.delegations.wait(records))
            for index in range(3):
                assert not waiting.done()
                doors.open(index)
                await team.delegations.wait(records, mode="any", min_completed=index + 1)
            assert await waiting is True

        self.run(steps)

    @pytest.mark.parametrize(("needed", "opened"), [(1, 1), (2, 2), (9, 3), (0, 1)])
    def test_any_waits_for_as_many_as_asked_and_never_more_than_there_are(
        self, needed: int, opened: int
    ) -> None:
        async def steps(team: Team, doors: Doors, records: list[Any]) -> None:
            waiting = asyncio.create_task(team.delegations.wait(records, mode="any", min_completed=needed))
            for index in range(opened):
                await asyncio.sleep(0)
                assert not waiting.done()
                doors.open(index)
                await records[index].settled.wait()
            assert await waiting is True

        self.run(steps)

    def test_a_deadline_is_told_and_stops_nothing(self) -> None:
        async def steps(team: Team, doors: Doors, records: list[Any]) -> None:
            assert await team.delegations.wait(records, timeout_s=1) is False
            assert [record.status for record in records] == [Status.RUNNING] * 3
            doors.open(0)
            assert await team.delegations.wait(records, mode="any", timeout_s=1) is True
            assert await team.delegations.wait(records, timeout_s=0) is False

        self.run(steps)

    def test_nothing_to_wait_for_is_no_wait(self) -> None:
        async def steps(team: Team, doors: Doors, records: list[Any]) -> None:
            assert await team.delegations.wait([], timeout_s=0) is True

        self.run(steps)

    def test_a_cancelled_wait_leaves_the_delegations_alone_and_no_task_behind(self) -> None:
        async def steps(team: Team, doors: Doors, records: list[Any]) -> None:
            before = len(asyncio.all_tasks())
            waiting = asyncio.create_task(team.delegations.wait(records))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            await asyncio.sleep(0)
            assert len(asyncio.all_tasks()) == before
            assert len(team.delegations.records.running()) == 3

        self.run(steps)


class TestStopping:
    def test_L4_a_stop_waits_until_each_is_settled_as_stopped(self) -> None:
        async def case() -> None:
            doors = Doors()
            team = Team(ScriptedModel(doors, repeat=True))
            records = [team.start(), team.start()]
            await doors.arrived(2)
            assert await team.delegations.stop() == records
            for record in records:
                assert (record.status, record.outcome and record.outcome.stop_reason) == (
                    Status.STOPPED,
                    StopReason.STOPPED,
                )
                assert record.completed_at_ms is not None
            assert len(team.of(DelegationSettled)) == 2

        asyncio.run(case())

    def test_one_that_has_not_begun_settles_too(self) -> None:
        async def case() -> None:
            model = ScriptedModel("Done.")
            team = Team(model)
            record = team.start()
            await team.delegations.stop()
            assert (record.status, model.asked) == (Status.STOPPED, [])
            assert len(team.of(DelegationSettled)) == 1

        asyncio.run(case())

    def test_stopping_twice_or_after_the_end_changes_nothing(self) -> None:
        async def case() -> None:
            doors = Doors()
            team = Team(ScriptedModel(doors))
            record = team.start()
            await doors.arrived(1)
            await asyncio.gather(team.delegations.stop(), team.delegations.stop([record]))
            assert await team.delegations.stop([record]) == []
            assert len(team.of(DelegationSettled)) == 1

        asyncio.run(case())

    def test_a_stop_reaches_a_wait_between_two_tries(self) -> None:
        async def case() -> None:
            waiting = asyncio.Event()

            async def for_ever(seconds: float) -> None:
                waiting.set()
                await asyncio.Event().wait()

            limited = ModelHTTPError(429, "m", {"error": {"message": "rate limit"}})
            team = Team(ScriptedModel(limited), options={"sleep": for_ever})
            record = team.start()
            await waiting.wait()
            await team.delegations.stop()
            assert record.status is Status.STOPPED
            assert len(team.of(RetryScheduled)) == 1

        asyncio.run(case())

    def test_a_model_that_cancels_itself_has_failed_and_was_not_stopped(self) -> None:
        async def case() -> None:
            team = Team(ScriptedModel(asyncio.CancelledError()))
            outcome = await team.outcome()
            assert outcome.status is Status.FAILED
            assert outcome.failure is not None
            assert outcome.failure.code is ErrorCode.UNEXPECTED_DELEGATION_REJECTION
            assert len(team.delegations.records.undelivered()) == 1

        asyncio.run(case())


class TestResuming:
    """Specification 3.11, in memory."""

    def test_a_resumed_run_knows_what_was_found_and_has_each_task_once(self) -> None:
        async def case() -> None:
            model = ScriptedModel(calling(("lookup", {"key": "a"})), "It is a.", "And b.")
            team = Team(model)
            first = await team.outcome("Find a.")
            second = team.start("Now find b.", resume=first.delegation_id)
            await team.delegations.wait([second])
            assert second.resumed_from == first.delegation_id
            assert second.outcome is not None
            assert second.outcome.report == "And b."
            last = model.asked[-1]
            assert last.user_texts == ["Find a.", "Now find b."]
            assert last.results == ["value of a"]
            assert last.text.count("It is a.") == 1

        asyncio.run(case())

    def test_a_chain_can_be_resumed_again_from_any_of_its_runs(self) -> None:
        async def case() -> None:
            model = ScriptedModel("One.", "Two.", "Three.", "Other.")
            team = Team(model)
            first = await team.outcome("Task one.")
            second = await team.outcome("Task two.", resume=first.delegation_id)
            await team.outcome("Task three.", resume=second.delegation_id)
            await team.outcome("Task four.", resume=first.delegation_id)
            assert model.asked[2].user_texts == ["Task one.", "Task two.", "Task three."]
            assert model.asked[3].user_texts == ["Task one.", "Task two.", "Task three.", "Task four."]
            assert model.asked[2].marked_texts("original") == ["Task one."]

        asyncio.run(case())

    def test_a_failed_run_goes_on_after_its_last_complete_tool_result(self) -> None:
        async def case() -> None:
            model = ScriptedModel(calling(("lookup", {"key": "a"})), UNAUTHORIZED, "It is a.")
            team = Team(model)
            first = await team.outcome("Find a.")
            assert first.status is Status.FAILED
            second = await team.outcome("Try again.", resume=first.delegation_id)
            assert second.status is Status.COMPLETED
            assert model.asked[-1].results == ["value of a"]

        asyncio.run(case())

    def test_a_resumed_history_is_reduced_below_the_limit_with_the_new_task(self) -> None:
        """Specification 8.8: the new instruction and the fixed part are subtracted first."""

        def lookup(key: str) -> str:
            """Look a key up."""
            return f"{key}: " + "words of a result " * 80

        async def case() -> None:
            calls = [calling(("lookup", {"key": key})) for key in "abcd"]
            model = ScriptedModel(*calls, "All read.", "Went on.")
            team = Team(model, window=4_096, tools=[lookup])
            first = await team.outcome("Read all.")
            second = await team.outcome("Go on. " * 300, resume=first.delegation_id)
            assert (first.compactions, second.compactions) == (0, 0)
            last = model.asked[-1]
            assert last.user_texts[0] == "Read all."
            assert last.user_texts[-1] == ("Go on. " * 300).strip()
            assert 0 < len(last.results) < 4

        asyncio.run(case())

    @pytest.mark.parametrize(
        ("case", "said"),
        [
            ("unknown", "no delegation nothing"),
            ("other agent", "belongs to worker"),
            ("running", "still running"),
            ("stopped", "was stopped and cannot be resumed"),
            ("no history", "did nothing that could be gone on with"),
        ],
    )
    def test_R5_what_cannot_be_resumed_is_refused_with_a_way_out(self, case: str, said: str) -> None:
        async def run() -> None:
            doors = Doors()
            steps: dict[str, Any] = {"running": doors, "stopped": doors, "no history": UNAUTHORIZED}
            team = Team(ScriptedModel(steps.get(case, "Done.")), [worker(), worker("other")])
            record = team.start()
            if case == "stopped":
                await doors.arrived(1)
                await team.delegations.stop()
            elif case != "running":
                await team.delegations.wait([record])
            wanted = "nothing" if case == "unknown" else record.id
            error = refused(team, agent="other" if case == "other agent" else "worker", resume=wanted)
            assert said in error.cause
            if case == "unknown":
                assert record.id in error.remedy
            await team.delegations.stop()

        asyncio.run(run())


class TestContextModes:
    PARENT = (
        ModelRequest(parts=[UserPromptPart("A secret of the parent.")]),
        ModelResponse(parts=[TextPart("I know it.")]),
    )

    @pytest.mark.parametrize(
        ("spawn", "definition", "session", "allowed", "expected"),
        [
            (None, None, None, (), "independent"),
            (None, None, "fork", (), "fork"),
            (None, "independent", "fork", (), "independent"),
            ("fork", "independent", None, (), "fork"),
            ("independent", "fork", "fork", (), "independent"),
            (None, None, "fork", ("independent",), "independent"),
            (None, None, None, ("fork",), "fork"),
        ],
    )
    def test_X1_the_nearest_of_three_layers_wins(
        self, spawn: Any, definition: Any, session: Any, allowed: Any, expected: str
    ) -> None:
        def mode(text: str | None) -> ContextMode | None:
            return ContextMode(text) if text else None

        async def case() -> str:
            fields = {"context": mode(definition), "allowed_contexts": tuple(map(ContextMode, allowed))}
            team = Team(ScriptedModel("ok"), [worker(**fields)], options={"default_context": mode(session)})
            return (await team.outcome(context=mode(spawn), parent=self.PARENT)).context_mode

        assert asyncio.run(case()) == expected

    def test_X3_an_independent_delegate_sees_nothing_of_the_parent(self) -> None:
        async def case() -> Asked:
            model = ScriptedModel("ok")
            await Team(model).outcome("Only this.", parent=self.PARENT)
            return model.asked[0]

        asked = asyncio.run(case())
        assert "secret" not in asked.text
        assert asked.user_texts == ["Only this."]

    def test_the_project_instructions_reach_each_delegate(self) -> None:
        async def case() -> str:
            model = ScriptedModel("ok")
            await Team(model, options={"project_instructions": "Use tabs."}).outcome()
            return model.asked[0].info.instructions or ""

        assert asyncio.run(case()).endswith("Use tabs.")


def test_two_registries_do_not_share_anything() -> None:
    async def case() -> tuple[Delegations, Delegations]:
        one, two = Team(ScriptedModel("1")), Team(ScriptedModel("2"))
        await asyncio.gather(one.outcome(), two.outcome())
        return one.delegations, two.delegations

    one, two = asyncio.run(case())
    assert [len(one.records.all()), len(two.records.all())] == [1, 1]
