"""Triggers: saved, registered again, switched off, exported."""

from __future__ import annotations

import io

import pytest
from django.http import Http404

from apps.accounts.models import Audit
from apps.webhooks import access, actions, portable
from apps.webhooks.errors import TriggerRefused
from apps.webhooks.models import Delivery, Trigger
from apps.workflows.actions import delete_variable, import_workflow, set_group
from apps.workflows.errors import DocumentNotValid
from apps.workflows.exporting import export_workflow
from tests.factories import default_files, document, make_team, make_workflow, write_folder
from tests.webhooks.senders import make_hook

pytestmark = [pytest.mark.django_db]

HOOK = {"kind": "github", "name": "pulls", "events": ["pull_request"]}


@pytest.fixture
def cast():
    return make_team()


@pytest.fixture
def workflow(cast):
    return make_workflow(cast.team, cast.owner)


def test_registering_ten_times_makes_one_trigger_with_one_address(cast, workflow):
    made = [actions.make_trigger(workflow=workflow, document=HOOK, by=cast.owner) for _ in range(10)]
    assert len({one.trigger.key for one in made}) == 1
    assert Trigger.objects.count() == 1
    assert [bool(one.secret) for one in made] == [True] + [False] * 9


def test_registering_again_brings_the_trigger_up_to_the_document(cast, workflow):
    first = actions.make_trigger(workflow=workflow, document=HOOK, by=cast.owner).trigger
    actions.make_trigger(workflow=workflow, document={**HOOK, "events": ["push"]}, by=cast.owner)
    again = Trigger.objects.get()
    assert (again.key, bytes(again.credentials)) == (first.key, bytes(first.credentials))
    assert again.definition["events"] == ["push"]


@pytest.mark.parametrize("kind", ["slack", "standard", "function", "internal", "mcp"])
def test_kinds_of_later_releases_are_refused_when_saved(cast, workflow, kind):
    with pytest.raises(TriggerRefused) as refused:
        actions.make_trigger(workflow=workflow, document={"kind": kind, "name": "x"}, by=cast.owner)
    assert refused.value.code == "not_supported_yet"
    assert refused.value.fields[0].path == "kind"
    assert not Trigger.objects.exists()


def test_a_second_trigger_of_a_name_is_refused_at_its_field(cast, workflow):
    actions.make_trigger(workflow=workflow, document=HOOK, by=cast.owner)
    with pytest.raises(TriggerRefused) as refused:
        actions.make_trigger(workflow=workflow, document=HOOK, by=cast.owner, new=True)
    assert (refused.value.code, refused.value.fields[0].path) == ("duplicate_name", "name")


@pytest.mark.parametrize("key", [{"surprise": 1}, {"events": ["Pull Request"]}, {"mode": "other"}, {"name": ""}])
def test_a_trigger_that_does_not_hold_is_refused_with_its_place(cast, workflow, key):
    with pytest.raises(TriggerRefused) as refused:
        actions.make_trigger(workflow=workflow, document={**HOOK, **key}, by=cast.owner)
    assert refused.value.fields[0].path.split(".")[0] == next(iter(key))


def test_a_trigger_does_not_change_its_kind(cast, workflow):
    actions.make_trigger(workflow=workflow, document=HOOK, by=cast.owner)
    with pytest.raises(TriggerRefused):
        actions.make_trigger(workflow=workflow, document={"kind": "bearer", "name": "pulls"}, by=cast.owner)


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"group": "no-such-group"}, "group"),
        ({"mappings": {"group": {"source": "a", "default": "no-such-group"}}}, "mappings.group.default"),
        ({"allowed_variables": ["NO_SUCH"]}, "allowed_variables[0]"),
    ],
)
def test_what_an_import_would_refuse_is_refused_at_its_field(cast, workflow, wrong, path):
    kind = "bearer" if "allowed_variables" in wrong else "github"
    with pytest.raises(TriggerRefused) as refused:
        actions.make_trigger(workflow=workflow, document={"name": "new", "kind": kind, **wrong}, by=cast.owner)
    assert [field.path for field in refused.value.fields] == [path]
    assert refused.value.detail.startswith(f"{path}: ")
    assert not Trigger.objects.exists()


def test_what_a_trigger_names_is_not_taken_away(cast):
    workflow = make_workflow(cast.team, cast.owner, document(variables=[{"name": "V", "value": "x"}]))
    actions.make_trigger(
        workflow=workflow, document={"kind": "bearer", "name": "in", "allowed_variables": ["V"]}, by=cast.owner
    )
    with pytest.raises(DocumentNotValid):
        delete_variable(workflow, name="V", by=cast.owner)


def test_a_first_group_does_not_leave_a_trigger_without_its_own(cast, workflow):
    actions.make_trigger(workflow=workflow, document={**HOOK, "group": "default"}, by=cast.owner)
    with pytest.raises(DocumentNotValid):
        set_group(workflow, name="other", values={}, by=cast.owner)


def test_a_trigger_that_an_import_dropped_bars_nothing(cast):
    groups = [{"name": "old", "values": {}}]
    raw = document(groups=groups, triggers=[{**HOOK, "group": "old"}])
    workflow = make_workflow(cast.team, cast.owner, raw)
    make_workflow(cast.team, cast.owner, document(raw["slug"], groups=[{"name": "new", "values": {}}]))
    left = Trigger.objects.get()
    assert (left.enabled, left.group, left.definition) == (
        False,
        "",
        {"kind": "github", "name": "pulls", "enabled": False},
    )
    exported = io.BytesIO()
    export_workflow(workflow, exported, by=cast.owner)
    import_workflow(cast.team, cast.owner, exported.getvalue())


@pytest.mark.parametrize("secret", ["short", "two\nlines of a secret", " \n"])
def test_a_secret_that_can_not_be_right_is_refused(cast, workflow, secret):
    with pytest.raises(TriggerRefused):
        actions.make_trigger(workflow=workflow, document=HOOK, by=cast.owner, secret=secret)


def test_a_trigger_is_switched_off_and_on_again():
    sender = make_hook()
    owner = sender.trigger.workflow.owner
    actions.set_enabled(sender.trigger, enabled=False, by=owner)
    assert sender.post().status_code == 404
    actions.set_enabled(sender.trigger, enabled=True, by=owner)
    assert sender.post().status_code == 202


def test_a_deleted_trigger_leaves_its_deliveries_behind():
    sender = make_hook()
    sender.post()
    actions.delete_trigger(sender.trigger, by=sender.trigger.workflow.owner)
    assert Delivery.objects.get().trigger is None


def test_each_change_is_in_the_audit_trail_and_no_secret_is():
    sender = make_hook()
    owner = sender.trigger.workflow.owner
    actions.rotate(sender.trigger, by=owner, secret="the next secret")
    actions.set_enabled(sender.trigger, enabled=False, by=owner)
    rows = Audit.objects.filter(action__startswith="trigger.")
    assert list(rows.order_by("at").values_list("action", flat=True)) == [
        "trigger.made",
        "trigger.rotated",
        "trigger.disabled",
    ]
    assert "secret" not in str(list(rows.values_list("data", flat=True)))


def import_triggers(cast, tmp_path, triggers, slug="hooked"):
    raw = document(slug, triggers=triggers)
    return import_workflow(cast.team, cast.owner, write_folder(tmp_path, raw, default_files(raw)))


def test_an_import_registers_triggers_and_an_export_gives_them_back(cast, tmp_path):
    triggers = [HOOK, {"kind": "bearer", "name": "token", "mode": "envelope", "allowed_variables": []}]
    workflow = import_triggers(cast, tmp_path, triggers)
    assert portable.dump(workflow) == triggers


def test_importing_again_keeps_addresses_and_switches_off_what_is_gone(cast, tmp_path):
    first = import_triggers(cast, tmp_path / "a", [HOOK, {"kind": "bearer", "name": "token"}])
    keys = dict(Trigger.objects.filter(workflow=first).values_list("name", "key"))
    import_triggers(cast, tmp_path / "b", [HOOK])
    assert dict(Trigger.objects.values_list("name", "key")) == keys
    assert dict(Trigger.objects.values_list("name", "enabled")) == {"pulls": True, "token": False}


def test_an_export_holds_neither_address_nor_secret(cast, tmp_path):
    workflow = import_triggers(cast, tmp_path, [HOOK])
    assert Trigger.objects.get().key not in str(portable.dump(workflow))


def test_two_triggers_of_one_name_in_a_document_are_refused(cast, tmp_path):
    with pytest.raises(Exception, match="pulls") as refused:
        import_triggers(cast, tmp_path, [HOOK, HOOK])
    assert refused.value.status in {400, 422}
    assert not Trigger.objects.exists()


def test_a_trigger_of_another_team_is_not_there(cast, workflow):
    trigger = actions.make_trigger(workflow=workflow, document=HOOK, by=cast.owner).trigger
    assert access.trigger_for(cast.viewer, trigger.pk) == trigger
    with pytest.raises(Http404):
        access.trigger_for(cast.outsider, trigger.pk)


def test_an_imported_trigger_has_no_secret_until_its_page_makes_one(cast, tmp_path):
    raw = document(triggers=[{"kind": "bearer", "name": "in"}, {"kind": "github", "name": "pulls"}])
    workflow = import_workflow(cast.team, cast.owner, write_folder(tmp_path, raw, default_files(raw)))
    for trigger in Trigger.objects.filter(workflow=workflow):
        assert (trigger.token_sha256, trigger.credentials) == ([], None)
        assert actions.rotate(trigger, by=cast.owner).secret
