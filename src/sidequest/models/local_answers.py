"""What the answers of local model servers say, read defensively: models, and the window really served.

A server that truncates silently makes a window that is believed too large the worst mistake possible, so
wherever nothing states the served window the server's small default is assumed, never the model's maximum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath

from sidequest.models.providers import SMALL_DEFAULT_WINDOW


@dataclass(frozen=True, slots=True)
class LocalModel:
    """One model that a local server offers; windows in tokens, None when unknown."""

    name: str
    """Id to send in a request."""
    window: int | None = None
    """The window the server serves, which may be far below what the model could take."""
    max_window: int | None = None
    """The window the model was trained for."""
    loaded: bool = False
    assumed: bool = False
    """Whether `window` is the server's small default because nothing stated it."""


def ollama_models(tags: object, running: object, shown: Mapping[str, object]) -> tuple[LocalModel, ...]:
    """Read `/api/tags`, `/api/ps` and the `/api/show` of each model by name.

    A request gets the `num_ctx` of the model file, else what the server was started with; the second is
    visible only while the model is loaded (`context_length` of `/api/ps`). If both are known the smaller one
    counts. Models that only embed are left out; those that run in Ollama's cloud get their whole window.
    """
    loaded = {_text(item, "name"): _tokens(item, "context_length") for item in _items(running, "models")}
    models: list[LocalModel] = []
    for item in _items(tags, "models"):
        name = _text(item, "name")
        details = shown.get(name)
        abilities = _get(details, "capabilities")
        if not name or (isinstance(abilities, list) and abilities and "completion" not in abilities):
            continue
        longest = _trained_window(details)
        stated = [n for n in (_parameter(details, "num_ctx"), loaded.get(name)) if n]
        if _text(item, "remote_model") and longest:
            stated = [longest]
        models.append(
            _model(name.removesuffix(":latest"), min(stated, default=None), longest, loaded=name in loaded)
        )
    return tuple(models)


def lmstudio_models(listed: object) -> tuple[LocalModel, ...]:
    """Read `/api/v0/models`; `loaded_context_length` counts, `max_context_length` only bounds it."""
    return tuple(
        _model(
            _text(item, "id"),
            _tokens(item, "loaded_context_length"),
            _tokens(item, "max_context_length"),
            loaded=_get(item, "state") == "loaded",
        )
        for item in _items(listed, "data")
        if _text(item, "id") and _get(item, "state") is not None and _get(item, "type") != "embeddings"
    )


def llamacpp_models(props: object, listed: object) -> tuple[LocalModel, ...]:
    """Read `/props` (window of a slot) and `/v1/models` of llama.cpp's server."""
    generation = _get(props, "default_generation_settings")
    window = _tokens(generation, "n_ctx") or _tokens(props, "n_ctx")
    if window is None:
        return ()
    return tuple(
        LocalModel(
            _without_folder(_text(item, "id")),
            window,
            _tokens(_get(item, "meta"), "n_ctx_train"),
            loaded=True,
        )
        for item in _items(listed, "data")
        if _text(item, "id")
    )


def vllm_models(listed: object) -> tuple[LocalModel, ...]:
    """Read `/v1/models` of vLLM; entries without `max_model_len` belong to some other server."""
    return tuple(
        LocalModel(_text(item, "id"), window, window, loaded=True)
        for item in _items(listed, "data")
        if (window := _tokens(item, "max_model_len")) and _text(item, "id")
    )


def names_to_show(tags: object) -> tuple[str, ...]:
    """Return the names of `/api/tags` that `/api/show` can be asked about."""
    return tuple(name for item in _items(tags, "models") if (name := _text(item, "name")))


def _model(name: str, window: int | None, longest: int | None, *, loaded: bool) -> LocalModel:
    if window:
        return LocalModel(name, window, longest, loaded)
    return LocalModel(name, min(SMALL_DEFAULT_WINDOW, longest or SMALL_DEFAULT_WINDOW), longest, loaded, True)


def _get(value: object, key: str) -> object:
    return value.get(key) if isinstance(value, dict) else None


def _text(value: object, key: str) -> str:
    found = _get(value, key)
    return found if isinstance(found, str) else ""


def _tokens(value: object, key: str) -> int | None:
    found = _get(value, key)
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else None


def _items(value: object, key: str) -> Iterator[object]:
    found = _get(value, key)
    yield from found if isinstance(found, list) else ()


def _parameter(details: object, name: str) -> int | None:
    """Find a number in the lines of Ollama's `parameters` text: `num_ctx    8192`."""
    for line in _text(details, "parameters").splitlines():
        word, _, value = line.strip().partition(" ")
        if word == name and value.strip().isdecimal():
            return int(value) or None
    return None


def _trained_window(details: object) -> int | None:
    info = _get(details, "model_info")
    return _tokens(info, f"{_text(info, 'general.architecture')}.context_length")


def _without_folder(model_id: str) -> str:
    """llama.cpp reports the path of the file it was started with; it accepts any name."""
    return PurePath(model_id).name.removesuffix(".gguf") if model_id.endswith(".gguf") else model_id
