"""Who may write for a run: claimed once, fenced, renewed, and given up before it runs out."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import DatabaseError, InterfaceError, connection, transaction
from django.utils import timezone

from apps.runs import leases, tasks, whereabouts
from apps.runs.errors import LeaseLost
from apps.runs.events import News
from apps.runs.kinds import Kind
from apps.runs.leases import Keeper, Lease
from apps.runs.models import Run
from apps.runs.supervisor import rows
from apps.workflows.models import Workflow
from engine.sandbox import processes
from tests.runs.starts import fresh, kinds, running, start

pytestmark = pytest.mark.databases


@pytest.mark.django_db(transaction=True)
def test_of_many_claims_at_once_one_wins(workflow: Workflow) -> None:
    run = start(workflow)
    won: list[Lease] = []

    def claim() -> None:
        lease = leases.claim(run.pk)
        if lease:
            won.append(lease)
        connection.close()

    threads = [threading.Thread(target=claim) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert kinds(run) == ["run.queued", "run.started"]


@pytest.mark.django_db
def test_a_message_for_a_run_that_is_held_or_over_does_nothing(workflow: Workflow) -> None:
    run, _ = running(workflow)
    tasks.advance_run(str(run.pk))
    Run.objects.update(status="succeeded")
    tasks.advance_run(str(run.pk))
    assert kinds(run) == ["run.queued", "run.started"]
    assert fresh(run).fence == run.fence


@pytest.mark.django_db
def test_a_lost_lease_can_write_nothing(workflow: Workflow) -> None:
    run, lease = running(workflow)
    taken = leases.take_over(run.pk, run.fence, run.lease_beat)
    assert taken is not None
    with pytest.raises(LeaseLost), transaction.atomic():
        leases.record(lease, News(Kind.STEP_SUCCEEDED))
    assert not leases.renew(lease)
    assert leases.renew(taken)


@pytest.mark.django_db
def test_a_lease_that_has_moved_since_it_was_looked_at_is_not_taken(workflow: Workflow) -> None:
    run, lease = running(workflow)
    assert leases.renew(lease)
    assert leases.take_over(run.pk, run.fence, run.lease_beat) is None


@pytest.mark.django_db
def test_a_worker_that_is_being_stopped_takes_nothing(workflow: Workflow) -> None:
    run, worker = start(workflow), rows.register("worker", slots=1)
    rows.mark(worker.pk, stopping_at=timezone.now())
    whereabouts.work_for(worker.pk)
    try:
        tasks.advance_run(str(run.pk))
    finally:
        whereabouts.work_for(None)
    assert (fresh(run).status, fresh(run).enqueued_at) == ("queued", None)


@contextmanager
def sleeper() -> Iterator[tuple[int, str]]:
    """A process that stands for the sandbox of an attempt."""
    process = subprocess.Popen(["sleep", "600"])
    try:
        yield process.pid, processes.started(process.pid) or ""
    finally:
        process.kill()
        process.wait()


def gone_within(tree: tuple[int, str], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while processes.alive(*tree):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bounds, ten times shorter."""
    for name, value in {"LEASE_S": 1.5, "RENEW_S": 0.2, "FENCE_MARGIN_S": 0.5}.items():
        monkeypatch.setattr(leases, name, value)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("hasty")
def test_a_kept_lease_is_renewed_for_as_long_as_it_is_held(workflow: Workflow) -> None:
    run, lease = running(workflow)
    with Keeper(lease) as keeper:
        deadline = time.monotonic() + 20
        while fresh(run).lease_beat < run.lease_beat + 5 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not keeper.lost
    assert fresh(run).lease_beat >= run.lease_beat + 5


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("hasty")
def test_whatever_a_renewal_meets_the_next_one_is_tried(workflow: Workflow, monkeypatch: pytest.MonkeyPatch) -> None:
    run, lease = running(workflow)
    renew, faults = leases.renew, [InterfaceError("closed"), DatabaseError("full"), RuntimeError("of ours")]

    def renew_at_last(held: Lease) -> bool:
        if faults:
            raise faults.pop()
        return renew(held)

    monkeypatch.setattr(leases, "renew", renew_at_last)
    with Keeper(lease) as keeper:
        deadline = time.monotonic() + 20
        while fresh(run).lease_beat == run.lease_beat and time.monotonic() < deadline:
            time.sleep(0.05)
        assert (faults, keeper.lost) == ([], False)
    assert fresh(run).lease_beat > run.lease_beat


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("hasty")
def test_a_holder_that_cannot_renew_ends_its_processes_by_itself(
    workflow: Workflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, lease = running(workflow)
    silence = threading.Event()
    monkeypatch.setattr(leases, "renew", lambda _: silence.wait(30))  # a database that does not answer
    with sleeper() as tree, Keeper(lease) as keeper:
        keeper.holds(*tree)
        assert gone_within(tree, 15)
        assert keeper.lost
        silence.set()


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("hasty")
def test_a_holder_that_was_fenced_ends_its_processes(workflow: Workflow) -> None:
    run, lease = running(workflow)
    with sleeper() as tree, Keeper(lease) as keeper:
        keeper.holds(*tree)
        Run.objects.filter(pk=run.pk).update(fence=lease.fence + 1)
        assert gone_within(tree, 15)
        with pytest.raises(LeaseLost):
            keeper.require()


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("hasty")
def test_an_attempt_that_never_starts_gives_its_lease_up(workflow: Workflow) -> None:
    _, lease = running(workflow)
    with Keeper(lease) as keeper:
        keeper.starts(0.3)
        deadline = time.monotonic() + 15
        while not keeper.lost and time.monotonic() < deadline:
            time.sleep(0.05)
        assert keeper.lost
