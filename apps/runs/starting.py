"""The start of a run: everything that is refused before there is one, then all its rows at once."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TypedDict, Unpack

from django.db import transaction
from django.utils import timezone
from pydantic import JsonValue

from apps import rows
from apps.accounts import access
from apps.accounts.models import User
from apps.runs import events, inputs, queue
from apps.runs.errors import Field, RunRefused
from apps.runs.events import News
from apps.runs.inputs import Inputs
from apps.runs.kinds import Kind
from apps.runs.models import Run, StepRun
from apps.tools import actions as tools
from apps.tools.actions import RunSession
from apps.workflows import definition, vault
from apps.workflows.definition import Definition
from apps.workflows.models import Workflow
from engine import environment, json_values, parameters, routes
from engine.document import BranchStep, Step
from engine.document.release import ACCESS
from engine.ids import uuid7

VARIABLE_MAX_BYTES = 16 * 1024
DEEPEST_INPUT = 100  # brackets within brackets


class EntryPath(StrEnum):
    MANUAL = "manual"
    GITHUB = "github"
    BEARER = "bearer"
    API = "api"
    SCHEDULE = "schedule"
    FUNCTION = "function"
    SLACK = "slack"
    MCP = "mcp"
    INTERNAL = "internal"
    STANDARD = "standard"
    BUILDER = "builder"


OFFERED = (EntryPath.MANUAL, EntryPath.GITHUB, EntryPath.BEARER, EntryPath.API)
"""The ways in that this release has; the others are names that are taken."""

UNTRIGGERED = frozenset({EntryPath.MANUAL, EntryPath.SCHEDULE, EntryPath.API, EntryPath.BUILDER})
"""On these no delivery is expected."""


class StartFacts(TypedDict, total=False):
    """What a start may say. `parameters`, `route_selections` and `human_inputs` are keyed by step id."""

    group: str  # named by the caller; without it `trigger_group`, else the only enabled one, else `default`
    trigger_group: str
    initiator: User | None
    trigger_name: str
    delivery_id: uuid.UUID | None
    run_id: uuid.UUID | None  # the caller made it before, to name files by it
    variables: Mapping[str, JsonValue] | None
    parameters: Mapping[str, Mapping[str, JsonValue]] | None
    route_selections: Mapping[str, str] | None
    human_inputs: Mapping[str, JsonValue] | None
    only_step: str
    rerun_of: Run | None
    rerun_from: str
    admitted: Admitted | None  # what `check_start` of the same facts said just now: it is not found out again


@dataclass(frozen=True)
class Admitted:
    """A start that nothing speaks against."""

    definition: Definition
    group: str
    values: Mapping[str, JsonValue]
    inputs: Inputs


@dataclass(frozen=True)
class Start:
    """One start of many, with the arguments of `start_run`."""

    workflow: Workflow
    entry_path: str
    initiated_by: str
    facts: StartFacts


def start_run(*, workflow: Workflow, entry_path: str, initiated_by: str, **facts: Unpack[StartFacts]) -> Run:
    """Makes a run in the caller's transaction: run, encrypted input, steps, run session and first event; then queued.

    Raises Refused (RunRefused, NotCurrent, GroupUnknown), and nothing was written. The group's values and `variables`
    are pinned from here on. `initiated_by` is audit text: the run acts with the workflow owner's rights.
    """
    return start_runs([Start(workflow, entry_path, initiated_by, facts)])[0]


def start_runs(starts: Sequence[Start]) -> list[Run]:
    """As `start_run`, for many at once and with one statement a table: all of them are made, or none."""
    admitted = [start.facts.get("admitted") or _admit(start.workflow, start.facts, definition.load) for start in starts]
    with transaction.atomic():
        _refuse_when_full(admitted)
        runs = [_make(start, found) for start, found in zip(starts, admitted, strict=True)]
        for run, session in zip(runs, tools.open_run_sessions(map(_session_of, runs, admitted)), strict=True):
            run.session_id = session.pk
        queue.enqueue_new(runs)
        rows.insert(runs)
        rows.insert([inputs.sealed(run, found.inputs) for run, found in zip(runs, admitted, strict=True)])
        rows.insert(
            [step for run, found in zip(runs, admitted, strict=True) for step in _steps_of(run, found.definition)]
        )
        events.record_first([(run, News(Kind.RUN_QUEUED, data=_told(run))) for run in runs])
    return runs


def check_start(*, workflow: Workflow, **facts: Unpack[StartFacts]) -> Admitted:
    """Raises what `start_run` would refuse, and writes nothing. The row of `workflow` was read just now."""
    return _admit(workflow, facts, definition.of)


def variable_size(value: JsonValue) -> int:
    """Bytes of a variable's value, as text."""
    text = value if isinstance(value, str) else json.dumps(value)
    return len(text.encode("utf-8", "surrogatepass"))


def is_full(whole: Definition, *, besides: int = 0) -> bool:
    """Whether the workflow rejects what it can't run at once, and can't run more at once. `besides`: starts not stored.

    To be called in the transaction that stores the start: it locks the workflow.
    """
    if whole.settings.on_busy != "reject":
        return False
    # The lock keeps two starts from seeing the same last free slot.
    workflow = Workflow.objects.select_for_update(no_key=True).get(pk=whole.workflow.pk)
    taken = Run.objects.filter(workflow=workflow, status__in=[Run.Status.QUEUED, Run.Status.RUNNING]).count()
    return taken + besides >= whole.settings.max_concurrent_runs


def session_facts(steps: Iterable[Step]) -> tuple[list[str], str]:
    """The tools and the database access of a run's session: the most that any of its steps has."""
    steps = list(steps)
    names = sorted({name for step in steps for name in step.tools})
    return names, max((step.access.db for step in steps), key=ACCESS.index, default="none")


def _make(start: Start, admitted: Admitted) -> Run:
    """The row to be, not saved yet and without its session."""
    workflow, facts = admitted.definition.workflow, start.facts
    return Run(
        id=facts.get("run_id") or uuid7(),
        team_id=workflow.team_id,
        workflow=workflow,
        scope=Run.Scope.STEP if facts.get("only_step") else Run.Scope.RUN,
        entry_path=EntryPath(start.entry_path),
        trigger_name=facts.get("trigger_name", ""),
        delivery_id=facts.get("delivery_id"),
        group=admitted.group,
        group_values=dict(admitted.values),
        owner=workflow.owner,
        initiator=facts.get("initiator"),
        initiated_by=start.initiated_by[:200],
        plan_revision=admitted.definition.revision,
        rerun_of=facts.get("rerun_of"),
        rerun_from=facts.get("rerun_from", ""),
        only_step=facts.get("only_step", ""),
        queued_at=timezone.now(),
        last_seq=1,  # the event that tells of it
    )


def _session_of(run: Run, admitted: Admitted) -> RunSession:
    workflow = admitted.definition.workflow
    names, db_access = session_facts(_wanted(admitted.definition, run.only_step))
    return RunSession(run.pk, f"run {workflow.slug} {str(run.pk)[-8:]}", workflow, workflow.owner, names, db_access)


def _told(run: Run) -> dict[str, object]:
    return {"entry_path": run.entry_path, "trigger": run.trigger_name, "group": run.group, "by": run.initiated_by}


def _steps_of(run: Run, whole: Definition) -> list[StepRun]:
    return [
        StepRun(run=run, step_id=step.id, kind=step.kind, title=step.shown_title, position=position)
        for position, step in enumerate(whole.plan.steps)
        if not run.only_step or step.id == run.only_step
    ]


def _wanted(whole: Definition, only_step: str) -> list[Step]:
    return [step for step in whole.plan.steps if not only_step or step.id == only_step]


def _refuse_when_full(admitted: Sequence[Admitted]) -> None:
    before: Counter[uuid.UUID] = Counter()
    for one in admitted:
        workflow = one.definition.workflow
        if is_full(one.definition, besides=before[workflow.pk]):
            most = one.definition.settings.max_concurrent_runs
            raise RunRefused(
                503,
                "busy",
                f"{workflow.slug} has {most} runs under way, as many as it may, and takes no more (on_busy is reject)."
                " No run was made. Try again when one has ended.",
            )
        before[workflow.pk] += 1


def _admit(workflow: Workflow, facts: StartFacts, read: Callable[[Workflow], Definition]) -> Admitted:
    definition.require_current(workflow)
    whole = read(workflow)
    if not access.may_own(whole.workflow.owner, whole.workflow.team):
        raise RunRefused(
            409,
            "owner_not_active",
            f"{whole.workflow.slug} has no active owner who is editor or owner of its team. No run was made."
            " Give the workflow to someone who is.",
        )
    group = whole.choose_group(facts.get("group", ""), facts.get("trigger_group", ""))
    given = Inputs(
        variables=dict(facts.get("variables") or {}),
        parameters={step: dict(values) for step, values in (facts.get("parameters") or {}).items()},
        route_selections=dict(facts.get("route_selections") or {}),
        human_inputs=dict(facts.get("human_inputs") or {}),
    )
    only_step = facts.get("only_step", "")
    try:
        json_values.require(asdict(given), deepest=DEEPEST_INPUT)
    except json_values.NotJson as wrong:
        raise RunRefused(
            400, "inputs_rejected", f"The inputs are no JSON that can be kept: {wrong}. No run was made."
        ) from None
    problems = [
        *_bad_variables(whole, given),
        *_bad_routes(whole, given),
        *_bad_human_inputs(given),
        *_bad_only_step(whole, only_step),
        *_bad_parameters(whole, given, only_step),
    ]
    if problems:
        detail = "; ".join(f"{problem.path}: {problem.message.rstrip('.')}" for problem in problems[:5])
        raise RunRefused(400, "inputs_rejected", f"{detail}. No run was made.", problems)
    values = whole.resolve_group(group)
    _refuse_large_environment(whole, group, {**values, **given.variables}, given, only_step)
    return Admitted(whole, group, values, given)


def _bad_variables(whole: Definition, given: Inputs) -> list[Field]:
    problems = []
    for name, value in given.variables.items():
        if name not in whole.variables:
            known = ", ".join(sorted(whole.variables)) or "none"
            problems.append(Field(f"variables.{name}", f"is no variable of the workflow (it has: {known})"))
        elif variable_size(value) > VARIABLE_MAX_BYTES:
            problems.append(Field(f"variables.{name}", f"is larger than {VARIABLE_MAX_BYTES // 1024} KiB"))
    return problems


def _bad_routes(whole: Definition, given: Inputs) -> list[Field]:
    problems = []
    for step_id, chosen in given.route_selections.items():
        step = whole.plan.step(step_id)
        if not isinstance(step, BranchStep):
            problems.append(Field(f"route_selections.{step_id}", "is no branch of the plan"))
        elif routes.choose(step, chosen) is None:
            known = ", ".join(route.route_id for route in step.routes)
            problems.append(Field(f"route_selections.{step_id}", f"must be one of: {known}"))
    return problems


def _bad_human_inputs(given: Inputs) -> list[Field]:
    return [Field(f"human_inputs.{step_id}", "no step of the plan asks a person") for step_id in given.human_inputs]


def _bad_only_step(whole: Definition, only_step: str) -> list[Field]:
    step = whole.plan.step(only_step) if only_step else None
    if only_step and (step is None or step.kind != "scripted"):
        return [Field("step", f"{only_step!r} is no scripted step of the plan")]
    return []


def _bad_parameters(whole: Definition, given: Inputs, only_step: str) -> list[Field]:
    wanted = _wanted(whole, only_step)
    certain = {only_step} if only_step else _certain(whole)
    unknown = set(given.parameters) - {step.id for step in wanted}
    problems = [Field(f"parameters.{step_id}", "is no step of this run") for step_id in sorted(unknown)]
    for step in wanted:
        values = given.parameters.get(step.id)
        if values is None and step.id not in certain:
            continue
        try:
            parameters.check(step.script_parameters, values or {}, secrets_values=_secret_values(whole, values))
        except parameters.ParametersRefused as refused:
            problems += [Field(f"parameters.{step.id}{one.path.lstrip('$')}", one.message) for one in refused.problems]
    return problems


def _secret_values(whole: Definition, values: Mapping[str, JsonValue] | None) -> list[str]:
    """Read only when there is something to compare with them."""
    return list(vault.secrets_for(whole.workflow, whole.secret_names).values()) if values else []


def _certain(whole: Definition) -> set[str]:
    """The steps that every run comes by: those before the first branch."""
    found: set[str] = set()
    step: Step | None = whole.plan.steps[0]
    while step is not None and step.id not in found and step.kind == "scripted":
        found.add(step.id)
        step = whole.plan.step(whole.plan.next_of(step.id))
    return found


def _refuse_large_environment(
    whole: Definition, group: str, values: Mapping[str, JsonValue], given: Inputs, only_step: str
) -> None:
    """No step of the run may have more in its environment than a program can be started with."""
    scripted = [step for step in _wanted(whole, only_step) if step.kind == "scripted"]
    named = {use.name for step in scripted for use in step.secrets}
    secrets = vault.secrets_for(whole.workflow, named) if named else {}
    for step in scripted:
        own = {use.name: secrets.get(use.name, "") for use in step.secrets}
        defaults = {name: one.default for name, one in step.script_parameters.items() if one.has_default}
        try:
            held = environment.foreseen(group, values, own, {**defaults, **given.parameters.get(step.id, {})})
        except environment.ValueRefused as refused:
            raise _environment_refused("value_refused", step, refused, "Change the value.") from None
        try:
            environment.check_size(held)
        except environment.ValueRefused as refused:
            raise _environment_refused(
                "environment_too_large", step, refused, "Hand large values over in a file."
            ) from None


def _environment_refused(code: str, step: Step, refused: environment.ValueRefused, cure: str) -> RunRefused:
    kind, _, name = refused.name.partition("_")
    path = {"VAR": f"variables.{name}", "SECRET": f"secrets.{name}"}.get(kind, f"parameters.{step.id}")
    why = str(refused).removeprefix(f"{refused.name} ").rstrip(".")
    return RunRefused(400, code, f"Step {step.id}: {refused} No run was made. {cure}", [Field(path, why)])
