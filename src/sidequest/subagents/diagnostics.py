"""What a reader of definition files has to say about them: one line each, with a place and a severity."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How bad it is."""

    ERROR = "error"
    """The file does not load."""
    WARNING = "warning"
    """It loads, and something its author wrote was left out or changed."""
    NOTE = "note"
    """It loads as written; something about it is worth knowing."""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One remark about one file or folder."""

    path: str
    line: int | None
    """Line in the file, the first is 1; None when it is about the whole."""
    severity: Severity
    message: str

    def __str__(self) -> str:
        place = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{place}: {self.severity.value}: {self.message}"


class Log:
    """Collects what is found while one file is read."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._found: list[Diagnostic] = []

    def _add(self, severity: Severity, message: str, line: int | None) -> None:
        diagnostic = Diagnostic(self.path, line, severity, message)
        if diagnostic not in self._found:
            self._found.append(diagnostic)

    def error(self, message: str, line: int | None = None) -> None:
        """Record a reason why the file does not load."""
        self._add(Severity.ERROR, message, line)

    def warn(self, message: str, line: int | None = None) -> None:
        """Record something that was left out or changed."""
        self._add(Severity.WARNING, message, line)

    def note(self, message: str, line: int | None = None) -> None:
        """Record something worth knowing."""
        self._add(Severity.NOTE, message, line)

    @property
    def failed(self) -> bool:
        """Whether an error was recorded."""
        return any(found.severity is Severity.ERROR for found in self._found)

    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Return everything found; a file that fails gives exactly one error, which joins all reasons."""
        errors = [found for found in self._found if found.severity is Severity.ERROR]
        if not errors:
            return tuple(self._found)
        line = next((error.line for error in errors if error.line is not None), None)
        return (Diagnostic(self.path, line, Severity.ERROR, " ".join(error.message for error in errors)),)
