"""Outputs of an earlier run, copied into a rerun before its first step, each with its source and its sha-256."""

from __future__ import annotations

import contextlib

from django.db import transaction

from apps.runs import outputs
from apps.runs.errors import RunRefused
from apps.runs.models import Attempt, Run, StepRun
from apps.workflows import places
from engine.sandbox import files
from engine.sandbox.errors import FileRefused
from engine.states import StepStatus

FILE_MAX_BYTES = 4 * 1024**3


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
    origin, target = outputs.of_attempt(source), outputs.folder(step, outputs.COPIED_IN)
    places.make_way(target.root)
    places.make_shared(target.out)
    copied: list[dict[str, object]] = []
    with files.Beneath(origin.out) as old, files.Beneath(target.out) as new:
        for entry in old.listing():
            if entry.kind == "folder":
                with contextlib.suppress(FileRefused):
                    new.make_folder(entry.relative)
            elif entry.kind == "file":
                made = new.copy_in(old, entry.relative, entry.relative, FILE_MAX_BYTES)
                copied.append({"path": entry.relative, "bytes": made.size, "sha256": made.sha256})
    return copied
