"""`sidequest models list`: what can be used, how large it is and who says so, what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.text import Text

from sidequest.core.budget import DEFAULT_CONTEXT_WINDOW
from sidequest.core.errors import SidequestError
from sidequest.models.bindings import OFFLINE_KEY, ModelBinding
from sidequest.models.local_servers import LocalServer
from sidequest.models.registry import ModelRegistry
from sidequest.surfaces.assemble import registry_of
from sidequest.surfaces.cli.budget import source_of
from sidequest.surfaces.cli.errors import Exit
from sidequest.surfaces.cli.jsonlines import print_json
from sidequest.surfaces.cli.screen import Screen, fitted, line_width, pad, put, widest
from sidequest.surfaces.settings import load_settings
from sidequest.surfaces.text import count, one_line, some

NOT_A_MODEL = (
    f"{OFFLINE_KEY} is not a language model: it searches and reads files and quotes the lines it finds."
)


def list_models(*, as_json: bool, discover: bool) -> int:
    """Print the models and return the exit code; `discover` asks the servers on this machine, about 0.4 s.

    Raises:
        SidequestError: `SETTINGS_INVALID`.
    """
    registry = registry_of(load_settings())
    servers = _ask_servers() if discover else []
    registry = registry.with_servers(servers)
    default, problem = _default(registry)
    bindings = registry.listed()
    if as_json:
        print_json(
            {
                "default": default,
                "defaultProblem": problem or None,
                "models": [_as_dict(binding, default) for binding in bindings],
                "servers": [_server_dict(server) for server in servers],
                "note": NOT_A_MODEL,
            }
        )
        return Exit.DONE
    screen = Screen.of_process()
    _put_bindings(screen, bindings, default)
    if discover:
        put(screen.out)
        put(screen.out, "servers on this machine", "bold")
        for line in server_lines(servers):
            put(screen.out, f"  {line}", "" if servers else "dim")
    put(screen.out)
    put(screen.out, f"* the default: {default}" if default else f"no default: {one_line(problem)}", "bold")
    put(screen.out, NOT_A_MODEL, "dim")
    return Exit.DONE


def _ask_servers() -> list[LocalServer]:
    import asyncio

    from sidequest.models.local_servers import discover

    return asyncio.run(discover())


def _default(registry: ModelRegistry) -> tuple[str | None, str]:
    try:
        return registry.default().key, ""
    except SidequestError as error:
        return None, f"{error.cause} {error.remedy}"


def _put_bindings(screen: Screen, bindings: Sequence[ModelBinding], default: str | None) -> None:
    keys = widest([binding.key for binding in bindings])
    windows = widest([_window(binding) for binding in bindings])
    for title, chosen in (
        ("ready", [binding for binding in bindings if binding.ready]),
        ("something is missing", [binding for binding in bindings if not binding.ready]),
    ):
        if not chosen:
            continue
        if title != "ready":
            put(screen.out)
        put(screen.out, title, "bold")
        for binding in chosen:
            mark = "*" if binding.key == default else " "
            line = Text(f"{mark} ").append(pad(binding.key, keys), "green" if binding.ready else "")
            line.append(f"  {_window(binding):>{windows}}")
            line.append(f"  {'; '.join(_details(binding))}", "dim" if binding.ready else "yellow")
            put(screen.out, fitted(line, line_width(screen.out)))


def _window(binding: ModelBinding) -> str:
    """Return the window that is reckoned with; `_details` says where nobody states one."""
    return count(binding.window or DEFAULT_CONTEXT_WINDOW)


def _details(binding: ModelBinding) -> Iterator[str]:
    if binding.why_not:
        yield binding.why_not.removesuffix(".")
        return
    yield f"window: {source_of(binding, binding.window_source)}"
    if binding.max_tokens:
        yield f"writes {count(binding.max_tokens)}"
    if binding.available_for_subagents:
        yield "subagents may choose it"


def server_lines(servers: Sequence[LocalServer]) -> Iterator[str]:
    """Give a line for each server that was found, and how one of its models is used."""
    if not servers:
        yield "none found (looked for Ollama, LM Studio, llama.cpp and vLLM)"
    for server in servers:
        about = some(len(server.models), "model") if server.models else server.note or "no models"
        yield f"{server.kind}  {server.base_url}  {about}"
        if server.models:
            yield f'  use one: sidequest run --model {server.kind}/{server.models[0].name} "..."'


def _as_dict(binding: ModelBinding, default: str | None) -> dict[str, Any]:
    return {
        "key": binding.key,
        "label": binding.label,
        "default": binding.key == default,
        "ready": binding.ready,
        "missing": binding.why_not,
        "remedy": binding.problem.remedy if binding.problem else None,
        "window": binding.window,
        "windowFrom": binding.window_source,
        "maxTokens": binding.max_tokens,
        "maxTokensFrom": binding.max_tokens_source,
        "inputPrice": binding.input_price,
        "outputPrice": binding.output_price,
        "availableForSubagents": binding.available_for_subagents,
        "languageModel": binding.key != OFFLINE_KEY,
        "baseUrl": binding.base_url,
    }


def _server_dict(server: LocalServer) -> dict[str, Any]:
    return {
        "kind": server.kind,
        "baseUrl": server.base_url,
        "note": server.note,
        "models": [f"{server.kind}/{model.name}" for model in server.models],
    }
