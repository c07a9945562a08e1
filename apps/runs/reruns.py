"""A run again: whole, from a step on with the earlier outputs, or from what failed. The new run links the old one."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.runs import inputs, reuse
from apps.runs.errors import Field, RunRefused
from apps.runs.models import Run, StepRun
from apps.runs.starting import UNTRIGGERED, StartFacts, check_start, start_run
from apps.workflows import definition, places
from engine.document import Plan
from engine.ids import uuid7
from engine.sandbox import files
from engine.sandbox.errors import FileRefused
from engine.states import StepStatus

DELIVERY_MAX_BYTES = 8 * 1024 * 1024
DONE = frozenset({StepStatus.SUCCEEDED, StepStatus.SKIPPED})


@dataclass(frozen=True)
class Taken:
    """A step of the old run that the new one takes over as it is."""

    old: StepRun
    source_id: object


def rerun(run: Run, *, by: User, from_step: str = "", only_failed: bool = False) -> Run:
    """A new run with the old one's inputs. `from_step`: the steps before it are taken over with their outputs.

    `only_failed`: from the first step that did not succeed. The group's values are those of now.
    Raises RunRefused (409) for a run that has not ended, or when the steps before cannot be taken over.
    """
    old = Run.objects.select_related("workflow__team", "workflow__owner").get(pk=run.pk)
    if old.status not in Run.TERMINAL:
        raise RunRefused(
            409, "run_not_ended", f"The run is {old.status}. No run was made. Cancel it, or wait for its end."
        )
    plan = definition.load(old.workflow).plan
    steps = {step.step_id: step for step in old.steps.select_related("run__workflow")}
    if only_failed:
        from_step = _first_not_done(plan, steps)
    taken = _taken(plan, steps, from_step) if from_step and not old.only_step else []
    given, run_id = inputs.read(old), uuid7()
    facts: StartFacts = {
        "initiator": by,
        "group": old.group,
        "trigger_name": old.trigger_name,
        "delivery_id": old.delivery_id,
        "run_id": run_id,
        "variables": given.variables,
        "parameters": given.parameters,
        "route_selections": given.route_selections,
        "human_inputs": given.human_inputs,
        "only_step": old.only_step,
        "rerun_of": old,
        "rerun_from": from_step,
    }
    facts["admitted"] = check_start(workflow=old.workflow, **facts)
    _copy_delivery(old, str(run_id))
    who = f"{by.get_username()} (rerun)"
    with transaction.atomic():
        new = start_run(workflow=old.workflow, entry_path=old.entry_path, initiated_by=who, **facts)
        _take_over(new, taken)
    return new


def _first_not_done(plan: Plan, steps: dict[str, StepRun]) -> str:
    left = [one.id for one in plan.steps if one.id not in steps or steps[one.id].status not in DONE]
    if not left:
        raise RunRefused(409, "nothing_failed", "No step of this run failed. No run was made.")
    return left[0]


def _taken(plan: Plan, steps: dict[str, StepRun], from_step: str) -> list[Taken]:
    """The steps that the old run came by on its way to `from_step`, which is where the new one begins."""
    if plan.step(from_step) is None:
        raise RunRefused(400, "unknown_step", f"{from_step!r} is no step of the plan. No run was made.", [_FIELD])
    taken: list[Taken] = []
    here = plan.steps[0].id
    while here != from_step:
        old, planned = steps.get(here), plan.step(here)
        if old is None or planned is None or old.status != StepStatus.SUCCEEDED or len(taken) > len(plan.steps):
            raise RunRefused(
                409,
                "cannot_take_over",
                f"The run did not come to {from_step} by steps that succeeded: {here} did not. No run was made."
                f" Rerun from {here}, or the whole run.",
                [_FIELD],
            )
        source = reuse.source_of(old)
        taken.append(Taken(old, source.pk if source else None))
        here = str(old.decision["next_step_id"]) if old.decision else plan.next_of(here)
    return taken


_FIELD = Field("from_step", "cannot be the beginning")


def _take_over(new: Run, taken: list[Taken]) -> None:
    now = timezone.now()
    for one in taken:
        StepRun.objects.filter(run=new, step_id=one.old.step_id).update(
            status=StepStatus.SUCCEEDED,
            decision=one.old.decision,
            reused_from=one.source_id,
            reused_files=None if one.source_id else [],
            reason=f"Taken over from run {one.old.run_id}.",
            started_at=now,
            finished_at=now,
        )


def _copy_delivery(old: Run, run_id: str) -> None:
    """The delivery file under the new run's id: the steps of a triggered run read their trigger from it."""
    if old.entry_path in UNTRIGGERED:
        return
    whole = places.places_of(old.workflow)
    source, target = whole.delivery(str(old.pk)), whole.delivery(run_id)
    try:
        with files.Beneath(source.parent) as folder:
            content = folder.read(source.name, DELIVERY_MAX_BYTES)
            before, after = (f'{{"run_id": "{one}"'.encode() for one in (old.pk, run_id))
            if not content.startswith(before):
                raise FileRefused(source.name, "it does not begin with its run's id")
            # Only the id changes: the payload stays the text that came, number for number.
            folder.write(target.name, after + content.removeprefix(before), 0o640)
    except FileRefused as gone:
        raise RunRefused(
            410, "delivery_expired", f"The delivery of this run is gone ({gone.detail}). No run was made."
        ) from gone
    places.give_to_runner(target, 0o640)
