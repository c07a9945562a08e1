"""A disk that is full for a moment: what was done is recorded once there is room, and what was lost says why."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from django.db import OperationalError

from apps.runs import attempts, leases, tasks, whereabouts
from apps.runs.leases import Keeper
from apps.runs.listening import Listening
from apps.runs.models import Attempt, Run, RunEvent, Worker
from apps.runs.supervisor.main import Supervisor
from apps.runs.supervisor.reaper import Reaper
from apps.workflows.models import Workflow
from tests.config.test_full_disk import full_disk
from tests.runs.starts import fresh, running, start
from tests.runs.test_reaping import held_run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.databases]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "STORE_AGAIN_S", 0.01)


def full(times: int, then: Callable[..., Any]) -> Callable[..., Any]:
    """`then`, after it has met a full disk so many times."""
    left = [None] * times

    def meets(*arguments: Any, **named: Any) -> Any:
        if left:
            left.pop()
            raise OSError(errno.ENOSPC, "No space left on device")
        return then(*arguments, **named)

    return meets


def test_the_holder_stores_as_soon_as_it_can_and_passes_on_every_other_fault(workflow: Workflow) -> None:
    _, lease = running(workflow)
    with Keeper(lease) as keeper:
        assert keeper.store(full(3, lambda: "stored")) == "stored"
        with pytest.raises(ZeroDivisionError):
            keeper.store(lambda: 1 / 0)
        with pytest.raises(FileNotFoundError):
            keeper.store(lambda: os.stat("/nowhere/at/all"))
        keeper._lost.set()
        with pytest.raises(OSError, match="No space"):
            keeper.store(full(1, lambda: "too late"))


@pytest.mark.sandbox
def test_an_attempt_that_has_ended_keeps_its_end(workflow: Workflow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts.Attempted, "close", full(3, attempts.Attempted.close))
    run = start(workflow)
    tasks.advance_run(str(run.pk))
    assert (Attempt.objects.get().outcome, fresh(run).status) == ("succeeded", "succeeded")


def test_an_attempt_that_could_not_be_stored_says_so(workflow: Workflow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts.contracts, "resolve", full(1, attempts.contracts.resolve))
    monkeypatch.setattr(tasks.losses, "record_loss", full(2, tasks.losses.record_loss))
    run = start(workflow)
    tasks.advance_run(str(run.pk))
    attempt = Attempt.objects.get()
    assert (attempt.outcome, attempt.reason) == ("worker_lost", "not_stored")
    assert "the disk of the server is full" in attempt.detail
    assert fresh(run).status == "waiting", "nothing of it ran: it is started again in a while"


def test_a_fault_of_ours_is_still_called_one(workflow: Workflow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts.contracts, "resolve", lambda _: 1 / 0)
    tasks.advance_run(str(start(workflow).pk))
    assert Attempt.objects.get().reason == "platform_fault"


def test_that_a_log_grew_may_go_untold(workflow: Workflow) -> None:
    run, lease = running(workflow)
    row = Attempt(step_run=run.steps.get(), number=1)
    with Keeper(lease) as keeper:
        listening = Listening(lease, keeper, row, None, ExitStack())  # type: ignore[arg-type]
        listening._told = 0.0
        with full_disk():
            listening.log_grew(3, 30)
        listening._told = 0.0
        listening.log_grew(4, 40)
    assert [event.data["lines"] for event in RunEvent.objects.filter(run=run, kind="log.grew")] == [4]


def test_a_loss_that_was_found_on_a_full_disk_says_so_and_no_later_one_does(workflow: Workflow) -> None:
    lost, reaper = held_run(workflow), Reaper()
    with full_disk(), pytest.raises(OperationalError):
        reaper.look()
    assert reaper.look() == [lost.pk]
    assert "The worker died. Nothing could be stored at that time: the disk of the" in Attempt.objects.get().detail
    later = held_run(workflow)
    assert reaper.look() == [later.pk]
    assert Attempt.objects.get(step_run__run=later).detail == "The worker died."


def test_a_supervisor_stops_though_nothing_can_be_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whereabouts, "_worker_id", None)
    supervisor = Supervisor(refusal="No sandbox here.")
    with full_disk():
        with pytest.raises(OperationalError):
            Worker.objects.update(slots=1)
        for _ in range(3):
            supervisor.tick()
        supervisor.stop()
    assert Worker.objects.get().stopped_at is None
    assert not Run.objects.exists()
