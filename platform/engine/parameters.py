"""Parameters of a scripted step: what may be declared, and the check of what is given (BEHAVIOUR 4)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from engine.problems import Refused
from engine.words import Shape


class Parameter(Shape):
    """A typed value a caller gives to a step. `default` and each of `enum` have its type."""

    type: Literal["string", "number", "integer", "boolean", "array", "object"]
    description: Annotated[str, Field(min_length=1, max_length=2000)]
    required: bool = False
    default: JsonValue = None
    enum: Annotated[tuple[JsonValue, ...], Field(max_length=1000)] = ()

    @property
    def has_default(self) -> bool:
        return "default" in self.model_fields_set


class ParametersRefused(Refused):
    """The parameters were refused; nothing was started."""
