"""How values leave the process: frozen, with the names that JSON uses."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.alias_generators import to_camel


class Shape(BaseModel):
    """A value that pages show and the API sends; `max_tokens` here is `maxTokens` there."""

    model_config = ConfigDict(
        frozen=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
    )


class Given(Shape):
    """A value that somebody sends us; a field that we do not know is an error."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _whole_characters(cls, value: Any) -> Any:
        return _without_halves(value)


def _without_halves(value: Any) -> Any:
    """Join halves of characters, which JSON may spell apart, and replace those that stand alone."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {key: _without_halves(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_halves(inner) for inner in value]
    return value
