"""Questions over HTTP: what waits for a person, and the answer, once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.runtime.permissions import Answer
from sidequest.runtime.permissions import Question as Waiting
from sidequest.surfaces.api.shapes import Decision, Question, QuestionList

if TYPE_CHECKING:
    from sidequest.store import Store
    from sidequest.surfaces.app.application import Application


def permissions_router(application: Application) -> APIRouter:
    """Return the operations on the questions of all sessions that this process works on."""
    router = APIRouter(prefix="/permissions", tags=["permissions"])

    @router.get("")
    async def list_all() -> QuestionList:
        """Everything that waits for an answer."""
        queues = application.live.questions()
        return QuestionList(
            questions=[
                await _shape(application.store, live.id, waiting)
                for live, queue in queues
                for waiting in queue.waiting
            ]
        )

    @router.post("/{question_id}", status_code=204)
    async def answer(question_id: str, decision: Decision) -> None:
        """Answer a question; one that is not waiting any more is not found, and nothing happens."""
        given = Answer(
            decision.decision != "deny", decision.decision == "allow_session", note=decision.note.strip()
        )
        if not any(queue.answer(question_id, given) for _, queue in application.live.questions()):
            raise SidequestError(
                ErrorCode.QUESTION_UNKNOWN,
                "This question is not waiting: it was answered, or what asked it has ended.",
                "Look at the questions that wait now.",
            )

    return router


async def _shape(store: Store, session_id: str, waiting: Waiting) -> Question:
    action, delegation = waiting.action, waiting.delegation_id
    # A delegation is stored before it runs, and so before it can ask.
    row = None if delegation is None else await store.delegations.get(session_id, delegation)
    question = Question(
        id=waiting.id,
        session_id=session_id,
        asker=list(waiting.asker),
        delegation_id=delegation,
        delegation_number=None if row is None else row.number,
        tool=action.tool,
        path=action.path,
        command=action.command,
        inside=action.inside,
        arguments=waiting.arguments,
        reason=waiting.reason,
    )
    return Question.model_validate(store.masked(question.model_dump()))
