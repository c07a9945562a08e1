"""The plan: its steps, one class a kind (BEHAVIOUR 2 and 3)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, JsonValue, model_serializer

from engine.graph import END
from engine.parameters import Parameter
from engine.validation import Validation
from engine.words import (
    EnvironmentName,
    FilePath,
    Label,
    LongText,
    Many,
    Omittable,
    OptionalLabel,
    OptionalStepId,
    OptionalTarget,
    OptionalTitle,
    RequiredName,
    RouteId,
    Shape,
    StepId,
    Target,
    ToolName,
)

ROUTE_FILE = "route_selection.json"

AccessLevel = Literal["none", "read", "read-write"]
ParameterName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")]


class Dependency(Shape):
    """A file of an earlier step: `<step-id>/<file>`. Written as plain text unless it is optional."""

    path: Annotated[FilePath, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}/.+$")]
    optional: bool = False

    @property
    def producer(self) -> str:
        return self.path.split("/", 1)[0]

    @property
    def file(self) -> str:
        return self.path.split("/", 1)[1]

    @model_serializer
    def _as_written(self) -> str | dict[str, Any]:
        return {"path": self.path, "optional": True} if self.optional else self.path


class SecretUse(Shape):
    """A secret a step is given as `SECRET_<name>`. Written as plain text unless it is optional."""

    name: EnvironmentName
    optional: bool = False

    @model_serializer
    def _as_written(self) -> str | dict[str, Any]:
        return {"name": self.name, "optional": True} if self.optional else self.name


class Access(Shape):
    """What a step is granted of each store."""

    db: AccessLevel = "none"
    learnings: AccessLevel = "none"
    knowledgebase: AccessLevel = "none"
    assets: AccessLevel = "none"


class Network(Shape):
    """Hosts a step may reach, as `name:port`. Nothing listed is no network."""

    hosts: Many[Annotated[str, Field(pattern=r"^[a-z0-9.:\[\]-]{1,253}:[0-9]{1,5}$")]] = ()


def _as_timeout(data: dict[str, Any]) -> int:
    return int(data.get("timeout_s", 600))


class Limits(Shape):
    """What bounds one attempt. `cpu_s` is `timeout_s` unless it is given."""

    timeout_s: Annotated[int, Field(ge=1, le=604_800)] = 600
    cpu_s: Annotated[int, Field(ge=1, le=604_800)] = Field(default_factory=_as_timeout)
    memory_mb: Annotated[int, Field(ge=16, le=1_048_576)] = 1024
    processes: Annotated[int, Field(ge=1, le=65_536)] = 128
    file_mb: Annotated[int, Field(ge=1, le=1_048_576)] = 256
    output_mb: Annotated[int, Field(ge=1, le=1_048_576)] = 256
    log_mb: Annotated[int, Field(ge=1, le=1024)] = 64
    log_overflow: Literal["cut", "fail"] = "cut"
    tool_calls: Annotated[int, Field(ge=0, le=10_000_000)] = 20_000


class Retry(Shape):
    """How often an attempt is made in all, and how long to wait between two."""

    max_attempts: Annotated[int, Field(ge=1, le=20)] = 1
    backoff_s: Annotated[float, Field(ge=0, le=3600)] = 5


def _spelled_out(key: str) -> Any:
    return lambda value: {key: value} if isinstance(value, str) else value


DependencyText = Annotated[
    Dependency, BeforeValidator(_spelled_out("path"), json_schema_input_type=FilePath | Dependency)
]
SecretText = Annotated[
    SecretUse, BeforeValidator(_spelled_out("name"), json_schema_input_type=EnvironmentName | SecretUse)
]


class StepBase(Shape):
    """What every kind of step has."""

    id: StepId
    title: OptionalTitle = ""
    description: LongText = ""
    context_dependencies: Many[DependencyText] = ()
    context_output: Many[FilePath] = ()
    script_parameters: dict[ParameterName, Parameter] = Field(default={})
    validation: Validation = Validation()
    tools: Many[ToolName] = ()
    secrets: Many[SecretText] = ()
    requires: Many[RequiredName] = ()
    capabilities: Many[Literal["browser"]] = ()
    access: Access = Access()
    network: Network = Network()
    limits: Limits = Limits()
    retry: Retry = Retry()
    idempotent: bool = False
    lock_code: bool = False
    next_step_id: OptionalTarget = ""

    @property
    def shown_title(self) -> str:
        return self.title or self.id


class Route(Shape):
    """One way on from a branch: `next_step_id` names a step, or `end`."""

    route_id: RouteId
    route_name: OptionalLabel = ""
    condition: LongText = ""
    next_step_id: Target


class ScriptedStep(StepBase):
    """Runs `code/<id>/main.py` in a sandbox."""

    kind: Literal["scripted"]

    @property
    def routes(self) -> tuple[Route, ...]:
        return ()


class BranchStep(StepBase):
    """Decides which way the run goes on, without running anything and without asking a model."""

    kind: Literal["branch"]
    question: Annotated[LongText, Field(min_length=1)]
    routes: Annotated[Many[Route], Field(min_length=2, max_length=50)]
    default_route_id: OptionalLabel = ""
    source: Literal["file", "human"] = "file"

    @property
    def route_file(self) -> Dependency | None:
        """The dependency that may say the route: at most one may be declared."""
        return next((d for d in self.context_dependencies if d.file.rsplit("/", 1)[-1] == ROUTE_FILE), None)


class RoutingStep(StepBase):
    """As a branch, without a person to ask."""

    kind: Literal["routing"]
    question: Annotated[LongText, Field(min_length=1)]
    routes: Annotated[Many[Route], Field(min_length=2, max_length=50)]
    default_route_id: OptionalLabel = ""


class UserMessage(Shape):
    kind: Literal["user_message"]
    message: LongText


class Foreach(Shape):
    kind: Literal["foreach"]
    sql: LongText
    message: LongText
    max_iterations: Annotated[int, Field(ge=1, le=10_000)] = 100


class Prevalidation(Shape):
    kind: Literal["prevalidation"]
    validation: Validation


class ScriptedCall(Shape):
    step_id: StepId
    parameters: dict[ParameterName, JsonValue] = Field(default={})


class ScriptedBatch(Shape):
    kind: Literal["scripted"]
    calls: Annotated[Many[ScriptedCall], Field(min_length=1, max_length=1000)]
    max_parallel: Annotated[int, Field(ge=1, le=8)] = 1


Item = Annotated[UserMessage | Foreach | Prevalidation | ScriptedBatch, Field(discriminator="kind")]


class MessageSequenceStep(StepBase):
    """An agent works through `items` in one conversation."""

    kind: Literal["message_sequence"]
    items: Annotated[Many[Item], Field(min_length=1, max_length=200)]
    max_corrections: Annotated[int, Field(ge=0, le=20)] = 3
    tier: Literal[1, 2, 3] = 2


class DelegatedRoute(Shape):
    """A route an agent may call: a whole nested step, or the id of a saved one."""

    route_id: RouteId
    route_name: OptionalLabel = ""
    condition: LongText = ""
    step: Omittable[Step] = None
    step_ref: OptionalStepId = ""


class OrchestratorStep(StepBase):
    """An agent calls its routes."""

    kind: Literal["orchestrator"]
    items: Annotated[Many[Item], Field(max_length=200)] = ()
    routes: Annotated[Many[DelegatedRoute], Field(min_length=1, max_length=50)]
    max_corrections: Annotated[int, Field(ge=0, le=20)] = 3
    tier: Literal[1, 2, 3] = 2


class HumanInputStep(StepBase):
    """Asks a person."""

    kind: Literal["human_input"]
    question: Annotated[LongText, Field(min_length=1)]
    context: LongText = ""
    options: Many[Label] = ()
    free_text: bool = False
    form: dict[str, JsonValue] = Field(default={})
    answer_by: Literal["viewer", "operator", "editor", "owner"] = "operator"
    expires_s: Annotated[int, Field(ge=1, le=31_536_000)] = 604_800
    routes: dict[RouteId, Target] = Field(default={})


Step = Annotated[
    ScriptedStep | BranchStep | RoutingStep | MessageSequenceStep | OrchestratorStep | HumanInputStep,
    Field(discriminator="kind"),
]


class Plan(Shape):
    """The ordered steps. The first one starts; each goes on to its `next_step_id`, else to the next in the list."""

    steps: Annotated[Many[Step], Field(min_length=1, max_length=500)]

    def step(self, step_id: str) -> Step | None:
        return next((step for step in self.steps if step.id == step_id), None)

    def follower(self, position: int) -> str:
        """Where the step at this place of the list goes on if it is no branch: a step's id, or `end`."""
        step = self.steps[position]
        if step.next_step_id:
            return step.next_step_id
        return self.steps[position + 1].id if position + 1 < len(self.steps) else END

    def next_of(self, step_id: str) -> str:
        """As `follower`, by the step's id. Raises KeyError for a step that is not there."""
        for position, step in enumerate(self.steps):
            if step.id == step_id:
                return self.follower(position)
        raise KeyError(step_id)


DelegatedRoute.model_rebuild()
