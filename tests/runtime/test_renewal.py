"""A session that goes on with changed rules, limits and subagents, between its turns and all at once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

import sidequest.runtime.workspace as workspace_module
from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.permissions import Action, DenyRules, Mode
from sidequest.models.registry import ModelRegistry
from sidequest.runtime.limits import Limits
from sidequest.runtime.permissions import Answer
from sidequest.runtime.sandbox import Sandbox, commands_of
from sidequest.runtime.session import Session
from sidequest.subagents.catalog import Catalog
from tests.support.processes import is_running
from tests.support.scripted_model import ScriptedModel, calling
from tests.support.sessions import bound, helper, session
from tests.support.team import Doors

READ = calling(("Read", {"path": "a.txt"}))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("the answer is 42\n")
    return tmp_path


def renewed(opened: Session, *, catalog: Catalog | None = None, **changes: object) -> None:
    """Renew a session with some of its options changed."""
    opened.renew(replace(opened.options, **changes), catalog or opened.catalog)  # type: ignore[arg-type]


def test_the_next_turn_has_the_new_rules_instructions_subagents_and_limits(root: Path) -> None:
    model = ScriptedModel(READ, "It is 42.", READ, "It is denied.", READ, "Two turns.")

    async def case() -> None:
        async with session(root, model, definitions=[helper(model=None)]) as opened:
            await opened.prompt("Read it.")
            catalog = Catalog.from_definitions([helper("other", model=None)])
            renewed(
                opened, catalog=catalog, deny=DenyRules(paths=("*.txt",)), project_instructions="Use tabs."
            )
            await opened.prompt("Read it again.")
            renewed(opened, limits=Limits(turns=1), project_instructions=False)
            assert (await opened.prompt("And again.")).turns == 1

    asyncio.run(case())
    first, second = model.asked[0], model.asked[2]
    roster = next(tool for tool in second.info.function_tools if tool.name == "Task").description or ""
    assert "other" in roster and "helper" not in roster
    assert "Use tabs." not in (first.info.instructions or "")
    assert "Use tabs." in (second.info.instructions or "")
    assert "TOOL_DENIED" in model.asked[3].results[-1]
    assert "Use tabs." not in (model.asked[4].info.instructions or "")


def test_what_commands_left_running_before_is_ended_by_the_stop_after(root: Path) -> None:
    async def case() -> int:
        async with session(root, ScriptedModel()) as opened:
            await opened.workspace.bash("sleep 4987 >/dev/null 2>&1 & echo $! > pid")
            renewed(opened, deny=DenyRules(paths=("*.txt",)))
            await opened.stop()
            return int((root / "pid").read_text())

    assert not is_running(asyncio.run(case()))


def test_files_that_a_new_rule_denies_are_not_found_by_a_search_either(root: Path) -> None:
    async def case() -> None:
        async with session(root, ScriptedModel()) as opened:
            renewed(opened, deny=DenyRules(paths=("*.txt",)))
            toolbox = opened.delegations.toolbox
            assert toolbox.workspace is opened.workspace
            assert "a.txt" not in await opened.workspace.glob("*")

    asyncio.run(case())


def test_what_was_said_allowed_and_spent_stays(root: Path) -> None:
    async def case() -> None:
        async with session(root, ScriptedModel("One."), permission_mode=Mode.ASK) as opened:
            await opened.prompt("First.")
            opened.delegations.account.spend("m", 0.5)
            questions, bash = opened.rights.questions, Action("Bash", command="ls")
            asked = asyncio.create_task(questions.ask(("parent",), bash, {}, "why"))
            await asyncio.sleep(0)
            assert questions.head is not None
            questions.answer(questions.head.id, Answer(True, for_session=True))
            await asked
            said, key = list(opened.messages), opened.models.session.key
            renewed(opened, max_cost_usd=1.0, model="test/nobody", root=root / "elsewhere")
            assert (await questions.ask(("parent",), bash, {}, "why")).allowed
            assert (opened.messages, opened.models.session.key) == (said, key)
            assert opened.options.root == root
            account = opened.delegations.account
            assert (account.limit_usd, account.spent_usd) == (1.0, 0.5)

    asyncio.run(case())


def test_nothing_changes_under_a_turn_or_a_delegation(root: Path) -> None:
    doors = Doors()

    async def case() -> None:
        child = ScriptedModel(doors)
        async with session(root, ScriptedModel(), child) as opened:
            work = asyncio.create_task(opened.delegate("helper", "Help."))
            await doors.arrived(1)
            with pytest.raises(SidequestError) as caught:
                renewed(opened, deny=DenyRules(tools=("Read",)))
            assert caught.value.code is ErrorCode.AGENT_BUSY
            assert opened.rights.rules == DenyRules()
            doors.open(0)
            await work
            renewed(opened, deny=DenyRules(tools=("Read",)))
            assert opened.rights.rules.tools == ("Read",)

    asyncio.run(case())


def test_a_sandbox_that_does_not_work_here_refuses_the_whole_change(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        workspace_module, "commands_of", lambda *given: commands_of(*given, works=lambda: False)
    )

    async def case() -> None:
        async with session(root, ScriptedModel()) as opened:
            before = (opened.options, opened.workspace, opened.rights.rules)
            with pytest.raises(SidequestError) as caught:
                renewed(opened, sandbox=Sandbox.REQUIRE, deny=DenyRules(tools=("Read",)))
            assert caught.value.code is ErrorCode.SETTINGS_INVALID
            assert (opened.options, opened.workspace, opened.rights.rules) == before

    asyncio.run(case())


def test_models_are_those_of_the_new_registry_and_the_session_keeps_its_own(root: Path) -> None:
    old, new = ScriptedModel("Old."), ScriptedModel("New.")

    async def case() -> None:
        async with session(root, old) as opened:
            assert (await opened.prompt("Go.")).text == "Old."
            registry = ModelRegistry(env={}, bindings=[bound("test/parent", new, 9000)])
            opened.renew(opened.options, opened.catalog, registry)
            assert (await opened.prompt("Go on.")).text == "New."
            assert opened.models.session_model().window == 9000
            with pytest.raises(SidequestError) as caught:
                opened.renew(opened.options, opened.catalog, ModelRegistry(env={}))
            assert caught.value.code is ErrorCode.MODEL_NOT_CONFIGURED
            assert opened.models.registry is registry

    asyncio.run(case())
