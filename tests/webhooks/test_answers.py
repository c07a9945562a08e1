"""What a sender is answered, and what is there afterwards (BEHAVIOUR 8)."""

from __future__ import annotations

import json
import os
import stat

import pytest

from apps.runs.models import Run
from apps.webhooks.models import Delivery
from apps.workflows import places
from tests.webhooks.senders import BODIES, event_of, make_hook, only_delivery, payload

pytestmark = [pytest.mark.django_db, pytest.mark.databases]


@pytest.mark.parametrize("name", [name for name in BODIES if name != "github__ping.json"])
def test_it_accepts_every_body_that_github_sends(name):
    sender = make_hook()
    answer = sender.post(payload(name), event=event_of(name))
    assert answer.status_code == 202
    run = Run.objects.get(pk=answer.json()["run_id"])
    assert run.status == "queued"
    assert run.entry_path == "github"
    assert bytes(only_delivery().body) == payload(name)


def test_it_says_where_the_run_is():
    answer = make_hook().post(delivery="d-1").json()
    assert set(answer) == {"run_id", "delivery_id", "status_url"}
    assert answer["delivery_id"] == "d-1"
    assert answer["status_url"].endswith(f"/api/v1/runs/{answer['run_id']}")


def test_it_answers_a_ping_without_a_run():
    answer = make_hook().post(payload("github__ping.json"), event="ping")
    assert (answer.status_code, answer.json()) == (200, {"status": "pong"})
    assert not Run.objects.exists()
    assert only_delivery().verdict == "pong"


def test_it_ignores_events_that_the_trigger_does_not_listen_to():
    answer = make_hook(events=["pull_request.closed", "push"]).post()
    assert answer.status_code == 200
    assert answer.json()["status"] == "ignored"
    assert "pull_request.opened" in answer.json()["reason"]
    assert not Run.objects.exists()


@pytest.mark.parametrize("events", [["pull_request"], ["pull_request.opened"], ["push", "pull_request.opened"], []])
def test_it_listens_to_an_event_by_its_name_or_with_its_action(events):
    assert make_hook(events=events).post().status_code == 202


def test_it_writes_the_delivery_file_with_the_payload_as_it_was_sent():
    sender = make_hook()
    run_id = sender.post(delivery="d-1").json()["run_id"]
    path = places.places_of(sender.trigger.workflow).delivery(run_id)
    written = json.loads(path.read_bytes())
    assert written.pop("payload") == json.loads(payload())
    assert written.pop("received_at").endswith("Z")
    assert written == {
        "run_id": run_id,
        "delivery_id": "d-1",
        "entry_path": "github",
        "event": "pull_request.opened",
        "group": "default",
        "variables": {},
    }
    assert payload().decode().strip() in path.read_text()


def test_only_the_platform_and_the_steps_may_read_the_delivery_file():
    sender = make_hook()
    path = places.places_of(sender.trigger.workflow).delivery(sender.post().json()["run_id"])
    seen = path.stat()
    assert stat.S_IMODE(seen.st_mode) == 0o640
    assert seen.st_gid == (places.runner_gid() or os.getgid())


def test_a_copy_is_answered_with_the_first_run():
    sender = make_hook()
    first = sender.post(delivery="d-1").json()
    second = sender.post(delivery="d-1")
    assert second.status_code == 200
    assert second.json()["duplicate"] is True
    assert second.json()["run_id"] == first["run_id"]
    assert second.json()["status"] == "queued"
    assert Run.objects.count() == 1
    assert only_delivery().copies == 1


def test_a_copy_of_a_run_that_failed_is_still_a_copy():
    sender = make_hook()
    first = sender.post(delivery="d-1").json()
    Run.objects.filter(pk=first["run_id"]).update(status="failed")
    assert sender.post(delivery="d-1").json()["status"] == "failed"
    assert Run.objects.count() == 1


def test_the_same_id_with_another_body_is_a_conflict():
    sender = make_hook()
    sender.post(delivery="d-1")
    answer = sender.post(payload("github__pull_request_closed.json"), delivery="d-1")
    assert answer.status_code == 409
    assert answer.json()["code"] == "delivery_conflict"
    assert Run.objects.count() == 1
    assert Delivery.objects.filter(verdict="delivery_conflict", external_id=None).count() == 1


def test_two_triggers_may_take_the_same_delivery_id():
    assert make_hook().post(delivery="d-1").status_code == 202
    assert make_hook().post(delivery="d-1").status_code == 202
    assert Run.objects.count() == 2


def test_a_refused_delivery_does_not_take_its_id():
    sender = make_hook()
    assert sender.post(delivery="d-1", signature="sha256=" + "0" * 64).status_code == 401
    assert sender.post(delivery="d-1").status_code == 202


def test_a_workflow_that_is_not_current_is_refused():
    sender = make_hook()
    workflow = sender.trigger.workflow
    workflow.contract_version = "1.0.1"
    workflow.save()
    answer = sender.post()
    assert (answer.status_code, answer.json()["code"]) == (409, "migration_required")
    assert not Run.objects.exists()
    assert list(places.places_of(workflow).delivery("x").parent.iterdir()) == []


def test_a_workflow_without_an_active_owner_is_refused():
    sender = make_hook()
    owner = sender.trigger.workflow.owner
    owner.is_active = False
    owner.save()
    answer = sender.post()
    assert answer.status_code == 409
    assert not Run.objects.exists()


def test_a_run_acts_for_the_owner_and_names_its_sender():
    sender = make_hook()
    run = Run.objects.get(pk=sender.post().json()["run_id"])
    assert run.owner == sender.trigger.workflow.owner
    assert run.initiator is None
    assert "Codertocat" in run.initiated_by
    assert run.trigger_name == sender.trigger.name
