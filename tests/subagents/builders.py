"""Short ways to a parsed file."""

from __future__ import annotations

from pathlib import Path

from sidequest.subagents.definition import Scope, SubagentDefinition
from sidequest.subagents.parse import Parsed, Severity, parse_definition

SAMPLES = Path(__file__).parent / "samples"


def sample(name: str, scope: Scope = Scope.USER) -> Parsed:
    """Read the sample whose file name begins with `name`."""
    [path] = SAMPLES.glob(f"{name}*.md")
    return parse_definition(path.read_bytes(), path=path.name, scope=scope)


def document(*lines: str, body: str = "Do it.") -> str:
    """A file with a name, a description and the given lines of frontmatter."""
    return "\n".join(["---", "name: worker", "description: Works", *lines, "---", "", body, ""])


def parsed(*lines: str, scope: Scope = Scope.USER) -> Parsed:
    """Read a file with the given lines of frontmatter."""
    return parse_definition(document(*lines), path="worker.md", scope=scope)


def defined(*lines: str, scope: Scope = Scope.USER) -> SubagentDefinition:
    """The definition in a file that loads."""
    result = parsed(*lines, scope=scope)
    assert result.definition is not None, result.diagnostics
    return result.definition


def messages(result: Parsed, severity: Severity = Severity.WARNING) -> list[str]:
    """What was said at one severity."""
    return [found.message for found in result.diagnostics if found.severity is severity]
