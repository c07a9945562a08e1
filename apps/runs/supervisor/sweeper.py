"""Brings back what fell through: runs the queue never got or lost, waits whose time has come, slots nobody woke."""

from __future__ import annotations

import logging
import uuid
from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from apps.runs import endings, events, queue, slots
from apps.runs.kinds import Kind
from apps.runs.models import Run
from apps.runs.timing import LOST_IN_CROWD_S, LOST_MESSAGE_S, MAX_AGE
from engine.states import RunStatus

BATCH = 500
logger = logging.getLogger(__name__)


def sweep() -> int:
    """One round; how many runs were queued by it. Safe to do twice, also at once: a second message does nothing."""
    _settle_cancelled()
    return _queue_again() + _wake_due() + _wake_slots()


def report_old() -> list[uuid.UUID]:
    """Runs that are older than a run should be, each reported once. They are not ended: people decide."""
    old = Run.objects.unfinished().filter(alerted_at=None, queued_at__lt=timezone.now() - MAX_AGE)
    reported = []
    for run in old[:BATCH]:
        with transaction.atomic():
            if Run.objects.filter(pk=run.pk, alerted_at=None).update(alerted_at=timezone.now()):
                hours = int(MAX_AGE.total_seconds() // 3600)
                logger.error("Run %s of %s is %s and older than %s h.", run.pk, run.workflow_id, run.status, hours)
                data = {"status": run.status, "reason": f"It is older than {hours} h.", "alert": "max_age"}
                events.record(run, Kind.RUN_WAITING, data=data)
                reported.append(run.pk)
    return reported


def _queue_again() -> int:
    """Runs without a message: never queued, or queued so long ago that a cluster must have lost it."""
    now, queued = timezone.now(), Run.objects.queued().exclude(reason_code=Run.NO_SLOT)
    patience = LOST_MESSAGE_S if queue.depth() == 0 else LOST_IN_CROWD_S
    never = list(queued.filter(enqueued_at=None).values_list("pk", flat=True)[:BATCH])
    before = now - timedelta(seconds=patience)
    lost = list(queued.filter(enqueued_at__lt=before).values_list("pk", flat=True)[:BATCH])
    for run_id in [*never, *lost]:
        queue.enqueue(run_id)
    return len(never) + len(lost)


def _wake_due() -> int:
    due = Run.objects.filter(status=RunStatus.WAITING, wake_at__lte=timezone.now()).select_related("workflow")
    return sum(endings.requeue(run, reason="", reason_code="due") for run in due[:BATCH])


def _wake_slots() -> int:
    waiting = Run.objects.waiting_for_slot().values_list("workflow_id", flat=True).distinct()
    return sum(slots.wake(workflow_id) for workflow_id in waiting)


def _settle_cancelled() -> None:
    """Runs that were to be cancelled while nobody held them and whose processes are known to be gone."""
    left = Run.objects.exclude(cancel_requested_at=None).filter(
        status__in=[RunStatus.QUEUED, RunStatus.WAITING, RunStatus.NEEDS_ATTENTION], may_still_run=False
    )
    for run in left.select_related("workflow")[:BATCH]:
        reason = f"Cancelled by {run.cancel_requested_by}."
        endings.finish(run, RunStatus.CANCELLED, reason=reason, reason_code="cancelled")
