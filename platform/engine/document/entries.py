"""The ways in: triggers and schedules (BEHAVIOUR 2, 8 and 13)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from engine.document.steps import ParameterName
from engine.parameters import Parameter
from engine.words import EnvironmentName, FilePath, GroupName, Label, Many, Omittable, OptionalLabel, Shape

Clock = Annotated[str, Field(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]


class Mapping(Shape):
    """Takes a value out of a payload: the one at `source`, looked up in `values` if there are any, else `default`."""

    source: Annotated[str, Field(min_length=1, max_length=300, pattern=r"^[^.]+(\.[^.]+)*$")]
    values: dict[str, JsonValue] = Field(default={})
    default: JsonValue = None

    @property
    def has_default(self) -> bool:
        return "default" in self.model_fields_set


class Mappings(Shape):
    """What a delivery decides of its run. `group` becomes text, the others objects."""

    group: Omittable[Mapping] = None
    variables: Omittable[Mapping] = None
    parameters: Omittable[Mapping] = None
    routes: Omittable[Mapping] = None


class Trigger(Shape):
    """A way in. Its key and its credentials are made by the product and are in no document."""

    kind: Literal["github", "slack", "standard", "bearer", "function", "internal", "mcp"]
    name: Label
    group: OptionalLabel = ""
    enabled: bool = True
    events: Many[Annotated[str, Field(pattern=r"^[a-z_]+(\.[a-z_]+)?$")]] = ()
    mode: Literal["raw", "envelope"] = "raw"
    allowed_variables: Many[EnvironmentName] = ()
    inputs: dict[ParameterName, Parameter] = Field(default={})
    result: Omittable[FilePath] = None
    mappings: Mappings = Mappings()


class After(Shape):
    """Other schedules a schedule waits for."""

    schedules: Annotated[Many[Label], Field(min_length=1)]
    status: Literal["succeeded", "any"] = "succeeded"
    deadline: Omittable[Clock] = None


class Schedule(Shape):
    """Due times of a workflow."""

    name: Label
    cron: Annotated[str, Field(max_length=200)] = ""
    dates: Many[str] = ()
    timezone: Annotated[str, Field(min_length=1, max_length=64)]
    groups: Annotated[Many[GroupName], Field(min_length=1)]
    enabled: bool = True
    collision: Literal["skip", "queue_latest", "coalesce"] = "skip"
    missed: Literal["latest", "all", "none"] = "latest"
    max_start_delay_s: Annotated[int, Field(ge=0, le=604_800)] = 3600
    after: Omittable[After] = None
