"""Slots of a workflow: never more than allowed, first come first served, none lost, the next woken at once."""

from __future__ import annotations

import random
import threading

import pytest
from django.db import connection
from django_q.models import OrmQ

from apps.runs import actions, endings, leases, reading, tasks
from apps.runs.models import Run
from apps.runs.supervisor import sweeper
from apps.workflows.models import Workflow
from engine.states import RunStatus
from tests.runs.starts import fresh, kinds, running, start

pytestmark = pytest.mark.databases


@pytest.mark.django_db
def test_a_run_beyond_the_limit_stays_queued_and_says_what_holds_the_slots(workflow: Workflow) -> None:
    first, _ = running(workflow)
    second, _ = running(workflow)
    third = start(workflow)
    assert leases.claim(third.pk) is None
    third = fresh(third)
    assert (third.status, third.reason_code) == ("queued", "slot")
    still = reading.why_not_running(third)
    assert [holder.run_id for holder in still.holders] == [str(first.pk), str(second.pk)]
    assert still.frees
    assert kinds(third) == ["run.queued", "run.waiting"]
    assert leases.claim(third.pk) is None
    assert kinds(third) == ["run.queued", "run.waiting"], "it is told once"


@pytest.mark.parametrize("end", [RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED])
@pytest.mark.django_db(transaction=True)
def test_each_end_wakes_the_oldest_waiting_run_once_it_is_committed(workflow: Workflow, end: RunStatus) -> None:
    holders = [running(workflow) for _ in range(2)]
    waiting = [start(workflow) for _ in range(2)]
    for run in waiting:
        assert leases.claim(run.pk) is None
    OrmQ.objects.all().delete()
    run, lease = holders[0]
    endings.finish(run, end, fence=lease.fence)
    assert [fresh(one).reason_code for one in waiting] == ["", "slot"]
    assert OrmQ.objects.count() == 1
    assert leases.claim(waiting[0].pk) is not None


@pytest.mark.django_db
def test_runs_that_need_a_person_or_wait_for_a_time_hold_no_slot(workflow: Workflow) -> None:
    from django.utils import timezone

    held = [running(workflow) for _ in range(2)]
    waiting = [start(workflow) for _ in range(2)]
    for run in waiting:
        leases.claim(run.pk)
    endings.hold_for_a_person(held[0][0], reason="?", reason_code="worker_lost", fence=held[0][1].fence)
    endings.requeue(held[1][0], reason="", reason_code="backoff", fence=held[1][1].fence, at=timezone.now())
    assert all(leases.claim(run.pk) is not None for run in waiting)


@pytest.mark.django_db
def test_cancelling_a_waiting_run_lets_the_next_one_in_line_move_up(workflow: Workflow) -> None:
    holders = [running(workflow) for _ in range(2)]
    waiting = [start(workflow) for _ in range(2)]
    for run in waiting:
        leases.claim(run.pk)
    actions.cancel_run(fresh(waiting[0]), by="a person")
    run, lease = holders[0]
    endings.finish(run, RunStatus.SUCCEEDED, fence=lease.fence)
    assert leases.claim(waiting[1].pk) is not None


@pytest.mark.django_db
def test_a_later_run_does_not_overtake_one_that_waits(workflow: Workflow) -> None:
    holders = [running(workflow) for _ in range(2)]
    early = start(workflow)
    leases.claim(early.pk)
    endings.finish(holders[0][0], RunStatus.SUCCEEDED, fence=holders[0][1].fence)
    late = start(workflow)
    assert leases.claim(late.pk) is None
    assert leases.claim(early.pk) is not None


@pytest.mark.django_db
def test_a_raised_limit_reaches_runs_that_wait(workflow: Workflow) -> None:
    for _ in range(2):
        running(workflow)
    waiting = start(workflow)
    leases.claim(waiting.pk)
    Workflow.objects.update(settings={**workflow.settings, "max_concurrent_runs": 3})
    sweeper.sweep()
    assert leases.claim(waiting.pk) is not None


@pytest.mark.django_db(transaction=True)
def test_claims_at_once_never_pass_the_limit(workflow: Workflow) -> None:
    runs = [start(workflow) for _ in range(8)]

    def claim(run: Run) -> None:
        leases.claim(run.pk)
        connection.close()

    threads = [threading.Thread(target=claim, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Run.objects.running().count() == 2
    assert Run.objects.running().order_by("queued_at").first() == runs[0]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.django_db(transaction=True)
def test_whatever_happens_no_slot_is_lost_or_doubled(workflow: Workflow, seed: int) -> None:
    """Runs start, end, wait and are cancelled at random; then the queue is emptied as a worker would."""
    chance = random.Random(seed)
    for _ in range(60):
        _one_thing(workflow, chance)
        assert Run.objects.running().count() <= 2
    for _ in range(200):
        held = list(Run.objects.running())
        for run in held:
            endings.finish(run, RunStatus.SUCCEEDED, fence=run.fence)
        queued = Run.objects.queued().exclude(reason_code=Run.NO_SLOT).order_by("queued_at")
        for run in queued:
            leases.claim(run.pk)
        if not Run.objects.running().exists():
            break
    assert not Run.objects.queued().exists(), "nobody is left waiting for a slot that is free"


def _one_thing(workflow: Workflow, chance: random.Random) -> None:
    what = chance.choice(["start", "start", "claim", "end", "cancel", "person"])
    held = list(Run.objects.running())
    if what == "start":
        start(workflow)
    elif what == "claim":
        for run in Run.objects.queued().exclude(reason_code=Run.NO_SLOT):
            leases.claim(run.pk)
    elif what == "cancel" and (run := Run.objects.queued().order_by("?").first()):
        actions.cancel_run(run, by="a person")
    elif held and what == "person":
        run = chance.choice(held)
        endings.hold_for_a_person(run, reason="", reason_code="", fence=run.fence)
    elif held:
        run = chance.choice(held)
        endings.finish(run, chance.choice([RunStatus.SUCCEEDED, RunStatus.FAILED]), fence=run.fence)


@pytest.mark.django_db
def test_a_second_end_of_a_run_changes_nothing(workflow: Workflow) -> None:
    run, lease = running(workflow)
    assert endings.finish(run, RunStatus.SUCCEEDED, fence=lease.fence)
    before = kinds(run)
    assert not endings.finish(fresh(run), RunStatus.FAILED)
    assert not endings.requeue(fresh(run), reason="", reason_code="")
    tasks.advance_run(str(run.pk))
    assert (fresh(run).status, kinds(run)) == ("succeeded", before)
