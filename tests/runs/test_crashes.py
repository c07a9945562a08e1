"""Real workers killed at the worst moments: nothing is lost, nothing is done twice, and the run says what is known."""

from __future__ import annotations

import os
import signal

import pytest
from django_q.models import Task

from apps.runs.models import Attempt, Run, Worker
from apps.workflows.models import Workflow
from tests.factories import Cast
from tests.runs.counting import begun, counting, let_go, starts_of
from tests.runs.starts import start
from tests.runs.workers import lives, status, until, worker

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sandbox, pytest.mark.databases]


def test_a_supervisor_that_is_killed_leaves_no_orphan_that_takes_work_and_cuts_no_step(cast: Cast) -> None:
    workflow = counting(cast)
    with worker() as one:
        run = start(workflow)
        begun(run, workflow, one)
        old = one.row
        one.kill()
        with worker() as two:
            until(lambda: Run.objects.get(pk=run.pk).lease_worker is not None, two)
            let_go(workflow)
            until(lambda: status(run) == "succeeded", two)
            assert starts_of(workflow) == 1
            until(lambda: type(old).objects.get(pk=old.pk).stopped_at, two)


def test_killed_idle_workers_do_not_stop_the_next_run(cast: Cast, workflow: Workflow) -> None:
    with worker() as one:
        first = start(workflow)
        until(lambda: status(first) == "succeeded", one)
        for pid in one.members():
            if pid != one.row.cluster_pid and _is_worker(pid):
                os.kill(pid, signal.SIGKILL)
        second = start(workflow)
        until(lambda: status(second) == "succeeded", one, within=60)
        assert not Task.objects.exists(), "the queue keeps no results"


def _is_worker(pid: int) -> bool:
    """Children of the sentinel, which is the only child of the cluster's main process."""
    with open(f"/proc/{pid}/stat") as file:
        parent = int(file.read().rsplit(")", 1)[1].split()[1])
    with open(f"/proc/{parent}/stat") as file:
        grandparent = int(file.read().rsplit(")", 1)[1].split()[1])
    return os.getpgid(pid) == os.getpgid(parent) == os.getpgid(grandparent)


def test_a_planned_stop_drains_what_ends_in_time_and_says_what_it_cut(cast: Cast) -> None:
    short, long, queued = (counting(cast) for _ in range(3))
    with worker(PULSE_DRAIN_S="3") as one:
        ends, cut = start(short), start(long)
        attempts = [begun(ends, short, one), begun(cut, long, one)]
        waits = start(queued)
        one.process.send_signal(signal.SIGTERM)
        until(lambda: Worker.objects.exclude(stopping_at=None).exists(), one)  # else the run may end before the stop
        let_go(short)
        assert one.process.wait(40) == 0
        assert (status(ends), Attempt.objects.get(pk=attempts[0].pk).outcome) == ("queued", "succeeded")
        assert status(waits) == "queued"
        assert starts_of(queued) == 0
        lost = Attempt.objects.get(pk=attempts[1].pk)
        assert (status(cut), lost.outcome, lost.reason) == ("needs_attention", "worker_lost", "stopped_by_operator")
        assert not lives(lost)
    let_go(queued)
    with worker() as two:
        until(lambda: {status(ends), status(waits)} == {"succeeded"}, two)
        assert status(cut) == "needs_attention"
        assert [starts_of(one) for one in (short, long, queued)] == [1, 1, 1]
