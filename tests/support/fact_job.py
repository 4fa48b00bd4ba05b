"""The fact job: a delegate reads many files, one per turn, in a window that is several times too small.

The scripted model knows only what it can see in a request: what it reports are facts that were in front of
it, and its summaries keep the facts that it was shown.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from pathlib import Path

from tests.support.neutral import Reply, Seen

FACT = re.compile(r"FACT-(\d\d) is ([a-z]+)")
READ_CALL = re.compile(r"note-(\d\d)\.txt")
_WORDS = (
    *("harbour", "tide", "lantern", "orchard", "granite", "meadow", "copper", "willow", "signal", "ledger"),
    *("anchor", "timber", "saffron", "cobalt", "thistle", "beacon", "quarry", "ribbon", "falcon", "cedar"),
)


@dataclass(frozen=True)
class FactJob:
    """Files `note-01.txt` to `note-NN.txt` in `root`, each with one fact on its first or last line."""

    root: Path
    last_line: bool
    files: int = 32
    tokens_each: int = 2_000

    def write(self) -> FactJob:
        """Make the files; the same text at every call."""
        rng = random.Random(7)
        for number in range(1, self.files + 1):
            fact = f"FACT-{number:02d} is {self.fact(number)}"
            filler: list[str] = []
            size = 0
            while size < self.tokens_each * 4 - len(fact):
                line = " ".join(rng.choice(_WORDS) for _ in range(12))
                filler.append(line)
                size += len(line) + 1
            lines = [*filler, fact] if self.last_line else [fact, *filler]
            (self.root / f"note-{number:02d}.txt").write_text("\n".join(lines) + "\n")
        return self

    def fact(self, number: int) -> str:
        """Return the word that file `number` holds."""
        rng = random.Random(number)
        return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(8))

    @property
    def task(self) -> str:
        """The brief of the delegate."""
        return (
            f"Read note-01.txt to note-{self.files:02d}.txt, one file per turn, each file once. Every file "
            "states one numbered fact. Report all facts."
        )

    def script(self, seen: Seen) -> Reply:
        """Answer as a model that can only use what the request shows."""
        if not seen.tool_names:
            return Reply("## Goal\nReport all facts.\n\n## Critical Context\n" + "\n".join(self.lines(seen)))
        next_file = next((n for n in range(1, self.files + 1) if n not in self.files_seen(seen)), None)
        if next_file is None:
            return Reply("\n".join(self.lines(seen)))
        return Reply(tool_calls=[("Read", {"path": f"note-{next_file:02d}.txt"})])

    @staticmethod
    def lines(seen: Seen) -> list[str]:
        """Return one line per fact that is visible in the request."""
        return [f"FACT-{n} is {word}" for n, word in sorted(set(FACT.findall(seen.text)))]

    def files_seen(self, seen: Seen) -> set[int]:
        """Return the files that the request shows as read: by a call, a fact, or a summary's list."""
        called = {int(n) for call in seen.tool_calls for n in READ_CALL.findall(str(call.args))}
        listed = {
            int(n)
            for block in re.findall(r"<read-files>(.*?)</read-files>", seen.text, re.DOTALL)
            for n in READ_CALL.findall(block)
        }
        return called | listed | {int(n) for n, _ in FACT.findall(seen.text)}

    def found(self, report: str) -> int:
        """Return how many facts `report` states correctly."""
        return sum(f"FACT-{n:02d} is {self.fact(n)}" in report for n in range(1, self.files + 1))
