"""Slots of a workflow (`max_concurrent_runs`): no counters, only rows. What is not running holds none.

A run may start when fewer runs are running, or queued before it, than the workflow allows: first come, first served.
Nothing has to be given back, so nothing can be lost: a holder that is gone is reaped, and its row runs no more.
"""

from __future__ import annotations

import uuid

from django.db import transaction
from django.db.models import Q

from apps.runs import events, queue
from apps.runs.kinds import Kind
from apps.runs.models import Run
from apps.workflows.models import Workflow
from engine import document


def allowed(workflow: Workflow) -> int:
    return document.Settings.model_validate(workflow.settings).max_concurrent_runs


def take(run: Run, workflow: Workflow) -> bool:
    """Whether the queued run may run now. If not, it is left waiting, with its reason and its event.

    In a transaction that holds the workflow's row lock.
    """
    most = allowed(workflow)
    runs = Run.objects.filter(workflow=workflow)
    earlier = Q(queued_at__lt=run.queued_at) | Q(queued_at=run.queued_at, pk__lt=run.pk)
    if runs.running().count() + runs.queued().filter(earlier).count() < most:
        return True
    if run.reason_code != Run.NO_SLOT:
        reason = f"All {most} slots of {workflow.slug} are taken. It starts as soon as one of these runs ends."
        Run.objects.filter(pk=run.pk).update(reason_code=Run.NO_SLOT, reason=reason)
        data = {"status": run.status, "reason_code": Run.NO_SLOT, "reason": reason, "holders": holders(workflow)}
        events.record(run, Kind.RUN_WAITING, data=data)
    return False


def holders(workflow: Workflow) -> list[str]:
    """The ids of the runs that hold a slot, the longest holder first."""
    held = Run.objects.filter(workflow=workflow).running().order_by("started_at")
    return [str(pk) for pk in held.values_list("pk", flat=True)]


def wake_after(workflow_id: uuid.UUID) -> None:
    """Wakes whose turn has come once the caller's transaction, in which a run leaves running or the queue, is done.

    Within it the workflow would be locked after the run: against the order of `leases.claim`, and a deadlock on
    PostgreSQL. What a process that dies in between leaves undone, the sweeper does.
    """

    def act() -> None:
        wake(workflow_id)

    transaction.on_commit(act, robust=True)


def wake(workflow_id: uuid.UUID) -> int:
    """Queues those waiting runs whose turn has come, the oldest first; how many. Safe to repeat.

    In a transaction of its own: the workflow's row is locked first, then its runs'.
    """
    runs = Run.objects.filter(workflow_id=workflow_id)
    if not runs.waiting_for_slot().exists():
        return 0
    with transaction.atomic():
        workflow = Workflow.objects.select_for_update(no_key=True).get(pk=workflow_id)
        free = max(allowed(workflow) - runs.running().count(), 0)
        turn = runs.queued().order_by("queued_at", "pk").values_list("pk", "reason_code")[:free]
        woken = [run_id for run_id, reason_code in turn if reason_code == Run.NO_SLOT]
        for run_id in woken:
            Run.objects.filter(pk=run_id).update(reason_code="", reason="")
            events.record(run_id, Kind.RUN_QUEUED, data={"reason_code": "slot_free"})
            queue.enqueue(run_id)
    return len(woken)
