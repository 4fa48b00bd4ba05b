"""The user's settings: one TOML file, and environment variables that beat it.

The file is `$SIDEQUEST_CONFIG`, else `$XDG_CONFIG_HOME/sidequest/config.toml`, else
`~/.config/sidequest/config.toml`; a missing one means defaults. Keys and header values are secrets: they
are never part of a message, a repr or a dump.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.permissions import DenyRules, Mode
from sidequest.core.provider_errors import Pattern
from sidequest.models.bindings import ModelEntry

ENV_PREFIX = "SIDEQUEST_"
_OTHER_VARIABLES = frozenset({"CONFIG", "DEBUG", "OFFLINE_DELAY_S", "SCRATCH", "TOKEN", "UPDATE_SNAPSHOTS"})
"""Variables with our prefix that are no settings."""
PathVariable = Annotated[list[Path], NoDecode]


class DenySettings(BaseModel):
    """The table `deny`: what is refused in every mode."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    tools: tuple[str, ...] = ()
    """Names or globs of tools."""
    paths: tuple[str, ...] = ()
    """Globs of files and folders."""
    commands: tuple[str, ...] = ()
    """Words of commands."""

    def rules(self) -> DenyRules:
        """Return the rules as a session takes them."""
        return DenyRules(self.tools, self.paths, self.commands)

    @model_validator(mode="after")
    def _are_rules(self) -> DenySettings:
        try:
            self.rules()
        except SidequestError as error:
            raise ValueError(f"{error.cause.rstrip('.')} ({error.remedy.rstrip('.')})") from error
        return self


class Settings(BaseSettings):
    """Everything a user may set; `load_settings` reads it.

    A variable has the name of its key behind `SIDEQUEST_`, so `SIDEQUEST_DEFAULT_MODEL` beats
    `default_model` of the file.
    """

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, extra="forbid", frozen=True, hide_input_in_errors=True, env_ignore_empty=True
    )

    default_model: str | None = None
    """Name of the session's model; None lets the registry choose."""
    models: dict[str, ModelEntry] = Field(default_factory=dict)
    """One table per model: `[models."provider/name"]`."""
    default_context: Literal["independent", "fork"] = "independent"
    """Context mode of a delegation when neither Task nor definition names one."""
    max_turns: int | None = Field(default=None, ge=1)
    """Most model requests of one turn of the parent agent; None means no limit."""
    max_seconds: float | None = Field(default=None, gt=0)
    """Wall time after which a turn of the parent agent is asked for its answer; None means no limit."""
    max_cost_usd: float | None = Field(default=None, gt=0)
    """Most US dollars that a session and all of its delegations may spend; None means no limit."""
    permission_mode: Mode = Mode.ASK
    """How edits, commands and folders outside are approved: `ask`, `accept-edits` or `auto`."""
    deny: DenySettings = Field(default_factory=DenySettings)
    """What is refused in every mode."""
    sandbox: Literal["off", "auto", "require"] = "off"
    """Whether commands run in bubblewrap: never, where it works, or always."""
    max_total: int = Field(default=100, ge=1)
    """Most delegations over the life of a session, inclusive."""
    max_running: int = Field(default=10, ge=1, le=10)
    """Most delegations of a session that run at once, inclusive (specification 3.7)."""
    agents_dirs: PathVariable = Field(default_factory=list)
    """More folders with definitions; a relative path starts at the folder of the settings file. In the
    variable they are separated like `PATH`."""
    store: str | None = Field(default=None, repr=False)
    """Where sessions are stored: a path, `sqlite:///PATH` or `postgresql://USER@HOST/DATABASE`. None means
    `sidequest/sidequest.db` in the user's data folder; a relative path starts at the folder of the settings
    file. An address may hold a password, so it is no part of a repr."""
    error_patterns: list[dict[str, object]] = Field(default_factory=list)
    """Tables that teach us a provider's wording of errors; checked, and kept as written."""

    @field_validator("agents_dirs", mode="before")
    @classmethod
    def _split_like_path(cls, value: object) -> object:
        return [part for part in value.split(os.pathsep) if part] if isinstance(value, str) else value

    @field_validator("error_patterns")
    @classmethod
    def _patterns_can_be_used(cls, value: list[dict[str, object]]) -> list[dict[str, object]]:
        for row in value:
            try:
                Pattern.from_mapping(row)
            except SidequestError as error:
                raise ValueError(f"{error.cause} {error.remedy.rstrip('.')}") from error
        return value

    @field_validator("models")
    @classmethod
    def _keys_name_provider_and_model(cls, value: dict[str, ModelEntry]) -> dict[str, ModelEntry]:
        for key in value:
            provider, slash, name = key.partition("/")
            if not (provider.strip() and slash and name.strip()):
                raise ValueError(f'{key!r} is no provider/name; write for example [models."openai/{key}"]')
        return value


def settings_path(env: Mapping[str, str] | None = None) -> Path:
    """Return where the settings file is looked for; it need not exist. `env` None means the process's own."""
    env = os.environ if env is None else env
    if named := env.get("SIDEQUEST_CONFIG"):
        return Path(named).expanduser()
    home = env.get("XDG_CONFIG_HOME")
    # A relative XDG path is to be ignored, says the XDG base directory specification.
    folder = Path(home) if home and Path(home).is_absolute() else Path("~/.config").expanduser()
    return folder / "sidequest" / "config.toml"


def load_settings(path: Path | None = None, env: Mapping[str, str] | None = None) -> Settings:
    """Read the settings; None means the usual file and the environment of the process.

    A missing file gives the defaults, unless SIDEQUEST_CONFIG names it.

    Raises:
        SidequestError: `SETTINGS_INVALID`, with the file or variable, the key, and what is accepted.
    """
    env = os.environ if env is None else env
    file = settings_path(env) if path is None else path
    if path is None and env.get("SIDEQUEST_CONFIG") and not file.exists():
        raise _invalid(
            f"SIDEQUEST_CONFIG names {file}, which is not there.", "Correct the variable or remove it."
        )
    if file.exists() and not file.is_file():  # it would be passed over, and its deny rules with it
        raise _invalid(f"{file} is no regular file.", "Put the settings into a file, and name that.")
    try:
        return _read(file, env)
    except tomllib.TOMLDecodeError as error:
        remedy = 'Correct that line; keys with "/", "." or ":" need quotes, and so do texts.'
        raise _invalid(f"{file} is not TOML: {error}.", remedy) from error
    except (OSError, UnicodeDecodeError) as error:
        raise _invalid(f"{file} cannot be read: {error}.", "Check the file and its permissions.") from error
    except SettingsError as error:
        # Its text names the field and the source, not the value.
        raise _invalid(f"A {ENV_PREFIX} variable cannot be read: {error}.", "Write JSON there.") from error
    except ValidationError as error:
        problems = [_sentence(details, file, env) for details in error.errors(include_url=False)]
        raise _invalid(" ".join(problems[:3]), "Correct it and start again.") from None


def unknown_variables(env: Mapping[str, str] | None = None) -> list[str]:
    """Return a sentence for each variable with our prefix that nothing reads; None is the process's own."""
    known = {name.upper() for name in Settings.model_fields} | _OTHER_VARIABLES
    said = []
    for name in sorted(os.environ if env is None else env):
        rest = name.removeprefix(ENV_PREFIX)
        if rest == name or rest in known:
            continue
        near = get_close_matches(rest, sorted(known), n=1, cutoff=0.6)
        meant = f" Did you mean {ENV_PREFIX}{near[0]}?" if near else ""
        said.append(f"The variable {name} is no setting and is not used.{meant}")
    return said


def problems_of_values(values: Mapping[str, object]) -> list[tuple[tuple[str, ...], str]]:
    """Return what is wrong with the values of a file, as places and sentences; variables do not count."""

    class _Given(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return (init_settings,)

    try:
        _Given(**values)  # type: ignore[arg-type]
    except ValidationError as error:
        return [(tuple(map(str, found["loc"])), f"{_said(found)}.") for found in error.errors()]
    return []


def _said(details: ErrorDetails) -> str:
    """Return what pydantic says, as the end of a sentence about a key."""
    text = details["msg"].removeprefix("Value error, ").removeprefix("Input ")
    if details["type"] in ("tuple_type", "list_type"):
        return 'should be a list, such as ["one", "two"]'
    return "should be a table" if details["type"] in ("dict_type", "model_type") else text


def _read(file: Path, env: Mapping[str, str]) -> Settings:
    class _Environment(EnvSettingsSource):
        def _load_env_vars(self) -> Mapping[str, str | None]:
            return {name.lower(): value for name, value in env.items() if value}

    class _Loaded(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return _Environment(settings_cls), TomlConfigSettingsSource(settings_cls, file)

    loaded = dict(_Loaded())
    loaded["agents_dirs"] = [_absolute(folder, file) for folder in loaded["agents_dirs"]]
    if loaded["store"] and "://" not in loaded["store"]:
        loaded["store"] = str(_absolute(Path(loaded["store"]), file))
    return Settings.model_construct(**loaded)


def _absolute(folder: Path, file: Path) -> Path:
    return file.parent / folder.expanduser()


def _invalid(cause: str, remedy: str) -> SidequestError:
    return SidequestError(ErrorCode.SETTINGS_INVALID, cause, remedy)


def _sentence(details: ErrorDetails, file: Path, env: Mapping[str, str]) -> str:
    """Say which key of which source is wrong and what is accepted, without the value."""
    steps = [str(step) for step in details["loc"]]
    variable = f"{ENV_PREFIX}{steps[0].upper()}" if steps else ""
    where = f"The variable {variable}" if env.get(variable) else f"{file}: {_dotted(steps)}"
    if details["type"] == "extra_forbidden":
        return f"{where} is no setting. {_accepted_keys(steps)}"
    return f"{where}: {_said(details)}."


def _dotted(steps: list[str]) -> str:
    return ".".join(f'"{step}"' if {"/", ".", " "} & set(step) else step for step in steps)


def _accepted_keys(steps: list[str]) -> str:
    tables: dict[str, type[BaseModel]] = {"models": ModelEntry, "deny": DenySettings}
    owner = tables.get(steps[0], Settings) if len(steps) > 1 else Settings
    known = sorted(owner.model_fields)
    near = get_close_matches(steps[-1].replace("-", "_").lower(), known, n=1, cutoff=0.6)
    return f"Did you mean {near[0]}?" if near else f"Accepted: {', '.join(known)}."
