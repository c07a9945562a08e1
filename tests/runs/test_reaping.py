"""Lost leases are found once, whoever looks, and judged by the watcher's own clock."""

from __future__ import annotations

import threading
import uuid
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.utils import timezone

from apps.runs import actions, losses
from apps.runs.models import Attempt, Run, StepRun
from apps.runs.supervisor import sweeper
from apps.runs.supervisor.reaper import Reaper
from apps.runs.timing import FOREIGN_S, LEASE_S
from apps.tools.models import ToolSession
from apps.workflows.models import Workflow
from tests import factories
from tests.factories import Cast
from tests.runs.starts import fresh, kinds, running, start

pytestmark = [pytest.mark.databases]
ELSEWHERE = "0badb007 another-machine"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def held_run(workflow: Workflow, *, pid: int | None = 4_000_000, host: str = "", with_pid: bool = True) -> Run:
    """A run whose holder is a process that does not exist, in the middle of a step."""
    run, _ = running(workflow)
    step = run.steps.get(step_id="hello")
    StepRun.objects.filter(pk=step.pk).update(status="running", started_at=timezone.now())
    Attempt.objects.create(
        step_run=step,
        number=1,
        plan_revision=1,
        pid=4_000_001 if with_pid else None,
        pid_started="1@gone",
        queued_at=timezone.now(),
    )
    changes = {"lease_pid": pid, "lease_pid_started": "1@gone"} if pid else {}
    if host:
        changes["lease_host"] = host
    Run.objects.filter(pk=run.pk).update(**changes)
    return fresh(run)


@pytest.mark.django_db
def test_a_holder_of_this_host_that_is_gone_is_reaped_at_once(workflow: Workflow) -> None:
    run = held_run(workflow)
    assert Reaper().look() == [run.pk]
    run = fresh(run)
    attempt = Attempt.objects.get()
    assert (run.status, run.reason_code, run.lease_pid, run.may_still_run) == (
        "needs_attention",
        "worker_lost",
        None,
        False,
    )
    assert attempt.outcome == "worker_lost"
    assert attempt.finished_at is not None
    assert run.steps.get(step_id="hello").status == "needs_attention"
    assert ToolSession.objects.get(pk=run.session_id).state == "suspended"
    assert Reaper().look() == []


@pytest.mark.django_db(transaction=True)
def test_two_reapers_at_once_record_one_loss(workflow: Workflow) -> None:
    run = held_run(workflow)
    found: list[list[uuid.UUID]] = []

    def look() -> None:
        found.append(Reaper().look())
        connection.close()

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(len, found)) == [0, 0, 0, 1]
    assert kinds(run).count("worker.lost") == 1
    assert kinds(run).count("run.needs_attention") == 1


@pytest.mark.django_db
def test_a_holder_that_lives_is_lost_only_when_it_stops_renewing(workflow: Workflow) -> None:
    clock = Clock()
    run = held_run(workflow, pid=None)  # this very process
    reaper = Reaper(clock)
    assert reaper.look() == []
    clock.now += LEASE_S - 1
    Run.objects.filter(pk=run.pk).update(lease_beat=run.lease_beat + 1)
    assert reaper.look() == []
    clock.now += LEASE_S - 1
    assert reaper.look() == []
    clock.now += 2
    assert reaper.look() == [run.pk]


@pytest.mark.django_db
def test_a_jump_of_the_wall_clock_takes_no_lease_away(workflow: Workflow) -> None:
    run = held_run(workflow, pid=None)
    reaper = Reaper(Clock())
    for hours in (-1, 1):
        then = timezone.now() + timedelta(hours=hours)
        Run.objects.filter(pk=run.pk).update(queued_at=then, started_at=then)
        StepRun.objects.filter(run=run, started_at__isnull=False).update(started_at=then)
        Attempt.objects.update(queued_at=then)
        assert reaper.look() == []


@pytest.mark.django_db
def test_another_hosts_lease_is_left_to_that_host_for_a_while_and_then_may_still_run(workflow: Workflow) -> None:
    clock, run = Clock(), held_run(workflow, host=ELSEWHERE)
    reaper = Reaper(clock)
    clock.now += 1
    assert reaper.look() == []
    clock.now += LEASE_S + 1
    assert reaper.look() == []
    clock.now += FOREIGN_S
    assert reaper.look(leading=False) == []
    assert reaper.look(leading=True) == [run.pk]
    run = fresh(run)
    assert (run.status, run.may_still_run, run.reason_code) == ("needs_attention", True, "may_still_run")
    assert "may still run" in run.reason


@pytest.mark.django_db
def test_a_run_that_may_still_run_is_cancelling_until_a_person_says_so(workflow: Workflow, cast: Cast) -> None:
    clock, run = Clock(), held_run(workflow, host=ELSEWHERE)
    reaper = Reaper(clock)
    reaper.look()
    clock.now += LEASE_S + FOREIGN_S + 1
    reaper.look()
    asked = actions.cancel_run(fresh(run), by="a person")
    assert (asked.status, asked.cancel_requested_at is not None) == ("needs_attention", True)
    sweeper.sweep()
    assert fresh(run).status == "needs_attention"
    actions.settle_attention(fresh(run), by=cast.operator, choice="mark_failed", step_id="hello")
    assert fresh(run).status == "failed"


@pytest.mark.django_db
def test_an_earlier_boot_of_this_machine_is_known_to_be_gone(workflow: Workflow) -> None:
    import socket

    run = held_run(workflow, host=f"0badb007 {socket.gethostname()}")
    assert Reaper().look() == [run.pk]
    assert not fresh(run).may_still_run


@pytest.mark.django_db
def test_a_step_whose_code_was_never_let_go_is_started_again_whatever_it_is(workflow: Workflow) -> None:
    run = held_run(workflow, with_pid=False)
    assert Reaper().look() == [run.pk]
    assert fresh(run).status == "queued"
    assert run.steps.get(step_id="hello").status == "pending"
    assert Attempt.objects.get().outcome == "worker_lost"


@pytest.mark.django_db
def test_a_run_lost_between_its_lease_and_its_first_attempt_goes_back_to_the_queue_a_few_times(
    workflow: Workflow,
) -> None:
    from apps.runs import leases

    run = start(workflow)
    for _ in range(losses.LOSSES_WITHOUT_ATTEMPT):
        assert leases.claim(run.pk)
        Run.objects.filter(pk=run.pk).update(lease_pid=4_000_000, lease_pid_started="1@gone")
        Reaper().look()
        assert fresh(run).status == "queued"
    leases.claim(run.pk)
    Run.objects.filter(pk=run.pk).update(lease_pid=4_000_000, lease_pid_started="1@gone")
    Reaper().look()
    assert fresh(run).status == "failed"
    assert "before a step could start" in fresh(run).reason


@pytest.mark.django_db
def test_a_cancelled_run_whose_worker_dies_is_cancelled(workflow: Workflow) -> None:
    run = held_run(workflow)
    assert actions.cancel_run(run, by="a person").status == "running"
    Reaper().look()
    run = fresh(run)
    assert (run.status, Attempt.objects.get().outcome) == ("cancelled", "worker_lost")
    assert set(run.steps.values_list("status", flat=True)) == {"cancelled"}
    assert not ToolSession.objects.exclude(state="ended").exists()


@pytest.mark.django_db
def test_reapers_never_touch_runs_that_have_ended(workflow: Workflow) -> None:
    ended = [held_run(workflow) for _ in range(2)]
    Run.objects.update(status="succeeded")
    assert Reaper().look() == []
    assert {fresh(run).status for run in ended} == {"succeeded"}


@pytest.mark.django_db
def test_an_idempotent_step_is_restarted_three_times_and_then_asks_a_person(cast: Cast) -> None:
    raw = factories.document(steps=[factories.step("hello", idempotent=True)])
    workflow = factories.make_workflow(cast.team, cast.owner, raw)
    run = start(workflow)
    statuses = []
    for number in range(1, 5):
        _lose_attempt(run, number)
        statuses.append(fresh(run).status)
    assert statuses == ["queued", "queued", "queued", "needs_attention"]
    assert fresh(run).reason_code == "restarts_used_up"


def _lose_attempt(run: Run, number: int) -> None:
    from apps.runs import leases

    assert leases.claim(run.pk)
    step = run.steps.get(step_id="hello")
    StepRun.objects.filter(pk=step.pk).update(status="running", started_at=timezone.now())
    now = timezone.now()
    Attempt.objects.create(
        step_run=step, number=number, plan_revision=1, pid=4_000_001, pid_started="1@gone", queued_at=now
    )
    Run.objects.filter(pk=run.pk).update(lease_pid=4_000_000, lease_pid_started="1@gone")
    Reaper().look()


@pytest.mark.django_db
def test_a_run_older_than_a_run_should_be_is_reported_once(workflow: Workflow) -> None:
    run = start(workflow)
    Run.objects.filter(pk=run.pk).update(queued_at=timezone.now() - timedelta(days=2))
    assert sweeper.report_old() == [run.pk]
    assert sweeper.report_old() == []
    assert fresh(run).status == "queued"


@pytest.mark.django_db
def test_a_run_that_waits_for_a_time_is_queued_when_it_has_come(workflow: Workflow) -> None:
    from apps.runs import endings

    run, lease = running(workflow)
    later = timezone.now() + timedelta(hours=1)
    with transaction.atomic():
        endings.requeue(run, reason="later", reason_code="backoff", fence=lease.fence, at=later)
    sweeper.sweep()
    assert fresh(run).status == "waiting"
    Run.objects.filter(pk=run.pk).update(wake_at=timezone.now())
    sweeper.sweep()
    assert fresh(run).status == "queued"


@pytest.mark.django_db
def test_a_lost_holder_gives_its_slot_to_the_next_in_line(workflow: Workflow) -> None:
    from apps.runs import leases

    held_run(workflow)
    running(workflow)
    waiting = start(workflow)
    assert leases.claim(waiting.pk) is None
    Reaper().look()
    assert leases.claim(waiting.pk) is not None


@pytest.mark.django_db
def test_a_run_that_waits_for_a_time_is_cancelled_at_once(workflow: Workflow) -> None:
    from apps.runs import endings

    run, lease = running(workflow)
    later = timezone.now() + timedelta(hours=1)
    endings.requeue(run, reason="later", reason_code="backoff", fence=lease.fence, at=later)
    assert actions.cancel_run(run, by="a person").status == "cancelled"
    sweeper.sweep()
    assert fresh(run).status == "cancelled"
