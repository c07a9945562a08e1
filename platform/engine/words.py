"""The words a workflow document is written in: names, paths and numbers, each with its own shape."""

from __future__ import annotations

import re
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, Strict
from pydantic_core import PydanticCustomError

T = TypeVar("T")

STEP_ID = r"^[a-z0-9][a-z0-9_-]{0,63}$"
ENVIRONMENT_NAME = r"^[A-Z][A-Z0-9_]{0,63}$"


class Shape(BaseModel):
    """Base of what a person or a network sends: unknown keys refused, no type converted, nothing changed after."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, serialize_by_alias=True)


def _not_null(value: Any) -> Any:
    if value is None:
        raise PydanticCustomError("null", "null stands where a value is needed")
    return value


def _printable(value: str) -> str:
    if not value.isprintable() or value != value.strip():
        raise ValueError("must be one line of printable text without spaces at its ends")
    return value


def _relative_file(value: str) -> str:
    parts = value.split("/")
    if not value.isprintable() or "\\" in value or len(parts) > 32 or any(p in {"", ".", ".."} for p in parts):
        raise ValueError("must be a relative path of plain names, such as report/summary.json")
    return value


def _regular_expression(value: str) -> str:
    try:
        re.compile(value)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"is no regular expression: {error}") from None
    return value


Many = Annotated[tuple[T, ...], Strict(strict=False)]
"""A list in the document; a tuple in the model, so that what was parsed stays as it was."""

Omittable = Annotated[T | None, BeforeValidator(_not_null)]
"""A key that may be left out, and is None then. `null` written out is refused."""

Value = Annotated[JsonValue, BeforeValidator(_not_null), Field(json_schema_extra={"not": {"type": "null"}})]
"""Any JSON but null, which is no value."""

StepId = Annotated[str, Field(pattern=STEP_ID)]
Slug = Annotated[str, Field(pattern=STEP_ID)]
EnvironmentName = Annotated[str, Field(pattern=ENVIRONMENT_NAME)]
RequiredName = Annotated[str, Field(pattern=r"^(VAR|SECRET)_[A-Z][A-Z0-9_]{0,63}$")]
ToolName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
Label = Annotated[str, Field(min_length=1, max_length=120), AfterValidator(_printable)]
GroupName = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_printable)]
RouteId = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_printable)]
Title = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_printable)]
LongText = Annotated[str, Field(max_length=20_000)]
FilePath = Annotated[str, Field(min_length=1, max_length=199), AfterValidator(_relative_file)]
Target = Annotated[str, Field(pattern=STEP_ID)]
OptionalTarget = Annotated[str, Field(pattern=r"^([a-z0-9][a-z0-9_-]{0,63})?$")]
OptionalStepId = OptionalTarget
OptionalLabel = Annotated[str, Field(max_length=120), AfterValidator(_printable)]
OptionalTitle = Annotated[str, Field(max_length=200), AfterValidator(_printable)]
Pattern = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(_regular_expression)]
Count = Annotated[int, Field(ge=0, le=2**53)]
