"""What the pieces of one session page share: the session, who is told of errors, and what can be opened."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sidequest.core.errors import SidequestError

if TYPE_CHECKING:
    from sidequest.runtime.permissions import Question
    from sidequest.surfaces.app.application import Application
    from sidequest.surfaces.app.watching import Watched


@dataclass
class SessionDesk:
    """One for each page that shows a session."""

    application: Application
    watched: Watched
    complain: Callable[[str], None] = field(default=lambda text: None)
    """Shows what went wrong; an empty text takes it away."""
    inspect: Callable[[str | None], Awaitable[None]] | None = None
    """Opens the context of the session (None) or of a delegation."""

    @property
    def session_id(self) -> str:
        """Id of the session."""
        return self.watched.session_id

    @property
    def questions(self) -> tuple[Question, ...]:
        """What waits for a person in this session, oldest first."""
        live = self.application.live.get(self.session_id)
        return live.session.rights.questions.waiting if live is not None else ()

    @property
    def idle(self) -> bool:
        """Whether something can be begun."""
        live = self.application.live.get(self.session_id)
        return not self.watched.view.working and (live is None or not live.busy)

    async def attempt(
        self, work: Awaitable[object], *, complain: Callable[[str], None] | None = None
    ) -> bool:
        """Await `work` and say whether it went well; what went wrong is shown, by `complain` if given."""
        say = complain or self.complain
        say("")
        try:
            await work
        except SidequestError as error:
            say(f"{error.cause} {error.remedy}")
            return False
        return True
