"""Rules that no output can ever meet, or that cannot be applied at all: refused when they are saved."""

from __future__ import annotations

import re
from collections.abc import Iterator

from engine.problems import Problem
from engine.validation import paths, schemas
from engine.validation.rules import DatabaseRule, FileRule, JsonCheck, Validation

NUMBERS = frozenset({"number", "integer"})
LENGTHS = frozenset({"string", "array"})
ANY = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})
ASKED_OF = {
    "min_length": LENGTHS,
    "max_length": LENGTHS,
    "pattern": frozenset({"string"}),
    "min_value": NUMBERS,
    "max_value": NUMBERS,
}
COMPARED = {
    "greater_than": NUMBERS,
    "less_than": NUMBERS,
    "array_length": frozenset({"array", "integer"}),
    "equals": ANY,
    "in_array": ANY,
}
QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`|\[[^\]]*\]|--[^\n]*|/\*.*?\*/", re.DOTALL)
READING = re.compile(r"\s*(select|with|values)\b", re.IGNORECASE)
CHANGING = re.compile(
    r"\b(insert|update|delete|drop|alter|create|attach|detach|vacuum|reindex|pragma|begin|commit)\b", re.IGNORECASE
)


def rule_problems(rules: Validation, root: str = "$") -> Iterator[Problem]:
    for index, rule in enumerate(rules.files):
        yield from _file_problems(rule, f"{root}.files[{index}]")
    for index, query in enumerate(rules.db):
        yield from _query_problems(query, f"{root}.db[{index}]")


def _file_problems(rule: FileRule, path: str) -> Iterator[Problem]:
    if rule.content is not None:
        try:
            schemas.check(rule.content)
        except schemas.BadSchema as error:
            yield Problem(f"{path}.schema", "bad_schema", f"This JSON Schema cannot be used: {error}.")
    for index, check in enumerate(rule.json_checks):
        yield from _check_problems(check, f"{path}.json_checks[{index}]")


def _query_problems(rule: DatabaseRule, path: str) -> Iterator[Problem]:
    bare = QUOTED.sub(" ", rule.sql)
    if not READING.match(bare) or CHANGING.search(bare) or ";" in bare.rstrip().removesuffix(";"):
        message = "It must be one query that only reads: SELECT, WITH or VALUES, and nothing behind it."
        yield Problem(f"{path}.sql", "not_read_only", message)
    yield from _crossed(path, "min_rows", rule.min_rows, "max_rows", rule.max_rows)
    if rule.checks and rule.max_rows == 0:
        yield Problem(f"{path}.checks", "impossible_rule", "Checks on the first row of a query that may have none.")
    for index, check in enumerate(rule.checks):
        yield from _check_problems(check, f"{path}.checks[{index}]")


def _check_problems(rule: JsonCheck, path: str) -> Iterator[Problem]:
    yield from _path_problems(rule.path, f"{path}.path")
    if rule.consistency_check is not None:
        yield from _path_problems(
            rule.consistency_check.compare_with_path, f"{path}.consistency_check.compare_with_path"
        )
    yield from _crossed(path, "min_length", rule.min_length, "max_length", rule.max_length)
    yield from _crossed(path, "min_value", rule.min_value, "max_value", rule.max_value)
    possible = frozenset({rule.value_type}) if rule.value_type else ANY
    for key, types in _asked(rule):
        if not possible & types:
            message = "No value can meet this: the type, or another key of this check, rules it out."
            yield Problem(f"{path}.{key}", "impossible_rule", message)
            return
        possible &= types


def _asked(rule: JsonCheck) -> Iterator[tuple[str, frozenset[str]]]:
    for key, types in ASKED_OF.items():
        if getattr(rule, key) is not None:
            yield key, types
    if rule.consistency_check is not None:
        yield "consistency_check", COMPARED[rule.consistency_check.type]


def _path_problems(path: str, where: str) -> Iterator[Problem]:
    try:
        paths.compiled(path)
    except paths.BadPath as error:
        yield Problem(where, "bad_path", f"This is no JSONPath: {error}.")


def _crossed(path: str, low: str, least: float | None, high: str, most: float | None) -> Iterator[Problem]:
    if least is not None and most is not None and least > most:
        yield Problem(f"{path}.{high}", "impossible_rule", f"{high} is below {low}.")
