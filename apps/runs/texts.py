"""What people read of a run's steps: their titles and descriptions, with `{{NAME}}` filled in from the run's values."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from pydantic import JsonValue

from apps.accounts.errors import Refused
from apps.runs import inputs, plans
from apps.runs.models import Run, StepRun
from apps.workflows.models import PlanRevision
from engine import filling


class Texts:
    """The texts of one run. Its values are read only when a text asks for one."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def title(self, step: StepRun) -> str:
        return self._filled(step.title)

    def description(self, step: StepRun, revision: int = 0) -> str:
        """As the plan says it at `revision`: that of an attempt, or (0) the one the run began with."""
        try:
            planned = plans.plan_at(self._run.workflow_id, revision or self._run.plan_revision).step(step.step_id)
        except (Refused, PlanRevision.DoesNotExist):  # an old plan that this release cannot read
            return ""
        return self._filled(planned.description) if planned else ""

    def _filled(self, text: str) -> str:
        return filling.fill(text, self._values) if filling.MARK in text else text

    @cached_property
    def _values(self) -> Mapping[str, JsonValue]:
        try:
            given = inputs.read(self._run).variables
        except Refused:  # the key is gone: what was given for this run alone is not known, so nothing is filled in
            return {}
        return {**self._run.group_values, **given, "GROUP_NAME": self._run.group}
