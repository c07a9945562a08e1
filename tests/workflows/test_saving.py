"""Plans, variables, groups, settings: what is saved is live, what does not hold changes nothing."""

from __future__ import annotations

import pytest

from apps.accounts.errors import Forbidden, Refused
from apps.accounts.models import Audit
from apps.workflows import actions, definition, places
from apps.workflows.errors import DocumentNotValid, GroupUnknown, NotCurrent, VariableRefused
from apps.workflows.models import PlanRevision, Workflow
from tests.factories import document, make_team, make_workflow, step

pytestmark = pytest.mark.django_db


@pytest.fixture
def cast():
    return make_team()


@pytest.fixture
def workflow(cast):
    raw = document(
        variables=[{"name": "MARKET", "value": "eu"}, {"name": "LIMIT", "value": 10}],
        groups=[{"name": "default", "values": {}}, {"name": "us", "values": {"MARKET": "us"}}],
    )
    return make_workflow(cast.team, cast.editor, raw)


def test_a_saved_plan_is_live_as_the_next_revision(cast, workflow):
    number = actions.save_plan(workflow, {"steps": [step(), step("second")]}, by=cast.editor)
    read = definition.load(workflow)
    assert (number, read.revision) == (2, 2)
    assert [s.id for s in read.plan.steps] == ["hello", "second"]
    assert PlanRevision.objects.get(workflow=workflow, number=2).saved_by == cast.editor


def test_older_revisions_stay_as_they_were(cast, workflow):
    actions.save_plan(workflow, {"steps": [step("other")]}, by=cast.editor)
    assert [s.id for s in definition.load(workflow, revision=1).plan.steps] == ["hello"]


@pytest.mark.parametrize(
    "plan",
    [
        {"steps": []},
        {"steps": [step(), step()]},
        {"steps": [step(next_step_id="nowhere")]},
        {"steps": [step(secrets=["NOT_ALLOWED"])]},
        {"steps": [step("Bad Id")]},
        {"steps": None},
        {},
    ],
    ids=["no step", "twice", "dangling", "secret not allowed", "id", "null", "empty"],
)
def test_a_plan_that_does_not_hold_saves_nothing_and_names_the_place(cast, workflow, plan):
    with pytest.raises(DocumentNotValid) as refused:
        actions.save_plan(workflow, plan, by=cast.editor)
    assert refused.value.fields
    assert all(field.path.startswith("$.") for field in refused.value.fields)
    assert definition.load(workflow).revision == 1
    assert PlanRevision.objects.filter(workflow=workflow).count() == 1


def test_a_plan_is_held_to_what_an_import_is_held_to(cast):
    raw = document()
    workflow = make_workflow(cast.team, cast.editor, raw, {"code/helpers/__init__.py": ""})
    for plan, said in (
        ({"steps": [step("helpers")]}, "helpers"),
        ({"steps": [step(tools=["mutate_workflow_db"], access={"db": "read"})]}, "access.db to be read-write"),
    ):
        with pytest.raises(DocumentNotValid, match=said):
            actions.save_plan(workflow, plan, by=cast.editor)
    assert definition.load(workflow).revision == 1


def test_going_back_to_an_earlier_plan_is_a_new_revision(cast, workflow):
    actions.save_plan(workflow, {"steps": [step("other")]}, by=cast.editor)
    assert actions.save_plan(workflow, {"steps": [step()]}, by=cast.editor) == 3


def test_values_resolve_default_first_then_the_group(workflow):
    read = definition.load(workflow)
    assert read.resolve_group("default") == {"MARKET": "eu", "LIMIT": 10}
    assert read.resolve_group("us") == {"MARKET": "us", "LIMIT": 10}


def test_an_unknown_group_is_refused_with_those_there_are(workflow):
    with pytest.raises(GroupUnknown, match="default, us"):
        definition.load(workflow).resolve_group("asia")


def test_which_group_a_start_means(cast, workflow):
    read = definition.load(workflow)
    assert read.choose_group("us") == "us"
    assert read.choose_group("", "us") == "us"
    assert read.choose_group() == "default"
    actions.set_group(workflow, name="default", values={}, enabled=False, by=cast.editor)
    assert definition.load(workflow).choose_group() == "us"
    with pytest.raises(GroupUnknown) as off:
        definition.load(workflow).choose_group("default")
    assert off.value.code == "group_disabled"


def test_without_a_clear_group_the_start_is_refused(cast, workflow):
    actions.delete_group(workflow, name="default", by=cast.editor)
    actions.set_group(workflow, name="asia", values={}, by=cast.editor)
    with pytest.raises(GroupUnknown, match="us, asia") as refused:
        definition.load(workflow).choose_group()
    assert refused.value.code == "group_required"


def test_a_workflow_without_groups_has_default(cast):
    read = definition.load(make_workflow(cast.team, cast.editor))
    assert read.choose_group() == "default"
    assert read.resolve_group("default") == {}


def test_a_variable_is_set_and_keeps_its_place(cast, workflow):
    actions.set_variable(workflow, name="MARKET", value=["a"], description="where", by=cast.editor)
    assert list(definition.load(workflow).variables.items()) == [("MARKET", ["a"]), ("LIMIT", 10)]


def test_a_variable_taken_away_goes_from_the_groups_too(cast, workflow):
    actions.delete_variable(workflow, name="MARKET", by=cast.editor)
    assert definition.load(workflow).resolve_group("us") == {"LIMIT": 10}


@pytest.mark.parametrize("name", ["lower", "", "A B", "1A"])
def test_it_refuses_names_that_are_no_variables(cast, workflow, name):
    with pytest.raises(DocumentNotValid):
        actions.set_variable(workflow, name=name, value=1, by=cast.editor)
    assert list(definition.load(workflow).variables) == ["MARKET", "LIMIT"]


def test_it_refuses_to_take_away_what_is_not_there(cast, workflow):
    with pytest.raises(VariableRefused):
        actions.delete_variable(workflow, name="NONE", by=cast.editor)
    with pytest.raises(GroupUnknown):
        actions.delete_group(workflow, name="none", by=cast.editor)


def test_a_group_may_not_have_a_value_for_a_variable_that_is_not_there(cast, workflow):
    with pytest.raises(DocumentNotValid):
        actions.set_group(workflow, name="us", values={"NOPE": 1}, by=cast.editor)
    assert definition.load(workflow).groups["us"].values == {"MARKET": "us"}


@pytest.mark.parametrize("where", ["variable", "group", "plan"])
def test_the_value_of_a_stored_secret_is_refused_wherever_it_is_written(cast, workflow, where):
    actions.set_secret(cast.team, name="TOKEN", value="the-very-secret", by=cast.editor)
    parameter = {"type": "string", "description": "d", "default": "the-very-secret"}
    plan = {"steps": [step(script_parameters={"a": parameter})]}
    write = {
        "variable": lambda: actions.set_variable(workflow, name="MARKET", value={"a": ["the-very-secret"]}, by=None),
        "group": lambda: actions.set_group(workflow, name="us", values={"MARKET": "the-very-secret"}, by=None),
        "plan": lambda: actions.save_plan(workflow, plan, by=None),
    }
    with pytest.raises(DocumentNotValid, match="SECRET_") as refused:
        write[where]()
    assert refused.value.code == "secret_in_document"
    assert "the-very-secret" not in refused.value.detail


def test_settings_are_replaced_whole_and_checked(cast, workflow):
    actions.set_settings(workflow, {"max_concurrent_runs": 2}, by=cast.editor)
    assert definition.load(workflow).settings.max_concurrent_runs == 2
    with pytest.raises(DocumentNotValid):
        actions.set_settings(workflow, {"max_concurrent_runs": 0}, by=cast.editor)
    assert definition.load(workflow).settings.max_concurrent_runs == 2


def test_a_secret_that_a_step_uses_stays_allowed(cast, workflow):
    actions.allow_secrets(workflow, ["TOKEN"], by=cast.editor)
    actions.save_plan(workflow, {"steps": [step(secrets=["TOKEN"])]}, by=cast.editor)
    with pytest.raises(DocumentNotValid):
        actions.allow_secrets(workflow, [], by=cast.editor)
    assert definition.load(workflow).secret_names == {"TOKEN"}


def test_each_save_leaves_a_trace_with_its_author(cast, workflow):
    actions.set_variable(workflow, name="LIMIT", value=1, by=cast.editor)
    row = Audit.objects.get(action="variable.set")
    assert (row.actor, row.team, row.object_id) == (cast.editor, cast.team, str(workflow.pk))


def test_a_new_owner_must_be_able_to_own(cast, workflow):
    with pytest.raises(Forbidden):
        actions.transfer(workflow, owner=cast.operator, by=cast.owner)
    actions.transfer(workflow, owner=cast.owner, by=cast.owner)
    assert Workflow.objects.get(pk=workflow.pk).owner == cast.owner


def test_a_workflow_that_is_not_current_says_how_to_go_on(cast):
    workflow = make_workflow(cast.team, cast.editor, document(contract_version="1.0.43"))
    with pytest.raises(NotCurrent, match="import it again") as refused:
        definition.require_current(workflow)
    assert (refused.value.status, refused.value.code) == (409, "migration_required")


def test_a_current_one_passes(workflow):
    definition.require_current(workflow)


@pytest.mark.django_db(transaction=True)
def test_a_deleted_workflow_takes_its_files_along(django_db_serialized_rollback):
    cast = make_team()
    workflow = make_workflow(cast.team, cast.editor)
    root = places.places_of(workflow).root
    actions.delete_workflow(workflow, by=cast.owner)
    assert not root.exists()
    assert not Workflow.objects.filter(team=cast.team).exists()


def test_a_refused_deletion_keeps_everything(cast, workflow):
    from django.utils import timezone

    from apps.runs.models import Run

    Run.objects.create(
        team=cast.team,
        workflow=workflow,
        entry_path="manual",
        group="default",
        owner=cast.editor,
        initiated_by="test",
        plan_revision=1,
        queued_at=timezone.now(),
    )
    with pytest.raises(Refused, match="unfinished"):
        actions.delete_workflow(workflow, by=cast.owner)
    assert places.places_of(workflow).root.exists()
