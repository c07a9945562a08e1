"""What shape alone cannot tell: names that must be known, keys without meaning, lists that clash."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from engine import document
from engine.document import DocumentRefused
from engine.document.steps import Network
from tests.engine.documents import branch, plan, refusals, scripted, workflow

GATE = scripted("gate", context_output=["route_selection.json"])


def test_a_secret_the_workflow_may_not_use_is_refused():
    raw = workflow(scripted("gate", secrets=["A", "B"]), secrets=["A"])

    assert refusals(raw) == {"$.plan.steps[0].secrets[1]": "unknown_secret"}


def test_a_plan_by_itself_is_not_judged_by_the_secrets_it_names():
    assert document.parse_plan(plan(scripted("gate", secrets=["A"]))).steps


def test_names_stand_once():
    raw = workflow(
        scripted("gate", secrets=["A", "A"]),
        secrets=["A", "A"],
        variables=[{"name": "V", "value": 1}, {"name": "V", "value": 2}],
        groups=[{"name": "g"}, {"name": "g"}],
        triggers=[{"kind": "github", "name": "t"}, {"kind": "bearer", "name": "t"}],
    )

    assert refusals(raw) == {
        "$.plan.steps[0].secrets[1]": "duplicate",
        "$.secrets[1]": "duplicate",
        "$.variables[1].name": "duplicate",
        "$.groups[1].name": "duplicate",
        "$.triggers[1].name": "duplicate",
    }


def test_groups_and_triggers_name_what_there_is():
    raw = workflow(
        variables=[{"name": "V", "value": 1}],
        groups=[{"name": "g", "values": {"V": 2, "W": 3}}],
        triggers=[{"kind": "bearer", "name": "t", "group": "h", "allowed_variables": ["V", "W"]}],
    )

    assert refusals(raw) == {
        "$.groups[0].values.W": "unknown_variable",
        "$.triggers[0].group": "unknown_group",
        "$.triggers[0].allowed_variables[1]": "unknown_variable",
    }


def test_a_workflow_without_groups_has_one():
    assert document.parse_workflow(workflow(triggers=[{"kind": "github", "name": "t", "group": "default"}]))


def test_a_mapping_comes_out_as_what_a_run_can_be_started_with():
    mappings = {
        "group": {"source": "repo", "values": {"a": "g", "b": "h"}, "default": 5},
        "routes": {"source": "action", "values": {"opened": {"route": "yes"}, "closed": "no"}},
        "variables": {"source": "vars", "default": None},
    }
    raw = workflow(groups=[{"name": "g"}], triggers=[{"kind": "github", "name": "t", "mappings": mappings}])

    assert refusals(raw) == {
        "$.triggers[0].mappings.group.values.b": "unknown_group",
        "$.triggers[0].mappings.group.default": "unknown_group",
        "$.triggers[0].mappings.routes.values.closed": "wrong_type",
    }


def test_a_variable_does_not_take_a_name_of_the_platform():
    assert refusals(workflow(variables=[{"name": "GROUP_NAME", "value": 1}])) == {
        "$.variables[0].name": "reserved_name"
    }


@pytest.mark.parametrize(
    "change",
    [
        {"next_step_id": "end"},
        {"tools": ["query_workflow_db"]},
        {"context_output": ["a.json"]},
        {"access": {"db": "read"}},
        {"limits": {"timeout_s": 5}},
        {"retry": {"max_attempts": 2}},
        {"lock_code": True},
        {"secrets": ["A"]},
    ],
)
def test_a_branch_takes_no_key_that_it_would_ignore(change: dict[str, Any]):
    raw = workflow(branch("b", ("x", "end"), ("y", "end"), **change), secrets=["A"])

    assert refusals(raw) == {f"$.plan.steps[0].{next(iter(change))}": "not_for_this_kind"}


def test_a_branch_may_say_that_it_has_none_of_it():
    assert document.parse_workflow(workflow(branch("b", ("x", "end"), ("y", "end"), tools=[], lock_code=False)))


def test_routes_of_a_branch_are_distinct_and_its_default_is_one_of_them():
    raw = workflow(branch("b", ("x", "end"), ("x", "end"), default_route_id="z"))

    assert refusals(raw) == {
        "$.plan.steps[0].routes[1].route_id": "duplicate_route",
        "$.plan.steps[0].default_route_id": "dangling_route",
    }


def test_only_one_file_decides():
    raw = workflow(
        GATE,
        scripted("other"),
        branch(
            "b",
            ("x", "end"),
            ("y", "end"),
            context_dependencies=["gate/route_selection.json", "other/sub/route_selection.json"],
        ),
    )

    assert refusals(raw) == {"$.plan.steps[2].context_dependencies[1]": "second_route_file"}


@pytest.mark.parametrize(
    ("trigger", "key"),
    [
        ({"kind": "github", "mode": "envelope"}, "mode"),
        ({"kind": "github", "allowed_variables": ["V"]}, "allowed_variables"),
        ({"kind": "bearer", "events": ["push"]}, "events"),
        ({"kind": "bearer", "result": "gate/out.json"}, "result"),
        ({"kind": "github", "inputs": {"a": {"type": "string", "description": "A."}}}, "inputs"),
    ],
)
def test_a_trigger_takes_no_key_that_it_would_ignore(trigger: dict[str, Any], key: str):
    raw = workflow(variables=[{"name": "V", "value": 1}], triggers=[{"name": "t", **trigger}])

    assert refusals(raw) == {f"$.triggers[0].{key}": "not_for_this_kind"}


@pytest.mark.parametrize(
    "host",
    ["api.github.com", "https://api.github.com:443", "user@host:443", "HOST:443", "a b:1"],
)
def test_a_host_is_a_name_and_a_port(host: str):
    with pytest.raises(ValidationError):
        Network(hosts=(host,))


def test_a_bad_contract_is_refused_on_save_and_on_load():
    step = scripted("a", script_parameters={"api_key": {"type": "string", "description": "The key."}})

    assert refusals(workflow(step)) == {"$.plan.steps[0].script_parameters.api_key": "credential_name"}
    with pytest.raises(DocumentRefused):
        document.parse_plan(plan(step))


def test_a_rule_that_nothing_can_meet_is_refused_on_save():
    check = {"path": "$.n", "value_type": "number", "pattern": "[0-9]+"}
    step = scripted("a", validation={"files": [{"file_name": "a.json", "json_checks": [check]}]})

    assert refusals(workflow(step)) == {"$.plan.steps[0].validation.files[0].json_checks[0].pattern": "impossible_rule"}
