"""What a session is opened with: the windows of local models, and what is said of the catalog as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from sidequest.models.local_servers import LocalModel, LocalServer, ServerAddress
from sidequest.models.registry import ModelRegistry
from sidequest.subagents.catalog import Catalog
from sidequest.subagents.definition import ModelPin, SubagentDefinition
from sidequest.surfaces.assemble import knowing_local_windows, pins_of
from tests.surfaces.conftest import Cli, write_definition

SERVERS = {
    "llamacpp": LocalServer("llamacpp", "http://127.0.0.1:8080/v1", (LocalModel("q", 9_000),)),
    "vllm": LocalServer("vllm", "http://127.0.0.1:8000/v1", (LocalModel("q", 40_000),)),
}


def test_servers_that_definitions_are_pinned_to_are_asked_too() -> None:
    asked: list[str] = []

    async def ask(addresses: Sequence[ServerAddress]) -> list[LocalServer]:
        asked.extend(address.kind for address in addresses)
        return [SERVERS[address.kind] for address in addresses]

    worker = SubagentDefinition(
        "worker", "Works.", "Work.", model=ModelPin("llamacpp/q"), fallback_models=(ModelPin("vllm/q"),)
    )
    pins = [*pins_of(Catalog.from_definitions([worker])), "no such model"]
    registry = ModelRegistry(env={"ANTHROPIC_API_KEY": "k"})
    known = asyncio.run(knowing_local_windows(registry, "anthropic/claude-sonnet-4-5", pins, ask=ask))
    assert sorted(asked) == ["llamacpp", "vllm"]
    assert [known.resolve(name).window for name in ("llamacpp/q", "vllm/q")] == [9_000, 40_000]


def test_no_server_is_asked_when_every_window_is_known() -> None:
    async def ask(addresses: Sequence[ServerAddress]) -> list[LocalServer]:
        raise AssertionError("nobody is asked")

    registry = ModelRegistry(env={"ANTHROPIC_API_KEY": "k"})
    assert asyncio.run(knowing_local_windows(registry, "anthropic/claude-sonnet-4-5", ask=ask)) is registry


def test_pins_to_more_than_eight_providers_are_pointed_out(cli: Cli, home: Path) -> None:
    folder = home / ".agents/subagents"
    for number in range(9):
        text = f"---\nname: w{number}\ndescription: Works.\nmodel: p{number}/m\n---\n\nWork.\n"
        write_definition(folder, f"w{number}", text)
    said = " ".join(cli("agents", "check").out.split())
    assert "models of more than 8 providers; beyond are p8." in said
    (folder / "w8.md").unlink()
    assert "more than 8 providers" not in " ".join(cli("agents", "check").out.split())
