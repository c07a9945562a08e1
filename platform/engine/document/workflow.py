"""The whole document: `workflow.json` (BEHAVIOUR 2)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from engine.document.entries import Schedule, Trigger
from engine.document.steps import Plan
from engine.words import EnvironmentName, GroupName, LongText, Many, Omittable, Shape, Slug, Title, Value

CURRENT_LAYOUT = 1
CURRENT_CONTRACT = "1.0.44"


class Variable(Shape):
    """A value with a name; each group may give it another. Steps read it as `VAR_<name>`."""

    name: EnvironmentName
    value: Value
    description: LongText = ""


class Group(Shape):
    """A named set of values. A variable that is missing in it keeps its default."""

    name: GroupName
    values: dict[EnvironmentName, Value] = Field(default={})
    enabled: bool = True


class Retention(Shape):
    """How many runs keep their files, and for how many days runs are remembered."""

    runs: Omittable[Annotated[int, Field(ge=1, le=1_000_000)]] = None
    history_days: Omittable[Annotated[int, Field(ge=1, le=36_500)]] = None


class NotifyRule(Shape):
    on: Literal["failed", "needs_attention", "late", "ownership_rejected", "question"]
    to: Annotated[Many[Annotated[str, Field(pattern=r"^(slack|mail|hook):.+$")]], Field(min_length=1)]


class Notify(Shape):
    """Whom to tell of what."""

    rules: Many[NotifyRule] = ()
    quiet_hours: Annotated[str, Field(pattern=r"^([0-2][0-9]:[0-5][0-9]-[0-2][0-9]:[0-5][0-9])?$")] = ""


class Settings(Shape):
    repair: Literal["auto", "propose", "off"] = "off"
    max_concurrent_runs: Annotated[int, Field(ge=1, le=1000)] = 4
    on_busy: Literal["queue", "reject"] = "queue"
    retention: Retention = Retention()
    notify: Notify = Notify()


class WorkflowDocument(Shape):
    """A workflow as it travels, without its files."""

    schema_version: Literal[1]
    code_layout_version: Annotated[int, Field(ge=0, le=CURRENT_LAYOUT)] = 0
    contract_version: Annotated[str, Field(pattern=r"^([0-9]{1,5}(\.[0-9]{1,5}){2})?$")] = ""
    slug: Slug
    title: Title
    objective: LongText = ""
    variables: Many[Variable] = ()
    groups: Many[Group] = ()
    secrets: Many[EnvironmentName] = ()
    plan: Plan
    triggers: Many[Trigger] = ()
    schedules: Many[Schedule] = ()
    settings: Settings = Settings()
