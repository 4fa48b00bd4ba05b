"""From settings, environment and options to what a command works with: catalog, registry, session."""

from __future__ import annotations

import math
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sidequest.core.context_modes import ContextMode, parse_context_mode
from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.permissions import Mode, parse_mode
from sidequest.models.bindings import OFFLINE_KEY, ModelBinding
from sidequest.models.building import OFFLINE_DELAY_VARIABLE
from sidequest.models.pins import MAX_PINNED_PROVIDERS, too_many_providers
from sidequest.models.providers import provider_facts
from sidequest.models.registry import ModelRegistry
from sidequest.subagents.catalog import Catalog, Entry, EntryState
from sidequest.subagents.diagnostics import Diagnostic, Severity
from sidequest.subagents.project_snapshot import ProjectSnapshot
from sidequest.subagents.sources import standard_sources
from sidequest.subagents.switches import SwitchFile
from sidequest.subagents.trust import TrustFile
from sidequest.surfaces.settings import Settings, load_settings
from sidequest.surfaces.text import some

if TYPE_CHECKING:
    from sidequest.models.local_servers import LocalServer, ServerAddress
    from sidequest.runtime.session import Session, SessionOptions

    AskServers = Callable[[Sequence[ServerAddress]], Awaitable[list[LocalServer]]]

_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a command works: the folder, and folders of definitions that were named for it."""

    cwd: Path = Path()
    agents_dirs: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Parts:
    """What a command works with."""

    settings: Settings
    root: Path
    """The folder to work in, absolute."""
    catalog: Catalog
    registry: ModelRegistry
    trusted: bool = False
    """Whether the user trusts the folder as it is now."""
    trust_ended: bool = False
    """Whether the user trusted the folder, and its files have changed since."""
    instructions: Mapping[str, bytes] = field(default_factory=dict)
    """AGENTS.md and the like of the folder, as they were when trust was judged, by name."""

    def trust_notice(self, then: str = "") -> str | None:
        """Return what of the folder is not used for lack of trust, and what to do; None when nothing is.

        `then` is what to do after a look, as part of a sentence; empty names the command of the terminal.
        """
        if self.trusted:
            return None
        number = sum(entry.state is EntryState.UNTRUSTED for entry in self.catalog.entries)
        files = list(self.instructions)[:1]
        unused = [*([some(number, "definition")] if number else ()), *files]
        if not unused and not self.trust_ended:
            return None
        command = "sidequest trust" if self.root == Path.cwd() else f"sidequest trust {self.root}"
        then = then or f"run `{command}`"
        if self.trust_ended:
            what = f", so {' and '.join(unused)} are not used" if unused else ""
            changed = f"the definitions or AGENTS.md of this folder changed since you trusted it{what}"
            return f"{changed}: look at them, then {then}"
        one = len(unused) == 1 and number <= 1
        verb, them = ("is", "it") if one else ("are", "them")
        return f"{' and '.join(unused)} of this folder {verb} not used: look at {them}, then {then}"


def assemble(place: Place, env: Mapping[str, str] | None = None) -> Parts:
    """Read the settings and the definitions; `env` None is the environment of the process.

    Raises:
        SidequestError: `USAGE` for a folder that is not there, `SETTINGS_INVALID` for the settings.
    """
    env = os.environ if env is None else env
    settings = load_settings(env=env)
    root = existing_folder(place.cwd, "--cwd")
    named = [existing_folder(folder, "--agents-dir") for folder in place.agents_dirs]
    _check_offline_delay(env)
    trust = TrustFile.of(env)
    # Read once: a file that changes from here on is neither judged nor loaded.
    snapshot, mark = ProjectSnapshot.take(root), trust.mark(root)
    trusted = mark == snapshot.fingerprint
    sources = standard_sources(
        Path.home(), root, trusted=[root] if trusted else [], named=[*named, *settings.agents_dirs]
    )
    registry = registry_of(settings, env)
    catalog = Catalog.load(snapshot.applied(sources), disabled=SwitchFile.of(env).disabled())
    catalog = replace(catalog, remarks=(*catalog.remarks, *_pinned_too_widely(catalog)))
    return Parts(
        settings, root, catalog, registry, trusted, mark is not None and not trusted, snapshot.instructions
    )


def _check_offline_delay(env: Mapping[str, str]) -> None:
    text = env.get(OFFLINE_DELAY_VARIABLE)
    try:
        valid = not text or 0 <= float(text) < math.inf
    except ValueError:
        valid = False
    if not valid:
        raise SidequestError(
            ErrorCode.SETTINGS_INVALID,
            f"The variable {OFFLINE_DELAY_VARIABLE} is no number of seconds: {text!r}.",
            "Write a number such as 0.25, or remove it.",
        )


def with_limits(catalog: Catalog, settings: Settings) -> Catalog:
    """Return a catalog whose definitions have the limits of the settings where theirs are not stricter.

    It is for a delegation without a parent agent, whose limits would otherwise bind nothing.
    """

    def limited(entry: Entry) -> Entry:
        own = entry.definition
        if own is None:
            return entry
        turns = _stricter(own.max_turns, settings.max_turns)
        seconds = _stricter(own.max_seconds, settings.max_seconds)
        return replace(entry, definition=replace(own, max_turns=turns, max_seconds=seconds))

    return replace(catalog, entries=tuple(limited(entry) for entry in catalog.entries))


def _stricter(own: _Number | None, other: _Number | None) -> _Number | None:
    return other if own is None else own if other is None else min(own, other)


def registry_of(settings: Settings, env: Mapping[str, str] | None = None) -> ModelRegistry:
    """Return the registry that settings and environment describe; local servers are not asked."""
    return ModelRegistry(entries=settings.models, env=env, default=settings.default_model)


def existing_folder(path: Path, option: str) -> Path:
    """Return `path` as an absolute path.

    Raises:
        SidequestError: `USAGE` when it is not a folder; `option` is where it came from.
    """
    folder = path
    try:
        folder = path.expanduser().absolute()
        if folder.is_dir():
            return folder
        if folder.exists():
            raise SidequestError(
                ErrorCode.USAGE, f"{folder} is not a folder.", f"Give {option} an existing folder."
            )
        what = "is not there"
    except (OSError, RuntimeError) as error:  # a user that is not there, a name too long, no right to look
        what = f"cannot be opened: {getattr(error, 'strerror', None) or error}"
    raise SidequestError(
        ErrorCode.USAGE, f"The folder {folder} {what}.", f"Give {option} an existing folder."
    )


def context_mode(text: str | None) -> ContextMode | None:
    """Return the mode an option names, None when it was not given.

    Raises:
        SidequestError: `USAGE` for a word that is none.
    """
    if text is None:
        return None
    mode = parse_context_mode(text)
    if mode is None:
        names = " or ".join(ContextMode)
        raise SidequestError(ErrorCode.USAGE, f"{text!r} is no context mode.", f"Use --context {names}.")
    return mode


def permission_mode(text: str | None) -> Mode | None:
    """Return the permission mode an option names, None when it was not given.

    Raises:
        SidequestError: `USAGE` for a word that is none.
    """
    try:
        return None if text is None else parse_mode(text)
    except SidequestError as error:
        names = ", ".join(Mode)
        raise SidequestError(ErrorCode.USAGE, error.cause, f"Use --permission-mode {names}.") from None


async def open_session(
    parts: Parts, *, model: str | None, context: ContextMode | None, stream: bool, mode: Mode | None = None
) -> Session:
    """Open a session in the folder of `parts`; `model` and `mode` None take those of the settings.

    Raises:
        SidequestError: the model cannot be used, a package is missing, a pattern of the settings is wrong.
    """
    import pydantic_ai

    from sidequest.runtime.session import Session

    # Its first-run banner would stand in the middle of our progress.
    pydantic_ai.BANNER_ENABLED = False
    registry = await knowing_local_windows(parts.registry, model, pins_of(parts.catalog))
    options = session_options(parts, context=context, stream=stream, mode=mode)
    return Session.open(parts.root, model=model, registry=registry, catalog=parts.catalog, options=options)


def session_options(
    parts: Parts, *, context: ContextMode | None = None, stream: bool = False, mode: Mode | None = None
) -> SessionOptions:
    """Return what settings and trust say of a session; `context` and `mode` None are those of the settings.

    Raises:
        SidequestError: a pattern of the settings is wrong.
    """
    from sidequest.core.provider_errors import Pattern
    from sidequest.runtime.limits import Limits
    from sidequest.runtime.prompts import instructions_of
    from sidequest.runtime.sandbox import Sandbox
    from sidequest.runtime.session import SessionOptions

    return SessionOptions(
        default_context=context or ContextMode(parts.settings.default_context),
        project_instructions=instructions_of(parts.instructions) if parts.trusted else False,
        permission_mode=mode or parts.settings.permission_mode,
        deny=parts.settings.deny.rules(),
        max_running=parts.settings.max_running,
        max_total=parts.settings.max_total,
        sandbox=Sandbox(parts.settings.sandbox),
        limits=Limits(parts.settings.max_turns, parts.settings.max_seconds),
        max_cost_usd=parts.settings.max_cost_usd,
        patterns=tuple(Pattern.from_mapping(row) for row in parts.settings.error_patterns),
        stream=stream,
    )


async def knowing_local_windows(
    registry: ModelRegistry, model: str | None, pins: Iterable[str] = (), *, ask: AskServers | None = None
) -> ModelRegistry:
    """Return a registry that has asked the local servers that `model` (None: the default) and `pins` are on.

    Without that the window of such a model is a guess: too small for one server, too large for another.
    `pins` that mean no model are left out. `ask` is `discover` when it is None.

    Raises:
        SidequestError: `MODEL_NOT_CONFIGURED`.
    """
    from sidequest.models.local_servers import DEFAULT_ADDRESSES, discover

    bindings = [registry.resolve(model) if model else registry.default()]
    for pin in pins:
        with suppress(SidequestError):
            bindings.append(registry.resolve(pin))
    unknown = [provider_facts(b.vendor) for b in bindings if b.window_source in ("assumed", "unknown")]
    kinds = {facts.id for facts in unknown if facts is not None and facts.local_url is not None}
    if not kinds:
        return registry
    addresses = [address for address in DEFAULT_ADDRESSES if address.kind in kinds]
    return registry.with_servers(await (ask or discover)(addresses))


def pins_of(catalog: Catalog) -> list[str]:
    """Return the models that the definitions in use are pinned to, fallbacks included."""
    return [
        pin.key
        for definition in catalog.active
        for pin in (definition.model, *definition.fallback_models)
        if pin is not None
    ]


def _pinned_too_widely(catalog: Catalog) -> list[Diagnostic]:
    beyond = too_many_providers(pins_of(catalog))
    if not beyond:
        return []
    message = (
        f"The subagents are pinned to models of more than {MAX_PINNED_PROVIDERS} providers; beyond are "
        f"{', '.join(beyond)}. Each needs a key and has limits of its own."
    )
    return [Diagnostic("catalog", None, Severity.WARNING, message)]


def default_notice(parts: Parts, model: str | None, binding: ModelBinding) -> str | None:
    """Return what to say when nothing was configured, so that the embedded engine answers; else None."""
    if model or parts.settings.default_model or binding.key != OFFLINE_KEY:
        return None
    return f"no model configured: using {OFFLINE_KEY}, which is not a language model"


def definition_notices(catalog: Catalog) -> Iterable[str]:
    """Give a line for what the user wrote and does not get: files that do not load, missing folders."""
    broken = [entry.name or str(entry.path) for entry in catalog.entries if entry.state is EntryState.INVALID]
    if broken:
        yield f"does not load: {', '.join(broken)}; see `sidequest agents check`"
    for remark in catalog.remarks:
        if remark.severity.value != "note":
            yield f"{remark.path}: {remark.message}"
