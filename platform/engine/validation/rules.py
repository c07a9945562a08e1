"""The rules of a validation block as a person writes them (BEHAVIOUR 3)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from engine.words import Count, FilePath, Label, Many, Omittable, Pattern, Shape

MAX_FILES = 20
MAX_CHECKS = 100

ValueType = Literal["string", "number", "integer", "boolean", "array", "object", "null"]
RowCount = Annotated[int, Field(ge=0, le=9999)]
JsonPathText = Annotated[str, Field(min_length=1, max_length=1000)]


class ConsistencyCheck(Shape):
    """Compares the value at the check's path with what stands at another path of the same document."""

    type: Literal["equals", "greater_than", "less_than", "array_length", "in_array"]
    compare_with_path: JsonPathText


class JsonCheck(Shape):
    """One statement about each value that `path` finds."""

    path: JsonPathText
    must_exist: bool = True
    value_type: Omittable[ValueType] = None
    min_length: Omittable[Count] = None
    max_length: Omittable[Count] = None
    pattern: Omittable[Pattern] = None
    min_value: Omittable[float] = None
    max_value: Omittable[float] = None
    consistency_check: Omittable[ConsistencyCheck] = None


class FileRule(Shape):
    """What is asked of one output file."""

    file_name: FilePath
    must_exist: bool = True
    content: Omittable[dict[str, JsonValue]] = Field(default=None, alias="schema")
    json_checks: Annotated[Many[JsonCheck], Field(max_length=MAX_CHECKS)] = ()


class DatabaseRule(Shape):
    """One read-only query on the workflow database: how many rows, and checks on the first."""

    name: Label
    sql: Annotated[str, Field(min_length=1, max_length=20_000)]
    min_rows: Omittable[RowCount] = None
    max_rows: Omittable[RowCount] = None
    checks: Annotated[Many[JsonCheck], Field(max_length=MAX_CHECKS)] = ()


class Validation(Shape):
    files: Annotated[Many[FileRule], Field(max_length=MAX_FILES)] = ()
    db: Annotated[Many[DatabaseRule], Field(max_length=MAX_FILES)] = ()
