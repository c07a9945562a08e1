"""What a workflow says at this moment: plan, variables, groups and settings, read from the rows in one go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from uuid import UUID

from pydantic import JsonValue

from apps.workflows.errors import DocumentNotValid, GroupUnknown, NotCurrent
from apps.workflows.models import PlanRevision, Workflow
from engine import document, json_values

DEFAULT_GROUP = "default"
KEPT_PLANS = 200


@dataclass(frozen=True)
class GroupValues:
    name: str
    values: Mapping[str, JsonValue]
    enabled: bool


@dataclass(frozen=True)
class Definition:
    """One consistent reading of a workflow. It does not follow later saves: load it again for that."""

    workflow: Workflow
    revision: int
    plan: document.Plan
    variables: Mapping[str, JsonValue]
    groups: Mapping[str, GroupValues]
    settings: document.Settings
    secret_names: frozenset[str]

    def resolve_group(self, name: str) -> dict[str, JsonValue]:
        """Every variable's value for the group: its default first, then the group's own value.

        Raises GroupUnknown, naming the groups there are. A workflow without groups has one: `default`.
        """
        if name not in self.groups:
            if name == DEFAULT_GROUP and not self.groups:
                return dict(self.variables)
            known = ", ".join(self.groups) or DEFAULT_GROUP
            raise GroupUnknown(f"{self.workflow.slug} has no group {name!r}. Its groups: {known}. No run was made.")
        return {**self.variables, **self.groups[name].values}

    def choose_group(self, named: str = "", triggers_own: str = "") -> str:
        """The group a start means: named, the trigger's, the only enabled one, `default`, in this order."""
        for asked in (named, triggers_own):
            if asked:
                self.resolve_group(asked)
                if asked in self.groups and not self.groups[asked].enabled:
                    raise GroupUnknown(
                        f"The group {asked!r} of {self.workflow.slug} is switched off. No run was made.",
                        code="group_disabled",
                    )
                return asked
        enabled = [group.name for group in self.groups.values() if group.enabled]
        if len(enabled) == 1:
            return enabled[0]
        if DEFAULT_GROUP in enabled or not self.groups:
            return DEFAULT_GROUP
        raise GroupUnknown(
            f"{self.workflow.slug} has several groups; name one: {', '.join(enabled) or 'none is enabled'}."
            " No run was made.",
            code="group_required",
        )


def load(workflow: Workflow, *, revision: int | None = None) -> Definition:
    """The definition at the live plan revision, or with the plan of an older one."""
    return of(Workflow.objects.select_related("team", "owner").get(pk=workflow.pk), revision=revision)


def of(current: Workflow, *, revision: int | None = None) -> Definition:
    """As `load`, of a row that was read just now."""
    number = revision if revision is not None else current.revision
    return Definition(
        workflow=current,
        revision=number,
        plan=plan_at(current.pk, number),
        variables={variable.name: variable.value for variable in current.variables.all()},
        groups={group.name: GroupValues(group.name, group.values, group.enabled) for group in current.groups.all()},
        settings=document.Settings.model_validate_json(json_values.dump(current.settings)),
        secret_names=frozenset(current.secret_names),
    )


@lru_cache(maxsize=KEPT_PLANS)
def plan_at(workflow_id: UUID, revision: int) -> document.Plan:
    """The plan as it was saved at one revision, which never changes: it is parsed once a process."""
    row = PlanRevision.objects.get(workflow_id=workflow_id, number=revision)
    try:
        return document.parse_plan(row.plan)
    except document.DocumentRefused as wrong:
        problem = wrong.problems[0]
        raise DocumentNotValid(
            f"Revision {row.number} of the plan does not hold any more: {problem.path}: {problem.message}"
        ) from wrong


def is_current(workflow: Workflow) -> bool:
    """Whether runs may be started of it: its contract and layout are this release's."""
    current = (document.CURRENT_CONTRACT, document.CURRENT_LAYOUT)
    return (workflow.contract_version, workflow.code_layout_version) == current


def require_current(workflow: Workflow) -> None:
    """Raise NotCurrent (409, `migration_required`) unless contract and layout are the ones this release runs."""
    if is_current(workflow):
        return
    raise NotCurrent(
        f"{workflow.slug} has contract {workflow.contract_version} and code layout {workflow.code_layout_version};"
        f" this release runs {document.CURRENT_CONTRACT} with layout {document.CURRENT_LAYOUT}. No run was made."
        " Export it, bring the document up to date, and import it again."
    )
