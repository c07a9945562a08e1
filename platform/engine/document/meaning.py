"""What shape alone cannot tell: names that must be known, keys that mean nothing where they stand, lists that clash."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from pydantic import JsonValue

from engine import parameters, validation
from engine.document import release
from engine.document.entries import Mapping, Mappings, Trigger
from engine.document.flow import graph_of
from engine.document.steps import ROUTE_FILE, BranchStep, Plan, ScriptedStep, Step
from engine.document.workflow import WorkflowDocument
from engine.problems import Problem, json_path
from engine.words import Shape

IMPLIED_GROUP = "default"
"""The group of a workflow that declares none."""

RESERVED_VARIABLES = frozenset({"GROUP_NAME"})
NOT_FOR_A_BRANCH = (
    *("context_output", "script_parameters", "validation", "tools", "secrets", "requires", "capabilities", "access"),
    *("network", "limits", "retry", "idempotent", "lock_code", "next_step_id"),
)
NOT_FOR_TRIGGERS = {
    "github": ("mode", "allowed_variables", "inputs", "result"),
    "bearer": ("events", "inputs", "result"),
}


def workflow_problems(document: WorkflowDocument, code_packages: Collection[str]) -> Iterator[Problem]:
    yield from _variable_problems(document)
    yield from _twins(document.secrets, "$.secrets", "")
    for index, trigger in enumerate(document.triggers):
        yield from _trigger_problems(document, trigger, f"$.triggers[{index}]")
    yield from _twins([trigger.name for trigger in document.triggers], "$.triggers", ".name")
    yield from plan_problems(document.plan, "$.plan", code_packages)
    for index, step in enumerate(document.plan.steps):
        yield from _secret_problems(step, f"$.plan.steps[{index}]", document.secrets)


def plan_problems(plan: Plan, root: str = "$", code_packages: Collection[str] = ()) -> Iterator[Problem]:
    yield from graph_of(plan, root).problems(code_packages)
    for index, step in enumerate(plan.steps):
        path = f"{root}.steps[{index}]"
        if isinstance(step, BranchStep):
            yield from _branch_problems(step, path)
        elif isinstance(step, ScriptedStep):
            yield from _scripted_problems(step, path)


def _scripted_problems(step: ScriptedStep, path: str) -> Iterator[Problem]:
    yield from parameters.declaration_problems(step.script_parameters, f"{path}.script_parameters")
    yield from validation.rule_problems(step.validation, f"{path}.validation")
    yield from release.tool_problems(step.tools, f"{path}.tools", step.access.db)
    yield from _twins([use.name for use in step.secrets], f"{path}.secrets", "")
    for index, host in enumerate(step.network.hosts):
        if not 1 <= int(host.rpartition(":")[2]) <= 65535:
            yield Problem(f"{path}.network.hosts[{index}]", "bad_port", "A port is a number from 1 to 65535.")


def _secret_problems(step: Step, path: str, allowed: Collection[str]) -> Iterator[Problem]:
    for index, use in enumerate(step.secrets):
        if use.name not in allowed:
            message = f"The workflow may not use the secret {use.name!r}. Add it to the workflow's secrets first."
            yield Problem(f"{path}.secrets[{index}]", "unknown_secret", message)


def _branch_problems(step: BranchStep, path: str) -> Iterator[Problem]:
    yield from _meaningless(step, NOT_FOR_A_BRANCH, path, "A branch runs no code and goes on by its routes only")
    route_ids = [route.route_id for route in step.routes]
    for index, route_id in enumerate(route_ids):
        if route_id in route_ids[:index]:
            message = f"Another route of this branch is called {route_id!r}."
            yield Problem(f"{path}.routes[{index}].route_id", "duplicate_route", message)
    if step.default_route_id and step.default_route_id not in route_ids:
        message = f"There is no route {step.default_route_id!r} in this branch."
        yield Problem(f"{path}.default_route_id", "dangling_route", message)
    deciding = [i for i, d in enumerate(step.context_dependencies) if d.file.rsplit("/", 1)[-1] == ROUTE_FILE]
    for index in deciding[1:]:
        message = f"Only one {ROUTE_FILE} may decide; another one stands before it."
        yield Problem(f"{path}.context_dependencies[{index}]", "second_route_file", message)


def _variable_problems(document: WorkflowDocument) -> Iterator[Problem]:
    names = [variable.name for variable in document.variables]
    yield from _twins(names, "$.variables", ".name")
    for index, name in enumerate(names):
        if name in RESERVED_VARIABLES:
            yield Problem(f"$.variables[{index}].name", "reserved_name", f"VAR_{name} is set by Pulse itself.")
    yield from _twins([group.name for group in document.groups], "$.groups", ".name")
    for index, group in enumerate(document.groups):
        for name in group.values:
            if name not in names:
                message = f"There is no variable {name!r}. Declare it under variables, with a default value."
                yield Problem(json_path([name], f"$.groups[{index}].values"), "unknown_variable", message)


def _trigger_problems(document: WorkflowDocument, trigger: Trigger, path: str) -> Iterator[Problem]:
    groups = {group.name for group in document.groups} or {IMPLIED_GROUP}
    if trigger.group and trigger.group not in groups:
        yield Problem(f"{path}.group", "unknown_group", f"There is no group {trigger.group!r}.")
    yield from _mapping_problems(trigger.mappings, groups, f"{path}.mappings")
    declared = {variable.name for variable in document.variables}
    for index, name in enumerate(trigger.allowed_variables):
        if name not in declared:
            yield Problem(f"{path}.allowed_variables[{index}]", "unknown_variable", f"There is no variable {name!r}.")
    yield from _meaningless(
        trigger, NOT_FOR_TRIGGERS.get(trigger.kind, ()), path, f"A trigger of kind {trigger.kind} has no use for it"
    )


def _mapping_problems(mappings: Mappings, groups: Collection[str], path: str) -> Iterator[Problem]:
    """What a mapping may come out as, as far as the document says: groups there are, and objects."""
    for place, value in _results(mappings.group, f"{path}.group"):
        if not isinstance(value, str) or value not in groups:
            yield Problem(place, "unknown_group", "It is no group of this workflow.")
    for key in ("variables", "parameters", "routes"):
        for place, value in _results(getattr(mappings, key), f"{path}.{key}"):
            if not isinstance(value, dict):
                yield Problem(place, "wrong_type", f"A mapping of {key} comes out as an object.")


def _results(mapping: Mapping | None, path: str) -> Iterator[tuple[str, JsonValue]]:
    if mapping is not None:
        yield from ((json_path(["values", word], path), value) for word, value in mapping.values.items())
        if mapping.has_default and mapping.default is not None:
            yield f"{path}.default", mapping.default


def _meaningless(shape: Shape, keys: Iterable[str], path: str, why: str) -> Iterator[Problem]:
    fields = type(shape).model_fields
    for key in keys:
        if key in shape.model_fields_set and getattr(shape, key) != fields[key].get_default(call_default_factory=True):
            yield Problem(f"{path}.{key}", "not_for_this_kind", f"{why}. Remove it.")


def _twins(names: Sequence[str], path: str, key: str) -> Iterator[Problem]:
    for index, name in enumerate(names):
        if name in names[:index]:
            yield Problem(f"{path}[{index}]{key}", "duplicate", f"{name!r} stands here twice.")
