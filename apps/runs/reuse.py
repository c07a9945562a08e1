"""Outputs of an earlier run, copied into a rerun before its first step, each with its source and its sha-256."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from apps.runs import outputs
from apps.runs.errors import RunRefused
from apps.runs.models import Attempt, Run, StepRun
from apps.workflows import places
from engine import digests
from engine.sandbox import takeover
from engine.sandbox.errors import Absent, FileRefused
from engine.sandbox.takeover import Kept
from engine.states import StepStatus


def copy_in(run: Run) -> None:
    """Copies what the run takes over and has not copied yet. Safe to repeat. Raises RunRefused: a source is gone."""
    for step in StepRun.objects.filter(run=run, reused_files__isnull=True).exclude(reused_from=None):
        source = _attempt(step)
        if source is None or source.step_run.run.artifacts_expired:
            raise RunRefused(
                410,
                "artifacts_expired",
                f"The outputs of {step.step_id} of the earlier run are gone. Nothing was started."
                " Rerun from an earlier step.",
            )
        copied = _copy(step, source)
        with transaction.atomic():
            StepRun.objects.filter(pk=step.pk, reused_files__isnull=True).update(reused_files=copied)


def source_of(step: StepRun) -> Attempt | None:
    """The attempt whose outputs the step offers: its own latest success, or the one it took over."""
    if step.status != StepStatus.SUCCEEDED:
        return None
    if step.reused_from:
        return _attempt(step)
    number = outputs.latest_success(step)
    return step.attempts.filter(number=number).first() if number else None


def _attempt(step: StepRun) -> Attempt | None:
    rows = Attempt.objects.select_related("step_run__run__workflow")
    return rows.filter(pk=step.reused_from).first() if step.reused_from else None


def _copy(step: StepRun, source: Attempt) -> list[dict[str, object]]:
    """What the source left, as its row has it: copied and compared, or with the problem that keeps it away."""
    target = outputs.folder(step, outputs.COPIED_IN)
    places.make_way(target.root)
    try:
        with takeover.bring(outputs.of_attempt(source), target, places.runner_gid()) as kept:
            return [_compared(step, kept, said) for said in source.outputs]
    except OSError as error:
        raise RunRefused(
            503,
            "outputs_not_copied",
            f"The outputs of {step.step_id} of the earlier run could not be copied ({error.strerror})."
            " Nothing was started. Rerun when that is mended.",
        ) from error


def _compared(step: StepRun, kept: Kept, said: dict[str, Any]) -> dict[str, object]:
    found = {name: said[name] for name in ("path", "bytes", "sha256")}
    if said["problem"]:
        return {**found, "problem": said["problem"]}
    try:
        same = digests.of_file(kept, said["path"], said["bytes"]) == said["sha256"]
    except FileRefused as refused:
        same = isinstance(refused, Absent) and said["contains_secret"]  # in its name, which is not told
    if not same:
        raise RunRefused(
            409,
            "outputs_changed",
            f"{said['path']} of {step.step_id} is not what the earlier run left. Nothing was started."
            " Rerun from an earlier step.",
        )
    return found
