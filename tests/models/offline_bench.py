"""A small workspace with Grep, Glob and Read as the embedded model is offered them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic_ai import Agent, UsageLimits
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolCallPart, UserPromptPart

from sidequest.models.extractive import ExtractiveModel

TREE = {
    "src/budget.py": (
        '"""How many tokens a model leaves for a request."""\n\n'
        "DEFAULT_WINDOW = 128_000\n"
        '"""Window in tokens when a model reports none."""\n'
        "RESERVE_FLOOR = 16_384\n\n\n"
        "class ContextBudget:\n"
        '    """What a model leaves."""\n\n'
        "    hard_limit: int\n\n"
        "    def fits(self, tokens: int) -> bool:\n"
        "        return tokens < self.hard_limit\n"
    ),
    "src/retry.py": (
        "from src.budget import DEFAULT_WINDOW\n\n"
        "MAX_TRIES = 4\n\n\n"
        "def wait_seconds(attempt: int) -> float:\n"
        '    """Wait twice as long after each attempt."""\n'
        "    return 2.0**attempt\n"
    ),
    "src/settings.py": "from src.retry import MAX_TRIES\n\nRETRY_LIMIT = MAX_TRIES\n",
    "src/colour.py": (
        "class PaintColour:\n"
        '    """Colours a wall may have."""\n\n'
        '    RED = "red"\n'
        '    SAP_GREEN = "green"\n'
        '    BLUE = "blue"\n\n\n'
        "def mix(a, b):\n    return a\n"
    ),
    "docs/budget.md": "# Budget\n\nThe hard limit is the first size that is too large.\n",
    "tests/test_budget.py": "def test_hard_limit():\n    assert hard_limit == 1\n",
}
"""A tree that has a definition, a use, a document and a test for what the tests ask."""


@dataclass
class Workspace:
    """Files under `root`, and the read-only tools over them; `calls` holds what was asked."""

    root: Path
    calls: list[str] = field(default_factory=list)
    grep_lines: int = 200
    """Most lines Grep returns."""

    def write(self, files: Mapping[str, str] = TREE) -> Workspace:
        """Make the files."""
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return self

    def _files(self) -> list[Path]:
        return sorted(path for path in self.root.rglob("*") if path.is_file())

    def Grep(
        self,
        pattern: str,
        path: str = ".",
        glob: str | None = None,
        ignore_case: bool = False,
        literal: bool = False,
        context: int = 0,
    ) -> str:
        """Search file contents."""
        self.calls.append(f"Grep {pattern} {path}")
        flags = re.IGNORECASE if ignore_case else 0
        expression = re.compile(re.escape(pattern) if literal else pattern, flags)
        hits = [
            f"{name}:{number}:{line}"
            for file in self._files()
            if (name := file.relative_to(self.root).as_posix()).startswith(path if path != "." else "")
            for number, line in enumerate(file.read_text().splitlines(), 1)
            if expression.search(line)
        ]
        cut = [f"[{len(hits) - self.grep_lines} more lines not shown]"] if len(hits) > self.grep_lines else []
        return "\n".join([*hits[: self.grep_lines], *cut]) or "No matches found."

    def Glob(self, pattern: str, path: str = ".") -> str:
        """List files."""
        self.calls.append(f"Glob {pattern} {path}")
        found = sorted(p for p in (self.root / path).glob(pattern) if p.is_file())
        return "\n".join(p.relative_to(self.root).as_posix() for p in found) or "No files found."

    def Read(self, path: str, offset: int = 0, limit: int | None = None) -> str:
        """Read a file with line numbers."""
        self.calls.append(f"Read {path} {offset} {limit}")
        if not (self.root / path).is_file():
            return f"There is no file {path}."
        lines = (self.root / path).read_text().splitlines()
        shown = lines[offset : offset + limit if limit else None]
        rest = len(lines) - offset - len(shown)
        more = (
            [f"... ({rest} more lines. Use offset={offset + len(shown)} to continue reading.)"]
            if rest
            else []
        )
        numbered = [f"{number:6d}\t{line}" for number, line in enumerate(shown, offset + 1)]
        return "\n".join([f"[{path} | {len(lines)} lines]", *numbered, *more])

    @property
    def tools(self) -> list[Any]:
        """The three tools."""
        return [self.Grep, self.Glob, self.Read]

    def agent(self, model: ExtractiveModel | None = None, **options: Any) -> Agent:
        """Return a worker that has the tools."""
        return Agent(model or ExtractiveModel(window=200_000), tools=self.tools, **options)

    def report(self, brief: str, history: Sequence[ModelMessage] = ()) -> str:
        """Run a worker on a brief and return its report."""
        limits = UsageLimits(request_limit=None)
        return asyncio.run(self.agent().run(brief, message_history=list(history), usage_limits=limits)).output


def user(text: str) -> ModelRequest:
    """Return a request with one user text."""
    return ModelRequest(parts=[UserPromptPart(text)])


def calls_of(messages: Sequence[ModelMessage]) -> list[ToolCallPart]:
    """Return all tool calls of a history, in order."""
    return [part for message in messages for part in message.parts if isinstance(part, ToolCallPart)]
