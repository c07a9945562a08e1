"""Carries one run on under its lease: ask the engine, do what it says, record it, ask again (DESIGN 2)."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import NamedTuple

from django.db import transaction
from django.utils import timezone

from apps.runs import attempts, endings, inputs, leases, moves, outputs, plans, reuse
from apps.runs.attempts import Attempted
from apps.runs.events import News
from apps.runs.kinds import Kind
from apps.runs.leases import Keeper, Lease
from apps.runs.models import Run, StepRun
from apps.tools import driver
from engine import decide
from engine.decide import Fail, Finish, Hold, StartStep, StepView, TakeRoute
from engine.document import BranchStep, Dependency, Plan
from engine.outcomes import Next
from engine.sandbox import files
from engine.sandbox.errors import Absent, FileRefused
from engine.states import RunStatus, StepStatus

ROUTE_FILE_MAX_BYTES = 64 * 1024


class Wishes(NamedTuple):
    """What others may have asked of a run meanwhile. `saved` changes with each saving of its workflow."""

    cancelled: bool
    cancelled_by: str
    stopping: bool
    saved: tuple[object, ...]


class Advance:
    """One run, held by one lease, in one thread that outlives its sandboxes."""

    def __init__(self, lease: Lease, keeper: Keeper) -> None:
        self.lease = lease
        self.keeper = keeper
        self.inputs: inputs.Inputs | None = None
        self._run: Run | None = None
        self._wishes: Wishes | None = None
        self._steps: tuple[int, dict[str, StepRun]] | None = None

    def carry_on(self) -> None:
        """Until the run waits, needs a person or ends. Raises LeaseLost when another holds it."""
        while self._one_step():
            pass

    def _one_step(self) -> bool:
        self.keeper.require()
        run = self._look()
        if self._ends_early(run):
            return False
        if self.inputs is None:
            self.inputs = inputs.read(run)
            reuse.copy_in(run)
        plan = plans.plan_at(run.workflow_id, run.workflow.revision)
        steps = self._steps_of(run, plan)
        return self._do(run, plan, steps, self._decide(run, plan, steps))

    def _look(self) -> Run:
        """The run as it is now: each look reads what others may change, and the rest again when that shows a change."""
        before, self._wishes = self._wishes, _wishes(self.lease.run_id)
        if self._run is None or before is None or before.saved != self._wishes.saved:
            runs = Run.objects.select_related("workflow__team", "owner", "lease_worker")
            self._run = runs.get(pk=self.lease.run_id)
        return self._run

    def _steps_of(self, run: Run, plan: Plan) -> dict[str, StepRun]:
        """The rows of the steps: read once a revision, since only the holder of the lease changes them."""
        if self._steps is None or self._steps[0] != run.workflow.revision:
            self._steps = (run.workflow.revision, plans.sync_steps(run, plan))
        return self._steps[1]

    def _ends_early(self, run: Run) -> bool:
        wishes = self._wishes
        if wishes is not None and wishes.cancelled:
            reason = f"Cancelled by {wishes.cancelled_by}."
            return endings.finish(run, RunStatus.CANCELLED, reason=reason, fence=self.lease.fence)
        if wishes is not None and wishes.stopping:
            reason = "The platform is being stopped. The run goes on when it is started again."
            return endings.requeue(run, reason=reason, reason_code="stopping", fence=self.lease.fence, tell=False)
        return False

    def _decide(self, run: Run, plan: Plan, steps: dict[str, StepRun]) -> decide.Decision:
        assert self.inputs is not None  # noqa: S101 - for the type checker: read before the first decision

        def route_file(_: BranchStep, dependency: Dependency) -> str | None:
            return _route_file(run, steps, dependency)

        views = {step.step_id: _view(step) for step in steps.values()}
        given = decide.Inputs(self.inputs.route_selections, route_file, run.only_step)
        return decide.next_decision(plan, views, given)

    def _do(self, run: Run, plan: Plan, steps: dict[str, StepRun], decision: decide.Decision) -> bool:
        match decision:
            case StartStep(step_id, skipped):
                self._skip(steps, skipped)
                return self._attempt(run, plan, steps, step_id)
            case TakeRoute():
                self._route(steps, decision)
                return True
            case Fail():
                self._fail(steps[decision.step_id], decision)
                return True
            case Finish(status, reason, skipped):
                self._skip(steps, skipped)
                endings.finish(run, status, reason=reason, fence=self.lease.fence)
                return False
            case Hold(step_id, status):
                reason = f"{step_id} is {status}."
                endings.hold_for_a_person(run, reason=reason, reason_code="step_held", fence=self.lease.fence)
                return False

    def _attempt(self, run: Run, plan: Plan, steps: dict[str, StepRun], step_id: str) -> bool:
        assert self.inputs is not None  # noqa: S101
        made = attempts.make(self.lease, self.keeper, attempts.Work(run, plan, steps, step_id, self.inputs))
        return self.keeper.store(lambda: self._record(run, made))

    def _record(self, run: Run, made: Attempted) -> bool:
        """The attempt's end and what follows from it, in one transaction. True when the run goes on here."""
        after, step, fence = made.after, made.row.step_run, self.lease.fence
        ids = {"step_id": step.step_id, "attempt_id": str(made.row.pk)}
        with transaction.atomic():
            news = made.close(self.lease)
            match after.next:
                case Next.SUCCEED | Next.FAIL | Next.CANCEL:
                    to = _ENDS[after.next]
                    moves.move_step(step, to, finished_at=timezone.now(), reason=made.reason)
                    leases.record(self.lease, *news, News(moves.STEP_KINDS[to], ids, {"outcome": made.ending.outcome}))
                    return True
                case Next.AGAIN:
                    leases.record(self.lease, *news)
                    moves.move_step(step, StepStatus.PENDING, reason=f"It is tried again: {made.ending.outcome}.")
                    return self._again(run, after.delay_s, made.ending.outcome)
                case Next.NEEDS_ATTENTION:
                    moves.move_step(step, StepStatus.NEEDS_ATTENTION, reason=after.detail)
                    data = {"reason": after.detail, "receipts": list(after.receipts)}
                    leases.record(self.lease, *news, News(Kind.STEP_NEEDS_ATTENTION, ids, data))
                    gone = made.ending.tree_gone
                    reason = f"{made.reason} {after.detail}".strip()
                    endings.hold_for_a_person(
                        run, reason=reason, reason_code=after.reason, fence=fence, may_still_run=not gone
                    )
                    return False

    def _again(self, run: Run, delay_s: float, outcome: str) -> bool:
        if not delay_s:
            return True
        at = timezone.now() + timedelta(seconds=delay_s)
        reason = f"The last attempt ended as {outcome}; the next one starts at {at:%H:%M:%S} UTC."
        endings.requeue(run, reason=reason, reason_code="backoff", fence=self.lease.fence, at=at)
        return False

    def _skip(self, steps: dict[str, StepRun], skipped: tuple[str, ...]) -> None:
        left = [steps[step_id] for step_id in skipped if steps[step_id].status == StepStatus.PENDING]
        if not left:
            return
        with transaction.atomic():
            leases.record(self.lease, *(News(Kind.STEP_SKIPPED, {"step_id": step.step_id}) for step in left))
            for step in left:
                moves.move_step(step, StepStatus.SKIPPED, finished_at=timezone.now(), reason="Not on the route taken.")

    def _route(self, steps: dict[str, StepRun], taken: TakeRoute) -> None:
        decision = {"route_id": taken.route_id, "source": taken.source, "next_step_id": taken.next_step_id}
        now, ids = timezone.now(), {"step_id": taken.step_id}
        with transaction.atomic():
            leases.record(self.lease, News(Kind.STEP_ROUTED, ids, decision), News(Kind.STEP_SUCCEEDED, ids))
            fields = {"decision": decision, "started_at": now, "finished_at": now}
            moves.move_step(steps[taken.step_id], StepStatus.SUCCEEDED, **fields)
        self._skip(steps, taken.skipped)

    def _fail(self, step: StepRun, fault: Fail) -> None:
        now = timezone.now()
        with transaction.atomic():
            data = {"outcome": fault.outcome, "reason": fault.reason, "detail": fault.detail}
            leases.record(self.lease, News(Kind.STEP_FAILED, {"step_id": step.step_id}, data))
            moves.move_step(step, StepStatus.FAILED, started_at=now, finished_at=now, reason=fault.detail)


_ENDS = {Next.SUCCEED: StepStatus.SUCCEEDED, Next.FAIL: StepStatus.FAILED, Next.CANCEL: StepStatus.CANCELLED}


def _wishes(run_id: uuid.UUID) -> Wishes:
    row = driver.one(_WISHES, [run_id])
    if row is None:
        raise Run.DoesNotExist(f"Run {run_id} is gone.")
    cancelled_at, cancelled_by, stopping_at, *saved = row
    return Wishes(cancelled_at is not None, cancelled_by, stopping_at is not None, tuple(saved))


_WISHES = """
    SELECT r.cancel_requested_at, r.cancel_requested_by, l.stopping_at, w.updated_at, w.revision
      FROM runs_run r
      JOIN workflows_workflow w ON w.id = r.workflow_id
      LEFT JOIN runs_worker l ON l.id = r.lease_worker_id
     WHERE r.id = %s
"""


def _view(step: StepRun) -> StepView:
    decision = step.decision or {}
    return StepView(StepStatus(step.status), str(decision.get("next_step_id", "")))


def _route_file(run: Run, steps: dict[str, StepRun], dependency: Dependency) -> str | None:
    producer = steps.get(dependency.producer)
    attempt = outputs.of_step(producer) if producer else None
    if attempt is None:
        return None
    try:
        data = files.Beneath(attempt.out).read(dependency.file, ROUTE_FILE_MAX_BYTES)
        return data.decode()
    except Absent:
        return None
    except (FileRefused, UnicodeDecodeError) as wrong:
        raise decide.RouteFileUnreadable(str(wrong)) from wrong
