"""The shape of the document: every key known, nothing converted, nothing ignored."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import document
from engine.document import DocumentRefused
from tests.engine.documents import branch, plan, refusals, scripted, workflow

WHOLE_STEP: dict[str, Any] = {
    "id": "review",
    "kind": "scripted",
    "title": "Review",
    "description": "Looks at {{BASE_URL}}.",
    "context_dependencies": ["gate/pull.json", {"path": "gate/more.json", "optional": True}],
    "context_output": ["review.json"],
    "script_parameters": {"limit": {"type": "integer", "description": "How many.", "default": 5, "enum": [5, 10]}},
    "validation": {
        "files": [{"file_name": "review.json", "schema": {"type": "object"}, "json_checks": [{"path": "$.sizes"}]}],
        "db": [{"name": "rows", "sql": "SELECT 1", "min_rows": 1, "checks": [{"path": "$.n"}]}],
    },
    "tools": ["query_workflow_db"],
    "secrets": ["GITHUB_TOKEN", {"name": "X", "optional": True}],
    "requires": ["VAR_BASE_URL"],
    "access": {"db": "read-write"},
    "network": {"hosts": []},
    "limits": {"timeout_s": 30, "log_overflow": "fail"},
    "retry": {"max_attempts": 2, "backoff_s": 1},
    "idempotent": True,
    "lock_code": True,
    "next_step_id": "end",
}

WHOLE = workflow(
    scripted("gate"),
    WHOLE_STEP,
    objective="Look at pull requests.",
    variables=[{"name": "BASE_URL", "value": "https://example.test", "description": "Where."}],
    groups=[{"name": "default", "values": {"BASE_URL": {"a": [1, None]}}, "enabled": True}],
    secrets=["GITHUB_TOKEN", "X"],
    triggers=[
        {"kind": "github", "name": "pulls", "group": "default", "events": ["pull_request.opened"]},
        {
            "kind": "bearer",
            "name": "api",
            "mode": "envelope",
            "allowed_variables": ["BASE_URL"],
            "mappings": {"group": {"source": "repo.name", "values": {"a": "default"}, "default": "default"}},
        },
    ],
    settings={"repair": "off", "max_concurrent_runs": 2, "on_busy": "reject"},
)


def test_it_takes_every_key_that_is_honoured_and_writes_it_as_it_was():
    parsed = document.parse_workflow(WHOLE)

    assert parsed.model_dump(mode="json", exclude_unset=True) == WHOLE


def test_what_it_writes_it_reads_again():
    parsed = document.parse_workflow(WHOLE)

    assert document.parse_workflow(parsed.model_dump(mode="json", exclude_unset=True)) == parsed


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (workflow(colour="red"), "$.colour"),
        (workflow(scripted("gate", tolls=[])), "$.plan.steps[0].tolls"),
        (workflow(scripted("gate", limits={"timeout": 5})), "$.plan.steps[0].limits.timeout"),
        (workflow(scripted("gate", retry={"a b": 5})), '$.plan.steps[0].retry["a b"]'),
        (workflow(branch("b", ("x", "end"), ("y", "end"), item=1)), "$.plan.steps[0].item"),
        (workflow(variables=[{"name": "A", "value": 1, "secret": True}]), "$.variables[0].secret"),
        (workflow(settings={"notifications": {}}), "$.settings.notifications"),
        (
            workflow(scripted("gate", context_dependencies=[{"path": "a/b", "optional": True, "hint": ""}])),
            "$.plan.steps[0].context_dependencies[0].hint",
        ),
    ],
)
def test_an_unknown_key_is_refused_with_the_path_to_it(raw: dict[str, Any], path: str):
    assert refusals(raw)[path] == "unknown_key"


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (workflow(scripted("gate", tools=None)), "$.plan.steps[0].tools"),
        (workflow(scripted("gate", next_step_id=None)), "$.plan.steps[0].next_step_id"),
        (workflow(scripted("gate", limits={"cpu_s": None})), "$.plan.steps[0].limits.cpu_s"),
        (workflow(groups=None), "$.groups"),
        (workflow(variables=[{"name": "A", "value": None}]), "$.variables[0].value"),
        (
            workflow(variables=[{"name": "A", "value": 1}], groups=[{"name": "g", "values": {"A": None}}]),
            "$.groups[0].values.A",
        ),
        (
            workflow(triggers=[{"kind": "github", "name": "g", "mappings": {"group": None}}]),
            "$.triggers[0].mappings.group",
        ),
        (
            workflow(scripted("a", validation={"files": [{"file_name": "f", "schema": None}]})),
            "$.plan.steps[0].validation.files[0].schema",
        ),
    ],
)
def test_null_where_a_value_is_needed_is_refused(raw: dict[str, Any], path: str):
    assert refusals(raw)[path] in {"null", "wrong_type"}


def test_an_empty_list_clears():
    raw = workflow(scripted("gate", tools=[], secrets=[], context_output=[]), triggers=[], groups=[])

    assert document.parse_workflow(raw).plan.steps[0].tools == ()


@pytest.mark.parametrize(
    "change",
    [
        {"idempotent": 1},
        {"idempotent": "true"},
        {"limits": {"timeout_s": "5"}},
        {"limits": {"timeout_s": 5.5}},
        {"limits": {"timeout_s": True}},
        {"title": 5},
        {"tools": "query_workflow_db"},
        {"secrets": [["A"]]},
        {"context_output": {"a": 1}},
    ],
)
def test_no_type_is_converted(change: dict[str, Any]):
    assert "wrong_type" in refusals(workflow(scripted("gate", **change))).values()


@pytest.mark.parametrize("step_id", ["", "A", "a b", "-a", "_a", "a/b", "a" * 65, "a\n", "é", "..", "a.b"])
def test_a_step_id_has_one_shape(step_id: str):
    assert refusals(workflow(scripted(step_id)))["$.plan.steps[0].id"] == "bad_value"


@pytest.mark.parametrize(
    "path", ["/a/b", "a/../b", "a//b", "a/./b", "a\\b/c", "a/b\n", "", "../x", "a/" + "b/" * 40 + "c"]
)
def test_paths_stay_inside_and_are_plain(path: str):
    raw = workflow(scripted("gate", context_output=[path]))

    assert refusals(raw) == {"$.plan.steps[0].context_output[0]": "bad_value"}


@pytest.mark.parametrize("name", ["lower", "1A", "A-B", "LD PRELOAD", "A" * 65, "Ä"])
def test_names_that_become_environment_variables_have_one_shape(name: str):
    assert refusals(workflow(variables=[{"name": name, "value": ""}])) == {"$.variables[0].name": "bad_value"}


def test_everything_wrong_is_listed_at_once():
    raw = workflow(scripted("Gate", tolls=1), branch("b", ("x", "end")), slug="A B", colour="red")
    del raw["title"]

    assert refusals(raw) == {
        "$.title": "missing_key",
        "$.slug": "bad_value",
        "$.colour": "unknown_key",
        "$.plan.steps[0].id": "bad_value",
        "$.plan.steps[0].tolls": "unknown_key",
        "$.plan.steps[1].routes": "bad_value",
    }


def test_an_unknown_kind_lists_the_kinds():
    with pytest.raises(DocumentRefused) as caught:
        document.parse_plan(plan({"id": "a", "kind": "shell"}))

    (problem,) = caught.value.problems
    assert problem.path == "$.steps[0].kind"
    assert "scripted" in problem.message


@pytest.mark.parametrize("version", [-1, 2, 99])
def test_a_layout_that_is_not_known_is_refused(version: int):
    assert refusals(workflow(code_layout_version=version)) == {"$.code_layout_version": "bad_value"}


def test_a_missing_layout_is_the_legacy_one():
    raw = workflow()
    del raw["code_layout_version"]

    assert document.parse_workflow(raw).code_layout_version == 0


def test_the_processor_time_is_the_time_out_unless_it_is_given():
    given_none, given_one = document.parse_workflow(
        workflow(scripted("a", limits={"timeout_s": 7}), scripted("b", limits={"timeout_s": 7, "cpu_s": 3}))
    ).plan.steps

    assert (given_none.limits.cpu_s, given_one.limits.cpu_s) == (7, 3)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, b"x", "\ud800"])
def test_what_is_no_json_is_refused(value: Any):
    assert refusals(workflow(objective=value)) == {"$": "not_json"}


def test_a_document_nested_too_deep_is_refused():
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]

    assert set(refusals(workflow(variables=[{"name": "A", "value": deep}]))) == {"$"}


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_whatever_is_sent_is_refused_with_paths_and_never_breaks_it(value: Any):
    with pytest.raises(DocumentRefused) as caught:
        document.parse_workflow({"plan": value, "slug": value, "triggers": [value], "settings": value})

    assert all(problem.path.startswith("$") and problem.code and problem.message for problem in caught.value.problems)


@given(JSON.filter(lambda value: value is not None))
def test_any_json_but_null_is_a_value_of_a_variable(value: Any):
    parsed = document.parse_workflow(workflow(variables=[{"name": "A", "value": value}]))

    assert parsed.variables[0].value == value
