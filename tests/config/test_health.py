"""Alive, ready, and in numbers."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from apps.runs.models import Run, Worker
from apps.runs.timing import SILENT_S
from tests.engine.test_log_lost import files_of_at_most
from tests.factories import make_team, make_workflow

pytestmark = pytest.mark.django_db


def worker(role="worker", release="", silent_s=0, **more):
    from django.conf import settings

    now = timezone.now()
    return Worker.objects.create(
        role=role, host="h", pid=1, release=release or settings.PULSE_RELEASE, started_at=now,
        heartbeat_at=now - timedelta(seconds=silent_s), **more,
    )  # fmt: skip


def test_it_names_every_living_process_and_its_release():
    worker("worker")
    worker("scheduler")
    worker("worker", silent_s=600)
    worker("worker", stopped_at=timezone.now())
    body = Client().get("/healthz").json()
    assert body["status"] == "ok"
    assert [process["role"] for process in body["processes"]] == ["worker", "scheduler"]
    assert body["warnings"] == []


def test_another_release_is_a_warning():
    worker(release="0.0.1")
    (warning,) = Client().get("/healthz").json()["warnings"]
    assert "0.0.1" in warning
    assert "Restart" in warning


def test_it_is_ready_when_everything_answers():
    answer = Client().get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (200, "ready")


def test_it_says_whether_steps_can_run_and_is_ready_for_pages_all_the_same():
    said = []
    silent = {"slots": 2, "silent_s": SILENT_S + 1}
    for facts in ({}, silent, {"refusal": "The host lets nobody make user namespaces."}, {"slots": 2}):
        if facts:
            worker(**facts)
        answer = Client().get("/readyz")
        assert answer.status_code == 200
        said.append(answer.json()["steps"])
    assert said == [
        "no worker is heard of (0 slots): runs wait",
        "no worker is heard of (0 slots): runs wait",
        "no worker can run steps (0 slots): runs wait; manage.py doctor says why",
        "ok",
    ]


def test_it_is_not_ready_without_a_data_folder(settings, tmp_path):
    settings.PULSE_DATA = tmp_path / "gone"
    answer = Client().get("/readyz")
    assert answer.status_code == 503
    assert "cannot be written" in answer.json()["data"]
    assert "pulse_data_writable 0" in Client().get("/metrics").text.splitlines()


@pytest.mark.parametrize("size", [0, 1000])
def test_it_is_not_ready_when_nothing_can_be_stored_and_the_numbers_say_so(size):
    with files_of_at_most(size):
        answer, numbers = Client().get("/readyz"), Client().get("/metrics").text.splitlines()
    assert (answer.status_code, answer.json()["status"]) == (503, "not_ready")
    assert "cannot be written" in answer.json()["data"]
    assert "pulse_data_writable 0" in numbers
    numbers = Client().get("/metrics").text.splitlines()
    assert "pulse_data_writable 1" in numbers
    assert any(int(line.split()[1]) > 0 for line in numbers if line.startswith("pulse_data_free_bytes "))


def test_it_is_not_ready_with_migrations_missing():
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'webhooks'")
    answer = Client().get("/readyz")
    assert (answer.status_code, "migrate" in answer.json()["database"]) == (503, True)


def test_numbers_are_prometheus_text():
    cast = make_team()
    workflow = make_workflow(cast.team, cast.editor)
    Run.objects.create(
        team=cast.team, workflow=workflow, entry_path="manual", group="default", owner=cast.editor,
        initiated_by="test", plan_revision=1, queued_at=timezone.now() - timedelta(seconds=30),
    )  # fmt: skip
    worker(slots=4)
    answer = Client().get("/metrics")
    lines = answer.content.decode().splitlines()
    assert answer["Content-Type"].startswith("text/plain; version=0.0.4")
    assert 'pulse_runs_unfinished{status="queued"} 1' in lines
    assert "pulse_slots 4" in lines
    age = next(line for line in lines if line.startswith("pulse_queue_oldest_seconds "))
    assert float(age.split()[1]) >= 30


def test_numbers_are_for_this_machine_only():
    assert Client(REMOTE_ADDR="192.0.2.7").get("/metrics").status_code == 404


def test_a_token_opens_the_numbers_and_is_then_needed(settings):
    settings.PULSE_METRICS_TOKEN = "a-token-for-numbers"
    elsewhere = Client(REMOTE_ADDR="192.0.2.7")
    assert elsewhere.get("/metrics", headers={"Authorization": "Bearer a-token-for-numbers"}).status_code == 200
    assert Client().get("/metrics").status_code == 404
    assert elsewhere.get("/metrics", headers={"Authorization": "Bearer ä"}).status_code == 404


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_they_are_only_read(path):
    assert Client().post(path).status_code == 405
