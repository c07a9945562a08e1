"""Parameters: checked before anything starts, nothing converted, no credential among them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import parameters
from engine.parameters import Parameter, ParametersRefused

SAMPLES: dict[str, Any] = {
    "string": "a",
    "number": 1.5,
    "integer": 1,
    "boolean": True,
    "array": [1],
    "object": {"a": 1},
    "null": None,
}
TYPES = [name for name in SAMPLES if name != "null"]
MARKETS = {
    "market": {"type": "string", "description": "Which market.", "required": True, "enum": ["de", "fr"]},
    "limit": {"type": "integer", "description": "How many.", "default": 10},
    "note": {"type": "string", "description": "Free."},
}


def declared(raw: dict[str, Any]) -> dict[str, Parameter]:
    return {name: Parameter.model_validate_json(json.dumps(one)) for name, one in raw.items()}


def one(**keys: Any) -> dict[str, Parameter]:
    return declared({"value": {"description": "A value.", **keys}})


def refused(contract: dict[str, Parameter], given: dict[str, Any], **keys: Any) -> dict[str, str]:
    with pytest.raises(ParametersRefused) as caught:
        parameters.check(contract, given, **keys)
    return {problem.path: problem.code for problem in caught.value.problems}


def bad_contract(contract: dict[str, Parameter]) -> dict[str, str]:
    return {problem.path: problem.code for problem in parameters.declaration_problems(contract)}


def test_values_are_taken_and_defaults_applied():
    assert parameters.check(declared(MARKETS), {"market": "de"}) == {"market": "de", "limit": 10}


def test_what_is_given_wins_over_the_default():
    assert parameters.check(declared(MARKETS), {"market": "de", "limit": 0})["limit"] == 0


def test_everything_wrong_is_named_at_once():
    assert refused(declared(MARKETS), {"limit": "10", "colour": "red"}) == {
        "$.colour": "unknown_parameter",
        "$.market": "missing_parameter",
        "$.limit": "wrong_type",
    }


def test_a_value_outside_the_enum_is_refused():
    assert refused(declared(MARKETS), {"market": "es"}) == {"$.market": "not_in_enum"}


@pytest.mark.parametrize("wanted", TYPES)
@pytest.mark.parametrize("sent", SAMPLES)
def test_only_its_own_type_is_taken(wanted: str, sent: str):
    fits = wanted == sent or (wanted, sent) == ("number", "integer")

    if fits:
        assert parameters.check(one(type=wanted), {"value": SAMPLES[sent]}) == {"value": SAMPLES[sent]}
    else:
        assert refused(one(type=wanted), {"value": SAMPLES[sent]}) == {"$.value": "wrong_type"}


@pytest.mark.parametrize(
    ("kind", "value"), [("integer", 5.0), ("integer", True), ("number", False), ("number", float("nan"))]
)
def test_look_alikes_of_numbers_are_refused(kind: str, value: Any):
    assert refused(one(type=kind), {"value": value}) == {"$.value": "wrong_type"}


def test_an_enum_tells_true_from_one():
    assert refused(one(type="array", enum=[[1]]), {"value": [True]}) == {"$.value": "not_in_enum"}


def test_null_is_no_way_to_leave_a_value_out():
    assert refused(declared(MARKETS), {"market": "de", "limit": None}) == {"$.limit": "wrong_type"}


def test_a_required_one_with_a_default_is_never_missing():
    assert parameters.check(one(type="string", required=True, default="x"), {}) == {"value": "x"}


def test_a_value_equal_to_a_stored_secret_is_refused_and_not_repeated():
    with pytest.raises(ParametersRefused) as caught:
        parameters.check(one(type="object"), {"value": {"deep": ["hunter22"]}}, secrets_values=["hunter22"])

    assert caught.value.problems[0].code == "secret_value"
    assert "SECRET_" in str(caught.value)
    assert "hunter22" not in str(caught.value)


def test_parameters_that_do_not_fit_into_the_environment_are_refused_with_the_biggest():
    contract = declared({name: {"type": "string", "description": "Text."} for name in ("small", "big")})

    assert refused(contract, {"small": "a", "big": "x" * 40_000}) == {"$.big": "too_large"}


@pytest.mark.parametrize(
    "name",
    [
        "password",
        "DB_PASSWORD",
        "dbPassword",
        "api_key",
        "apiKey",
        "apikey",
        "githubToken",
        "GITHUB-TOKEN",
        "client_secret",
        "private_key",
        "accessKey",
        "ssh_key",
        "credentials",
        "session_cookie",
        "passphrase",
        "jwt",
    ],
)
def test_a_name_that_looks_like_a_credential_is_refused_with_advice(name: str):
    contract = declared({name: {"type": "string", "description": "A value."}})

    (problem,) = parameters.declaration_problems(contract)
    assert problem.code == "credential_name"
    assert "SECRET_" in problem.message


@pytest.mark.parametrize(
    "name",
    [
        "market",
        "limit",
        "max_tokens",
        "key",
        "keys",
        "sort_key",
        "author",
        "secretary",
        "passenger",
        "tokenizer",
        "monkey",
    ],
)
def test_a_name_that_only_reminds_of_one_is_taken(name: str):
    assert not parameters.looks_like_credential(name)


@pytest.mark.parametrize(
    ("keys", "problems"),
    [
        ({"type": "integer", "default": "5"}, {"$.value.default": "wrong_type"}),
        ({"type": "integer", "default": None}, {"$.value.default": "wrong_type"}),
        (
            {"type": "integer", "enum": [1, True, "x"]},
            {"$.value.enum[1]": "wrong_type", "$.value.enum[2]": "wrong_type"},
        ),
        ({"type": "integer", "enum": [1, 2], "default": 3}, {"$.value.default": "not_in_enum"}),
    ],
)
def test_a_contract_that_contradicts_itself_is_refused(keys: dict[str, Any], problems: dict[str, str]):
    assert bad_contract(one(**keys)) == problems


@pytest.mark.parametrize("description", ["", " ", "\n"])
def test_a_parameter_is_described(description: str):
    with pytest.raises(ValueError, match="description"):
        one(type="string", description=description)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-100, 100)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


PYTHON: dict[str, Any] = {
    "string": str,
    "number": (int, float),
    "integer": int,
    "boolean": bool,
    "array": list,
    "object": dict,
}


@given(st.sampled_from(TYPES), JSON)
def test_exactly_the_values_of_a_type_are_taken_and_unchanged(kind: str, value: Any):
    fits = isinstance(value, PYTHON[kind]) and isinstance(value, bool) == (kind == "boolean")

    if fits:
        assert parameters.check(one(type=kind), {"value": value})["value"] is value
    else:
        assert refused(one(type=kind), {"value": value}) == {"$.value": "wrong_type"}


@given(st.dictionaries(st.text(max_size=6), JSON, max_size=4))
def test_a_step_without_parameters_takes_none(values: dict[str, Any]):
    if values:
        assert set(refused({}, values).values()) == {"unknown_parameter"}
    else:
        assert parameters.check({}, values) == {}
