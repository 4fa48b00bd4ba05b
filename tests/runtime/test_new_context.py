"""new_context in a session: C10 and C11, and that a delegate has neither the tool nor reminders."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sidequest.core.events import ContextCompacted
from tests.support.scripted_model import Asked, ScriptedModel, calling, saying
from tests.support.sessions import session


def tools_of(asked: Asked) -> set[str]:
    """Return the names of the tools that a request offered."""
    return {tool.name for tool in asked.info.function_tools}


def test_C11_the_model_may_ask_for_a_new_window(tmp_path: Path) -> None:
    parent = ScriptedModel(
        calling(("Glob", {"pattern": "*"})), calling(("new_context", {})), saying("Done."), summary="Go on."
    )

    async def case() -> None:
        async with session(tmp_path, parent) as opened:
            seen: list[object] = []
            opened.log.subscribe(lambda numbered: seen.append(numbered.event))
            result = await opened.prompt(
                "Look around, then start afresh. " + "Words of a long prompt. " * 200
            )
            assert result.ok
            assert result.compactions == 1
            assert [type(event) for event in seen if isinstance(event, ContextCompacted)] == [
                ContextCompacted
            ]
            assert "new_context" in tools_of(parent.asked[0])
            assert "<summary>" in parent.asked[-1].user_texts[0]

    asyncio.run(case())


def test_C11_without_a_summary_the_conversation_goes_on_unchanged(tmp_path: Path) -> None:
    parent = ScriptedModel(calling(("new_context", {})), saying("Done."), summary="")

    async def case() -> None:
        async with session(tmp_path, parent) as opened:
            result = await opened.prompt("Start afresh.")
            assert (result.ok, result.compactions, result.degradations) == (True, 0, 0)

    asyncio.run(case())


def test_new_context_is_denied_to_delegates(tmp_path: Path) -> None:
    parent = ScriptedModel(
        calling(("Task", {"agent": "helper", "task": "Look."})), saying("Waiting."), saying("Done.")
    )
    child = ScriptedModel(saying("Looked."))

    async def case() -> None:
        async with session(tmp_path, parent, child) as opened:
            await opened.prompt("Delegate.")
        assert "new_context" not in tools_of(child.asked[0])
        assert "Task" not in tools_of(child.asked[0])

    asyncio.run(case())
