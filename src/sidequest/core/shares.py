"""What fills a context window, by kind: so that a person sees what a compaction would take away."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Shares:
    """The parts of one request, in tokens by the plain heuristic (specification 1.4).

    Worked numbers: a prompt of 400 Latin characters and a tool result of 4,000 give `user` 100 and `results`
    1,000. Each kind is rounded up by itself for each message, so the sum may be a few tokens above the size
    of the request; and it is below it where a model's reports taught that it counts more than we do.
    """

    instructions: int = 0
    tools: int = 0
    """Schemas of the tools."""
    summary: int = 0
    """What stands for history that was compacted away."""
    user: int = 0
    """Prompts, briefs, delivered reports and notices."""
    assistant: int = 0
    """What the model said, thought and called."""
    results: int = 0
    """What tools returned."""

    @property
    def total(self) -> int:
        """All of them together."""
        return sum(getattr(self, item.name) for item in fields(self))

    def plus(self, other: Shares) -> Shares:
        """Add `other`, kind by kind."""
        return Shares(
            *(getattr(self, item.name) + getattr(other, item.name) for item in fields(Shares)),
        )
