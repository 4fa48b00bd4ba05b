"""Subagents over HTTP: list, read, create, update, remove, switch, trust, preview."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from sidequest.surfaces.app.agent_drafts import Draft
from sidequest.surfaces.app.agent_shapes import AgentFile, AgentList, Preview, Trust
from sidequest.surfaces.app.agents import Agents
from sidequest.surfaces.app.shapes import Given

if TYPE_CHECKING:
    from sidequest.surfaces.app.application import Application

Scope = Annotated[str | None, Query(description="Tells definitions of one name apart: `user`, `builtin`, …")]
Path = Annotated[str | None, Query(description="The file, when several of one scope have the name.")]
Mark = Annotated[str | None, Query(description="What `read` gave; refuses when the file changed since.")]


class Update(Draft):
    """What to change; what is left out stays as it is in the file."""

    mark: str | None = Field(
        default=None, description="What `read` gave; refuses when the file changed since."
    )


class Switch(Given):
    """Whether a definition is on."""

    enabled: bool


class TrustChange(Given):
    """Whether to trust the folder."""

    trusted: bool
    mark: str | None = Field(
        default=None, description="The mark of what was looked at; refuses when it changed."
    )


class PreviewRequest(Given):
    """A draft, and which file of the user's own it would change."""

    draft: Draft
    name: str | None = Field(default=None, description="null: it would be a new one.")
    path: str | None = None


def agents_router(application: Application) -> APIRouter:
    """Return the operations on subagents; they run in threads, because they read files."""
    router = APIRouter(tags=["agents"])
    agents = Agents(application)

    @router.get("/agents")
    def list_agents() -> AgentList:
        """Every definition, in groups, with what became of it."""
        return agents.every()

    @router.post("/agents", status_code=201)
    def create_agent(draft: Draft) -> AgentFile:
        """Store a new definition in the user's own folder."""
        return agents.create(draft)

    @router.post("/agents/preview")
    def preview_agent(request: PreviewRequest) -> Preview:
        """The file a draft would become, what is wrong with it, and the budget that results."""
        return agents.preview(request.draft, name=request.name, path=request.path)

    @router.get("/trust")
    def read_trust() -> Trust:
        """Whether the definitions of the project are used."""
        return agents.trust()

    @router.put("/trust")
    def change_trust(change: TrustChange) -> Trust:
        """Trust the project as it is now, or no longer."""
        return agents.set_trust(trusted=change.trusted, mark=change.mark)

    @router.get("/agents/{name}")
    def read_agent(name: str, scope: Scope = None, path: Path = None) -> AgentFile:
        """One definition, with its prompt, its file and its mark."""
        return agents.read(name, scope=scope, path=path)

    @router.patch("/agents/{name}")
    def update_agent(name: str, update: Update, scope: Scope = None, path: Path = None) -> AgentFile:
        """Change a definition of the user's own: only the lines that have to be."""
        return agents.update(name, update, mark=update.mark, scope=scope, path=path)

    @router.delete("/agents/{name}", status_code=204)
    def remove_agent(name: str, mark: Mark = None, scope: Scope = None, path: Path = None) -> None:
        """Delete a file of the user's own."""
        agents.remove(name, mark=mark, scope=scope, path=path)

    @router.put("/agents/{name}/enabled")
    def switch_agent(name: str, switch: Switch, scope: Scope = None, path: Path = None) -> AgentFile:
        """Switch a definition on or off, in the terminal too."""
        return agents.switch(name, on=switch.enabled, scope=scope, path=path)

    return router
