"""One JSON check on one document: whether each value that its path finds is as the rule says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from pydantic import JsonValue

from engine import json_values
from engine.validation import paths
from engine.validation.report import Check, Status
from engine.validation.rules import ConsistencyCheck, JsonCheck

MAX_MESSAGES = 5


def apply(rule: JsonCheck, document: JsonValue, name: str, where: str) -> Check:
    """where: what the document is called, before the path."""
    place = f"{where} {rule.path}"
    try:
        messages = list(islice(_failures(rule, document), MAX_MESSAGES))
    except (paths.BadPath, re.error, RecursionError) as error:
        return Check(name, place, Status.FAULTY, f"The rule cannot be applied: {error}.")
    if messages:
        return Check(name, place, Status.FAILED, " ".join(dict.fromkeys(messages)))
    return Check(name, place, Status.PASSED)


def _failures(rule: JsonCheck, document: JsonValue) -> Iterator[str]:
    found = paths.find(rule.path, document)
    if not found and rule.must_exist:
        yield "Nothing is there."
    for value in found:
        yield from _type_and_bounds(rule, value)
        if rule.consistency_check is not None:
            yield from _consistency(rule.consistency_check, value, document)


def _type_and_bounds(rule: JsonCheck, value: JsonValue) -> Iterator[str]:
    actual = json_values.type_name(value)
    if rule.value_type is not None and not json_values.has_type(value, rule.value_type):
        yield f"It must be of type {rule.value_type} and is of type {actual}."
        return
    if rule.min_length is not None or rule.max_length is not None:
        yield from _length(rule, value, actual)
    if rule.pattern is not None:
        if not isinstance(value, str):
            yield f"It must be text that fits a pattern and is of type {actual}."
        elif not re.search(rule.pattern, value):
            yield f"It does not fit the pattern {rule.pattern}."
    if rule.min_value is not None or rule.max_value is not None:
        yield from _bounds(rule, value, actual)


def _length(rule: JsonCheck, value: JsonValue, actual: str) -> Iterator[str]:
    if not isinstance(value, str | list):
        yield f"It must have a length and is of type {actual}."
        return
    if rule.min_length is not None and len(value) < rule.min_length:
        yield f"Its length is {len(value)}; at least {rule.min_length} is wanted."
    if rule.max_length is not None and len(value) > rule.max_length:
        yield f"Its length is {len(value)}; at most {rule.max_length} is wanted."


def _bounds(rule: JsonCheck, value: JsonValue, actual: str) -> Iterator[str]:
    number = _number(value)
    if number is None:
        yield f"It must be a number and is of type {actual}."
        return
    if rule.min_value is not None and number < rule.min_value:
        yield f"It is {number}; at least {rule.min_value:g} is wanted."
    if rule.max_value is not None and number > rule.max_value:
        yield f"It is {number}; at most {rule.max_value:g} is wanted."


def _consistency(rule: ConsistencyCheck, value: JsonValue, document: JsonValue) -> Iterator[str]:
    others = paths.find(rule.compare_with_path, document)
    path = rule.compare_with_path
    if not others:
        yield f"Nothing is at {path} to compare it with."
    elif rule.type == "in_array":
        choices = others[0] if paths.names_one_place(path) else others
        if not isinstance(choices, list):
            yield f"What is at {path} is no array."
        elif not json_values.contains(choices, value):
            yield f"It is not in the array at {path}."
    elif len(others) > 1:
        yield f"{len(others)} values are at {path}; it can be compared with one only."
    else:
        yield from _comparison(rule, value, others[0])


def _comparison(rule: ConsistencyCheck, value: JsonValue, other: JsonValue) -> Iterator[str]:
    path = rule.compare_with_path
    if rule.type == "equals":
        if not json_values.same(value, other):
            yield f"It does not equal the value at {path}."
        return
    if rule.type == "array_length":
        yield from _array_length(value, other, path)
        return
    one, two = _number(value), _number(other)
    if one is None or two is None:
        yield f"It and the value at {path} must both be numbers."
    elif rule.type == "greater_than" and not one > two:
        yield f"It is {one}, not greater than {two} at {path}."
    elif rule.type == "less_than" and not one < two:
        yield f"It is {one}, not less than {two} at {path}."


def _array_length(value: JsonValue, other: JsonValue, path: str) -> Iterator[str]:
    """One of the two is an array; the other one says its length, or is as long."""
    lengths = [len(one) if isinstance(one, list) else one for one in (value, other)]
    whole = all(isinstance(length, int) and not isinstance(length, bool) for length in lengths)
    if not whole or not (isinstance(value, list) or isinstance(other, list)):
        yield f"One of it and the value at {path} must be an array, the other its length."
    elif lengths[0] != lengths[1]:
        yield f"The length is {lengths[0]} here and {lengths[1]} at {path}."


def _number(value: JsonValue) -> int | float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
