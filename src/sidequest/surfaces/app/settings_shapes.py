"""The settings as pages and API show them, and what may be changed. A key goes in and never comes out."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr

from sidequest.surfaces.app.agent_drafts import Number
from sidequest.surfaces.app.shapes import Given, Shape

KeyState = Literal["set", "missing", "unneeded"]


class ModelRow(Shape):
    """One model: what it leaves for a request, who says so, and whether it can be used."""

    key: str = Field(description="`provider/model`.")
    label: str | None
    ready: bool
    reason: str = Field(description="Why it cannot be used; empty when it can.")
    window: int | None = Field(description="Context window in tokens; null: unknown, 128,000 is taken.")
    window_source: str = Field(description="`user`, `server`, `catalog`, `assumed` or `unknown`.")
    max_tokens: int | None = Field(
        description="Most output tokens of a response; null: unknown, 8,192 is taken."
    )
    max_tokens_source: str
    hard_limit: int = Field(description="The first request size in tokens that is too large.")
    key_state: KeyState
    key_source: str = Field(description="`settings`, or the variable that holds or would hold the key.")
    in_file: bool = Field(description="Whether the settings file has a table for it.")
    available_for_subagents: bool
    provider: str | None = Field(
        description="As in the file; null when it is not stated there. So all below."
    )
    base_url: str | None
    api_key_env: str | None
    own_window: int | None
    own_max_tokens: int | None
    input_price: float | None
    output_price: float | None


class DenyLists(Given):
    """What is refused in every mode."""

    tools: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


class SettingsValues(Shape):
    """Values in force."""

    default_model: str | None
    default_context: str
    permission_mode: str
    sandbox: str
    max_turns: int | None
    max_seconds: float | None
    max_cost_usd: float | None
    max_running: int
    max_total: int
    deny: DenyLists


class SettingsView(Shape):
    """The settings file, the values in force, and every model."""

    path: str
    place: str = Field(description="The path as a person writes it.")
    exists: bool
    mark: str = Field(description="Changes when the file does; give it back with a change.")
    problem: str = Field(description="Why the file cannot be used; empty when it can.")
    overridden: dict[str, str] = Field(
        description="Settings that a variable of the environment beats, by name."
    )
    values: SettingsValues | None = Field(description="null when the file cannot be used.")
    default_now: str | None = Field(description="Key of the model that a session gets which names none.")
    models: tuple[ModelRow, ...]


class SettingsChange(Given):
    """What to change. What is left out stays; null takes a setting out of the file, so the default counts."""

    default_model: str | None = None
    default_context: str | None = None
    permission_mode: str | None = None
    sandbox: str | None = None
    max_turns: Number = None
    max_seconds: Number = None
    max_cost_usd: Number = None
    max_running: Number = None
    max_total: Number = None
    deny: DenyLists | None = None
    mark: str | None = Field(default=None, description="Refuses when the file changed since it was read.")


class ModelChange(Given):
    """What to change of a model's table. What is left out stays; null takes it out of the file."""

    provider: str | None = None
    base_url: str | None = None
    api_key: SecretStr | None = Field(default=None, description="Write-only.")
    api_key_env: str | None = Field(default=None, description="Variable that holds the key, never the key.")
    context_window: Number = None
    max_tokens: Number = None
    input_price: Number = None
    output_price: Number = None
    available_for_subagents: bool | None = None
    mark: str | None = Field(default=None, description="Refuses when the file changed since it was read.")
