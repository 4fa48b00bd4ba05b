"""The commands and their options; what a command does is imported when it runs.

Each function builds one frozen request and hands it over, so this page is all there is to parse.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from sidequest.surfaces.cli.app_stored import delegations, sessions
from sidequest.surfaces.cli.options import (
    HERE,
    AgentsDirs,
    AsJson,
    AsJsonLines,
    Attachments,
    Context,
    Cwd,
    Model,
    NoStore,
    PermissionMode,
    Quiet,
    StoreUrl,
)

app = typer.Typer(
    name="sidequest",
    help="Subagents that cannot outgrow their context window.",
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
)
agents = typer.Typer(help="Look at the subagents there are.", rich_markup_mode=None)
models = typer.Typer(help="Look at the models there are.", rich_markup_mode=None)
app.add_typer(agents, name="agents")
app.add_typer(sessions, name="sessions")
app.add_typer(delegations, name="delegations")
app.add_typer(models, name="models")


def run_command(arguments: Sequence[str]) -> int:
    """Parse `arguments`, run the command they name and return its exit code.

    Raises:
        SidequestError: the command could not start.
        Exception: what Typer raises for wrong arguments; it has `format_message`.
    """
    command = typer.main.get_command(app)
    code = command.main(list(arguments), prog_name="sidequest", standalone_mode=False)
    return code if isinstance(code, int) else 0


def _print_version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    show_version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; so does SIDEQUEST_DEBUG=1.")
    ] = False,
) -> None:
    """Subagents that cannot outgrow their context window."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(2)


@app.command()
def run(
    prompt: Annotated[
        str | None,
        typer.Argument(metavar="PROMPT", help="What to do; - or nothing reads standard input."),
    ] = None,
    cwd: Annotated[
        Path | None,
        typer.Option(
            "--cwd", metavar="DIR", help="Work in this folder instead of here, or that of the session."
        ),
    ] = None,
    go_on: Annotated[
        bool, typer.Option("--continue", "-c", help="Go on with the newest session of this folder.")
    ] = False,
    session: Annotated[
        str | None,
        typer.Option("--session", metavar="ID", help="Go on with this session, in its own folder."),
    ] = None,
    model: Model = None,
    agents_dirs: AgentsDirs = None,
    context: Context = None,
    permission_mode: PermissionMode = None,
    store: StoreUrl = None,
    no_store: NoStore = False,
    as_json: AsJsonLines = False,
    quiet: Quiet = False,
) -> int:
    """Give the parent agent a prompt; it works and delegates."""
    from sidequest.surfaces.assemble import Place
    from sidequest.surfaces.cli.run import Job, execute
    from sidequest.surfaces.storing import Keeping

    place = Place(cwd or HERE, tuple(agents_dirs or ()))
    keep = Keeping(store, off=no_store, newest=go_on, session=session)
    job = Job(prompt, None, place, model, context, as_json, quiet, keep, permission_mode, follow=cwd is None)
    return execute(job)


@app.command()
def delegate(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="Name of a subagent.")],
    task: Annotated[
        str | None,
        typer.Argument(metavar="TASK", help="What it should do; - or nothing reads standard input."),
    ] = None,
    cwd: Cwd = HERE,
    model: Model = None,
    agents_dirs: AgentsDirs = None,
    context: Context = None,
    attachments: Attachments = None,
    permission_mode: PermissionMode = None,
    store: StoreUrl = None,
    no_store: NoStore = False,
    as_json: AsJsonLines = False,
    quiet: Quiet = False,
) -> int:
    """Give one subagent a task, without a parent agent."""
    from sidequest.surfaces.assemble import Place
    from sidequest.surfaces.cli.run import Job, execute
    from sidequest.surfaces.storing import Keeping

    place = Place(cwd, tuple(agents_dirs or ()))
    keep = Keeping(store, off=no_store)
    attached = tuple(path.absolute() for path in attachments or ())
    job = Job(task, agent, place, model, context, as_json, quiet, keep, permission_mode, attachments=attached)
    return execute(job)


@agents.command("list")
def agents_list(cwd: Cwd = HERE, agents_dirs: AgentsDirs = None, as_json: AsJson = False) -> int:
    """List the subagents: which are active, and why the others are not."""
    from sidequest.surfaces.assemble import Place
    from sidequest.surfaces.cli.agents import list_agents

    return list_agents(Place(cwd, tuple(agents_dirs or ())), as_json=as_json)


@agents.command("show")
def agents_show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of a subagent.")],
    cwd: Cwd = HERE,
    agents_dirs: AgentsDirs = None,
    as_json: AsJson = False,
) -> int:
    """Show one definition as it was understood, and its prompt."""
    from sidequest.surfaces.assemble import Place
    from sidequest.surfaces.cli.agents import show_agent

    return show_agent(name, Place(cwd, tuple(agents_dirs or ())), as_json=as_json)


@agents.command("check")
def agents_check(
    subjects: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH|NAME", help="Files, folders or names; without any, all files found."),
    ] = None,
    cwd: Cwd = HERE,
    agents_dirs: AgentsDirs = None,
    as_json: AsJson = False,
) -> int:
    """Check definition files; exit code 1 if one does not load."""
    from sidequest.surfaces.assemble import Place
    from sidequest.surfaces.cli.agents import check_agents

    return check_agents(tuple(subjects or ()), Place(cwd, tuple(agents_dirs or ())), as_json=as_json)


@models.command("list")
def models_list(
    as_json: AsJson = False,
    discover: Annotated[
        bool, typer.Option("--discover/--no-discover", help="Ask the model servers on this machine.")
    ] = True,
) -> int:
    """List the models, their windows, and what is missing."""
    from sidequest.surfaces.cli.models import list_models

    return list_models(as_json=as_json, discover=discover)


@app.command()
def budget(
    subject: Annotated[str, typer.Argument(metavar="MODEL|WINDOW", help="A model, or a window in tokens.")],
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", metavar="N", help="Cap the output at N tokens.")
    ] = None,
    window: Annotated[
        int | None, typer.Option("--window", metavar="N", help="Take a window of N tokens instead.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Show how the context budget of a model is computed."""
    from sidequest.surfaces.cli.budget import Question, execute

    return execute(Question(subject, max_tokens, window, as_json))


@app.command()
def serve(
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Listen at this address; needs --token.")
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            "--port", metavar="N", min=0, max=65535, help="Listen at this port; 0 takes a free one."
        ),
    ] = 8765,
    cwd: Cwd = HERE,
    agents_dirs: AgentsDirs = None,
    store: StoreUrl = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Print the link and open no browser.")] = False,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            metavar="TEXT",
            envvar="SIDEQUEST_TOKEN",
            help="What scripts send as Authorization: Bearer.",
        ),
    ] = None,
    names: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host", metavar="NAME", help="Answer to this name, too, behind a proxy with TLS."
        ),
    ] = None,
) -> int:
    """Serve the web app and its JSON API on this machine."""
    from sidequest.surfaces.cli.serving import Serving, execute

    dirs, own = tuple(agents_dirs or ()), tuple(names or ())
    return execute(Serving(cwd, host, port, token, store, dirs, not no_open, own))


@app.command()
def trust(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A project; without one, this folder.", show_default=False)
    ] = HERE,
    forget: Annotated[bool, typer.Option("--forget", help="Trust it no longer.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="List the folders you trust.")] = False,
    as_json: AsJson = False,
) -> int:
    """Use the subagents and the AGENTS.md of a folder, as they are now."""
    from sidequest.surfaces.cli.trusting import forget_folder, list_trusted, trust_folder

    if listed:
        return list_trusted(as_json=as_json)
    return forget_folder(folder, as_json=as_json) if forget else trust_folder(folder, as_json=as_json)


@app.command()
def version() -> int:
    """Print the version."""
    from importlib.metadata import version as installed

    typer.echo(f"sidequest {installed('sidequest')}")
    return 0
