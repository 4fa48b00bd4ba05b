"""A model as it is configured (`ModelEntry`) and as it was resolved (`ModelBinding`).

Listing bindings imports neither pydantic-ai nor a provider's package; only `ModelBinding.build` does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

from sidequest.core.budget import ContextBudget
from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.models.providers import Api

if TYPE_CHECKING:
    from pydantic_ai.models import Model

OFFLINE_PROVIDER = "offline"
OFFLINE_KEY = "offline/extractive"
"""Key of the engine that needs no account: deterministic, extractive, not a language model."""

OFFLINE_WINDOW = 32_000
"""Window in tokens of the offline engine, unless its table in the settings gives another."""
OFFLINE_MAX_TOKENS = 2_000
"""Most output tokens of the offline engine, unless its table in the settings gives another."""

ThinkingLevel = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max", "omit"]
"""How much a model may think; `off` asks it not to, `omit` leaves the provider's own default."""
Source = Literal["user", "server", "catalog", "assumed", "unknown"]
"""Who stated a number: the settings, the server that serves the model, the catalog; `assumed` is the small
default of a local server that was not asked, `unknown` means that there is no number."""


def _web_address(text: str) -> str:
    if not re.fullmatch(r"https?://\S+", text):
        raise ValueError("should be an address that starts with http:// or https://")
    return text


def _variable_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text):
        raise ValueError("should be the name of an environment variable, such as OPENAI_API_KEY, not a key")
    return text


class ModelEntry(BaseModel):
    """One `[models."provider/name"]` table of the settings; everything may be left out.

    A `base_url` of your own is never sent the key of a provider's usual variable: name the key with
    `api_key_env` (or `api_key`). Without one the server is taken to need none.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    provider: str | None = Field(None, min_length=1)
    """Known provider that serves it, when the key has another name: `openai` for `work/gpt-5`."""
    name: str | None = Field(None, min_length=1)
    """Model id sent to the server; None means what follows the first slash of the key."""
    base_url: Annotated[str, AfterValidator(_web_address)] | None = None
    """Address of the API, with its `/v1` if it has one."""
    api_key: SecretStr | None = None
    api_key_env: Annotated[str, AfterValidator(_variable_name)] | None = None
    """Name of the environment variable that holds the key, never the key."""
    api: Api = "auto"
    context_window: Annotated[int, Field(gt=0)] | None = None
    """Window in tokens; beats what the server or the catalog says."""
    max_tokens: Annotated[int, Field(gt=0)] | None = None
    """Most output tokens of one response."""
    input_price: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """US dollars for a million input tokens."""
    output_price: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """US dollars for a million output tokens."""
    thinking: ThinkingLevel | None = None
    available_for_subagents: bool = False
    """Whether a parent model may choose it for a subagent: the consent of specification 8.24."""
    aliases: tuple[str, ...] = ()
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    """Headers added to each request."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a model cannot be used yet, and what to do about it."""

    code: ErrorCode
    cause: str
    remedy: str


@dataclass(frozen=True, slots=True)
class ModelBinding:
    """A model that a name resolved to: where it is, what it leaves for a request, whether it can be used.

    Worked number: `ModelBinding.window` 200,000 with `max_tokens` 8,192 gives a budget whose `hard_limit` is
    183,616 (specification 1.3).
    """

    key: str
    """`provider/model`: the identity of the model."""
    provider: str
    """Provider id, the part of `key` before the first slash."""
    name: str
    """Model id sent to the provider."""
    vendor: str
    """Id of the known provider behind `provider`; the same word unless the settings say otherwise."""
    label: str | None = None
    """Name shown to people, or None."""
    window: int | None = None
    """Context window in tokens; None means unknown, and a budget then takes 128,000."""
    window_source: Source = "unknown"
    max_tokens: int | None = None
    """The model's own output limit in tokens; None means unknown, and a budget then takes 8,192."""
    max_tokens_source: Source = "unknown"
    input_price: float | None = None
    """US dollars for a million input tokens, None when unknown."""
    output_price: float | None = None
    """US dollars for a million output tokens, None when unknown."""
    price_source: Source = "unknown"
    thinking: ThinkingLevel | None = None
    available_for_subagents: bool = False
    aliases: tuple[str, ...] = ()
    api: Api = "auto"
    base_url: str | None = None
    """Address of the API when it is not the provider's own, else None."""
    problem: Problem | None = None
    """Why `build` would fail, as far as that is known without importing anything; None when nothing is."""
    api_key: SecretStr | None = field(default=None, repr=False)
    headers: Mapping[str, SecretStr] = field(
        default_factory=lambda: MappingProxyType({}), repr=False, hash=False
    )

    factory: Callable[[], Model] | None = field(default=None, repr=False, compare=False)
    """Makes the model when it is a library user's own; None: the provider's, from the fields above."""

    @property
    def ready(self) -> bool:
        """Whether key and package are there; a wrong key shows only at the first request."""
        return self.problem is None

    @property
    def why_not(self) -> str | None:
        """One sentence that says what is missing, or None when `ready`."""
        return self.problem.cause if self.problem else None

    def budget(self, cap: int | None = None) -> ContextBudget:
        """Return what the model leaves for a request when a definition caps its output at `cap` tokens.

        None and 0 mean no cap. Worked number: a window of 200,000 with `cap` 64,000 and no limit of the
        model's own has `hard_limit` 150,000 (specification 4.5).
        """
        return ContextBudget.for_model(window=self.window, max_tokens=self.max_tokens, cap=cap)

    def require_ready(self) -> ModelBinding:
        """Return the binding itself.

        Raises:
            SidequestError: `MODEL_NOT_CONFIGURED` or `MISSING_EXTRA`, with what to do.
        """
        if self.problem is not None:
            raise SidequestError(self.problem.code, self.problem.cause, self.problem.remedy, model=self.key)
        return self

    def build(self) -> Model:
        """Return a new pydantic-ai model; each call makes its own client, which the caller closes.

        Raises:
            SidequestError: `MODEL_NOT_CONFIGURED`, or `MISSING_EXTRA` with the line that installs it.
        """
        if self.factory is not None:
            return self.factory()
        from sidequest.models.building import build_model

        return build_model(self)
