"""Moves of state: conditional updates along the one table of moves (engine.states). The row count is the lock."""

from __future__ import annotations

import uuid
from typing import Any

from apps import rows
from apps.runs.kinds import Kind
from apps.runs.models import Run, StepRun
from engine import states
from engine.states import RunStatus, StepStatus

STEP_ENDS = tuple(states.STEP_TERMINAL)
STEP_KINDS = {
    StepStatus.RUNNING: Kind.STEP_STARTED,
    StepStatus.SUCCEEDED: Kind.STEP_SUCCEEDED,
    StepStatus.FAILED: Kind.STEP_FAILED,
    StepStatus.SKIPPED: Kind.STEP_SKIPPED,
    StepStatus.CANCELLED: Kind.STEP_CANCELLED,
    StepStatus.NEEDS_ATTENTION: Kind.STEP_NEEDS_ATTENTION,
}
"""The event that tells of a step's move."""


def move_run(run_id: uuid.UUID, to: RunStatus, *, fence: int | None = None, **fields: Any) -> bool:
    """Moves the run if it is in a state that leads there; True when this call moved it.

    With a fence it must be running under it.
    """
    runs = Run.objects.filter(pk=run_id, status__in=states.sources_of(to))
    if fence is not None:
        runs = runs.filter(status=RunStatus.RUNNING, fence=fence)
    return bool(runs.update(status=to, **fields))


def move_step(step: StepRun, to: StepStatus, **fields: Any) -> bool:
    """Moves the step if its row is in a state that leads there; True when this call moved it, and `step` shows it."""
    sources = sorted(states.sources_of(to))
    places = ", ".join(["%s"] * len(sources))
    changes = {"status": to, **fields}
    moved = rows.update(StepRun, changes, f"id = %s AND status IN ({places})", [rows.key(step.pk), *sources])
    if moved:
        for name, value in changes.items():
            setattr(step, name, value)
    return bool(moved)
