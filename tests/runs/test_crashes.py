"""Real workers killed at the worst moments: nothing is lost, nothing is done twice, and the run says what is known."""

from __future__ import annotations

import os
import signal
import time

import pytest

from apps.runs import actions
from apps.runs.models import Attempt, Run
from apps.workflows import places
from apps.workflows.models import Workflow
from tests import factories
from tests.factories import Cast
from tests.runs.starts import fresh, kinds, start
from tests.runs.workers import Supervised, lives, started, status, until, worker

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sandbox, pytest.mark.databases]

COUNTING = """
import pathlib, sys, time
ran = pathlib.Path("ran.txt")
ran.write_text(ran.read_text() + "x" if ran.exists() else "x")
print("started", flush=True)
while not pathlib.Path("go").exists():
    time.sleep(0.02)
"""


def counting(cast: Cast, **keys: object) -> Workflow:
    """A step that counts how often it was started, and goes on until a file `go` lies beside it."""
    raw = factories.document(steps=[factories.step("hello", **keys), factories.step("after")])
    files = {"code/hello/main.py": COUNTING}
    return factories.make_workflow(cast.team, cast.owner, raw, files)


def starts_of(workflow: Workflow) -> int:
    path = places.places_of(workflow).code / "hello" / "ran.txt"
    return len(path.read_text()) if path.exists() else 0


def begun(run: Run, workflow: Workflow, whose: Supervised) -> Attempt:
    """The open attempt, once its code runs."""
    attempt = started(run, whose)
    until(lambda: starts_of(workflow) == 1, whose)
    return attempt


def let_go(workflow: Workflow) -> None:
    (places.places_of(workflow).code / "hello" / "go").touch()


def test_a_worker_killed_in_mid_step_leaves_a_run_that_asks_a_person(cast: Cast) -> None:
    workflow = counting(cast)
    with worker() as one:
        run = start(workflow)
        attempt = begun(run, workflow, one)
        os.kill(fresh(run).lease_pid or 0, signal.SIGKILL)
        until(lambda: status(run) == "needs_attention", one, within=30)
        lost = Attempt.objects.get(pk=attempt.pk)
        assert (lost.outcome, lost.reason) == ("worker_lost", "worker_lost")
        assert not lives(attempt)
        assert fresh(run).reason
        assert not fresh(run).may_still_run
        assert starts_of(workflow) == 1
        assert kinds(run).count("worker.lost") == 1
        let_go(workflow)
        actions.settle_attention(run, by=cast.operator, choice="run_again", step_id="hello")
        until(lambda: status(run) == "succeeded", one)
        assert starts_of(workflow) == 2


def test_an_idempotent_step_is_started_again_by_itself(cast: Cast) -> None:
    workflow = counting(cast, idempotent=True)
    with worker() as one:
        run = start(workflow)
        attempt = begun(run, workflow, one)
        os.kill(fresh(run).lease_pid or 0, signal.SIGKILL)
        until(lambda: starts_of(workflow) == 2, one)
        assert not lives(attempt)
        let_go(workflow)
        until(lambda: status(run) == "succeeded", one)
        outcomes = list(Attempt.objects.filter(step_run__step_id="hello").values_list("outcome", flat=True))
        assert outcomes == ["worker_lost", "succeeded"]


def test_a_cluster_whose_main_process_is_killed_takes_its_whole_tree_with_it_and_is_replaced(cast: Cast) -> None:
    workflow = counting(cast)
    with worker() as one:
        run = start(workflow)
        attempt = begun(run, workflow, one)
        members = one.members()
        os.kill(one.row.cluster_pid or 0, signal.SIGKILL)
        until(lambda: status(run) == "needs_attention", one, within=30)
        assert not lives(attempt)
        until(lambda: not set(members) & set(one.members()), one)  # none of them takes anything any more
        let_go(workflow)
        second = start(workflow)
        until(lambda: status(second) == "succeeded", one)


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


def _is_worker(pid: int) -> bool:
    """Children of the sentinel, which is the only child of the cluster's main process."""
    with open(f"/proc/{pid}/stat") as file:
        parent = int(file.read().rsplit(")", 1)[1].split()[1])
    with open(f"/proc/{parent}/stat") as file:
        grandparent = int(file.read().rsplit(")", 1)[1].split()[1])
    return os.getpgid(pid) == os.getpgid(parent) == os.getpgid(grandparent)


def test_a_frozen_worker_is_fenced_and_its_late_writes_are_refused(cast: Cast) -> None:
    workflow = counting(cast)
    with worker() as one:
        run = start(workflow)
        attempt = begun(run, workflow, one)
        held = fresh(run)
        os.kill(held.lease_pid or 0, signal.SIGSTOP)
        until(lambda: status(run) == "needs_attention", one, within=30)
        assert not lives(attempt)
        before = kinds(run)
        os.kill(held.lease_pid or 0, signal.SIGCONT)
        let_go(workflow)
        time.sleep(1.5)
        assert kinds(run) == before
        assert (status(run), fresh(run).fence) == ("needs_attention", held.fence + 1)
        assert starts_of(workflow) == 1


def test_a_planned_stop_drains_what_ends_in_time_and_says_what_it_cut(cast: Cast) -> None:
    short, long, queued = (counting(cast) for _ in range(3))
    with worker(PULSE_DRAIN_S="3") as one:
        ends, cut = start(short), start(long)
        attempts = [begun(ends, short, one), begun(cut, long, one)]
        waits = start(queued)
        one.process.send_signal(signal.SIGTERM)
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


DETACHED = """
import os, signal, time
for number in range(1, 32):
    try:
        signal.signal(number, signal.SIG_IGN)
    except OSError:
        pass
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "98765"])
    os._exit(0)
print("detached", flush=True)
while True:
    pass
"""


def test_a_cancelled_step_that_forked_detached_and_ignores_signals_leaves_no_process(cast: Cast) -> None:
    workflow = factories.make_workflow(cast.team, cast.owner, files={"code/hello/main.py": DETACHED})
    with worker() as one:
        run = start(workflow)
        attempt = started(run, one)
        until(lambda: _sleepers() == 1, one)
        actions.cancel_run(run, by="a person")
        until(lambda: status(run) == "cancelled", one, within=10)
        assert _sleepers() == 0, "the status says cancelled only after the tree is gone"
        assert not lives(attempt)
        assert Attempt.objects.get(pk=attempt.pk).outcome == "cancelled"
        assert set(fresh(run).steps.values_list("status", flat=True)) == {"cancelled"}


def _sleepers() -> int:
    count = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    count += file.read() == b"sleep\x0098765\x00"
            except OSError:
                continue
    return count
