"""Sessions that a served process works on: opened once, worked on in the background, given back when idle."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.events import Notice
from sidequest.core.outcome import Status
from sidequest.core.permissions import Mode
from sidequest.subagents.trust import TrustFile
from sidequest.surfaces.app.application import Application
from sidequest.surfaces.app.live import Live, forked
from tests.app.conftest import Opened
from tests.surfaces.conftest import write_definition, write_settings

pytestmark = pytest.mark.anyio
QUESTION = "Where is BERTH_LIMIT defined?"


async def done(live: Live) -> None:
    """Wait for the work of a session."""
    assert live.work is not None
    await asyncio.wait([live.work])


async def until(holds: Callable[[], bool]) -> None:
    """Give the loop turns until something holds."""
    for _ in range(20_000):
        if holds():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never came to hold")


async def answered(application: Application) -> str:
    """Ask a question in a new session and return its id."""
    live = await application.live.create()
    await application.live.prompt(live.id, QUESTION)
    await done(live)
    return live.id


class TestWork:
    async def test_a_prompt_is_answered_in_the_background_and_stored(self, opened: Opened) -> None:
        async with opened() as application:
            key = await answered(application)
            row = await application.store.sessions.get(key)
            assert (row.title, row.delegations) == (QUESTION, 1)
            (delegation,) = await application.store.delegations.list(key)
            assert delegation.status is Status.COMPLETED
            assert "harbour.py:1" in delegation.report

    async def test_a_second_prompt_is_refused_while_the_first_runs(self, opened: Opened) -> None:
        async with opened() as application:
            live = await application.live.create()
            await application.live.prompt(live.id, QUESTION)
            with pytest.raises(SidequestError) as caught:
                await application.live.prompt(live.id, "And now?")
            assert caught.value.code is ErrorCode.AGENT_BUSY
            await done(live)

    async def test_a_stop_ends_the_turn_and_the_session_goes_on(self, opened: Opened) -> None:
        async with opened() as application:
            live = await application.live.create()
            await application.live.prompt(live.id, QUESTION)
            await application.live.stop(live.id)
            await done(live)
            assert live.work is not None and live.work.result().failure.code is ErrorCode.TURN_ABORTED
            await application.live.prompt(live.id, QUESTION)
            await done(live)
            assert live.work.result().ok

    async def test_an_empty_prompt_opens_nothing(self, opened: Opened) -> None:
        async with opened() as application:
            with pytest.raises(SidequestError) as caught:
                await application.live.prompt("nobody", " \n")
            assert caught.value.code is ErrorCode.USAGE

    async def test_work_that_is_refused_says_why_and_leaves_the_session_usable(self, opened: Opened) -> None:
        async with opened() as application:
            key = await answered(application)
            (row,) = await application.store.delegations.list(key)
            live = await application.live.resume(key, row.id, "Look again.")
            await done(live)
            again = await application.live.resume(key, row.id, "And again.")
            await done(again)
            with pytest.raises(SidequestError):
                await application.live.resume(key, "nobody", "Go.")
            assert not live.busy


class TestOpening:
    async def test_two_pages_that_ask_at_once_get_one_session(self, opened: Opened) -> None:
        async with opened() as application:
            key = await answered(application)
            await application.live.release(key)
            first, second = await asyncio.gather(application.live.open(key), application.live.open(key))
            assert first is second and application.live.all == [first]

    async def test_the_beginning_of_an_id_opens_the_same_session(self, opened: Opened) -> None:
        async with opened() as application:
            live = await application.live.create()
            assert await application.live.open(live.id[:8]) is live

    async def test_another_process_is_told_who_has_it(self, opened: Opened) -> None:
        async with opened() as application, opened() as other:
            key = await answered(application)
            with pytest.raises(SidequestError) as caught:
                await other.live.open(key)
            assert caught.value.code is ErrorCode.AGENT_BUSY
            await application.live.release(key)
            assert (await other.live.open(key)).id == key

    async def test_it_goes_on_in_its_own_folder(self, opened: Opened, tmp_path: Path) -> None:
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        async with opened() as application:
            live = await application.live.create(root=elsewhere)
            await application.live.release(live.id)
            again = await application.live.open(live.id)
            assert again.session.workspace.root == elsewhere.resolve()

    async def test_a_folder_that_is_gone_is_a_clear_refusal(self, opened: Opened, tmp_path: Path) -> None:
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        async with opened() as application:
            live = await application.live.create(root=elsewhere)
            await application.live.release(live.id)
            elsewhere.rmdir()
            with pytest.raises(SidequestError) as caught:
                await application.live.open(live.id)
            assert caught.value.code is ErrorCode.USAGE and "gone" in caught.value.cause

    async def test_one_that_is_idle_and_that_nobody_looks_at_is_given_back(self, opened: Opened) -> None:
        async with opened() as application:
            application.live.idle_s = 0.02
            looked_at = await application.live.create()
            leave = application.live.watch(looked_at.id)
            left = await application.live.create()
            await until(lambda: application.live.get(left.id) is None)
            assert application.live.get(looked_at.id) is looked_at
            leave()
            await until(lambda: application.live.get(looked_at.id) is None)
            again = await application.live.open(looked_at.id)
            assert again is not looked_at and again.id == looked_at.id

    async def test_leaving_stores_the_end_of_what_runs(self, opened: Opened) -> None:
        async with opened() as application:
            live = await application.live.create()
            await application.live.prompt(live.id, QUESTION)
        async with opened() as application:
            kinds = [row.type for row in await application.store.events.after(live.id)]
            assert kinds[-1] == "run_ended"

    async def test_a_fork_is_a_session_of_its_own(self, opened: Opened) -> None:
        async with opened() as application:
            key = await answered(application)
            copy = await forked(application.store, key)
            await application.live.prompt(copy.id, QUESTION)
            live = application.live.get(copy.id)
            assert live is not None
            await done(live)
            assert copy.forked_from == key
            assert len(await application.store.delegations.list(key)) == 1


async def test_everybody_who_looks_is_told_of_a_change(opened: Opened) -> None:
    async with opened() as application:
        told: list[int] = []
        leave = application.live.subscribe(lambda: told.append(len(application.live.all)))
        live = await application.live.create()
        leave()
        await application.live.release(live.id)
        assert told == [1]


async def test_somebody_who_fails_to_listen_disturbs_nobody(opened: Opened) -> None:
    def broken() -> None:
        raise ZeroDivisionError

    async with opened() as application:
        told: list[str] = []
        application.live.subscribe(broken)
        application.live.subscribe(lambda: told.append("change"))
        await application.live.create()
        await application.live.create()
        assert told == ["change", "change"]
        ((listener, error),) = application.live.failed_listeners
        assert listener is broken and isinstance(error, ZeroDivisionError)


class TestChoices:
    async def test_another_model_is_taken_from_the_next_turn_on(self, home: Path, opened: Opened) -> None:
        write_settings(home, '[models."offline/small"]\ncontext_window = 6000\n')
        async with opened() as application:
            key = await answered(application)
            await application.live.choose_model(key, "offline/small")
            assert (await application.store.sessions.get(key)).model == "offline/small"
            live = await application.live.open(key)
            assert live.session.models.session.key == "offline/small"

    async def test_a_model_that_cannot_be_used_changes_nothing(self, opened: Opened) -> None:
        async with opened() as application:
            key = await answered(application)
            before = (await application.store.sessions.get(key)).model
            with pytest.raises(SidequestError) as caught:
                await application.live.choose_model(key, "nobody/knows")
            assert caught.value.code is ErrorCode.MODEL_NOT_CONFIGURED
            assert (await application.store.sessions.get(key)).model == before

    async def test_nothing_is_changed_under_a_turn(self, opened: Opened) -> None:
        async with opened() as application:
            live = await application.live.create()
            await application.live.prompt(live.id, QUESTION)
            with pytest.raises(SidequestError) as model:
                await application.live.choose_model(live.id, "offline/extractive")
            with pytest.raises(SidequestError) as mode:
                application.live.choose_mode(live.id, Mode.AUTO)
            assert {model.value.code, mode.value.code} == {ErrorCode.AGENT_BUSY}
            await done(live)

    async def test_a_mode_holds_when_the_session_was_given_back_meanwhile(self, opened: Opened) -> None:
        async with opened() as application:
            live = await application.live.create()
            application.live.choose_mode(live.id, Mode.AUTO)
            assert live.session.rights.mode is Mode.AUTO
            begun = await application.live.create(mode=Mode.ACCEPT_EDITS)
            await application.live.release(begun.id)
            assert (await application.live.open(begun.id)).session.rights.mode is Mode.ACCEPT_EDITS
            await application.live.release(live.id)
            assert application.live.mode_of(live.id) is Mode.AUTO
            assert (await application.live.open(live.id)).session.rights.mode is Mode.AUTO


class TestSettingsOfAnOpenSession:
    """Settings, definitions and trust are read for each turn (specification 4.1)."""

    async def test_a_new_deny_rule_holds_from_the_next_prompt_on(self, home: Path, opened: Opened) -> None:
        async with opened() as application:
            live = await application.live.create()
            write_settings(home, 'permission_mode = "auto"\nmax_turns = 7\n[deny]\ntools = ["Task"]\n')
            await application.live.prompt(live.id, QUESTION)
            await done(live)
            assert await application.store.delegations.list(live.id) == []
            session = live.session
            assert (session.rights.mode, session.options.limits.turns) == (Mode.AUTO, 7)

    async def test_trust_that_was_withdrawn_takes_the_folders_own_subagents_and_instructions(
        self, tree: Path, opened: Opened
    ) -> None:
        text = "---\nname: own\ndescription: d\ntools: Read\n---\nRead.\n"
        write_definition(tree / ".agents/subagents", "own", text)
        (tree / "AGENTS.md").write_text("Use tabs.")
        TrustFile.of(os.environ).trust(tree)
        async with opened() as application:
            live = await application.live.create()
            assert live.session.catalog.get("own") is not None
            assert live.session.delegations.project_instructions != ""
            TrustFile.of(os.environ).forget(tree)
            await application.live.prompt(live.id, QUESTION)
            await done(live)
            assert live.session.catalog.get("own") is None
            assert live.session.delegations.project_instructions == ""
            await application.live.prompt(live.id, QUESTION)
            await done(live)
            events = [numbered.event for numbered in live.session.log.after()]
            said = [event.text for event in events if isinstance(event, Notice)]
            assert sum("of this folder are not used" in line for line in said) == 1

    async def test_a_subagent_that_was_changed_is_resumed_as_it_is_now(
        self, home: Path, opened: Opened
    ) -> None:
        text = "---\nname: explorer\ndescription: d\ntools: Read, Glob, Grep\n---\n{}\n"
        folder = home / ".agents/subagents"
        write_definition(folder, "explorer", text.format("Look once."))
        async with opened() as application:
            key = await answered(application)
            (row,) = await application.store.delegations.list(key)
            write_definition(folder, "explorer", text.format("Look twice."))
            live = await application.live.resume(key, row.id, "Look again.")
            await done(live)
            record = live.session.delegations.records.all()[-1]
            assert "Look twice." in record.run.plan.instructions  # type: ignore[union-attr]

    async def test_what_was_chosen_for_the_session_stays(self, home: Path, opened: Opened) -> None:
        write_settings(home, '[models."offline/small"]\ncontext_window = 6000\n')
        async with opened() as application:
            live = await application.live.create(model="offline/small", mode=Mode.ACCEPT_EDITS)
            models = '[models."offline/small"]\ncontext_window = 7000\n'
            write_settings(home, f'default_model = "offline/extractive"\npermission_mode = "auto"\n{models}')
            await application.live.prompt(live.id, QUESTION)
            await done(live)
            session = live.session
            assert (session.models.session.key, session.models.session.window) == ("offline/small", 7000)
            assert session.rights.mode is Mode.ACCEPT_EDITS

    async def test_settings_that_cannot_be_read_refuse_the_turn_and_lose_nothing(
        self, home: Path, opened: Opened
    ) -> None:
        async with opened() as application:
            key = await answered(application)
            live = await application.live.open(key)
            before = list(live.session.messages)
            write_settings(home, "deny = [")
            with pytest.raises(SidequestError) as caught:
                await application.live.prompt(key, QUESTION)
            assert caught.value.code is ErrorCode.SETTINGS_INVALID
            assert (live.session.messages, live.busy) == (before, False)
            write_settings(home, "")
            assert await application.live.prompt(key, QUESTION) is live
            await done(live)
            assert live.work is not None and live.work.result().ok

    async def test_two_prompts_at_once_begin_one_turn(self, opened: Opened) -> None:
        async with opened() as application:
            live = await application.live.create()
            both = [application.live.prompt(live.id, QUESTION) for _ in range(2)]
            results = await asyncio.gather(*both, return_exceptions=True)
            refused = [result for result in results if isinstance(result, SidequestError)]
            assert [error.code for error in refused] == [ErrorCode.AGENT_BUSY]
            await done(live)
