"""The settings over HTTP. Keys of providers are written and never read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query

from sidequest.surfaces.app.settings import SettingsFile
from sidequest.surfaces.app.settings_shapes import ModelChange, SettingsChange, SettingsView

if TYPE_CHECKING:
    from sidequest.surfaces.app.application import Application

Mark = Annotated[str | None, Query(description="Refuses when the file changed since it was read.")]


def settings_router(application: Application) -> APIRouter:
    """Return the operations on the settings file; they run in threads, because they read files."""
    router = APIRouter(prefix="/settings", tags=["settings"])
    file = SettingsFile(application)

    @router.get("")
    def read_settings() -> SettingsView:
        """The file, the values in force, and every model with its window, its cap and who says so."""
        return file.view()

    @router.patch("")
    def change_settings(change: SettingsChange) -> SettingsView:
        """Change values; what is left out stays, null takes a setting out of the file."""
        return file.change(change)

    @router.patch("/models/{key:path}")
    def change_model(key: str, change: ModelChange) -> SettingsView:
        """Change the table of a model, or make one; `key` is `provider/model`."""
        return file.change_model(key, change)

    @router.delete("/models/{key:path}")
    def remove_model(key: str, mark: Mark = None) -> SettingsView:
        """Take the table of a model, and the key in it, out of the file."""
        return file.remove_model(key, mark=mark)

    return router
