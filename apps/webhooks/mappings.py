"""From a payload to what a run is started with: the trigger's mappings (BEHAVIOUR 2)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from apps.runs.starting import VARIABLE_MAX_BYTES, variable_size
from apps.webhooks.errors import BadMapping, BadVariable

_ABSENT: Any = object()


@dataclass(frozen=True)
class Mapped:
    """What a delivery asks of a run. Empty where it asks nothing."""

    group: str = ""
    variables: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, dict[str, Any]] = field(default_factory=dict)
    routes: dict[str, str] = field(default_factory=dict)


def map_payload(mappings: Mapping[str, Any], payload: Any) -> Mapped:
    """Each mapping looks up `source` (a dotted path), passes it through `values` when there are any, else `default`.

    `group` must come out as text, the others as objects; null asks for nothing. Raises `BadMapping` when one does not,
    or when nothing is found and there is no default.
    """
    looked_up = {name: _one(name, mapping, payload) for name, mapping in mappings.items() if mapping}
    found = {name: value for name, value in looked_up.items() if value is not None}
    group = found.get("group", "")
    if not isinstance(group, str):
        raise BadMapping("The mapping of `group` gave something other than text. No run was made.")
    for name in ("variables", "parameters", "routes"):
        if not isinstance(found.get(name, {}), dict):
            raise BadMapping(f"The mapping of `{name}` gave something other than an object. No run was made.")
    routes, parameters = found.get("routes", {}), found.get("parameters", {})
    if not all(isinstance(values, dict) for values in parameters.values()):
        raise BadMapping("The mapping of `parameters` must give an object for each step. No run was made.")
    if not all(isinstance(route, str) for route in routes.values()):
        raise BadMapping("The mapping of `routes` must give a route id for each step. No run was made.")
    return Mapped(group, found.get("variables", {}), parameters, routes)


def look_up(payload: Any, source: str) -> Any:
    """The value at a dotted path; a number steps into a list. Raises `LookupError` when there is none."""
    value = payload
    for part in source.split("."):
        if isinstance(value, dict):
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and part.isascii() and len(part) < 10:
            value = value[int(part)]
        else:
            raise LookupError(source)
    return value


def check_variables(variables: Mapping[str, Any], allowed: tuple[str, ...]) -> None:
    """Only variables that the trigger allows, at most 16 KiB each. That there are such variables, the start checks."""
    for name, value in variables.items():
        if name not in allowed:
            raise BadVariable(
                f"The variable {name[:80]!r} is not one that this trigger may set. No run was made."
                " List it in the trigger's allowed_variables."
            )
        if (size := variable_size(value)) > VARIABLE_MAX_BYTES:
            raise BadVariable(
                f"The variable {name!r} has {size} bytes; {VARIABLE_MAX_BYTES} are allowed. No run was made.",
                code="variable_too_large",
            )


def _one(name: str, mapping: Mapping[str, Any], payload: Any) -> Any:
    try:
        value = look_up(payload, mapping["source"])
        values = mapping.get("values")
        if values:
            value = values[value if isinstance(value, str) else json.dumps(value)]
    except LookupError:
        value = _ABSENT
    if value is _ABSENT and "default" not in mapping:
        raise BadMapping(
            f"The mapping of `{name}` found nothing at {mapping['source']!r} and has no default. No run was made."
        )
    return mapping["default"] if value is _ABSENT else value
