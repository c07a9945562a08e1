"""The order of the checks: each fault is answered before every one that comes after it (BEHAVIOUR 8)."""

from __future__ import annotations

import pytest

from apps.runs.models import Run
from apps.webhooks import actions
from tests.factories import document
from tests.webhooks.senders import make_hook, payload

pytestmark = [pytest.mark.django_db, pytest.mark.databases]

LARGE = b"x" * 2000
WRONG = "sha256=" + "0" * 64


@pytest.fixture
def sender(settings):
    """A hook whose delivery `seen` has made a run, and whose workflow has since fallen behind its contract."""
    settings.PULSE_HOOK_BODY_MAX = 100_000
    sender = make_hook(events=["pull_request"], raw=document(variables=[{"name": "A", "value": 1}]))
    assert sender.post(delivery="seen").status_code == 202
    settings.PULSE_HOOK_BODY_MAX = 100_000
    workflow = sender.trigger.workflow
    workflow.contract_version = "1.0.1"
    workflow.save()
    return sender


def switch_off(sender):
    actions.set_enabled(sender.trigger, enabled=False, by=sender.trigger.workflow.owner)


def test_413_comes_before_404(sender, settings):
    switch_off(sender)
    settings.PULSE_HOOK_BODY_MAX = 1000
    assert sender.post(LARGE, signature=WRONG).status_code == 413


def test_404_comes_before_401(sender):
    switch_off(sender)
    assert sender.post(signature=WRONG).status_code == 404


def test_401_comes_before_415(sender):
    assert sender.post(b"{", signature=WRONG, content_type="text/plain").status_code == 401


def test_415_comes_before_400(sender):
    assert sender.post(b"{", content_type="text/plain").status_code == 415


def test_400_comes_before_a_copy(sender):
    assert sender.post(b"{", delivery="seen").status_code == 400


def test_a_copy_comes_before_a_ping(sender):
    assert sender.post(delivery="seen", event="ping").json()["duplicate"] is True


def test_a_copy_comes_before_ignored(sender):
    assert sender.post(delivery="seen", event="push").json()["duplicate"] is True


def test_a_conflict_comes_before_ignored(sender):
    assert sender.post(payload("github__push.json"), delivery="seen", event="push").status_code == 409


def test_a_copy_comes_before_migration_required(sender):
    assert sender.post(delivery="seen").json()["duplicate"] is True


def test_ping_and_ignored_come_before_migration_required(sender):
    assert sender.post(payload("github__ping.json"), event="ping").json()["status"] == "pong"
    assert sender.post(payload("github__push.json"), event="push").json()["status"] == "ignored"


def test_migration_required_comes_before_503(sender):
    workflow = sender.trigger.workflow
    workflow.settings = {"max_concurrent_runs": 1, "on_busy": "reject"}
    workflow.save()
    assert (answer := sender.post()).status_code == 409
    assert answer.json()["code"] == "migration_required"


def test_a_busy_workflow_that_rejects_answers_503_with_a_time():
    sender = make_hook(raw=document(settings={"max_concurrent_runs": 1, "on_busy": "reject"}))
    assert sender.post().status_code == 202
    answer = sender.post()
    assert (answer.status_code, answer.json()["code"]) == (503, "busy")
    assert int(answer.headers["Retry-After"]) > 0
    assert Run.objects.count() == 1


def test_a_busy_workflow_that_queues_takes_the_delivery():
    sender = make_hook(raw=document(settings={"max_concurrent_runs": 1, "on_busy": "queue"}))
    assert [sender.post().status_code for _ in range(3)] == [202] * 3
