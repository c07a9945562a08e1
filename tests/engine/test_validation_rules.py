"""Validation rules that nothing can meet, or that cannot be applied, are refused when they are saved."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from engine import validation
from engine.validation import Validation


def rules(**raw: Any) -> Validation:
    return Validation.model_validate_json(json.dumps(raw))


def refused(raw: Validation) -> dict[str, str]:
    return {problem.path: problem.code for problem in validation.rule_problems(raw)}


def check(**keys: Any) -> dict[str, str]:
    return refused(rules(files=[{"file_name": "a.json", "json_checks": [{"path": "$.a", **keys}]}]))


def schema(raw: dict[str, Any]) -> dict[str, str]:
    return refused(rules(files=[{"file_name": "a.json", "schema": raw}]))


def query(sql: str, **keys: Any) -> dict[str, str]:
    return refused(rules(db=[{"name": "q", "sql": sql, **keys}]))


@pytest.mark.parametrize(
    ("keys", "at"),
    [
        ({"value_type": "number", "pattern": "[0-9]+"}, "pattern"),
        ({"value_type": "integer", "min_length": 1}, "min_length"),
        ({"value_type": "object", "max_length": 1}, "max_length"),
        ({"value_type": "string", "min_value": 1}, "min_value"),
        ({"value_type": "boolean", "max_value": 1}, "max_value"),
        ({"value_type": "null", "pattern": "x"}, "pattern"),
        ({"value_type": "array", "pattern": "x"}, "pattern"),
        ({"pattern": "x", "min_value": 1}, "min_value"),
        ({"min_length": 1, "max_value": 1}, "max_value"),
        ({"min_length": 5, "max_length": 4}, "max_length"),
        ({"min_value": 5, "max_value": 4}, "max_value"),
        (
            {"value_type": "string", "consistency_check": {"type": "greater_than", "compare_with_path": "$.b"}},
            "consistency_check",
        ),
        (
            {"pattern": "x", "consistency_check": {"type": "array_length", "compare_with_path": "$.b"}},
            "consistency_check",
        ),
    ],
)
def test_a_check_that_no_value_can_meet_is_refused(keys: dict[str, Any], at: str):
    assert check(**keys) == {f"$.files[0].json_checks[0].{at}": "impossible_rule"}


@pytest.mark.parametrize(
    "keys",
    [
        {"value_type": "number", "min_value": 1, "max_value": 1},
        {"value_type": "integer", "min_value": 0},
        {"value_type": "string", "pattern": "x", "min_length": 1},
        {"value_type": "array", "min_length": 1},
        {"min_length": 0, "max_length": 0},
        {"consistency_check": {"type": "in_array", "compare_with_path": "$.b[*]"}, "pattern": "x"},
    ],
)
def test_a_check_that_can_be_met_is_taken(keys: dict[str, Any]):
    assert check(**keys) == {}


@pytest.mark.parametrize("path", ["a.b", "$.a[", "$..", "$[?@.a ==]", "$.a | $.b", "  ", "$.a[?nothing(@)]"])
def test_a_path_that_is_no_jsonpath_is_refused(path: str):
    raw = rules(files=[{"file_name": "a.json", "json_checks": [{"path": path}]}])

    assert refused(raw) == {"$.files[0].json_checks[0].path": "bad_path"}


def test_the_path_it_is_compared_with_is_judged_too():
    assert check(consistency_check={"type": "equals", "compare_with_path": "b"}) == {
        "$.files[0].json_checks[0].consistency_check.compare_with_path": "bad_path"
    }


@pytest.mark.parametrize(
    "raw",
    [
        {"type": "strnig"},
        {"minLength": -1},
        {"pattern": "("},
        {"properties": {"a": {"$ref": "https://example.test/schema.json"}}},
        {"$ref": "#/$defs/gone"},
        {"$ref": "other.json"},
        {"$id": "https://example.test/mine.json"},
        {"$schema": "https://example.test/draft"},
        {"properties": {"a": {"format": "phone-number"}}},
        {"required": "a"},
    ],
)
def test_a_schema_that_cannot_be_applied_is_refused(raw: dict[str, Any]):
    assert schema(raw) == {"$.files[0].schema": "bad_schema"}


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"type": "object", "properties": {"format": {"type": "string"}, "$ref": {"type": "string"}}},
        {"$defs": {"a": {"type": "string"}}, "items": {"$ref": "#/$defs/a"}},
        {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"},
        {"enum": [{"format": "phone-number"}]},
        {"format": "date"},
    ],
)
def test_a_schema_that_can_be_applied_is_taken(raw: dict[str, Any]):
    assert schema(raw) == {}


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM t",
        "SELECT 1; DELETE FROM t",
        "WITH x AS (SELECT 1) DELETE FROM t",
        "ATTACH 'x' AS y",
        "PRAGMA journal_mode",
        "SELECT 1; SELECT 2",
        "-- SELECT\nDROP TABLE t",
        "/* SELECT */ UPDATE t SET a = 1",
        "explain select 1",
    ],
)
def test_a_query_that_does_not_only_read_is_refused(sql: str):
    assert query(sql) == {"$.db[0].sql": "not_read_only"}


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "select 1 ;",
        "WITH x AS (SELECT 1) SELECT * FROM x",
        "SELECT replace(a, 'x', 'delete; drop') FROM \"update\"",
        "-- a note\nSELECT 1",
        "VALUES (1)",
    ],
)
def test_a_query_that_reads_is_taken(sql: str):
    assert query(sql) == {}


def test_a_query_that_no_number_of_rows_can_meet_is_refused():
    assert query("SELECT 1", min_rows=2, max_rows=1) == {"$.db[0].max_rows": "impossible_rule"}
    assert query("SELECT 1", max_rows=0, checks=[{"path": "$.a"}]) == {"$.db[0].checks": "impossible_rule"}


@pytest.mark.parametrize(
    "raw",
    [
        {"files": [{"file_name": f"{n}.json"} for n in range(21)]},
        {"files": [{"file_name": "a.json", "json_checks": [{"path": "$"}] * 101}]},
        {"db": [{"name": "q", "sql": "SELECT 1", "checks": [{"path": "$"}] * 101}]},
        {"files": [{"file_name": "../a.json"}]},
        {"files": [{"file_name": "a.json", "json_checks": [{"path": "$", "pattern": "("}]}]},
    ],
)
def test_there_is_an_end_to_rules(raw: dict[str, Any]):
    with pytest.raises(ValidationError):
        rules(**raw)


def test_the_most_there_may_be_is_taken():
    checks = [{"path": "$"}] * 100

    assert refused(rules(files=[{"file_name": f"{n}.json", "json_checks": checks} for n in range(20)])) == {}
