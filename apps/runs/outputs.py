"""Where the files of an attempt lie, and the outputs of a step: of its latest success, or copied in from a run."""

from __future__ import annotations

import uuid

from apps.runs.models import Attempt, Run, StepRun
from apps.workflows import places
from engine.outcomes import Outcome
from engine.places import AttemptPlaces
from engine.states import StepStatus

LOOKED_AT = 200  # how many of the newest runs are looked at for a step's latest outputs
COPIED_IN = 0  # the number of the attempt folder that holds what a rerun took over


def folder(step: StepRun, number: int) -> AttemptPlaces:
    return places.places_of(step.run.workflow).attempt(str(step.run_id), step.step_id, number)


def of_attempt(attempt: Attempt) -> AttemptPlaces:
    """Log and outputs of an attempt of any run."""
    return folder(attempt.step_run, attempt.number)


def of_step(step: StepRun) -> AttemptPlaces | None:
    """None when the step has no outputs to offer: it did not succeed, or a person marked it so."""
    if step.status != StepStatus.SUCCEEDED:
        return None
    number = COPIED_IN if step.reused_from else latest_success(step)
    return None if number is None else folder(step, number)


def latest_success(step: StepRun) -> int | None:
    found = step.attempts.filter(outcome=Outcome.SUCCEEDED).order_by("-number").values_list("number", flat=True)
    return found.first()


def latest_of_workflow(step_id: str, workflow_id: uuid.UUID) -> Attempt | None:
    """The newest succeeded attempt of that step in the latest runs of the workflow whose files are still there."""
    runs = Run.objects.filter(workflow_id=workflow_id, artifacts_expired=False).order_by("-queued_at")[:LOOKED_AT]
    rows = Attempt.objects.filter(
        outcome=Outcome.SUCCEEDED,
        step_run__step_id=step_id,
        step_run__status=StepStatus.SUCCEEDED,
        step_run__run__in=list(runs.values_list("pk", flat=True)),
    )
    return rows.select_related("step_run__run__workflow").order_by("-finished_at").first()
