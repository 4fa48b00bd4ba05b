"""What is printed on: standard output for results, standard error for progress, and what they can show."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from sidequest.surfaces.text import Glyphs, glyphs_for, printable

WIDE = 100
"""Columns from which a terminal counts as wide."""


@dataclass(frozen=True)
class Screen:
    """The two outputs of a command."""

    out: Console
    """Results; nothing else is ever written there."""
    err: Console
    """Progress, warnings and metadata."""
    live: bool
    """Whether `err` is a terminal on which lines can be redrawn."""
    glyphs: Glyphs

    @classmethod
    def of_process(cls, env: Mapping[str, str] | None = None) -> Screen:
        """Return the outputs of this process; `env` None is its own environment.

        A pipe, and a terminal that calls itself dumb, get plain lines without control codes. NO_COLOR is
        honoured.
        """
        env = os.environ if env is None else env
        live = _can_redraw(sys.stderr, env)
        return cls(
            _console(sys.stdout, env), _console(sys.stderr, env), live, glyphs_for(sys.stderr.encoding)
        )


class _Console(Console):
    """Leaves a broken pipe to the edge of the program, where Rich would end the process on the spot."""

    def on_broken_pipe(self) -> None:
        """Raise the error that Rich has just caught."""
        self.quiet = True
        raise BrokenPipeError


def _can_redraw(stream: TextIO, env: Mapping[str, str]) -> bool:
    return stream.isatty() and env.get("TERM", "") not in ("", "dumb", "unknown")


def _console(stream: TextIO, env: Mapping[str, str]) -> Console:
    terminal = _can_redraw(stream, env)
    return _Console(
        file=stream,
        force_terminal=terminal,
        force_interactive=terminal,
        color_system="auto" if terminal else None,
        no_color=bool(env.get("NO_COLOR")),
        highlight=False,
        markup=False,
        emoji=False,
        # A pipe gets each line whole, however long it is.
        soft_wrap=not terminal,
        width=None if terminal else 10_000,
    )


def line_width(console: Console) -> int | None:
    """Return how many columns a line may take on `console`, None when it is not a terminal."""
    return console.width if console.is_terminal else None


def put(console: Console, text: str | Text = "", style: str = "") -> None:
    """Print one line, or a text of several, without control codes of its own."""
    line = Text(printable(text), style=style) if isinstance(text, str) else text
    console.print(line, soft_wrap=not console.is_terminal, no_wrap=not console.is_terminal)


def put_labelled(
    console: Console, label: str, value: str | Text, columns: int, label_style: str = "dim"
) -> None:
    """Print a value behind its label; on a terminal the lines of a long value stand below each other."""
    text = Text(printable(value)) if isinstance(value, str) else value
    head = Text(pad(label, columns), label_style)
    if not console.is_terminal:
        put(console, head.append_text(text))
        return
    room = max(16, console.width - columns)
    for number, line in enumerate(text.wrap(console, room) or [Text()]):
        line.rstrip()
        put(console, (head if number == 0 else Text(" " * columns)).append_text(line))


def pad(text: str, width: int) -> str:
    """Return `text` followed by blanks up to `width` columns; a longer text is not cut."""
    return text if cell_len(text) >= width else set_cell_size(text, width)


def widest(texts: list[str]) -> int:
    """Return the columns that the widest of `texts` takes, 0 when there are none."""
    return max(map(cell_len, texts), default=0)


def fitted(line: Text, width: int | None) -> Text:
    """Cut `line` to `width` columns, the last one an ellipsis; None leaves it whole. Returns `line`."""
    if width is not None:
        line.truncate(width, overflow="ellipsis")
    return line
