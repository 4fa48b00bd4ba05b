"""A session in memory: prompts, stops, failures, compaction, and its delegations."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, UserPromptPart

from sidequest.core.compaction import LOSS_NOTICE, Compacted
from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.events import (
    DelegationSettled,
    RetryScheduled,
    RunEnded,
    TextProduced,
    ToolEnded,
    TurnStarted,
)
from sidequest.core.outcome import Status, StopReason
from sidequest.core.transcript import mark_of, validate
from sidequest.models.registry import ModelRegistry
from sidequest.runtime.planning import StartRequest
from sidequest.runtime.session import Session
from sidequest.subagents.catalog import Catalog
from sidequest.subagents.switches import SwitchFile
from tests.support.delegating import Waits
from tests.support.gate import Gate
from tests.support.neutral import Drop, Hang, Reply
from tests.support.provider import LoopbackProvider
from tests.support.scripted_model import Asked, ScriptedModel, calling
from tests.support.sessions import session, told
from tests.support.team import Doors

UNAUTHORIZED = ModelHTTPError(401, "m", {"error": {"message": "invalid api key"}})
UNAVAILABLE = ModelHTTPError(503, "m", {"error": {"message": "try later"}})
TASK = calling(("Task", {"agent": "helper", "task": "Help."}))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("the answer is 42\n")
    return tmp_path


def reading(*paths: str) -> list[ModelResponse]:
    return [calling(("Read", {"path": path})) for path in paths]


def user_texts(opened: Session) -> list[str]:
    parts = [part for message in opened.messages for part in message.parts]
    return [str(part.content) for part in parts if isinstance(part, UserPromptPart)]


def within(opened: Session, steps: Callable[[Session], Awaitable[None]]) -> Session:
    """Run `steps` in the session and close it; every history it is left with is valid."""

    async def case() -> None:
        async with opened:
            await steps(opened)
            if opened.messages:
                validate([*opened.messages, ModelRequest(parts=[])])
            assert [numbered.number for numbered in opened.log.after()] == list(
                range(1, len(list(opened.log.after())) + 1)
            )

    asyncio.run(case())
    return opened


def refused(operation: Awaitable[Any]) -> Any:
    async def case() -> SidequestError:
        with pytest.raises(SidequestError) as caught:
            await operation
        return caught.value

    return case()


class TestPrompt:
    def test_the_agent_works_in_the_folder_and_answers(self, root: Path) -> None:
        model = ScriptedModel(*reading("a.txt"), "It is 42.")

        async def steps(opened: Session) -> None:
            result = await opened.prompt("What is the answer?")
            assert (result.ok, result.text, result.stop_reason) == (True, "It is 42.", StopReason.STOP)
            assert (result.turns, result.model, result.failure) == (2, "test/parent", None)

        opened = within(session(root, model), steps)
        assert "42" in model.asked[1].results[0]
        (end,) = told(opened, RunEnded)
        assert (end.ok, end.text, end.code) == (True, "It is 42.", None)
        assert list(opened.log.after())[-1].event is end

    def test_a_second_prompt_goes_on_with_the_conversation(self, root: Path) -> None:
        model = ScriptedModel("One.", "Two.")

        async def steps(opened: Session) -> None:
            await opened.prompt("First.")
            await opened.prompt("Second.")

        within(session(root, model), steps)
        assert model.asked[1].user_texts == ["First.", "Second."]
        assert "One." in model.asked[1].text

    def test_the_folder_and_the_project_instructions_reach_parent_and_delegate(self, root: Path) -> None:
        (root / "AGENTS.md").write_text("Always use tabs.")
        parent, child = ScriptedModel(TASK, "Idle.", "Read."), ScriptedModel("Helped.")

        async def steps(opened: Session) -> None:
            await opened.prompt("Go.")

        within(session(root, parent, child), steps)
        for asked in (parent.asked[0], child.asked[0]):
            assert "Always use tabs." in (asked.info.instructions or "")
        assert f"working in {root}" in (parent.asked[0].info.instructions or "")

    def test_project_instructions_can_be_left_out(self, root: Path) -> None:
        (root / "AGENTS.md").write_text("Always use tabs.")
        model = ScriptedModel("ok")

        async def steps(opened: Session) -> None:
            await opened.prompt("Go.")

        within(session(root, model, project_instructions=False), steps)
        assert "tabs" not in (model.asked[0].info.instructions or "")

    def test_an_empty_prompt_is_refused(self, root: Path) -> None:
        async def steps(opened: Session) -> None:
            assert (await refused(opened.prompt(" \n"))).code is ErrorCode.USAGE

        within(session(root, ScriptedModel()), steps)

    def test_a_folder_that_is_not_there_is_refused_and_leaves_nothing_behind(self, root: Path) -> None:
        with pytest.raises(SidequestError, match="is not there"):
            Session.open(root / "nope", registry=ModelRegistry(env={}), catalog=Catalog())

    def test_the_embedded_engine_is_there_without_any_key(self, root: Path) -> None:
        opened = Session.open(root, registry=ModelRegistry(env={}), catalog=Catalog())
        assert opened.models.session.key == "offline/extractive"
        asyncio.run(opened.close())

    def test_a_subagent_that_is_switched_off_is_not_in_the_default_catalog(
        self, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
        SwitchFile.of(os.environ).switch("builtin:fixer", on=False)
        opened = Session.open(root, registry=ModelRegistry(env={}))
        assert opened.catalog.get("fixer") is None
        assert opened.catalog.get("explorer") is not None
        asyncio.run(opened.close())

    def test_usage_of_parent_and_delegates_is_told_apart_and_summed(self, root: Path) -> None:
        async def case() -> None:
            script = [
                Reply(tool_calls=[("Task", {"agent": "helper", "task": "Help."})]),
                Reply(tool_calls=[("TaskWait", {})]),
                "Thanks.",
            ]
            async with LoopbackProvider(script) as parent, LoopbackProvider(["Helped."]) as child:
                opened = session(root, parent.chat_model(), child.anthropic_model())
                result = await opened.prompt("Go.")
            own, delegated = (sum(seen.tokens for seen in p.requests) for p in (parent, child))
            (outcome,) = result.delegations
            assert (result.usage.input_tokens, outcome.usage.input_tokens) == (own, delegated)
            assert result.total_usage.input_tokens == own + delegated
            assert (result.usage.requests, result.total_usage.requests) == (3, 4)

        asyncio.run(case())


class TestFailure:
    def test_a_prompt_after_a_failure_has_the_whole_conversation(self, root: Path) -> None:
        model = ScriptedModel(*reading("a.txt"), UNAUTHORIZED, "It is 42.")

        async def steps(opened: Session) -> None:
            failed = await opened.prompt("What is the answer?")
            assert (failed.ok, failed.stop_reason) == (False, StopReason.ERROR)
            assert failed.failure is not None
            assert failed.failure.code is ErrorCode.PROVIDER_UNAUTHORIZED
            assert (await opened.prompt("Try again.")).text == "It is 42."

        opened = within(session(root, model), steps)
        last = model.asked[-1]
        assert last.user_texts == ["What is the answer?", "Try again."]
        assert len(last.results) == 1
        assert "[This turn ended with PROVIDER_UNAUTHORIZED" in last.text
        assert [end.ok for end in told(opened, RunEnded)] == [False, True]

    def test_waiting_cures_a_provider_that_is_down(self, root: Path) -> None:
        waits = Waits()
        model = ScriptedModel(UNAVAILABLE, UNAVAILABLE, "ok")

        async def steps(opened: Session) -> None:
            result = await opened.prompt("Go.")
            assert (result.ok, result.turns) == (True, 1)

        opened = within(session(root, model, sleep=waits), steps)
        assert waits.seconds == [1.0, 2.0]
        assert len(told(opened, RetryScheduled)) == 2
        assert model.asked[-1].user_texts == ["Go."]

    def test_a_retry_of_the_parent_does_not_stop_its_delegates(self, root: Path) -> None:
        doors = Doors("Helped.")

        async def limited(asked: Asked) -> Exception:
            await doors.arrived(1)
            return UNAVAILABLE

        def let_in(asked: Asked) -> ModelResponse:
            doors.open(0)
            return calling(("TaskWait", {}))

        parent = ScriptedModel(TASK, limited, let_in, "Thanks.")

        async def steps(opened: Session) -> None:
            result = await opened.prompt("Go.")
            assert [outcome.status for outcome in result.delegations] == [Status.COMPLETED]

        within(session(root, parent, ScriptedModel(doors)), steps)
        assert "Helped." in parent.asked[-1].results[-1]

    def test_L6_a_failed_parent_stops_its_delegates_and_is_idle(self, root: Path) -> None:
        doors = Doors()

        async def fail(asked: Asked) -> Exception:
            await doors.arrived(1)
            return UNAUTHORIZED

        async def steps(opened: Session) -> None:
            result = await opened.prompt("Go.")
            assert [outcome.status for outcome in result.delegations] == [Status.STOPPED]
            assert opened.delegations.records.running() == []
            assert (await opened.prompt("Again.")).text == "ok"

        parent = ScriptedModel(TASK, fail, "ok")
        opened = within(session(root, parent, ScriptedModel(doors)), steps)
        assert [type(e) for e in (n.event for n in opened.log.after())].index(DelegationSettled) < [
            type(e) for e in (n.event for n in opened.log.after())
        ].index(RunEnded)

    def test_instructions_that_fill_the_window_say_what_to_do(self, root: Path) -> None:
        async def steps(opened: Session) -> None:
            result = await opened.prompt("Go.")
            assert result.failure is not None
            assert result.failure.code is ErrorCode.CONTEXT_TOO_LARGE, "there was nothing to compact"
            assert "larger context window" in result.failure.remedy
            assert "the model test/parent leaves" in result.failure.cause
            assert len(opened.messages) == 2, "prompt and note stay (specification 2.1)"

        model = ScriptedModel("Never.")
        within(session(root, model, window=1_000), steps)
        assert model.asked == []


class TestStop:
    def test_a_stop_ends_the_turn_its_tools_and_its_delegates(self, root: Path) -> None:
        doors = Doors()
        parent = ScriptedModel(TASK, doors, "And now?")

        async def steps(opened: Session) -> None:
            turn = asyncio.create_task(opened.prompt("Go."))
            await child_doors.arrived(1)
            await doors.arrived(1)
            await opened.stop()
            result = await turn
            assert (result.ok, result.stop_reason) == (False, StopReason.STOPPED)
            assert result.failure is not None
            assert result.failure.code is ErrorCode.TURN_ABORTED
            assert [outcome.status for outcome in result.delegations] == [Status.STOPPED]
            assert (await opened.prompt("Go on.")).text == "And now?"

        child_doors = Doors()
        within(session(root, parent, ScriptedModel(child_doors)), steps)
        assert parent.asked[-1].user_texts == ["Go.", "Go on."]

    def test_two_stops_at_once_are_one_stop(self, root: Path) -> None:
        """The second must not interrupt what the first one made the turn do."""
        doors, working, stopping = Doors(), asyncio.Event(), asyncio.Event()

        async def slow_to_end(asked: Asked) -> str:
            working.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopping.set()
                await asyncio.sleep(0.05)
            return "Never."

        async def steps(opened: Session) -> None:
            turn = asyncio.create_task(opened.prompt("Go."))
            await doors.arrived(1)
            await working.wait()
            first = asyncio.create_task(opened.stop())
            await stopping.wait()
            await asyncio.gather(first, opened.stop())
            assert (await turn).stop_reason is StopReason.STOPPED
            assert opened.messages

        opened = within(session(root, ScriptedModel(TASK, doors), ScriptedModel(slow_to_end)), steps)
        assert len(told(opened, RunEnded)) == 1

    def test_a_turn_that_has_not_begun_can_be_stopped(self, root: Path) -> None:
        async def steps(opened: Session) -> None:
            result, _ = await asyncio.gather(opened.prompt("Go."), opened.stop())
            assert result.stop_reason is StopReason.STOPPED
            assert len(opened.messages) == 2

        within(session(root, ScriptedModel("Never.", repeat=True)), steps)

    def test_a_caller_that_is_cancelled_takes_the_turn_with_it(self, root: Path) -> None:
        doors = Doors()

        async def steps(opened: Session) -> None:
            turn = asyncio.create_task(opened.prompt("Go."))
            await doors.arrived(1)
            turn.cancel()
            await asyncio.wait([turn])
            assert turn.cancelled(), "a cancellation goes on: a timeout of the caller must be able to end it"
            assert (await opened.prompt("Again.")).ok
            assert len(told(opened, RunEnded)) == 2

        within(session(root, ScriptedModel(doors, "ok")), steps)

    def test_a_caller_that_is_cancelled_twice_leaves_no_turn_behind(self, root: Path) -> None:
        working, may_end = asyncio.Event(), asyncio.Event()

        async def slow_to_end(asked: Asked) -> str:
            working.set()
            try:
                return await asyncio.Event().wait()  # type: ignore[return-value]
            finally:
                await may_end.wait()

        async def steps(opened: Session) -> None:
            turn = asyncio.create_task(opened.prompt("One."))
            await working.wait()
            for _ in range(2):
                turn.cancel()
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            assert (await refused(opened.prompt("Two."))).code is ErrorCode.AGENT_BUSY
            may_end.set()
            await asyncio.wait([turn])
            assert (await opened.prompt("Three.")).ok
            assert [text for text in user_texts(opened) if text] == ["One.", "Three."]

        within(session(root, ScriptedModel(slow_to_end, "ok")), steps)

    def test_a_model_that_cancels_itself_was_not_stopped_by_anybody(self, root: Path) -> None:
        async def gives_up(asked: Asked) -> str:
            raise asyncio.CancelledError

        async def steps(opened: Session) -> None:
            result = await opened.prompt("Go.")
            assert (result.ok, result.stop_reason) == (False, StopReason.ERROR)
            assert result.failure is not None
            assert "nobody stopped the turn" in result.failure.message

        within(session(root, ScriptedModel(gives_up)), steps)

    def test_a_stop_of_an_idle_session_does_nothing(self, root: Path) -> None:
        opened = within(session(root, ScriptedModel()), lambda opened: opened.stop())
        assert list(opened.log.after()) == []


class TestBusy:
    def test_a_second_prompt_during_a_turn_is_refused(self, root: Path) -> None:
        doors = Doors("ok")

        async def steps(opened: Session) -> None:
            turn = asyncio.create_task(opened.prompt("Go."))
            await doors.arrived(1)
            for operation in (opened.prompt("Me too."), opened.compact()):
                assert (await refused(operation)).code is ErrorCode.AGENT_BUSY
            doors.open(0)
            assert (await turn).ok

        within(session(root, ScriptedModel(doors)), steps)

    def test_of_two_prompts_at_once_one_is_refused_although_delegates_must_be_stopped_first(
        self, root: Path
    ) -> None:
        doors = Doors()

        async def steps(opened: Session) -> None:
            record = opened.delegations.start(StartRequest("helper", "Help."))
            await doors.arrived(1)
            results = await asyncio.gather(
                opened.prompt("One."), opened.prompt("Two."), return_exceptions=True
            )
            assert sum(isinstance(result, SidequestError) for result in results) == 1
            assert record.status is Status.STOPPED

        within(session(root, ScriptedModel("ok", repeat=True), ScriptedModel(doors)), steps)


class TestCompact:
    @staticmethod
    async def talk(opened: Session) -> None:
        await opened.prompt("What is the answer?")
        assert len(opened.messages) > 2

    def test_D3_a_finished_conversation_becomes_its_summary_alone(self, root: Path) -> None:
        async def steps(opened: Session) -> None:
            await self.talk(opened)
            outcome = await opened.compact(focus="the answer")
            assert isinstance(outcome, Compacted)
            (only,) = opened.messages
            assert mark_of(only.parts[0]) == "summary"
            await opened.prompt("And now?")

        answer = "It is 42, and here is a long explanation of it. " * 60
        model = ScriptedModel(*reading("a.txt"), answer, "Fine.")
        within(session(root, model), steps)
        assert "Pay special attention to: the answer" in model.summaries[0].user_texts[0]
        assert model.asked[-1].user_texts[-1] == "And now?"
        assert len(model.asked[-1].user_texts) == 2

    @pytest.mark.parametrize("summary", [UNAUTHORIZED, "", UNAVAILABLE])
    def test_C12_it_fails_fast_and_changes_nothing(self, root: Path, summary: Any) -> None:
        waits = Waits()

        async def steps(opened: Session) -> None:
            await self.talk(opened)
            before = list(opened.messages)
            error = await refused(opened.compact())
            assert error.code is ErrorCode.CONTEXT_COMPACTION_FAILED
            assert opened.messages == before

        model = ScriptedModel(*reading("a.txt"), "It is 42.", summary=summary)
        within(session(root, model, sleep=waits), steps)
        assert (len(model.summaries), waits.seconds) == (1, [])

    def test_an_empty_conversation_cannot_be_compacted(self, root: Path) -> None:
        async def steps(opened: Session) -> None:
            error = await refused(opened.compact())
            assert error.code is ErrorCode.CONTEXT_COMPACTION_FAILED
            assert error.cause.startswith("There is nothing to compact")

        within(session(root, ScriptedModel()), steps)

    def test_a_short_conversation_says_that_there_is_nothing_to_compact(self, root: Path) -> None:
        async def steps(opened: Session) -> None:
            await opened.prompt("Hi.")
            assert (await refused(opened.compact())).cause.startswith("There is nothing to compact")

        within(session(root, ScriptedModel("Hi.", summary="A long summary. " * 50)), steps)

    def test_what_it_leaves_is_the_size_of_the_next_request(self, root: Path) -> None:
        async def steps(opened: Session) -> None:
            await self.talk(opened)
            outcome = await opened.compact()
            assert isinstance(outcome, Compacted)
            await opened.prompt("And now?")
            sizes = told(opened, TurnStarted)
            assert outcome.tokens_before >= sizes[-2].tokens
            assert 0 <= sizes[-1].tokens - outcome.tokens_after < 20

        answer = "It is 42, and here is a long explanation of it. " * 60
        within(session(root, ScriptedModel(*reading("a.txt"), answer, "Fine.")), steps)

    def test_what_is_said_meanwhile_is_refused_and_not_lost(self, root: Path) -> None:
        doors = Doors("## Goal\nShort.")

        async def steps(opened: Session) -> None:
            await self.talk(opened)
            compacting = asyncio.create_task(opened.compact())
            await doors.arrived(1)
            assert (await refused(opened.prompt("Now."))).code is ErrorCode.AGENT_BUSY
            doors.open(0)
            assert isinstance(await compacting, Compacted)
            assert (await opened.prompt("Now.")).ok

        answer = "It is 42, and here is a long explanation of it. " * 60
        within(session(root, ScriptedModel(*reading("a.txt"), answer, "ok", summary=doors)), steps)

    def test_a_caller_that_is_cancelled_leaves_none_behind(self, root: Path) -> None:
        working, may_end = asyncio.Event(), asyncio.Event()

        async def slow_to_end(asked: Asked) -> str:
            working.set()
            try:
                return await asyncio.Event().wait()  # type: ignore[return-value]
            finally:
                await may_end.wait()

        async def steps(opened: Session) -> None:
            await opened.prompt("Hello.")
            job = asyncio.create_task(opened.compact())
            await working.wait()
            job.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert (await refused(opened.prompt("Two."))).code is ErrorCode.AGENT_BUSY
            may_end.set()
            await asyncio.wait([job])
            assert (await opened.prompt("Three.")).ok

        within(session(root, ScriptedModel("Hello you.", "ok", summary=slow_to_end)), steps)

    def test_a_stop_ends_it_and_nothing_has_changed(self, root: Path) -> None:
        doors = Doors()

        async def steps(opened: Session) -> None:
            await self.talk(opened)
            before = list(opened.messages)
            compacting = asyncio.create_task(refused(opened.compact()))
            await doors.arrived(1)
            await opened.stop()
            assert (await compacting).code is ErrorCode.TURN_ABORTED
            assert opened.messages == before
            assert (await opened.prompt("Now.")).ok

        within(session(root, ScriptedModel(*reading("a.txt"), "It is 42.", "ok", summary=doors)), steps)


class TestWindowOfTheParent:
    """The parent is bounded by the same guard as its delegates (C2, C4, C8)."""

    @pytest.fixture
    def files(self, root: Path) -> list[str]:
        for name in "bcdef":
            (root / f"{name}.txt").write_text(f"OLD-{name}\n" + "words of a file\n" * 500)
        return [f"{name}.txt" for name in "bcdef"]

    def run(self, root: Path, files: list[str], **fields: Any) -> tuple[ScriptedModel, Any]:
        model = ScriptedModel(*reading(*files), "All read.", **fields)
        results: list[Any] = []

        async def steps(opened: Session) -> None:
            results.append(await opened.prompt("Read them."))

        within(session(root, model, window=16_000, max_tokens=2_000), steps)
        return model, results[0]

    def test_it_is_compacted_before_the_next_request(self, root: Path, files: list[str]) -> None:
        model, result = self.run(root, files)
        assert (result.ok, result.compactions, result.degradations) == (True, 1, 0)
        assert len(model.summaries) == 1
        assert model.asked[-1].user_texts[1] == "Read them."
        assert "OLD-b" not in model.asked[-1].text

    def test_C8_a_failed_summary_degrades_and_the_turn_goes_on(self, root: Path, files: list[str]) -> None:
        model, result = self.run(root, files, summary=UNAUTHORIZED)
        assert (result.ok, result.compactions) == (True, 0)
        assert result.degradations == len(model.summaries) > 0
        assert model.asked[-1].user_texts == [*model.asked[-1].marked_texts("notice"), "Read them."]
        assert model.asked[-1].user_texts[0].startswith(LOSS_NOTICE)


class TestStreaming:
    def test_text_comes_in_pieces_and_once(self, root: Path) -> None:
        async def case() -> None:
            async with LoopbackProvider(["An answer of some length."]) as provider:
                opened = session(root, provider.chat_model(), stream=True)
                result = await opened.prompt("Go.")
            pieces = [event.text for event in told(opened, TextProduced)]
            assert len(pieces) > 1
            assert "".join(pieces) == result.text == "An answer of some length."

        asyncio.run(case())

    def test_a_stream_that_breaks_is_tried_again(self, root: Path) -> None:
        async def case() -> None:
            script = [
                Reply(tool_calls=[("Read", {"path": "a.txt"})]),
                Drop(after=Reply("Half of")),
                "It is 42.",
            ]
            async with LoopbackProvider(script) as provider:
                opened = session(root, provider.chat_model(), stream=True)
                result = await opened.prompt("Go.")
            assert (result.ok, result.text, result.turns) == (True, "It is 42.", 2)
            assert len(told(opened, RetryScheduled)) == 1
            assert len(told(opened, ToolEnded)) == 1, "completed tools are not run again"
            assert len(provider.requests[-1].tool_results) == 1

        asyncio.run(case())

    def test_a_cut_call_in_a_stream_is_never_executed(self, root: Path) -> None:
        async def case() -> None:
            cut = Reply("I read.", tool_calls=[("Read", '{"path": "a')], finish="length")
            async with LoopbackProvider([cut, "It is 42."]) as provider:
                opened = session(root, provider.chat_model(), stream=True)
                result = await opened.prompt("Go.")
            assert (result.ok, result.text) == (True, "It is 42.")
            assert told(opened, ToolEnded) == []
            assert provider.failures == []

        asyncio.run(case())

    def test_a_stop_in_the_middle_of_an_answer(self, root: Path) -> None:
        async def case() -> None:
            gate = Gate()
            script = [Hang(gate, then=Reply("Half of an answer"), mid_stream=True), "ok"]
            async with LoopbackProvider(script) as provider:
                opened = session(root, provider.chat_model(), stream=True)
                turn = asyncio.create_task(opened.prompt("Go."))
                async with asyncio.timeout(30):
                    while not told(opened, TextProduced):  # noqa: ASYNC110 - an event tells no condition
                        await asyncio.sleep(0.002)
                await opened.stop()
                assert (await turn).stop_reason is StopReason.STOPPED
                assert (await opened.prompt("Again.")).ok
                validate([*opened.messages, ModelRequest(parts=[])])

        asyncio.run(case())


class TestDelegate:
    def test_one_delegation_without_the_parent(self, root: Path) -> None:
        async def steps(opened: Session) -> None:
            outcome = await opened.delegate("helper", "Help.")
            assert (outcome.status, outcome.report, outcome.model) == (
                Status.COMPLETED,
                "Helped.",
                "test/child",
            )
            assert opened.messages == []
            assert opened.delegations.records.undelivered() == []

        within(session(root, ScriptedModel(), ScriptedModel("Helped.")), steps)

    def test_a_refusal_is_raised(self, root: Path) -> None:
        async def steps(opened: Session) -> None:
            assert (await refused(opened.delegate("nobody", "Help."))).code is ErrorCode.SUBAGENT_UNKNOWN

        within(session(root, ScriptedModel(), ScriptedModel()), steps)

    def test_an_interrupt_shows_partial_work(self, root: Path) -> None:
        doors = Doors()

        async def steps(opened: Session) -> None:
            working = asyncio.create_task(opened.delegate("helper", "Help."))
            await doors.arrived(1)
            await opened.stop()
            outcome = await working
            assert (outcome.status, outcome.report) == (Status.STOPPED, "I read a.txt first.")

        first = calling(("Read", {"path": "a.txt"}), text="I read a.txt first.")
        within(session(root, ScriptedModel(), ScriptedModel(first, doors)), steps)

    def test_a_turn_of_the_parent_leaves_it_alone(self, root: Path) -> None:
        doors = Doors("Mine.")

        async def steps(opened: Session) -> None:
            own = asyncio.create_task(opened.delegate("helper", "Help."))
            await doors.arrived(1)
            assert (await opened.prompt("Something else.")).text == "Else."
            doors.open(0)
            assert (await own).report == "Mine."

        parent = ScriptedModel(calling(("TaskStop", {})), calling(("TaskWait", {})), "Else.")
        within(session(root, parent, ScriptedModel(doors)), steps)
        assert [asked.results[-1] for asked in parent.asked[1:]] == [
            "Stopped 0 delegations.",
            "No delegation is running.",
        ]

    def test_a_closed_session_starts_none(self, root: Path) -> None:
        opened = within(session(root, ScriptedModel()), lambda opened: opened.stop())
        assert asyncio.run(refused(opened.delegate("helper", "Help."))).code is ErrorCode.USAGE

    def test_a_caller_that_is_cancelled_stops_it_and_its_cancellation_goes_on(self, root: Path) -> None:
        doors = Doors()

        async def steps(opened: Session) -> None:
            working = asyncio.create_task(opened.delegate("helper", "Help."))
            await doors.arrived(1)
            working.cancel()
            with pytest.raises(asyncio.CancelledError):
                await working
            assert [record.status for record in opened.delegations.records.all()] == [Status.STOPPED]

        within(session(root, ScriptedModel(), ScriptedModel(doors)), steps)


class TestForkAndClose:
    def test_a_fork_starts_from_a_copy(self, root: Path) -> None:
        model = ScriptedModel(*reading("a.txt"), "It is 42.", "Left.", "Right.")

        async def steps(opened: Session) -> None:
            await opened.prompt("What is the answer?")
            async with opened.fork() as other:
                await opened.prompt("Left?")
                await other.prompt("Right?")
                assert other.workspace.scratch != opened.workspace.scratch
                assert not {id(m) for m in opened.messages} & {id(m) for m in other.messages}
            assert (newest(opened.messages), newest(other.messages)) == ("Left.", "Right.")

        def newest(messages: list[ModelMessage]) -> str:
            last = messages[-1]
            assert isinstance(last, ModelResponse)
            return last.text or ""

        within(session(root, model), steps)

    def test_closing_a_fork_leaves_the_models_of_the_other_open(self, root: Path) -> None:
        closed: list[str] = []

        class Client:
            async def close(self) -> None:
                closed.append("client")

        async def case() -> None:
            model = ScriptedModel("ok", repeat=True)
            model.client = Client()  # type: ignore[attr-defined]
            opened = session(root, model)
            await opened.prompt("Go.")
            await opened.fork().close()
            assert closed == []
            await opened.close()
            assert closed == ["client"]

        asyncio.run(case())

    def test_closing_stops_what_runs_and_removes_the_scratch_folder(self, root: Path) -> None:
        doors = Doors()

        async def case() -> None:
            opened = session(root, ScriptedModel(), ScriptedModel(doors))
            assert opened.workspace.scratch is not None
            working = asyncio.create_task(opened.delegate("helper", "Help."))
            await doors.arrived(1)
            await opened.close()
            assert (await working).status is Status.STOPPED
            assert not opened.workspace.scratch.exists()
            assert asyncio.all_tasks() == {asyncio.current_task()}

        asyncio.run(case())
