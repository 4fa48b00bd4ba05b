"""The options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Cwd = Annotated[
    Path,
    typer.Option("--cwd", metavar="DIR", help="Work in this folder instead of here.", show_default=False),
]
AgentsDirs = Annotated[
    list[Path] | None,
    typer.Option(
        "--agents-dir",
        metavar="DIR",
        help="Read definitions from this folder too; may be repeated.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
AsJsonLines = Annotated[
    bool, typer.Option("--json", help="Print every event as a line of JSON, and last the result.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the answer only, no progress.")]
Model = Annotated[
    str | None,
    typer.Option("--model", "-m", metavar="KEY", help="Model to use: provider/model or an alias."),
]
Context = Annotated[
    str | None,
    typer.Option(
        "--context", metavar="MODE", help="What delegations see of the parent: independent or fork."
    ),
]
Attachments = Annotated[
    list[Path] | None,
    typer.Option(
        "--attach",
        metavar="FILE",
        help="Put the text of this file with the task; may be repeated.",
        show_default=False,
    ),
]
PermissionMode = Annotated[
    str | None,
    typer.Option(
        "--permission-mode",
        metavar="MODE",
        help="What is done without asking: ask (nothing but reading), accept-edits, or auto (everything).",
    ),
]
StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="Keep sessions there: a path, sqlite:///PATH or postgresql://USER@HOST/DATABASE.",
    ),
]
ReadStore = Annotated[
    str | None, typer.Option("--store", metavar="URL", help="Look into this store instead of your own.")
]
NoStore = Annotated[bool, typer.Option("--no-store", help="Keep nothing of this run.")]
Limit = Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, help="List N at most.")]
SessionId = Annotated[str, typer.Argument(metavar="ID", help="Id of a session, or its beginning.")]
DelegationId = Annotated[str, typer.Argument(metavar="ID", help="Id of a delegation, or its beginning.")]

HERE = Path()
