"""The quick yes is never wrong: whatever it takes, jsonschema takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from apps.tools import catalogue, quick_check

leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3)
bytes_value = st.fixed_dictionaries({"$base64": leaves})
values = st.recursive(
    leaves | bytes_value,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["sql", "params", "a"]), inner, max_size=3)
    ),
    max_leaves=6,
)
arguments = st.dictionaries(
    st.sampled_from(["sql", "params", "max_rows", "offset", "action", "statements", "param_sets", "call_id", "more"]),
    values | st.sampled_from(["query", "describe", "0" * 36]) | st.integers(-1, 10_001),
    max_size=4,
)


@pytest.mark.parametrize("name", ["query_workflow_db", "mutate_workflow_db", "read_receipt"])
@given(given_arguments=arguments)
def test_whatever_the_quick_check_takes_the_published_schema_takes(name, given_arguments):
    tool = catalogue.find(name)
    assert tool is not None
    if tool.fits_quickly(given_arguments):
        assert tool.validator.is_valid(given_arguments)
    assert (tool.fault(given_arguments) == "") is tool.validator.is_valid(given_arguments)


@pytest.mark.parametrize(
    ("name", "fitting"),
    [
        (
            "query_workflow_db",
            {"sql": "SELECT 1", "params": [1, "x", None, True, 1.5, {"$base64": "AA=="}], "max_rows": 5},
        ),
        ("query_workflow_db", {"sql": "SELECT 1", "params": {"a": 1}, "offset": 0}),
        ("query_workflow_db", {"action": "describe"}),
        ("mutate_workflow_db", {"sql": "DELETE FROM a", "param_sets": [[1], {"a": 2}]}),
        ("mutate_workflow_db", {"statements": [{"sql": "DELETE FROM a", "params": [1]}]}),
        ("read_receipt", {"call_id": "0" * 36}),
    ],
)
def test_the_usual_call_gets_its_quick_yes(name, fitting):
    tool = catalogue.find(name)
    assert tool is not None
    assert tool.fits_quickly(fitting)


@given(values)
def test_a_schema_with_a_word_that_is_not_known_gets_no_quick_yes(value):
    assert not quick_check.compiled({"type": "object", "patternProperties": {"x": {}}})(value)


SCHEMAS = st.sampled_from(
    [
        {"type": ["string", "null"], "minLength": 2},
        {"type": "integer", "minimum": 0, "maximum": 3},
        {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "integer"}, "maxItems": 2}]},
        {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"]},
        {"type": "object", "additionalProperties": {"type": "boolean"}},
        {"type": "array", "minItems": 1},
        {"enum": ["a", ""]},
        {"items": {"type": "null"}},
        {"maximum": 5},
    ]
)


@given(SCHEMAS, values)
def test_each_known_word_means_what_json_schema_means(schema, value):
    if quick_check.compiled(schema)(value):
        assert Draft202012Validator(schema).is_valid(value)
