"""An attempt whose end nobody saw: what is recorded of it, and what may follow (BEHAVIOUR 5 and 10)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone

from apps.runs import endings, leases, moves, mutations, plans
from apps.runs.events import News
from apps.runs.kinds import Kind
from apps.runs.leases import Lease
from apps.runs.models import Attempt, Run, RunEvent
from apps.tools import actions as tools
from engine import outcomes
from engine.outcomes import After, Ended, Next, Outcome
from engine.states import RunStatus, StepStatus

LOSSES_WITHOUT_ATTEMPT = 3


@dataclass(frozen=True)
class Loss:
    """How a holder was lost. `tree_gone`: every process of its attempt was seen to be gone.

    `again_in_s`: how long the run waits before it is started again, if it may be.
    """

    reason: str
    detail: str
    tree_gone: bool = True
    again_in_s: float = 0.0

    @property
    def again_at(self) -> datetime | None:
        return timezone.now() + timedelta(seconds=self.again_in_s) if self.again_in_s else None


def open_attempt(run: Run) -> Attempt | None:
    return Attempt.objects.select_related("step_run").filter(step_run__run=run, outcome="").first()


def record_loss(lease: Lease, loss: Loss) -> None:
    """Records the loss under the finder's own lease, and lets go of the run: queued again, to a person, or ended."""
    run = Run.objects.select_related("workflow").get(pk=lease.run_id)
    attempt = open_attempt(run)
    if attempt is None:
        _without_attempt(run, lease, loss)
        return
    after = _after(run, attempt, loss)
    with transaction.atomic():
        close(lease, run, attempt, after, loss)


def close(lease: Lease, run: Run, attempt: Attempt, after: After, loss: Loss) -> None:
    """The attempt, its session, its step and its run, in the caller's transaction."""
    step, now = attempt.step_run, timezone.now()
    ids = {"step_id": step.step_id, "attempt_id": str(attempt.pk)}
    data = {"reason": loss.reason, "detail": loss.detail, "number": attempt.number, "outcome": Outcome.WORKER_LOST}
    leases.record(lease, News(Kind.WORKER_LOST, ids, data), News(Kind.ATTEMPT_ENDED, ids, data))
    Attempt.objects.filter(pk=attempt.pk, outcome="").update(
        outcome=Outcome.WORKER_LOST, reason=loss.reason, detail=loss.detail, finished_at=now
    )
    if attempt.session_id:
        tools.end_session(attempt.session_id, "worker_lost")
    if run.cancel_requested_at and loss.tree_gone:
        endings.finish(run, RunStatus.CANCELLED, reason=f"Cancelled by {run.cancel_requested_by}.", fence=lease.fence)
    elif after.next is Next.AGAIN:
        moves.move_step(step, StepStatus.PENDING, reason=loss.detail)
        endings.requeue(run, reason=loss.detail, reason_code=loss.reason, fence=lease.fence, at=loss.again_at)
    else:
        moves.move_step(step, StepStatus.NEEDS_ATTENTION, reason=after.detail)
        leases.record(lease, News(Kind.STEP_NEEDS_ATTENTION, ids, {"reason": after.detail, "receipts": after.receipts}))
        endings.hold_for_a_person(
            run,
            reason=f"{loss.detail} {after.detail}",
            reason_code=after.reason,
            fence=lease.fence,
            may_still_run=not loss.tree_gone,
        )


def _after(run: Run, attempt: Attempt, loss: Loss) -> After:
    step = attempt.step_run
    mutations.read_back(attempt.pk)
    made = mutations.of_step(run.pk, step.step_id)
    planned = plans.plan_of(run).step(step.step_id)
    never_ran = attempt.pid is None  # the runner lets the code go only after the pid was stored
    return outcomes.decide_after(
        Ended(
            outcome=Outcome.WORKER_LOST,
            tries=attempt.number,
            losses=1 + step.attempts.filter(outcome=Outcome.WORKER_LOST).count(),
            idempotent=never_ran or bool(planned and planned.idempotent),
            tree_gone=loss.tree_gone,
            unknown=made.unknown,
            applied=made.applied,
        )
    )


def _without_attempt(run: Run, lease: Lease, loss: Loss) -> None:
    """Nothing was running: the run goes on from where it is, unless it loses its worker every time."""
    with transaction.atomic():
        leases.record(lease, News(Kind.WORKER_LOST, data={"reason": loss.reason, "detail": loss.detail}))
        if run.cancel_requested_at:
            endings.finish(
                run, RunStatus.CANCELLED, reason=f"Cancelled by {run.cancel_requested_by}.", fence=lease.fence
            )
        elif RunEvent.objects.filter(run=run, kind=Kind.WORKER_LOST).count() > LOSSES_WITHOUT_ATTEMPT:
            reason = f"Its worker was lost {LOSSES_WITHOUT_ATTEMPT + 1} times before a step could start. {loss.detail}"
            endings.finish(run, RunStatus.FAILED, reason=reason, reason_code="worker_lost", fence=lease.fence)
        else:
            endings.requeue(run, reason=loss.detail, reason_code=loss.reason, fence=lease.fence)
