"""The settings file for pages and API: read, and changed so that what was written by hand stays.

What would not be read as settings never reaches the file. All of it is plain file work, so call it in a
thread from code that must not wait.
"""

from __future__ import annotations

import math
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydantic import SecretStr
from pydantic.alias_generators import to_camel

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.models.bindings import ModelBinding, ModelEntry
from sidequest.models.providers import provider_facts
from sidequest.models.registry import ModelRegistry
from sidequest.subagents.user_files import FILE_MODE, write_whole
from sidequest.surfaces.app.agent_drafts import FieldProblem
from sidequest.surfaces.app.agent_files import mark_of
from sidequest.surfaces.app.numbers import how_to_write, number_of
from sidequest.surfaces.app.settings_edit import with_values
from sidequest.surfaces.app.settings_shapes import (
    DenyLists,
    KeyState,
    ModelChange,
    ModelRow,
    SettingsChange,
    SettingsValues,
    SettingsView,
)
from sidequest.surfaces.assemble import registry_of
from sidequest.surfaces.paths import Shortener
from sidequest.surfaces.settings import (
    ENV_PREFIX,
    Settings,
    load_settings,
    problems_of_values,
    settings_path,
)

if TYPE_CHECKING:
    from sidequest.surfaces.app.application import Application

_VALUES = tuple(name for name in SettingsChange.model_fields if name not in ("mark", "deny"))
_ENTRY = tuple(name for name in ModelChange.model_fields if name != "mark")

_NUMBERS = frozenset(
    {
        *("max_turns", "max_seconds", "max_cost_usd", "max_running", "max_total"),
        *("context_window", "max_tokens", "input_price", "output_price"),
    }
)


class SettingsRefused(SidequestError):
    """A change that would not be read; `problems` has a message for each field, in the order of the form."""

    def __init__(self, problems: list[FieldProblem]) -> None:
        details: dict[str, Any] = {problem.field: problem.message for problem in problems}
        super().__init__(
            ErrorCode.SETTINGS_INVALID,
            f"The settings cannot be saved: {problems[0].field}: {problems[0].message}",
            "Correct the fields that are named.",
            **details,
        )
        self.problems = problems


@dataclass(frozen=True)
class SettingsFile:
    """The settings of an application. Keeps nothing: every call reads the file anew."""

    application: Application

    @property
    def path(self) -> Path:
        """Where the file is; it need not exist."""
        return settings_path(self.application.env)

    def view(self) -> SettingsView:
        """Return the file, the values in force and every model; a file that cannot be used is a `problem`.

        Raises:
            SidequestError: `SETTINGS_INVALID` when it cannot even be read.
        """
        data, env = self._data(), self.application.env
        values: SettingsValues | None = None
        models: tuple[ModelRow, ...] = ()
        problem, default = "", None
        try:
            settings = load_settings(env=env)
            registry = registry_of(settings, env)
            values, models = _values(settings), _rows(settings, registry, env)
            default = registry.default().key
        except SidequestError as error:
            problem = f"{error.cause} {error.remedy}"
        return SettingsView(
            path=str(self.path),
            place=Shortener(self.application.root, Path.home()).short(str(self.path)),
            exists=self.path.exists(),
            mark=mark_of(data),
            problem=problem,
            overridden=self._overridden(),
            values=values,
            default_now=default,
            models=models,
        )

    def change(self, change: SettingsChange) -> SettingsView:
        """Change values of the file: those that `change` holds and no others.

        Raises:
            SidequestError: `SettingsRefused` with a message for each field; `STORE_CONFLICT` when the file
                changed since `change.mark`; `SETTINGS_INVALID` when it cannot be changed or written.
        """
        given = change.model_fields_set
        changes: dict[tuple[str, ...], Any] = {
            (name,): _plain(name, getattr(change, name)) for name in _VALUES if name in given
        }
        if "deny" in given:
            deny = change.deny
            for name in DenyLists.model_fields if deny is None else deny.model_fields_set:
                changes["deny", name] = list(getattr(deny, name, ())) or None
        if change.default_model:
            self._refuse_unknown(change.default_model)
        self._write(changes, change.mark)
        return self.view()

    def _refuse_unknown(self, model: str) -> None:
        """Refuse a default model that no session could begin with."""
        env = self.application.env
        try:
            registry_of(load_settings(env=env), env).resolve(model)
        except SidequestError as error:
            if error.code is ErrorCode.MODEL_NOT_CONFIGURED:
                problem = FieldProblem(field="defaultModel", message=f"{error.cause} {error.remedy}")
                raise SettingsRefused([problem]) from error
            raise

    def change_model(self, key: str, change: ModelChange) -> SettingsView:
        """Change the table of a model, or make one.

        Raises:
            SidequestError: as `change`.
        """
        changes: dict[tuple[str, ...], Any] = {("models", key): {}}
        _refuse_secret(change.base_url)
        for name in _ENTRY:
            if name in change.model_fields_set:
                changes["models", key, name] = _plain(name, getattr(change, name))
        self._write(changes, change.mark)
        return self.view()

    def remove_model(self, key: str, *, mark: str | None = None) -> SettingsView:
        """Take the table of a model out of the file; its key goes with it.

        Raises:
            SidequestError: `MODEL_NOT_CONFIGURED` when there is none; as `change`.
        """
        if not any(row.key == key and row.in_file for row in self.view().models):
            raise SidequestError(
                ErrorCode.MODEL_NOT_CONFIGURED,
                f"The settings file has no table for {key!r}.",
                "Name one of those that are in the file.",
            )
        self._write({("models", key): None}, mark, without=key)
        return self.view()

    def _data(self) -> bytes:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise self._failed("read", error) from error

    def _overridden(self) -> dict[str, str]:
        known = {name.upper(): name for name, value in self.application.env.items() if value}
        names = ((field, f"{ENV_PREFIX}{field.upper()}") for field in Settings.model_fields)
        return {to_camel(field): known[variable] for field, variable in names if variable in known}

    def _write(
        self, changes: Mapping[tuple[str, ...], Any], mark: str | None, *, without: str | None = None
    ) -> None:
        """Change the file; new text that is not read as settings is never put in its place.

        `without` is a model whose table goes: it may not be the default that a session begins with.
        """
        original = self._data()
        if mark is not None and mark != mark_of(original):
            raise SidequestError(
                ErrorCode.STORE_CONFLICT,
                f"{self.path} changed since it was read here, so nothing was written.",
                "Load the page again, then make your change.",
            )
        try:
            before = original.decode("utf-8")
        except UnicodeDecodeError as error:
            raise SidequestError(
                ErrorCode.SETTINGS_INVALID, f"{self.path} is not UTF-8.", "Correct it in a text editor."
            ) from error
        text = with_values(before, changes)
        written = {
            to_camel(path[-1]): how_to_write(path[-1])
            for path, value in changes.items()
            if path[-1] in _NUMBERS and isinstance(value, str)
        }
        self._check(before, text, written, without)
        if text == before:
            return
        has_key = any(path[-1] == "api_key" and value is not None for path, value in changes.items())
        fresh = not self.path.exists()
        try:
            write_whole(self.path, text.encode(), mode=FILE_MODE if has_key or fresh else None)
        except OSError as error:
            raise self._failed("written", error) from error

    def _check(self, before: str, text: str, written: Mapping[str, str], without: str | None) -> None:
        """Refuse what would not be read; `written` says of fields how their number is to be written."""
        problems = dict(written)
        for where, message in problems_of_values(tomllib.loads(text)):
            problems.setdefault(_field_of(where), message)
        if written or (problems and not problems_of_values(tomllib.loads(before))):
            order = [to_camel(name) for name in (*_VALUES, "deny", *_ENTRY)]
            ranked = sorted(problems, key=lambda name: order.index(name) if name in order else -1)
            raise SettingsRefused([FieldProblem(field=name, message=problems[name]) for name in ranked])
        with tempfile.TemporaryDirectory() as folder:
            trial = Path(folder) / self.path.name
            trial.write_text(text, encoding="utf-8")
            try:
                load_settings(trial, {})
            except SidequestError as error:
                cause = error.cause.replace(str(trial), str(self.path))
                raise SidequestError(error.code, cause, error.remedy) from error
            if without is not None:
                self._refuse_lost_default(trial, without)

    def _refuse_lost_default(self, trial: Path, model: str) -> None:
        """Refuse a file in which the default model is one that no session could begin with any more."""
        env = self.application.env
        try:
            before = registry_of(load_settings(env=env), env).default()
        except SidequestError:
            return  # no session could begin before either
        if before.key != model or not before.ready:
            return
        try:
            registry_of(load_settings(trial, env), env).default().require_ready()
        except SidequestError as error:
            raise SidequestError(
                ErrorCode.SETTINGS_INVALID,
                f"{model} is the default model, and without its table no session could begin.",
                "Choose another default model first, then remove this one.",
            ) from error

    def _failed(self, what: str, error: OSError) -> SidequestError:
        return SidequestError(
            ErrorCode.SETTINGS_INVALID,
            f"{self.path} cannot be {what}: {error.strerror}.",
            "Check the folder and its permissions.",
        )


def _refuse_secret(base_url: str | None) -> None:
    """Refuse an address with a name and a password in it: addresses are shown, and keys are not."""
    if base_url and "@" in _authority(base_url):
        message = "Leave name and password out of the address, and give a key as the key."
        raise SettingsRefused([FieldProblem(field="baseUrl", message=message)])


def _without_secret(base_url: str | None) -> str | None:
    """Return an address as it is shown: without the name and password that a file by hand may give."""
    authority = _authority(base_url or "")
    return (
        base_url.replace(authority, authority.rpartition("@")[2], 1) if base_url and authority else base_url
    )


def _authority(url: str) -> str:
    try:
        return urlsplit(url).netloc
    except ValueError:
        return ""


def _field_of(where: tuple[str, ...]) -> str:
    """Return the name of the field for a place in the file: `models."a/b".base_url` is `baseUrl`."""
    if where[:1] == ("models",):
        return to_camel(where[2]) if len(where) > 2 else "key"
    return to_camel(where[1] if where[:1] == ("deny",) and len(where) > 1 else where[0]) if where else "file"


def _plain(name: str, value: Any) -> Any:
    """Return a value as TOML takes it: numbers as numbers, empty texts as nothing, secrets in the clear."""
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if isinstance(value, str):
        value = value.strip() or None
    return _number(name, value) if name in _NUMBERS and value is not None else value


def _number(name: str, value: str | int | float) -> str | int | float:
    """Return a number as such, whole when it is; what is none stays a text, which is then refused."""
    if isinstance(value, str):
        number = number_of(value, name)
        return value if number is None else number
    if isinstance(value, int):
        return value
    if not math.isfinite(value):
        return "no number"
    return int(value) if value == int(value) else value


def _values(settings: Settings) -> SettingsValues:
    plain = {name: getattr(settings, name) for name in _VALUES}
    deny = settings.deny
    lists = DenyLists(tools=deny.tools, paths=deny.paths, commands=deny.commands)
    return SettingsValues(**plain, deny=lists)


def _rows(settings: Settings, registry: ModelRegistry, env: Mapping[str, str]) -> tuple[ModelRow, ...]:
    return tuple(_row(binding, settings.models.get(binding.key), env) for binding in registry.listed())


def _row(binding: ModelBinding, entry: ModelEntry | None, env: Mapping[str, str]) -> ModelRow:
    state, source = _key_of(binding, entry, env)
    return ModelRow(
        key=binding.key,
        label=binding.label,
        ready=binding.ready,
        reason=binding.why_not or "",
        window=binding.window,
        window_source=binding.window_source,
        max_tokens=binding.max_tokens,
        max_tokens_source=binding.max_tokens_source,
        hard_limit=binding.budget().hard_limit,
        key_state=state,
        key_source=source,
        in_file=entry is not None,
        available_for_subagents=binding.available_for_subagents,
        provider=entry.provider if entry else None,
        base_url=_without_secret(entry.base_url) if entry else None,
        api_key_env=entry.api_key_env if entry else None,
        own_window=entry.context_window if entry else None,
        own_max_tokens=entry.max_tokens if entry else None,
        input_price=entry.input_price if entry else None,
        output_price=entry.output_price if entry else None,
    )


def _key_of(binding: ModelBinding, entry: ModelEntry | None, env: Mapping[str, str]) -> tuple[KeyState, str]:
    """Say whether there is a key and where it is from, never which."""
    if entry is not None and entry.api_key is not None:
        return "set", "settings"
    facts = provider_facts(binding.vendor)
    variables = facts.key_variables if facts and binding.base_url is None else ()
    if entry is not None and entry.api_key_env is not None:
        variables = (entry.api_key_env,)
    if not variables:
        return "unneeded", ""
    held = next((name for name in variables if env.get(name)), None)
    return ("set", held) if held else ("missing", variables[0])
