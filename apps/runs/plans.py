"""The plan as it is saved now, for steps that have not started yet."""

from __future__ import annotations

from apps.runs.models import Run, StepRun
from apps.workflows.definition import plan_at
from apps.workflows.models import Workflow
from engine.document import Plan
from engine.states import StepStatus

__all__ = ["plan_at", "plan_of", "sync_steps"]


def plan_of(run: Run) -> Plan:
    """The live plan of the run's workflow: saved is live, also while a run is under way."""
    return plan_at(run.workflow_id, Workflow.objects.values_list("revision", flat=True).get(pk=run.workflow_id))


def sync_steps(run: Run, plan: Plan) -> dict[str, StepRun]:
    """The run's steps by id, brought up to the plan: new ones added, those that are gone and never began removed."""
    steps = {step.step_id: step for step in run.steps.all()}
    for step in steps.values():
        step.run = run  # one object, however it is reached
    if run.only_step:
        return steps
    for gone in [step_id for step_id in steps if plan.step(step_id) is None]:
        if steps[gone].status == StepStatus.PENDING and not steps[gone].attempts.exists():
            steps.pop(gone).delete()
    for position, planned in enumerate(plan.steps):
        facts = {"kind": planned.kind, "title": planned.shown_title, "position": position}
        known = steps.get(planned.id)
        if known is None:
            steps[planned.id] = StepRun.objects.create(run=run, step_id=planned.id, **facts)
        elif known.status == StepStatus.PENDING and any(getattr(known, name) != value for name, value in facts.items()):
            StepRun.objects.filter(pk=known.pk, status=StepStatus.PENDING).update(**facts)
    return steps
