"""JSON Schema with Pulse's types: 1.0 is no integer, nothing is fetched, and `format` is checked or refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from jsonschema import FormatChecker
from jsonschema.exceptions import SchemaError
from jsonschema.protocols import Validator
from jsonschema.validators import Draft202012Validator, extend, validator_for
from pydantic import JsonValue
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from engine import json_values

FORMATS = FormatChecker()
MAX_MESSAGES = 5
MAX_MESSAGE = 300
DATA_KEYS = frozenset({"const", "enum", "default", "examples"})


class BadSchema(ValueError):
    """The schema cannot be used."""


def check(schema: Mapping[str, JsonValue]) -> None:
    """Raises `BadSchema` with the reason."""
    try:
        _dialect(schema).check_schema(dict(schema))
        _check_words(schema, dict(schema))
    except SchemaError as error:
        raise BadSchema(f"{_short(error.message)} at {error.json_path}") from None
    except RecursionError:
        raise BadSchema("it is nested too deep") from None


def failures(schema: Mapping[str, JsonValue], value: JsonValue) -> list[str]:
    """Why the value does not fit, some of the reasons. Empty when it fits. Raises `BadSchema`."""
    try:
        errors = _dialect(schema)(dict(schema), registry=Registry(), format_checker=FORMATS).iter_errors(value)
        return [f"{error.json_path}: {_short(error.message)}" for error in islice(errors, MAX_MESSAGES)]
    except Unresolvable as error:
        raise BadSchema(f"{error.ref} leads nowhere") from None
    except RecursionError:
        raise BadSchema("it leads back to itself without end") from None


def _dialect(schema: Mapping[str, JsonValue]) -> type[Validator]:
    base = validator_for(dict(schema), default=Draft202012Validator)
    if "$schema" in schema and str(base.META_SCHEMA["$schema"]).rstrip("#") != str(schema["$schema"]).rstrip("#"):
        raise BadSchema("$schema names no known draft")
    integer = base.TYPE_CHECKER.redefine("integer", lambda _, value: json_values.has_type(value, "integer"))
    strict: type[Validator] = extend(base, type_checker=integer)  # type: ignore[no-untyped-call]
    return strict


def _check_words(schema: Any, whole: dict[str, JsonValue]) -> None:
    for key, value in _words(schema):
        if key == "format" and value not in FORMATS.checkers:
            raise BadSchema(f"the format {value!r} is not checked here; use a pattern")
        if key in {"$ref", "$dynamicRef"} and not value.startswith("#"):
            raise BadSchema(f"{value!r} is not inside the schema; nothing is fetched")
        if key == "$ref":
            _check_reference(value, whole)
        if key == "$id":
            raise BadSchema("$id is not taken; references stay inside the schema")


def _check_reference(reference: str, whole: dict[str, JsonValue]) -> None:
    try:
        Registry().with_resource("", DRAFT202012.create_resource(whole)).resolver().lookup(reference)
    except Unresolvable:
        raise BadSchema(f"{reference} leads nowhere") from None


def _words(schema: Any) -> Iterator[tuple[str, str]]:
    """Keys of a schema whose value is text, at any depth; not inside what is data."""
    if isinstance(schema, Mapping):
        for key, value in schema.items():
            if isinstance(value, str):
                yield key, value
            elif key not in DATA_KEYS:
                yield from _words(value)
    elif isinstance(schema, list):
        for item in schema:
            yield from _words(item)


def _short(message: str) -> str:
    return message if len(message) <= MAX_MESSAGE else f"{message[:MAX_MESSAGE]}…"
