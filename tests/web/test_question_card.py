"""What a window may answer: the question that stands in it, and no sooner than it could be read."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from nicegui import Client, ui

from sidequest.core.permissions import Action
from sidequest.runtime.permissions import Answer, Questions
from sidequest.surfaces.web import question_card
from sidequest.surfaces.web.question_card import QuestionCard


def test_only_the_question_that_is_shown_is_answered_and_allowed_when_it_could_be_read(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def case() -> None:
        now, said = [0.0], list[str]()
        monkeypatch.setattr(question_card, "_now_s", lambda: now[0])
        monkeypatch.setattr(QuestionCard, "_go_on", lambda card: None)  # there is no browser
        questions = Questions()
        questions.surface(lambda: None)
        session = SimpleNamespace(
            rights=SimpleNamespace(questions=questions), workspace=SimpleNamespace(root=tmp_path)
        )
        application = SimpleNamespace(
            live=SimpleNamespace(get=lambda key: SimpleNamespace(session=session)),
            store=SimpleNamespace(masked=lambda value: value),
        )
        watched = SimpleNamespace(view=SimpleNamespace(works={}))
        desk = SimpleNamespace(application=application, session_id="s", complain=said.append, watched=watched)
        asked = [
            asyncio.create_task(questions.ask(("parent",), Action("Bash", command=text), {}, "ask"))
            for text in ("first", "second")
        ]
        await asyncio.sleep(0)
        first, second = questions.waiting
        with Client(ui.page("/"), request=None):
            card = QuestionCard(cast("Any", desk))
            card.show()
            card._answer(first.id, Answer(True))
            assert not first.reply.done()
            card._answer(second.id, Answer(True))
            assert (second.reply.done(), said.pop()) == (False, "This question was answered already.")
            now[0] += question_card.READING_S
            card._answer(first.id, Answer(True))
            card._answer(second.id, Answer(True))
            assert (first.reply.done(), second.reply.done()) == (True, False)
            card._answer(second.id, Answer(False, note="no"))
        assert await asyncio.gather(*asked) == [Answer(True), Answer(False, note="no")]

    asyncio.run(case())
