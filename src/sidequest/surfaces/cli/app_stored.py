"""The commands for what is stored: `sidequest sessions` and `sidequest delegations`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sidequest.surfaces.cli.options import (
    HERE,
    AgentsDirs,
    AsJson,
    AsJsonLines,
    DelegationId,
    Limit,
    PermissionMode,
    Quiet,
    ReadStore,
    SessionId,
)

sessions = typer.Typer(help="Look at stored sessions, and keep them in order.", rich_markup_mode=None)
delegations = typer.Typer(help="Look at stored delegations, and go on with one.", rich_markup_mode=None)
OfSession = Annotated[
    str | None,
    typer.Option("--session", metavar="ID", help="Its session; else the one used last that has that id."),
]


@sessions.command("list")
def sessions_list(
    search: Annotated[
        list[str] | None,
        typer.Argument(metavar="WORD", help="Only those whose title, or one of whose messages, says it."),
    ] = None,
    limit: Limit = 20,
    store: ReadStore = None,
    as_json: AsJson = False,
) -> int:
    """List the sessions, the one used last first."""
    from sidequest.surfaces.cli.sessions import list_sessions

    return list_sessions(" ".join(search or ()), store, limit=limit, as_json=as_json)


@sessions.command("show")
def sessions_show(session: SessionId, store: ReadStore = None, as_json: AsJson = False) -> int:
    """Show everything that was said in a session, compacted or not."""
    from sidequest.surfaces.cli.showing import show_session

    return show_session(session, store, as_json=as_json)


@sessions.command("export")
def sessions_export(
    session: SessionId,
    form: Annotated[
        str | None,
        typer.Option("--format", metavar="json|md", help="JSON with everything, or Markdown to read."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write there; its ending may say the format."),
    ] = None,
    store: ReadStore = None,
) -> int:
    """Write a whole session to a file or standard output."""
    from sidequest.surfaces.cli.exporting import export_session

    return export_session(session, store, form=form, output=output)


@sessions.command("rename")
def sessions_rename(
    session: SessionId,
    title: Annotated[str, typer.Argument(metavar="TITLE", help="What it is called from now on.")],
    store: ReadStore = None,
) -> int:
    """Give a session another title."""
    from sidequest.surfaces.cli.sessions import rename_session

    return rename_session(session, title, store)


@sessions.command("delete")
def sessions_delete(
    session: SessionId,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    store: ReadStore = None,
) -> int:
    """Remove a session with everything that belongs to it."""
    from sidequest.surfaces.cli.sessions import delete_session

    return delete_session(session, store, yes=yes)


@sessions.command("fork")
def sessions_fork(
    session: SessionId,
    through: Annotated[
        str | None,
        typer.Option("--through", metavar="MESSAGE_ID", help="Copy up to this message; else all of it."),
    ] = None,
    store: ReadStore = None,
    as_json: AsJson = False,
) -> int:
    """Copy a session, and print the id of the copy."""
    from sidequest.surfaces.cli.sessions import fork_session

    return fork_session(session, store, through=through, as_json=as_json)


@sessions.command("verify")
def sessions_verify(
    session: Annotated[
        str | None, typer.Argument(metavar="ID", help="Id of a session; without one, all of them.")
    ] = None,
    store: ReadStore = None,
    as_json: AsJson = False,
) -> int:
    """Check what is stored; exit code 1 if something does not hold."""
    from sidequest.surfaces.cli.sessions import verify_sessions

    return verify_sessions(session, store, as_json=as_json)


@delegations.command("list")
def delegations_list(
    session: Annotated[
        str | None, typer.Argument(metavar="SESSION_ID", help="Only those of this session.")
    ] = None,
    limit: Limit = 50,
    store: ReadStore = None,
    as_json: AsJson = False,
) -> int:
    """List the delegations, the sessions used last first."""
    from sidequest.surfaces.cli.delegations import list_delegations

    return list_delegations(session, store, limit=limit, as_json=as_json)


@delegations.command("show")
def delegations_show(
    delegation: DelegationId,
    messages: Annotated[
        bool, typer.Option("--messages", help="Show everything that it said and did.")
    ] = False,
    session: OfSession = None,
    store: ReadStore = None,
    as_json: AsJson = False,
) -> int:
    """Show one delegation: its task, how it ended, its report."""
    from sidequest.surfaces.cli.showing import show_delegation

    return show_delegation(delegation, store, session=session, messages=messages, as_json=as_json)


@delegations.command("resume")
def delegations_resume(
    delegation: DelegationId,
    instruction: Annotated[
        str | None,
        typer.Argument(metavar="INSTRUCTION", help="What to do next; - or nothing reads standard input."),
    ] = None,
    agents_dirs: AgentsDirs = None,
    permission_mode: PermissionMode = None,
    session: OfSession = None,
    store: ReadStore = None,
    as_json: AsJsonLines = False,
    quiet: Quiet = False,
) -> int:
    """Go on with a delegation, in its folder and on its model."""
    from sidequest.surfaces.assemble import Place
    from sidequest.surfaces.cli.run import Job, execute
    from sidequest.surfaces.storing import Keeping

    place = Place(HERE, tuple(agents_dirs or ()))
    keep = Keeping(store, session=session, delegation=delegation)
    job = Job(instruction, None, place, None, None, as_json, quiet, keep, permission_mode, follow=True)
    return execute(job)
