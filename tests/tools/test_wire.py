"""Strict JSON: what is refused, what is one spelling."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.tools import wire

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nonsense",
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": -Infinity}',
        b'{"a": 1, "a": 2}',
        b'{"a": {"b": 1, "b": 1}}',
        b'{"a": "\xff"}',
        b"\xef\xbb\xbf{}",
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b"[" * 65 + b"]" * 65,
        b'{"a":' * 65 + b"1" + b"}" * 65,
        b"1" * 5000,
        b'{"a": "line\nbreak"}',
    ],
)
def test_what_is_no_strict_json_is_malformed(body):
    with pytest.raises(wire.Malformed):
        wire.parse(body)


@pytest.mark.parametrize("body", [b'{"a": "\\ud800"}', b'{"\\udfff": 1}', b'{"a": 1e999}'])
def test_what_only_a_spelling_shows_is_malformed_there(body):
    with pytest.raises(wire.Malformed):
        wire.canonical(wire.parse(body))


def test_64_levels_are_taken_and_many_brackets_side_by_side():
    assert wire.parse(b"[" * 64 + b"]" * 64)
    assert len(wire.parse(b"[" + b",".join([b"[]"] * 1000) + b"]")) == 1000


@given(json_values)
def test_what_is_sent_is_what_is_read(value):
    assert wire.parse(json.dumps(value).encode("utf-8", "surrogatepass")) == value


@given(st.dictionaries(st.text(max_size=5), json_values, max_size=5), st.randoms())
def test_the_order_of_keys_makes_no_other_digest(value, random):
    items = list(value.items())
    random.shuffle(items)
    assert wire.argument_digest("t", value) == wire.argument_digest("t", dict(items))


@pytest.mark.parametrize("given_id", ["", "x", 5, None, "0" * 36, "01a22aa1-7a10-7f1e-bc04-cd9b67892ba55", ["a"] * 36])
def test_an_id_is_a_uuid_in_its_long_form(given_id):
    with pytest.raises(wire.Malformed):
        wire.call_id(given_id)
