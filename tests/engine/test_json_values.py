"""JSON as Pulse understands it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import json_values
from engine.json_values import NotJson

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"NaN",
        b"[Infinity]",
        b"1e999",
        b'{"a": 1, "a": 2}',
        b'{"a": {"b": 1, "b": 1}}',
        b'"\\ud800"',
        b"\xff",
        b"{}x",
        b"[1,]",
        b"[" * 100_000,
        b"9" * 5000,
    ],
)
def test_it_refuses_what_is_no_strict_json(text: bytes):
    with pytest.raises(NotJson):
        json_values.load(text)


@given(JSON)
def test_what_it_writes_it_reads_again(value: Any):
    assert json_values.same(json_values.load(json_values.dump(value)), value)


@given(JSON)
def test_the_canonical_form_is_one(value: Any):
    assert json_values.dump(json.loads(json.dumps(value))) == json_values.dump(value)


@pytest.mark.parametrize(
    ("one", "other"), [(True, 1), (False, 0), ([True], [1]), ({"a": 0}, {"a": False}), ("1", 1), (None, 0)]
)
def test_look_alikes_are_not_the_same(one: Any, other: Any):
    assert not json_values.same(one, other)
    assert not json_values.same(other, one)


@given(JSON, JSON)
def test_two_values_are_the_same_when_their_types_and_contents_are(one: Any, other: Any):
    assert json_values.same(one, one)
    if json_values.same(one, other):
        assert json_values.type_name(one) == json_values.type_name(other) or one == other


def test_the_order_of_keys_is_kept_where_it_is_asked_for():
    assert json_values.encode({"b": 1, "a": 2}) == b'{"b":1,"a":2}'
    assert json_values.dump({"b": 1, "a": 2}) == b'{"a":2,"b":1}'


@pytest.mark.parametrize("innermost", [1, [], {}, "x"])
def test_levels_are_counted_alike_whatever_lies_innermost(innermost: Any):
    value = innermost
    for _ in range(3):
        value = {"a": [value]}
    levels = 6 + isinstance(innermost, list | dict)
    assert json_values.shallow(value, levels)
    assert not json_values.shallow(value, levels - 1)
