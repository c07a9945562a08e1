"""A quick yes to arguments that fit their schema. Whoever gets no yes is judged, and told why, by jsonschema.

Only the words below are known; a schema with another one gets no quick check. A test holds that no quick yes is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[Any], bool]
IGNORED = frozenset({"description", "title", "format", "default"})


class Unknown(Exception):
    """The schema uses a word that is not known here."""


def compiled(schema: Mapping[str, Any]) -> Check:
    """A function that says yes only to what the schema allows; one that never does when the schema is beyond it."""
    try:
        return _check(schema)
    except Unknown:
        return lambda _: False


def _check(schema: Mapping[str, Any]) -> Check:
    words = {word: value for word, value in schema.items() if word not in IGNORED}
    checks: list[Check] = []
    if {"properties", "required", "additionalProperties"} & set(words):
        checks.append(_object(words))
    for word, value in words.items():
        if word in ("properties", "required", "additionalProperties"):
            continue
        if word not in _WORDS:
            raise Unknown(word)
        checks.append(_WORDS[word](value))
    if len(checks) == 1:
        return checks[0]
    return lambda given: all(check(given) for check in checks)


def _object(words: Mapping[str, Any]) -> Check:
    """Says no quick yes to what is no object; a schema that means others as well states its type."""
    properties = {name: _check(each) for name, each in words.get("properties", {}).items()}
    required = tuple(words.get("required", ()))
    additional = words.get("additionalProperties", True)
    others: Check | None = _check(additional) if isinstance(additional, Mapping) else None

    def check(given: Any) -> bool:
        if not isinstance(given, dict):
            return False
        for name, value in given.items():
            known = properties.get(name, others)
            if known is None:
                if additional is False:
                    return False
            elif not known(value):
                return False
        return all(name in given for name in required)

    return check


def _type(names: Any) -> Check:
    wanted = [names] if isinstance(names, str) else names
    tests = tuple(_TYPES[name] for name in wanted)
    return tests[0] if len(tests) == 1 else lambda given: any(test(given) for test in tests)


def _any_of(schemas: Any) -> Check:
    checks = tuple(map(_check, schemas))
    return lambda given: any(check(given) for check in checks)


def _items(schema: Any) -> Check:
    check = _check(schema)
    return lambda given: isinstance(given, list) and all(map(check, given))


def _sized(limit: int, kind: type[str] | type[list[Any]], *, least: bool) -> Check:
    return lambda given: isinstance(given, kind) and (len(given) >= limit if least else len(given) <= limit)


def _bounded(limit: float, *, least: bool) -> Check:
    return lambda given: _is_number(given) and (given >= limit if least else given <= limit)


def _enum(values: Any) -> Check:
    if not all(isinstance(value, str) for value in values):
        raise Unknown("enum")
    allowed = frozenset(values)
    return lambda given: isinstance(given, str) and given in allowed


def _is_number(given: Any) -> bool:
    return isinstance(given, (int, float)) and not isinstance(given, bool)


_TYPES: dict[str, Check] = {
    "string": lambda given: isinstance(given, str),
    "integer": lambda given: isinstance(given, int) and not isinstance(given, bool),
    "number": _is_number,
    "boolean": lambda given: isinstance(given, bool),
    "null": lambda given: given is None,
    "array": lambda given: isinstance(given, list),
    "object": lambda given: isinstance(given, dict),
}
_WORDS: dict[str, Callable[[Any], Check]] = {
    "type": _type,
    "anyOf": _any_of,
    "items": _items,
    "enum": _enum,
    "minLength": lambda limit: _sized(limit, str, least=True),
    "maxLength": lambda limit: _sized(limit, str, least=False),
    "minItems": lambda limit: _sized(limit, list, least=True),
    "maxItems": lambda limit: _sized(limit, list, least=False),
    "minimum": lambda limit: _bounded(limit, least=True),
    "maximum": lambda limit: _bounded(limit, least=False),
}
