"""JSON as Pulse understands it: no NaN, no key twice, and a boolean is not a number."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NoReturn

from pydantic import JsonValue

TypeName = Literal["string", "number", "integer", "boolean", "array", "object", "null"]


class NotJson(ValueError):
    """It is not JSON that Pulse takes."""


def load(text: bytes | str) -> JsonValue:
    """Parses strictly. Raises `NotJson` for anything else than one JSON value in UTF-8, with its reason."""
    try:
        decoded = text.decode("utf-8") if isinstance(text, bytes) else text
        decoded.encode("utf-8")
        value: JsonValue = json.loads(
            decoded, object_pairs_hook=without_twins, parse_constant=no_constant, parse_float=finite
        )
        dump(value)
    except RecursionError:
        raise NotJson("it is nested too deep") from None
    except UnicodeError:
        raise NotJson("it is not valid UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise NotJson(f"{error.msg} at line {error.lineno}, column {error.colno}") from None
    except NotJson:
        raise
    except ValueError:
        raise NotJson("a whole number has too many digits") from None
    return value


def dump(value: Any) -> bytes:
    """Canonical JSON: sorted keys, no spaces, UTF-8. Raises `NotJson` for what JSON cannot say."""
    return _encoded(value, _sorted)


def encode(value: Any) -> bytes:
    """As `dump`, with the keys in the order they have."""
    return _encoded(value, _in_order)


def finite(digits: str) -> float:
    """A number with a fraction or an exponent, for `json.loads`. Raises `NotJson` where a float cannot hold it."""
    value = float(digits)
    if not math.isfinite(value):
        raise NotJson(f"the number {digits[:40]} is too large")
    return value


def without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of these members, for `json.loads`. Raises `NotJson` for a key that stands twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twin = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise NotJson(f"the key {json.dumps(twin[:80])} stands twice in one object")
    return found


def no_constant(word: str) -> NoReturn:
    """For the NaN and Infinity that `json.loads` would take."""
    raise NotJson(f"{word} is not a JSON number")


def require(value: Any, *, deepest: int) -> None:
    """Raises `NotJson` for what cannot be written as JSON, and for more than `deepest` levels."""
    if not shallow(value, deepest):
        raise NotJson(f"it is nested more than {deepest} deep")
    _encoded(value, _in_order)


def shallow(value: Any, deepest: int) -> bool:
    """Whether no more than `deepest` objects and lists lie within each other."""
    level = [value]
    for _ in range(deepest):
        level = [
            inner
            for one in level
            if isinstance(one, (dict, list))
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return True
    return not any(isinstance(one, (dict, list)) for one in level)


def holds_nul(value: Any) -> bool:
    """Whether a text in it, a key too, has a NUL character: PostgreSQL cannot keep one."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            if "\0" in one:
                return True
        elif isinstance(one, dict):
            waiting += [*one.keys(), *one.values()]
        elif isinstance(one, (list, tuple)):
            waiting += one
    return False


def type_name(value: Any) -> TypeName:
    """The JSON name of a value's type: a boolean is `boolean`, 1 is `integer`, 1.0 is `number`."""
    if value is None:
        return "null"
    names: tuple[tuple[type | tuple[type, ...], TypeName], ...] = (
        (bool, "boolean"),
        (int, "integer"),
        (float, "number"),
        (str, "string"),
        ((list, tuple), "array"),
    )
    return next((name for kind, name in names if isinstance(value, kind)), "object")


def has_type(value: Any, wanted: str) -> bool:
    """Strict: an integer is a number, a number with a fraction part is never an integer, nor is a boolean."""
    if isinstance(value, float) and not math.isfinite(value):
        return False
    actual = type_name(value)
    return actual == wanted or (wanted == "number" and actual == "integer")


def same(one: Any, other: Any) -> bool:
    """Equality that does not take `true` for 1. Numbers are equal by value."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    return bool(one == other)


def contains(values: Iterable[Any], wanted: Any) -> bool:
    return any(same(value, wanted) for value in values)


def indented(value: Any) -> str:
    """Any JSON value for people to read, keys in their own order. Half a surrogate pair, which no page could be sent
    with, keeps the spelling that JSON has for it. What is no JSON value is shown as its text."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    return text.encode("utf-8", "backslashreplace").decode()


_in_order = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)
_sorted = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def readable(value: Any) -> Any:
    """A JSON value whose texts any database keeps and any page shows: NUL as its picture, half a pair as a mark."""
    if isinstance(value, str):
        return value.replace("\0", "\u2400").encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, Mapping):
        return {readable(key): readable(inner) for key, inner in value.items()}
    return [readable(inner) for inner in value] if isinstance(value, list | tuple) else value


def _encoded(value: Any, encoder: json.JSONEncoder) -> bytes:
    try:
        return encoder.encode(value).encode()
    except RecursionError:
        raise NotJson("it is nested too deep") from None
    except UnicodeError:
        raise NotJson("it holds half of a surrogate pair") from None
    except (TypeError, ValueError) as error:
        raise NotJson(str(error)) from None
