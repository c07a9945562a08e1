"""What comes of a validation block: passed, failed, or a faulty rule, told apart."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import json_values, validation
from engine.validation import FileUnreadable, QueryFailed, Status, Validation, ValidationReport

ANY = {
    "string": "abc",
    "number": 1.5,
    "integer": 3,
    "boolean": True,
    "array": [1, 2],
    "object": {"a": 1},
    "null": None,
}


def rules(**raw: Any) -> Validation:
    return Validation.model_validate_json(json.dumps(raw))


def on(document: Any, *checks: dict[str, Any], **keys: Any) -> ValidationReport:
    """The report on one file that holds this document."""
    raw = rules(files=[{"file_name": "a.json", "json_checks": list(checks), **keys}])
    return validation.check_files(raw.files, {"a.json": json.dumps(document).encode()}.get)


def passes(document: Any, **check: Any) -> bool:
    report = on(document, {"path": "$.v", **check})
    assert report.status is not Status.FAULTY
    return report.passed


def compare(kind: str, document: Any, path: str = "$.v", other: str = "$.w") -> bool:
    report = on(document, {"path": path, "consistency_check": {"type": kind, "compare_with_path": other}})
    assert report.status is not Status.FAULTY
    return report.passed


def on_bytes(data: bytes | None, **keys: Any) -> ValidationReport:
    return validation.check_files(rules(files=[{"file_name": "a.json", **keys}]).files, {"a.json": data}.get)


def test_a_file_that_must_exist_and_does_not_fails():
    assert on_bytes(None).status is Status.FAILED
    assert on_bytes(None, must_exist=False).passed


def test_a_file_that_need_not_exist_is_checked_when_it_does():
    assert on_bytes(b"{}", must_exist=False, json_checks=[{"path": "$.a"}]).status is Status.FAILED


def test_a_file_without_further_rules_may_hold_anything():
    assert on_bytes(b"\xff\xfe not JSON").passed


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"NaN", b'{"a": 1, "a": 2}', b"[" * 100_000])
def test_a_file_that_is_no_json_fails_and_the_rule_is_not_at_fault(data: bytes):
    assert on_bytes(data, schema={}).status is Status.FAILED


def test_a_file_that_must_not_be_read_fails_with_the_reason():
    def read(_: str) -> bytes:
        raise FileUnreadable("it is a link")

    report = validation.check_files(rules(files=[{"file_name": "a.json"}]).files, read)

    assert report.status is Status.FAILED
    assert "it is a link" in report.summary()


@pytest.mark.parametrize("wanted", ANY)
@pytest.mark.parametrize("sent", ANY)
def test_each_type_is_its_own(wanted: str, sent: str):
    assert passes({"v": ANY[sent]}, value_type=wanted) == (wanted == sent or (wanted, sent) == ("number", "integer"))


def test_an_array_never_passes_for_a_string():
    assert not passes({"v": ["a"]}, value_type="string")
    assert not passes({"v": ["abc"]}, pattern="abc")
    assert not on({"v": ["a"]}, schema={"properties": {"v": {"type": "string"}}}).passed


def test_a_real_zero_and_an_empty_text_are_there():
    assert passes({"v": 0})
    assert passes({"v": ""})
    assert passes({"v": None})
    assert not passes({})
    assert passes({}, must_exist=False)


@pytest.mark.parametrize(
    ("value", "check", "holds"),
    [
        ("abc", {"min_length": 3, "max_length": 3}, True),
        ("abc", {"min_length": 4}, False),
        ([1, 2], {"max_length": 1}, False),
        ({"a": 1}, {"min_length": 1}, False),
        ("abc", {"pattern": "^a.c$"}, True),
        ("abc", {"pattern": "^b"}, False),
        (5, {"pattern": "5"}, False),
        (5, {"min_value": 5, "max_value": 5}, True),
        (5, {"min_value": 5.1}, False),
        (5, {"max_value": 4}, False),
        (True, {"min_value": 0}, False),
        ("5", {"min_value": 0}, False),
        (0, {"min_value": 0}, True),
    ],
)
def test_bounds_hold_for_values_of_their_kind(value: Any, check: dict[str, Any], holds: bool):
    assert passes({"v": value}, **check) is holds


def test_every_value_that_the_path_finds_is_checked():
    check = {"path": "$.items[*].n", "value_type": "integer"}

    assert on({"items": [{"n": 1}, {"n": 2}]}, check).passed
    assert on({"items": [{"n": 1}, {"n": "2"}]}, check).status is Status.FAILED


@pytest.mark.parametrize(
    ("kind", "document", "holds"),
    [
        ("equals", {"v": {"a": [1]}, "w": {"a": [1]}}, True),
        ("equals", {"v": 1, "w": True}, False),
        ("equals", {"v": 1, "w": 1.0}, True),
        ("greater_than", {"v": 2, "w": 1}, True),
        ("greater_than", {"v": 1, "w": 1}, False),
        ("greater_than", {"v": "2", "w": "1"}, False),
        ("less_than", {"v": 1, "w": 2}, True),
        ("less_than", {"v": True, "w": 2}, False),
        ("array_length", {"v": 2, "w": ["a", "b"]}, True),
        ("array_length", {"v": ["a", "b"], "w": 2}, True),
        ("array_length", {"v": ["a", "b"], "w": ["c", "d"]}, True),
        ("array_length", {"v": 3, "w": ["a", "b"]}, False),
        ("array_length", {"v": True, "w": ["a"]}, False),
        ("array_length", {"v": 1, "w": "a"}, False),
        ("array_length", {"v": 1, "w": 1}, False),
        ("in_array", {"v": "a", "w": ["a", "b"]}, True),
        ("in_array", {"v": 1, "w": [True]}, False),
        ("in_array", {"v": "a", "w": "a"}, False),
        ("equals", {"v": 1}, False),
    ],
)
def test_consistency_compares_two_places_of_one_document(kind: str, document: Any, holds: bool):
    assert compare(kind, document) is holds


def test_membership_may_be_asked_of_many_places():
    document = {"chosen": "b", "all": [{"id": "a"}, {"id": "b"}]}

    assert compare("in_array", document, "$.chosen", "$.all[*].id")
    assert compare("in_array", {"chosen": "a", "all": [{"id": "a"}]}, "$.chosen", "$.all[*].id")
    assert not compare("equals", document, "$.chosen", "$.all[*].id")


def test_a_schema_says_where_it_does_not_fit():
    report = on({"v": {"n": 1.0}}, schema={"properties": {"v": {"properties": {"n": {"type": "integer"}}}}})

    assert report.status is Status.FAILED
    assert "$.v.n" in report.summary()


def test_formats_are_checked():
    assert on("2026-11-30", schema={"format": "date"}).passed
    assert on("30.11.2026", schema={"format": "date"}).status is Status.FAILED


def test_a_rule_that_breaks_while_it_is_applied_is_faulty_and_not_failed():
    report = on({"v": 1}, schema={"$ref": "#"})

    assert report.status is Status.FAULTY
    assert "cannot be applied" in report.summary()


@pytest.mark.parametrize("text", ["0", "[1", '{"a": 1}', "null"])
def test_a_document_that_is_text_is_no_json_to_be_read(text):
    assert on(text, {"path": "$", "value_type": "string"}).passed
    assert not on(text, {"path": "$.a"}).passed


def test_a_failed_check_weighs_more_than_a_faulty_rule():
    assert on({"v": 1}, {"path": "$.w"}, schema={"$ref": "#"}).status is Status.FAILED


def test_a_pattern_without_end_is_a_faulty_rule_and_does_not_hang():
    raw = rules(
        files=[
            {"file_name": "a.json", "json_checks": [{"path": "$", "pattern": "^(a+)+$"}]},
            {"file_name": "b.json", "json_checks": [{"path": "$"}]},
        ]
    )

    report = validation.check_files(raw.files, lambda _: json.dumps("a" * 60 + "!").encode(), cpu_seconds=0.2)

    assert report.status is Status.FAULTY
    assert "processor time" in report.summary()
    assert "a.json" in report.summary()


def query(rows: Sequence[Mapping[str, Any]], **keys: Any) -> ValidationReport:
    asked: list[int] = []

    def run(_sql: str, limit: int) -> Sequence[Mapping[str, Any]]:
        asked.append(limit)
        return rows[:limit]

    return validation.check_database(rules(db=[{"name": "q", "sql": "SELECT 1", **keys}]).db, run)


@pytest.mark.parametrize(
    ("count", "keys", "holds"),
    [
        (0, {"min_rows": 1}, False),
        (1, {"min_rows": 1}, True),
        (3, {"min_rows": 3, "max_rows": 3}, True),
        (4, {"max_rows": 3}, False),
        (0, {"max_rows": 0}, True),
        (0, {}, True),
        (0, {"checks": [{"path": "$.n"}]}, False),
        (2, {"checks": [{"path": "$.n", "value_type": "integer", "min_value": 0, "max_value": 0}]}, True),
        (2, {"checks": [{"path": "$.n", "min_value": 1}]}, False),
    ],
)
def test_rows_are_counted_and_the_first_is_checked(count: int, keys: dict[str, Any], holds: bool):
    assert query([{"n": n} for n in range(count)], **keys).passed is holds


def test_a_query_that_the_database_refuses_is_a_faulty_rule():
    def run(_sql: str, _limit: int) -> Sequence[Mapping[str, Any]]:
        raise QueryFailed("no such table: t")

    report = validation.check_database(rules(db=[{"name": "q", "sql": "SELECT 1 FROM t"}]).db, run)

    assert report.status is Status.FAULTY
    assert "no such table: t" in report.summary()


def test_the_whole_block_reports_files_and_database_check_by_check():
    raw = rules(
        files=[{"file_name": "a.json", "json_checks": [{"path": "$.n"}]}],
        db=[{"name": "q", "sql": "SELECT 1", "min_rows": 1}],
    )

    report = validation.check_all(raw, lambda _: b"{}", lambda _sql, _limit: [{}])

    assert report.record() == {
        "status": "failed",
        "checks": [
            {"name": "exists", "path": "a.json", "status": "passed", "message": ""},
            {"name": "json_checks[0]", "path": "a.json $.n", "status": "failed", "message": "Nothing is there."},
            {"name": "min_rows", "path": "db q", "status": "passed", "message": ""},
        ],
    }


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("vwx"), inner, max_size=3),
    max_leaves=6,
)
CHECKS = st.fixed_dictionaries(
    {"path": st.sampled_from(["$", "$.v", "$..v", "$[*]", "$.v[?@ > 1]"])},
    optional={
        "must_exist": st.booleans(),
        "value_type": st.sampled_from(list(ANY)),
        "min_length": st.integers(0, 3),
        "pattern": st.sampled_from(["a", "^$"]),
        "max_value": st.integers(-3, 3),
        "consistency_check": st.fixed_dictionaries(
            {
                "type": st.sampled_from(["equals", "greater_than", "less_than", "array_length", "in_array"]),
                "compare_with_path": st.sampled_from(["$.w", "$..w", "$"]),
            }
        ),
    },
)


@given(JSON, CHECKS)
def test_any_check_on_any_document_passes_or_fails_and_says_why(document: Any, check: dict[str, Any]):
    report = on(document, check)

    assert report.status is not Status.FAULTY
    assert report.passed or report.summary()


@given(JSON)
def test_a_document_equals_itself(document: Any):
    assert on(document, {"path": "$", "consistency_check": {"type": "equals", "compare_with_path": "$"}}).passed


@given(JSON)
def test_exactly_the_types_that_a_value_has_pass(document: Any):
    passing = {name for name in ANY if on(document, {"path": "$", "value_type": name}).passed}

    assert passing == {name for name in ANY if json_values.has_type(document, name)}
