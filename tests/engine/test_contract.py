"""One maker of contracts: complete, the same for the same step, and refused before anything starts."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from typing import Any

import pytest

from engine.contract import Contract, ContractRefused, diff
from engine.environment import LARGEST, RUN_SUPPLIED
from engine.sandbox.limits import Limits
from tests.runner.stage import Stage, scripted

CODE = '"""A step."""\nprint(1)\n'
SECRETS = {"secrets": {"KEY": "correct horse"}, "allowed_secrets": frozenset({"KEY", "OTHER"})}


@pytest.fixture(autouse=True)
def code(stage: Stage) -> None:
    stage.write({"work/main.py": CODE})


def refusal(stage: Stage, step: dict[str, Any] | None = None, **keys: Any) -> ContractRefused:
    with pytest.raises(ContractRefused) as raised:
        stage.resolve(scripted(**(step or {})), **keys)
    assert "othing was" in raised.value.detail  # what was not done is said, too
    return raised.value


def two(stage: Stage, first: dict[str, Any], second: dict[str, Any]) -> tuple[Contract, Contract]:
    step = scripted(secrets=["KEY"])
    return stage.resolve(step, **{**SECRETS, **first}), stage.resolve(step, **{**SECRETS, **second})


def test_two_attempts_have_one_fingerprint_and_other_inputs(stage: Stage) -> None:
    one, other = two(stage, {"run_variables": {"A": "1"}}, {"run_variables": {"A": "2"}})
    assert one.fingerprint == other.fingerprint
    assert one.inputs_digest != other.inputs_digest
    assert one.code_digest == other.code_digest


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"group_values": {"A": "1"}}, {"group_values": {"A": "2"}}),
        ({"group": "one"}, {"group": "two"}),
        ({"secrets": {"KEY": "correct horse"}}, {"secrets": {"KEY": "another horse"}}),
        ({"plan_revision": 1}, {"plan_revision": 2}),
        ({"locked_steps": frozenset()}, {"locked_steps": frozenset({"work"})}),
    ],
)
def test_what_belongs_to_the_step_and_its_group_changes_the_fingerprint(
    stage: Stage, first: dict[str, Any], second: dict[str, Any]
) -> None:
    one, other = two(stage, first, second)
    assert one.fingerprint != other.fingerprint
    assert diff(one.record(), other.record())


def test_declared_limits_and_grants_change_the_fingerprint(stage: Stage) -> None:
    prints = {
        stage.resolve(scripted(**keys)).fingerprint
        for keys in ({}, {"limits": {"timeout_s": 5}}, {"access": {"assets": "read"}}, {"tools": ["read_receipt"]})
    }
    assert len(prints) == 4


def test_every_run_supplied_name_stands_whether_present_or_not(stage: Stage) -> None:
    env = stage.resolve().record()["env"]
    assert {name: value for name, value in env.items() if value.startswith("<run:")} == {
        name: f"<run:{name}>" for name in RUN_SUPPLIED
    }


def test_the_code_digest_follows_the_code(stage: Stage) -> None:
    before = stage.resolve()
    stage.write({"shared/x.py": "X = 1\n"})
    after = stage.resolve()
    assert before.code_digest != after.code_digest
    assert before.fingerprint.startswith(before.fingerprint)


def test_two_records_are_compared_field_by_field(stage: Stage) -> None:
    one, other = two(stage, {"group_values": {"A": "1"}}, {"group_values": {"A": "2", "B": "x"}})
    changes = {change.path: (change.before, change.after) for change in diff(one.record(), other.record())}
    assert changes["env.VAR_A"] == ("1", "2")
    assert changes["env.VAR_B"] == (None, "x")
    assert "step.id" not in changes


def test_ids_of_two_attempts_are_no_difference(stage: Stage) -> None:
    one, other = stage.resolve(), stage.resolve(run_id="another", step_run_id="another too", attempt_number=2)
    assert one.record()["attempt"] != other.record()["attempt"]
    assert [change.path for change in diff(one.record(), other.record())] == []


def test_a_record_holds_neither_secret_nor_parameter_values(stage: Stage) -> None:
    step = scripted(secrets=["KEY"], script_parameters={"who": {"type": "string", "description": "Whom to greet."}})
    contract = stage.resolve(
        step,
        **SECRETS,
        parameters={"who": "parameter-value"},
        session_token="pst_" + "t" * 40,
        group_values={"A": "x correct horse"},
    )
    text = json.dumps(contract.record()) + repr(contract)
    assert not [value for value in ("correct horse", "parameter-value", "pst_t") if value in text]
    assert contract.record()["inputs"]["parameters"] == ["who"]


def test_a_run_variable_wins_over_the_groups_value_for_this_run(stage: Stage) -> None:
    contract = stage.resolve(group_values={"A": "group"}, run_variables={"A": "run", "B": "new"})
    assert (contract.env["VAR_A"], contract.env["VAR_B"]) == ("run", "new")
    assert contract.record()["env"]["VAR_A"] == "group"


def test_names_that_cannot_be_variables_are_reported_as_dropped(stage: Stage) -> None:
    contract = stage.resolve(group_values={"path": "x", "GROUP_NAME": "x", "A B": "x", "GOOD": "x"})
    assert {dropped.name for dropped in contract.dropped} == {"VAR_path", "VAR_GROUP_NAME", "VAR_A B"}
    assert contract.env["VAR_GROUP_NAME"] == "default"
    assert all(dropped.rule for dropped in contract.dropped)


@pytest.mark.parametrize("value", ["nul \0 inside", "\ud800"])
def test_a_value_that_no_variable_can_hold_is_refused(stage: Stage, value: str) -> None:
    refused = refusal(stage, group_values={"BAD": value})
    assert (refused.outcome, refused.reason) == ("preflight_failed", "value_refused")
    assert "VAR_BAD" in refused.detail


def test_a_secret_with_nul_is_refused_without_being_shown(stage: Stage) -> None:
    refused = refusal(
        stage, {"secrets": ["KEY"]}, secrets={"KEY": "correct\0horse"}, allowed_secrets=frozenset({"KEY"})
    )
    assert "SECRET_KEY" in refused.detail
    assert "horse" not in refused.detail


def test_declared_hosts_are_refused_since_there_is_no_network(stage: Stage) -> None:
    refused = refusal(stage, {"network": {"hosts": ["api.github.com:443"]}})
    assert (refused.outcome, refused.reason) == ("harness_rejected", "egress_unavailable")


def test_a_missing_dependency_is_refused(stage: Stage) -> None:
    refused = refusal(stage, {"context_dependencies": ["fetch/pull.json"]})
    assert (refused.outcome, refused.reason) == ("harness_rejected", "dependency_missing")
    assert "fetch/pull.json" in refused.detail


def test_a_dependency_that_is_gone_is_refused_and_an_optional_one_is_empty(stage: Stage) -> None:
    dependency = stage.produced("pull.json", b"{}")
    (dependency.places.out / "pull.json").unlink()
    given = {"fetch/pull.json": dependency}
    assert (
        refusal(stage, {"context_dependencies": ["fetch/pull.json"]}, dependencies=given).reason == "dependency_missing"
    )
    optional = scripted(context_dependencies=[{"path": "fetch/pull.json", "optional": True}])
    assert stage.resolve(optional, dependencies=given).argv == ("",)


def test_a_dependency_behind_a_link_is_refused(stage: Stage) -> None:
    dependency = stage.produced("pull.json", b"{}")
    path = dependency.places.out / "pull.json"
    path.unlink()
    path.symlink_to("/etc/hostname")
    refused = refusal(
        stage, {"context_dependencies": ["fetch/pull.json"]}, dependencies={"fetch/pull.json": dependency}
    )
    assert refused.reason == "dependency_missing"


def test_bad_parameters_are_refused_by_name_and_without_their_value(stage: Stage) -> None:
    step = {"script_parameters": {"limit": {"type": "integer", "description": "How many."}}}
    refused = refusal(stage, step, parameters={"limit": True})
    assert refused.outcome == "parameters_rejected"
    assert "limit" in refused.detail


def test_a_secret_that_the_workflow_may_not_use_is_refused(stage: Stage) -> None:
    refused = refusal(stage, {"secrets": ["KEY"]}, secrets={"KEY": "correct horse"})
    assert (refused.outcome, refused.reason) == ("harness_rejected", "secret_not_allowed")


@pytest.mark.parametrize("value", [{}, {"KEY": ""}])
def test_a_secret_without_a_value_is_refused_unless_it_is_optional(stage: Stage, value: dict[str, str]) -> None:
    allowed = frozenset({"KEY"})
    refused = refusal(stage, {"secrets": ["KEY"]}, secrets=value, allowed_secrets=allowed)
    assert (refused.outcome, refused.reason) == ("preflight_failed", "configuration_missing")
    optional = scripted(secrets=[{"name": "KEY", "optional": True}])
    contract = stage.resolve(optional, secrets=value, allowed_secrets=allowed)
    assert contract.env["SECRET_KEY"] == ""
    assert [finding.reason for finding in contract.findings if finding.name == "SECRET_KEY"] == ["secret_empty"]


def test_an_environment_too_large_names_the_biggest(stage: Stage) -> None:
    refused = refusal(stage, group_values={"SMALL": "x", "BIG": "y" * LARGEST})
    assert (refused.outcome, refused.reason) == ("harness_rejected", "environment_too_large")
    assert "VAR_BIG" in refused.detail


def test_limits_are_the_steps_own_up_to_the_operators(stage: Stage) -> None:
    contract = stage.resolve(scripted(limits={"timeout_s": 5000, "log_mb": 8}), ceiling=Limits(timeout_s=100))
    assert (contract.limits.timeout_s, contract.limits.cpu_s, contract.limits.log_mb) == (100, 600, 8)
    told = [(one.name, one.message, one.advice) for one in contract.findings if one.reason == "limit_lowered"]
    assert told == [("limits.timeout_s", "limits.timeout_s is 5000; 100 holds here.", True)]


def test_a_contract_cannot_be_changed(stage: Stage) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        stage.resolve().argv = ()  # type: ignore[misc]


def test_an_attempt_that_is_cancelled_while_its_code_is_read_does_not_start(stage: Stage) -> None:
    stage.write({"work/main.py": "print(1)\n"})
    with pytest.raises(ContractRefused) as refused:
        stage.resolve(stopped=lambda: True)
    assert (refused.value.outcome, refused.value.reason) == ("cancelled", "cancelled")


def test_no_step_starts_while_a_file_of_a_locked_one_has_a_second_name(stage: Stage) -> None:
    stage.write({"work/main.py": "print(1)\n", "kept/data.json": "{}", "free/data.json": "{}"})
    os.link(stage.workflow.code / "kept" / "data.json", stage.workflow.code / "work" / "way_in.json")
    assert stage.resolve(locked_steps=frozenset({"free"}))
    with pytest.raises(ContractRefused) as refused:
        stage.resolve(locked_steps=frozenset({"kept"}))
    assert (refused.value.outcome, refused.value.reason) == ("harness_rejected", "locked_code_linked")
    assert "code/kept/data.json" in refused.value.detail


def test_code_that_cannot_be_listed_is_refused(stage: Stage) -> None:
    shutil.rmtree(stage.workflow.code)
    with pytest.raises(ContractRefused) as refused:
        stage.resolve()
    assert (refused.value.outcome, refused.value.reason) == ("harness_rejected", "code_unreadable")
