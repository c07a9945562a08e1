"""Why a run is not running, what holds what it needs, and what will free it."""

from __future__ import annotations

import signal
import subprocess
from datetime import timedelta

import pytest
from django.utils import timezone

from apps.runs import reading, silence, whereabouts
from apps.runs.models import Run, Worker
from apps.runs.supervisor import rows
from apps.runs.supervisor.main import Supervisor
from apps.runs.timing import SILENT_S
from apps.tools import diagnostics
from apps.tools.models import OwnershipDiagnostic
from apps.workflows.models import Workflow
from engine.sandbox import processes
from tests.runs.starts import fresh, kinds, running, start

pytestmark = [pytest.mark.django_db, pytest.mark.databases]


def test_without_a_worker_it_says_how_to_start_one(workflow: Workflow) -> None:
    still = reading.why_not_running(start(workflow))
    assert still.code == "no_worker"
    assert "manage.py worker" in still.frees


def test_on_a_host_that_cannot_confine_steps_it_says_what_is_missing(workflow: Workflow) -> None:
    rows.register("worker", slots=0, refusal="bubblewrap was not found.")
    still = reading.why_not_running(start(workflow))
    assert still.code == "no_sandbox"
    assert "bubblewrap was not found." in still.text


def test_a_worker_that_is_silent_counts_for_nothing(workflow: Workflow) -> None:
    worker = rows.register("worker", slots=4)
    rows.mark(worker.pk, heartbeat_at=timezone.now() - timedelta(minutes=5))
    assert reading.why_not_running(start(workflow)).code == "no_worker"


def test_when_every_place_is_taken_it_names_the_runs_that_hold_them(workflow: Workflow) -> None:
    worker = rows.register("worker", slots=1)
    held, _ = running(workflow)
    Run.objects.filter(pk=held.pk).update(lease_worker=worker)
    still = reading.why_not_running(start(workflow))
    assert still.code == "busy"
    assert [holder.run_id for holder in still.holders] == [str(held.pk)]


def test_with_a_free_worker_it_is_about_to_start(workflow: Workflow) -> None:
    rows.register("worker", slots=1)
    assert reading.why_not_running(start(workflow)).code == "starting"


def test_a_running_run_stands_not_still(workflow: Workflow) -> None:
    assert reading.why_not_running(running(workflow)[0]).code == ""


def test_a_running_run_whose_worker_is_silent_says_since_when(workflow: Workflow) -> None:
    run, _ = running(workflow)
    Run.objects.filter(pk=run.pk).update(lease_worker=rows.register("worker", slots=1))
    told = reading.run_json(fresh(run))
    assert (told["reason"], told["reason_code"], told["unheard_since"]) == ("", "", None)
    last = timezone.now() - timedelta(seconds=SILENT_S + 1)
    Worker.objects.update(heartbeat_at=last)
    told = reading.run_json(fresh(run))
    assert (told["status"], told["reason_code"], told["unheard_since"]) == ("running", "unheard", last)
    assert told["reason"] == silence.words(fresh(run))
    assert f"{last:%H:%M:%S} UTC" in told["reason"]


def test_a_cluster_that_outlives_its_supervisor_is_heard_of_by_who_adopted_it(workflow: Workflow) -> None:
    gone, here = rows.register("worker", slots=1), whereabouts.here()
    old = timezone.now() - timedelta(minutes=5)
    rows.mark(gone.pk, pid_started="1@another", cluster_pid=here.pid, cluster_started=here.pid_started)
    rows.mark(gone.pk, heartbeat_at=old)
    run, _ = running(workflow)
    Run.objects.filter(pk=run.pk).update(lease_worker=gone)
    assert silence.words(fresh(run))
    assert [row.pk for row in rows.adopt_orphans()] == [gone.pk]
    assert not silence.words(fresh(run))


def test_a_cluster_without_a_supervisor_that_does_not_end_is_ended_once_it_holds_no_run(
    workflow: Workflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whereabouts, "_worker_id", None)
    gone = rows.register("worker", slots=1)
    with subprocess.Popen(["sleep", "600"]) as cluster:
        rows.mark(gone.pk, pid_started="1@another", cluster_pid=cluster.pid)
        rows.mark(gone.pk, cluster_started=processes.started(cluster.pid))
        run, _ = running(workflow)
        Run.objects.filter(pk=run.pk).update(lease_worker=gone)
        supervisor = Supervisor(refusal="No sandbox here.")
        for stopping_for, ends in ((0, False), (61, False)):
            rows.mark(gone.pk, stopping_at=timezone.now() - timedelta(seconds=stopping_for))
            supervisor._adopt()
            assert (cluster.poll() is not None) is ends
        Run.objects.filter(pk=run.pk).update(status="succeeded")
        supervisor._adopt()
        assert cluster.wait(10) == -signal.SIGKILL
        supervisor._adopt()
        assert Worker.objects.get(pk=gone.pk).stopped_at


def test_one_leader_leads_until_it_falls_silent() -> None:
    one, two = rows.register("worker"), rows.register("worker")
    assert rows.lead(one.pk)
    assert not rows.lead(two.pk)
    assert rows.lead(one.pk)
    from apps.runs.models import Leader

    Leader.objects.update(until=timezone.now() - timedelta(seconds=1))
    assert rows.lead(two.pk)
    assert not rows.lead(one.pk)


def test_a_refused_call_is_told_to_the_runs_on_both_sides(workflow: Workflow) -> None:
    caller, owner = start(workflow), start(workflow)
    diagnostic = OwnershipDiagnostic.objects.create(
        tool="query_workflow_db",
        reason="not_owner",
        caller="step one",
        tool_session="run two",
        authority="run two",
        caller_parent="run one",
        caller_run_id=caller.pk,
        owner_run_id=owner.pk,
        at=timezone.now(),
    )
    for tell in diagnostics.on_rejected:
        tell(diagnostic)
    for run in (caller, owner):
        assert kinds(run) == ["run.queued", "tool.rejected"]
        event = fresh(run).events.get(kind="tool.rejected")
        assert (event.data["caller_run_id"], event.data["owner_run_id"]) == (str(caller.pk), str(owner.pk))
