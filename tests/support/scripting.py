"""Runs a script: one function for every request, or answers used up in order."""

from __future__ import annotations

import inspect

from tests.support import error_bodies
from tests.support.neutral import ANSWERS, Answer, Reply, Responder, Script, Seen


class ScriptRunner:
    """Asks `script` for answers; what goes wrong in it is the test's own fault and goes to `failures`."""

    def __init__(self, script: Script, failures: list[str]) -> None:
        self._script = script
        self._failures = failures
        self._used = 0

    async def answer(self, seen: Seen) -> Answer:
        """Return the answer to `seen`; a 500 when the script raised or has none left."""
        try:
            step = self._next_step()
            answer = step(seen) if callable(step) else step
            if inspect.isawaitable(answer):
                answer = await answer
            if not isinstance(answer, (str, *ANSWERS)):
                raise TypeError(f"{type(answer).__name__} is no answer")
        except Exception as problem:  # noqa: BLE001 - the edge of the server, and recorded
            self._failures.append(f"Request {seen.index} ({seen.format}): {problem!r}")
            return error_bodies.error(seen.format, 500, self._failures[-1])
        return Reply(answer) if isinstance(answer, str) else answer

    def _next_step(self) -> Answer | str | Responder:
        if callable(self._script):
            return self._script
        if self._used == len(self._script):
            raise LookupError(f"the script ran out, it has {self._used} answers")
        self._used += 1
        return self._script[self._used - 1]
