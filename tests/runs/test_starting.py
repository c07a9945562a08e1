"""The start of a run: one transaction, and everything that is refused before it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import transaction
from django.test import Client
from django.utils import timezone

from apps.accounts import actions as accounts
from apps.accounts.errors import Refused
from apps.runs import actions, inputs
from apps.runs.errors import RunRefused
from apps.runs.models import Run, RunInput
from apps.tools.models import ToolSession
from apps.workflows import actions as workflows
from apps.workflows.models import Workflow
from tests import factories
from tests.factories import Cast
from tests.runs.starts import fresh, kinds, start

pytestmark = [pytest.mark.django_db, pytest.mark.databases]

PARAMETERS = {
    "market": {"type": "string", "description": "Which market.", "required": True, "enum": ["DE", "FR"]},
    "limit": {"type": "integer", "description": "How many.", "default": 5},
}


@pytest.fixture
def rich(cast: Cast) -> Workflow:
    """Variables, groups, parameters and a branch."""
    routes = [{"route_id": "yes", "next_step_id": "left"}, {"route_id": "no", "next_step_id": "right"}]
    raw = factories.document(
        variables=[{"name": "BASE_URL", "value": "https://example.test"}],
        groups=[
            {"name": "default", "values": {}},
            {"name": "other", "values": {"BASE_URL": "https://other.test"}},
            {"name": "off", "values": {}, "enabled": False},
        ],
        steps=[
            factories.step("first", script_parameters=PARAMETERS),
            {"id": "way", "kind": "branch", "question": "Which way?", "routes": routes, "default_route_id": "no"},
            factories.step("left", script_parameters=PARAMETERS, next_step_id="end"),
            factories.step("right"),
        ],
    )
    return factories.make_workflow(cast.team, cast.owner, raw)


GIVEN = {"parameters": {"first": {"market": "DE"}}}


def test_it_writes_run_input_steps_session_and_first_event_at_once(rich: Workflow, cast: Cast) -> None:
    run = start(rich, variables={"BASE_URL": "https://once.test"}, group="other", initiator=cast.operator, **GIVEN)
    assert (run.status, run.group, run.owner, run.initiator) == ("queued", "other", cast.owner, cast.operator)
    assert run.group_values == {"BASE_URL": "https://other.test"}
    assert [step.step_id for step in run.steps.all()] == ["first", "way", "left", "right"]
    assert ToolSession.objects.get(pk=run.session_id).run_id == run.pk
    assert kinds(run) == ["run.queued"]
    assert Run.objects.get(pk=run.pk).enqueued_at is not None


def test_sessions_of_runs_that_start_together_have_names_of_their_own(rich: Workflow) -> None:
    runs = [start(rich, **GIVEN) for _ in range(3)]
    names = {run.pk: ToolSession.objects.get(pk=run.session_id).name for run in runs}
    assert len(set(names.values())) == 3
    assert all(name.endswith(str(pk)[-8:]) for pk, name in names.items())  # as pages show it


def test_what_the_caller_gave_is_kept_encrypted_and_reads_back(rich: Workflow) -> None:
    run = start(rich, parameters={"first": {"market": "DE", "limit": 7}})
    stored = bytes(RunInput.objects.get(run=run).ciphertext)
    assert b"market" not in stored
    assert inputs.read(run).parameters == {"first": {"market": "DE", "limit": 7}}
    events = json.dumps([event.data for event in run.events.all()])
    assert "DE" not in events


def test_a_rolled_back_start_leaves_nothing(rich: Workflow) -> None:
    def start_and_fail() -> None:
        with transaction.atomic():
            start(rich, **GIVEN)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        start_and_fail()
    assert not Run.objects.exists()
    assert not ToolSession.objects.exists()


@pytest.mark.parametrize(
    ("facts", "path"),
    [
        ({"variables": {"NOPE": 1}}, "variables.NOPE"),
        ({"variables": {"BASE_URL": "x" * 16_385}}, "variables.BASE_URL"),
        ({"route_selections": {"way": "maybe"}}, "route_selections.way"),
        ({"route_selections": {"first": "yes"}}, "route_selections.first"),
        ({"human_inputs": {"first": "ok"}}, "human_inputs.first"),
        ({"parameters": {"nowhere": {}}}, "parameters.nowhere"),
        ({"parameters": {"first": {}}}, "parameters.first"),
        ({"parameters": {"first": {"market": "DE", "limit": True}}}, "parameters.first"),
        ({"parameters": {"first": {"market": "IT"}}}, "parameters.first"),
        ({"parameters": {"first": {"market": "DE", "unknown": 1}}}, "parameters.first"),
        ({"parameters": {"first": {"market": "DE"}, "left": {"market": "IT"}}}, "parameters.left"),
        ({"only_step": "way"}, "step"),
    ],
)
def test_it_refuses_inputs_that_do_not_fit_and_names_the_place(
    rich: Workflow, facts: dict[str, Any], path: str
) -> None:
    given = {**GIVEN, **facts}
    with pytest.raises(RunRefused) as refused:
        start(rich, **given)
    assert (refused.value.status, refused.value.code) == (400, "inputs_rejected")
    assert any(field.path.startswith(path) for field in refused.value.fields), refused.value.fields
    assert not Run.objects.exists()
    with pytest.raises(RunRefused):
        actions.check_start(workflow=rich, **given)


def test_a_required_parameter_behind_a_branch_may_be_missing_at_the_start(rich: Workflow) -> None:
    assert start(rich, **GIVEN).status == "queued"


@pytest.mark.parametrize(("group", "code"), [("nobody", "unknown_group"), ("off", "group_disabled")])
def test_it_refuses_a_group_that_is_not_there_or_off(rich: Workflow, group: str, code: str) -> None:
    with pytest.raises(Refused) as refused:
        start(rich, group=group, **GIVEN)
    assert (refused.value.status, refused.value.code) == (400, code)


def test_it_refuses_a_workflow_whose_contract_is_not_current(rich: Workflow) -> None:
    Workflow.objects.update(contract_version="1.0.43")
    rich.refresh_from_db()
    with pytest.raises(Refused) as refused:
        start(rich, **GIVEN)
    assert (refused.value.status, refused.value.code) == (409, "migration_required")


def test_it_refuses_a_workflow_without_an_active_owner(rich: Workflow, cast: Cast) -> None:
    accounts.set_role(cast.team, cast.editor, "owner", by=cast.owner)
    accounts.set_active(cast.owner, active=False, by=None)
    with pytest.raises(RunRefused) as refused:
        start(rich, **GIVEN)
    assert (refused.value.status, refused.value.code) == (409, "owner_not_active")
    assert not Run.objects.exists()


def test_it_refuses_an_environment_that_no_process_can_be_started_with(cast: Cast) -> None:
    raw = factories.document(variables=[{"name": f"BIG_{n}", "value": "x" * 15_000} for n in range(7)])
    workflow = factories.make_workflow(cast.team, cast.owner, raw)
    with pytest.raises(RunRefused) as refused:
        start(workflow)
    assert refused.value.code == "environment_too_large"
    assert "BIG_0" in refused.value.detail
    assert [field.path for field in refused.value.fields] == ["variables.BIG_0"]
    assert not Run.objects.exists()


def test_secrets_and_parameters_of_a_step_count_in_its_environment(cast: Cast) -> None:
    raw = factories.document(
        variables=[{"name": f"BIG_{n}", "value": "x" * 15_000} for n in range(5)],
        secrets=["KEY"],
        steps=[
            factories.step(
                "one", secrets=["KEY"], script_parameters={"text": {"type": "string", "description": "Long."}}
            )
        ],
    )
    workflow = factories.make_workflow(cast.team, cast.owner, raw)
    workflows.set_secret(cast.team, name="KEY", value="s" * 16_000, by=cast.owner)
    with pytest.raises(RunRefused) as refused:
        start(workflow, parameters={"one": {"text": "y" * 20_000}})
    assert (refused.value.code, refused.value.fields[0].path) == ("environment_too_large", "parameters.one")
    assert "STEP_PARAMS_JSON is the biggest" in refused.value.detail
    assert "ssss" not in refused.value.detail
    assert start(workflow, parameters={"one": {"text": "y" * 100}}).status == Run.Status.QUEUED


def test_a_value_that_no_environment_can_hold_is_refused_before_there_is_a_run(rich: Workflow) -> None:
    name = next(iter(rich.variables.values_list("name", flat=True)))
    with pytest.raises(RunRefused) as refused:
        start(rich, **{**GIVEN, "variables": {name: "half\0"}})
    assert (refused.value.code, refused.value.fields[0].path) == ("value_refused", f"variables.{name}")
    assert not Run.objects.exists()


def test_checking_writes_nothing(rich: Workflow) -> None:
    actions.check_start(workflow=rich, **GIVEN)
    assert not Run.objects.exists()
    assert not ToolSession.objects.exists()


@pytest.fixture
def strict(cast: Cast) -> Workflow:
    """One run at a time, and no waiting."""
    settings = {"repair": "off", "max_concurrent_runs": 1, "on_busy": "reject"}
    return factories.make_workflow(cast.team, cast.owner, factories.document(settings=settings))


def test_a_full_workflow_that_rejects_takes_no_start_by_any_road(strict: Workflow, cast: Cast) -> None:
    first = start(strict)
    with pytest.raises(RunRefused) as refused:
        start(strict)
    assert (refused.value.status, refused.value.code) == (503, "busy")
    assert "Try again" in refused.value.detail
    headers = {"Authorization": f"Bearer {factories.make_token(cast.team, cast.operator, 'run')}"}
    answer = Client().post(
        f"/api/v1/workflows/{strict.slug}/runs", "{}", content_type="application/json", headers=headers
    )
    assert (answer.status_code, answer.json()["code"], answer["Retry-After"]) == (503, "busy", "5")
    Run.objects.filter(pk=first.pk).update(status="failed", finished_at=timezone.now())
    with transaction.atomic():
        start(strict)
    with pytest.raises(RunRefused) as again:
        actions.rerun(fresh(first), by=cast.operator)
    assert again.value.code == "busy"
    assert Run.objects.count() == 2
