"""`manage.py run_workflow <slug>`: start a run by hand and follow it."""

from __future__ import annotations

import getpass
import json
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from apps.accounts.errors import Refused
from apps.runs import actions, following
from apps.runs.actions import EntryPath
from apps.workflows import definition
from apps.workflows.models import Workflow


class Command(BaseCommand):
    help = "Start a run of a workflow and follow it to its end. A worker must be running."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("slug")
        parser.add_argument("--team", default="", help="The team's slug, when several have a workflow of that name.")
        parser.add_argument("--group", default="")
        parser.add_argument("--inputs", default="{}", help="JSON: {variables, parameters, route_selections}.")
        parser.add_argument("--within", type=float, default=24 * 3600, help="Seconds to follow it for.")

    def handle(self, *_args: Any, **options: Any) -> None:
        workflow = _workflow(options["slug"], options["team"])
        given = _inputs(options["inputs"], workflow)
        try:
            run = actions.start_run(
                workflow=workflow,
                entry_path=EntryPath.MANUAL,
                initiated_by=f"{getpass.getuser()} at the command line",
                group=options["group"],
                **given,
            )
        except Refused as refused:
            raise CommandError(refused.detail) from None
        self.stdout.write(f"Run {run.pk}: {settings.PULSE_BASE_URL}/runs/{run.pk}/")
        try:
            run = following.follow(run.pk, self.stdout.write, within_s=options["within"])
        except following.NotTaken as wrong:
            raise CommandError(str(wrong), returncode=3) from None
        except KeyboardInterrupt:
            raise CommandError("Not followed any more; the run goes on.", returncode=130) from None
        following.tell_result(run, self.stdout.write)
        if run.status != run.Status.SUCCEEDED:
            raise CommandError(f"The run is {run.status}, not succeeded.", returncode=3)


def _inputs(text: str, workflow: Workflow) -> dict[str, Any]:
    """What `--inputs` says, in the shape that a start takes; whether the values fit is the start's matter."""
    known = {"variables", "parameters", "route_selections", "human_inputs"}
    try:
        given = json.loads(text)
    except ValueError as wrong:
        raise CommandError(f"--inputs is no JSON: {wrong}. No run was made.") from None
    if not isinstance(given, dict) or set(given) - known:
        raise CommandError(f"--inputs must be an object with {', '.join(sorted(known))}. No run was made.")
    for name, part in given.items():
        if not isinstance(part, dict):
            raise CommandError(f"`{name}` of --inputs must be an object. No run was made.")
    loose = [name for name, part in given.get("parameters", {}).items() if not isinstance(part, dict)]
    if loose:
        right = json.dumps({"parameters": {_step_with(workflow, loose[0]): {loose[0]: "…"}}}, ensure_ascii=False)
        raise CommandError(f"Parameters are given by step: --inputs '{right}'. No run was made.")
    return given


def _step_with(workflow: Workflow, parameter: str) -> str:
    """The step that takes a parameter of that name, else any: for an example."""
    steps = definition.load(workflow).plan.steps
    takes = (step.id for step in steps if step.kind == "scripted" and parameter in step.script_parameters)
    return next(takes, steps[0].id)


def _workflow(slug: str, team: str) -> Workflow:
    rows = Workflow.objects.select_related("team", "owner").filter(slug=slug)
    found = list(rows.filter(team__slug=team) if team else rows)
    if len(found) == 1:
        return found[0]
    if not found:
        raise CommandError(f"There is no workflow {slug!r}. No run was made.")
    teams = ", ".join(workflow.team.slug for workflow in found)
    raise CommandError(f"Several teams have a workflow {slug!r}: name one with --team ({teams}). No run was made.")
