"""A person's decision on a step whose end is not known, or that may not simply be started again."""

from __future__ import annotations

from enum import StrEnum

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.runs import endings, events, moves
from apps.runs.errors import RunRefused
from apps.runs.kinds import Kind
from apps.runs.models import Run, StepRun
from engine.states import RunStatus, StepStatus


class Choice(StrEnum):
    RUN_AGAIN = "run_again"
    MARK_SUCCEEDED = "mark_succeeded"
    MARK_FAILED = "mark_failed"


def settle_attention(run: Run, *, by: User, choice: Choice | str, step_id: str) -> Run:
    """Carries the decision out. One decision wins: a second one is refused (409), as is one on any other run.

    `run_again` starts the step once more, `mark_succeeded` goes on behind it, `mark_failed` ends the run.
    """
    wish = _choice(choice)
    with transaction.atomic():
        now = Run.objects.locked().select_related("workflow").get(pk=run.pk)
        step = StepRun.objects.select_for_update(no_key=True).filter(run=now, step_id=step_id).first()
        if now.status != RunStatus.NEEDS_ATTENTION or step is None or step.status != StepStatus.NEEDS_ATTENTION:
            raise RunRefused(409, "nothing_to_settle", f"{step_id} of this run needs no decision. Nothing was changed.")
        _carry_out(now, step, wish, by.get_username())
    return Run.objects.select_related("workflow", "team").get(pk=run.pk)


def _carry_out(run: Run, step: StepRun, wish: Choice, who: str) -> None:
    ids, at = {"step_id": step.step_id}, timezone.now()
    Run.objects.filter(pk=run.pk).update(may_still_run=False)
    match wish:
        case Choice.RUN_AGAIN:
            moves.move_step(step, StepStatus.PENDING, reason=f"{who} decided to run it again.")
            endings.requeue(run, reason=f"{who} decided to run {step.step_id} again.", reason_code="decided")
        case Choice.MARK_SUCCEEDED:
            reason = f"{who} marked it succeeded."
            moves.move_step(step, StepStatus.SUCCEEDED, reason=reason, finished_at=at)
            events.record(run, Kind.STEP_SUCCEEDED, ids, {"reason": reason})
            endings.requeue(run, reason=f"{who} marked {step.step_id} succeeded.", reason_code="decided")
        case Choice.MARK_FAILED:
            reason = f"{who} marked it failed."
            moves.move_step(step, StepStatus.FAILED, reason=reason, finished_at=at)
            events.record(run, Kind.STEP_FAILED, ids, {"reason": reason})
            endings.finish(run, RunStatus.FAILED, reason=f"{who} marked {step.step_id} failed.", reason_code="decided")


def _choice(choice: Choice | str) -> Choice:
    try:
        return Choice(choice)
    except ValueError:
        known = ", ".join(Choice)
        raise RunRefused(400, "unknown_choice", f"{choice!r} is none of {known}. Nothing was changed.") from None
