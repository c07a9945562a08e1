"""How a run leaves its worker: to its end, to a person, or back to the queue; with its event, in one transaction."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.runs import events, leases, moves, queue, slots
from apps.runs.errors import LeaseLost
from apps.runs.events import News
from apps.runs.kinds import Kind
from apps.runs.models import Run, StepRun
from apps.tools import actions as tools
from engine.states import RunStatus, StepStatus

ENDS = {
    RunStatus.SUCCEEDED: Kind.RUN_SUCCEEDED,
    RunStatus.FAILED: Kind.RUN_FAILED,
    RunStatus.CANCELLED: Kind.RUN_CANCELLED,
}


def finish(run: Run, to: RunStatus, *, reason: str = "", reason_code: str = "", fence: int | None = None) -> bool:
    """Ends the run: its steps, its sessions, its slot. With a fence, only for its holder (else LeaseLost).

    False, and nothing changed, when it was not in a state that ends so: terminal states are final.
    """
    now = timezone.now()
    with transaction.atomic():
        moved = _move(run, to, fence, reason=reason, reason_code=reason_code, finished_at=now, may_still_run=False)
        if not moved:
            return False
        left = _end_steps(run, to, now)
        events.record_all(run.pk, [*left, News(ENDS[to], data={"reason": reason, "reason_code": reason_code})])
        tools.end_sessions_of_run(run.pk, f"run_{to}")
        slots.wake_after(run.workflow_id)
    return True


def requeue(
    run: Run, *, reason: str, reason_code: str, fence: int | None = None, at: datetime | None = None, tell: bool = True
) -> bool:
    """Back to the queue, at once or (`at`) when that time has come. `tell=False` leaves queueing to the sweeper."""
    to = RunStatus.WAITING if at else RunStatus.QUEUED
    with transaction.atomic():
        code = "" if to is RunStatus.QUEUED else reason_code
        moved = _move(run, to, fence, reason=reason, reason_code=code, wake_at=at, enqueued_at=None)
        if not moved:
            return False
        data = {"reason": reason, "reason_code": reason_code, "at": at.isoformat() if at else None}
        events.record(run, Kind.RUN_WAITING if at else Kind.RUN_REQUEUED, data=data)
        tools.resume_run_session(run.pk)
        if tell and not at:
            queue.enqueue(run.pk)
        slots.wake_after(run.workflow_id)
    return True


def hold_for_a_person(
    run: Run, *, reason: str, reason_code: str, fence: int | None = None, may_still_run: bool = False
) -> bool:
    """Nothing more is done before a person decides; the run's tool session is suspended until then."""
    with transaction.atomic():
        moved = _move(
            run, RunStatus.NEEDS_ATTENTION, fence, reason=reason, reason_code=reason_code, may_still_run=may_still_run
        )
        if not moved:
            return False
        data = {"reason": reason, "reason_code": reason_code, "may_still_run": may_still_run}
        events.record(run, Kind.RUN_NEEDS_ATTENTION, data=data)
        tools.suspend_run_session(run.pk)
        slots.wake_after(run.workflow_id)
    return True


def _move(run: Run, to: RunStatus, fence: int | None, **fields: Any) -> bool:
    moved = moves.move_run(run.pk, to, fence=fence, **leases.let_go(), **fields)
    if not moved and fence is not None:
        raise LeaseLost(f"Run {run.pk} is no longer held under fence {fence}.")
    return moved


def _end_steps(run: Run, to: RunStatus, now: datetime) -> list[News]:
    """No step outlives its run: what never began is skipped or cancelled, what was cut is cancelled or failed."""
    cut = StepStatus.CANCELLED if to is RunStatus.CANCELLED else StepStatus.FAILED
    unbegun = StepStatus.CANCELLED if to is RunStatus.CANCELLED else StepStatus.SKIPPED
    news = []
    for step in StepRun.objects.filter(run=run).exclude(status__in=moves.STEP_ENDS):
        end = unbegun if step.status == StepStatus.PENDING else cut
        moves.move_step(step, end, finished_at=now, reason=f"The run ended as {to}.")
        news.append(News(moves.STEP_KINDS[end], {"step_id": step.step_id}))
    return news
