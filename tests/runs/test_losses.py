"""One worker, and everything that can befall its runs: told once, asked about one by one."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from django.core.management import call_command

from apps.runs import actions
from apps.runs.models import Attempt, Run
from apps.workflows import places
from tests import factories
from tests.runs.counting import begun, counting, let_go, starts_of
from tests.runs.starts import fresh, kinds, start
from tests.runs.workers import Supervised, lives, started, status, until, worker

pytestmark = [pytest.mark.sandbox, pytest.mark.databases, pytest.mark.timeout(300)]

DETACHED = """
import os, signal
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


@dataclass
class Told:
    """What was seen of one run."""

    status: str = ""
    reason: str = ""
    may_still_run: bool = False
    outcomes: list[tuple[str, str]] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    starts: int = 0
    tree_lives: bool = True
    steps: set[str] = field(default_factory=set)
    log: bytes = b""


@dataclass
class Story:
    killed: Told = field(default_factory=Told)
    run_again: Told = field(default_factory=Told)
    idempotent: Told = field(default_factory=Told)
    frozen: Told = field(default_factory=Told)
    thawed: Told = field(default_factory=Told)
    cancelled: Told = field(default_factory=Told)
    sleepers_at_cancelled: int = -1
    cluster_killed: Told = field(default_factory=Told)
    after_cluster: Told = field(default_factory=Told)
    old_processes_left: bool = True


@pytest.fixture(scope="module")
def story(django_db_setup: None, django_db_blocker: object) -> Iterator[Story]:
    """One supervisor with its cluster; four runs at once, of which each meets its own fate; then the cluster dies."""
    with django_db_blocker.unblock():  # type: ignore[attr-defined]
        try:
            with worker(PULSE_RUN_SLOTS="5") as one:
                yield _tell(one)
        finally:
            call_command("flush", verbosity=0, interactive=False)


def _tell(one: Supervised) -> Story:
    cast, story = factories.make_team(), Story()
    lost, again, frozen = counting(cast), counting(cast, idempotent=True), counting(cast)
    wild = factories.make_workflow(cast.team, cast.owner, files={"code/hello/main.py": DETACHED})
    a, b, c, d = (start(workflow) for workflow in (lost, again, frozen, wild))
    tried = {run.pk: begun(run, workflow, one) for run, workflow in ((a, lost), (b, again), (c, frozen))}
    tried[d.pk] = started(d, one)
    until(lambda: _sleepers() == 1, one)
    held = fresh(c).lease_pid or 0
    os.kill(held, signal.SIGSTOP)
    for run in (a, b):
        os.kill(fresh(run).lease_pid or 0, signal.SIGKILL)
    actions.cancel_run(d, by="a person")

    until(lambda: status(d) == "cancelled", one, within=15)
    story.sleepers_at_cancelled = _sleepers()
    story.cancelled = _told(d, tried[d.pk])
    until(lambda: status(a) == "needs_attention", one, within=30)
    story.killed = _told(a, tried[a.pk], starts_of(lost))
    until(lambda: starts_of(again) == 2, one)
    let_go(again)
    until(lambda: status(b) == "succeeded", one)
    story.idempotent = _told(b, tried[b.pk], starts_of(again))
    until(lambda: status(c) == "needs_attention", one, within=30)
    story.frozen = _told(c, tried[c.pk], starts_of(frozen))
    os.kill(held, signal.SIGCONT)
    let_go(frozen)

    let_go(lost)
    actions.settle_attention(a, by=cast.operator, choice="run_again", step_id="hello")
    until(lambda: status(a) == "succeeded", one)
    story.run_again = _told(a, tried[a.pk], starts_of(lost))
    time.sleep(1.0)  # for the thawed holder to try and write
    story.thawed = _told(c, tried[c.pk], starts_of(frozen))
    _kill_cluster(one, story, cast)
    return story


def _kill_cluster(one: Supervised, story: Story, cast: factories.Cast) -> None:
    workflow = counting(cast)
    run = start(workflow)
    attempt = begun(run, workflow, one)
    members = set(one.members())
    os.kill(one.row.cluster_pid or 0, signal.SIGKILL)
    until(lambda: status(run) == "needs_attention", one, within=30)
    until(lambda: not members & set(one.members()), one)
    story.old_processes_left = False
    story.cluster_killed = _told(run, attempt, starts_of(workflow))
    let_go(workflow)
    second = start(workflow)
    until(lambda: status(second) == "succeeded", one)
    story.after_cluster = _told(second, Attempt.objects.get(step_run__run=second, step_run__step_id="hello"))


def _told(run: Run, attempt: Attempt, starts: int = 0) -> Told:
    now = fresh(run)
    outcomes = Attempt.objects.filter(step_run__run=run, step_run__step_id="hello").order_by("number")
    return Told(
        status=now.status,
        reason=now.reason,
        may_still_run=now.may_still_run,
        outcomes=list(outcomes.values_list("outcome", "reason")),
        kinds=kinds(run),
        starts=starts,
        tree_lives=lives(attempt),
        steps=set(now.steps.values_list("status", flat=True)),
        log=places.places_of(run.workflow).attempt(str(run.pk), "hello", attempt.number).log.read_bytes(),
    )


def _sleepers() -> int:
    count = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                count += file.read() == b"sleep\x0098765\x00"
        except OSError:
            continue
    return count


def test_a_worker_killed_in_mid_step_leaves_a_run_that_asks_a_person(story: Story) -> None:
    told = story.killed
    assert (told.status, told.outcomes) == ("needs_attention", [("worker_lost", "worker_lost")])
    assert told.reason
    assert (told.tree_lives, told.may_still_run) == (False, False)
    assert told.starts == 1, "nothing was run twice"
    assert told.log == b"started\n", "what was printed up to then is there"
    assert told.kinds.count("worker.lost") == 1


def test_a_person_lets_it_run_again(story: Story) -> None:
    told = story.run_again
    assert (told.status, [outcome for outcome, _ in told.outcomes]) == ("succeeded", ["worker_lost", "succeeded"])
    assert told.starts == 2


def test_an_idempotent_step_is_started_again_by_itself(story: Story) -> None:
    told = story.idempotent
    assert (told.status, [outcome for outcome, _ in told.outcomes]) == ("succeeded", ["worker_lost", "succeeded"])
    assert (told.starts, told.tree_lives) == (2, False)


def test_a_frozen_worker_is_fenced_and_its_tree_ended(story: Story) -> None:
    told = story.frozen
    assert (told.status, told.outcomes) == ("needs_attention", [("worker_lost", "worker_lost")])
    assert (told.tree_lives, told.starts) == (False, 1)


def test_what_a_thawed_worker_writes_late_is_refused(story: Story) -> None:
    assert story.thawed == story.frozen


def test_a_cancelled_step_that_forked_detached_and_ignores_signals_leaves_no_process(story: Story) -> None:
    told = story.cancelled
    assert (told.status, [outcome for outcome, _ in told.outcomes]) == ("cancelled", ["cancelled"])
    assert story.sleepers_at_cancelled == 0, "the status says cancelled only after the tree is gone"
    assert (told.tree_lives, told.steps) == (False, {"cancelled"})


def test_a_cluster_whose_main_process_is_killed_takes_its_whole_tree_with_it(story: Story) -> None:
    told = story.cluster_killed
    assert (told.status, told.tree_lives, told.starts) == ("needs_attention", False, 1)
    assert not story.old_processes_left, "none of them takes anything any more"


def test_and_is_replaced_by_one_that_takes_the_next_run(story: Story) -> None:
    assert story.after_cluster.status == "succeeded"
