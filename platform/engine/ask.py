"""What is known of an attempt before it has a contract, and how it is refused one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine import preflight
from engine.digests import never
from engine.outcomes import Outcome
from engine.places import AttemptPlaces, DataPlaces, WorkflowPlaces
from engine.sandbox.host import HostTools
from engine.sandbox.limits import Limits

if TYPE_CHECKING:
    from engine.document import Step


@dataclass(frozen=True)
class Dependency:
    """Where a declared context dependency lies: a file of the producer's latest succeeded attempt."""

    places: AttemptPlaces
    name: str
    """The file's path below the producer's output folder."""


@dataclass(frozen=True)
class Ask:
    """All that is known of one attempt before it is resolved: rows as they are now, read by apps.runs.

    `secrets` holds the values of the secrets the step names, as far as there are any; `allowed_secrets` the names
    the workflow may use. `dependencies` has an entry for each declared path whose producer has succeeded.
    `delivery` and `thread` are the files of a triggered run. `tools_socket` is where this attempt's tools will be
    served. `digest_key` keys the digests of secret values and inputs. `ceiling` is the most the operator allows.
    `ambient` is the platform's own environment: nothing of it reaches the step, and what looks as if it was meant to
    is reported as dropped. `stopped` is asked while much is read: whether the attempt is to be given up unstarted.
    """

    step: Step
    plan_revision: int
    data: DataPlaces
    workflow: WorkflowPlaces
    host: HostTools
    digest_key: bytes = field(repr=False)
    workflow_id: str
    run_id: str
    step_run_id: str
    attempt_id: str
    attempt_number: int
    entry_path: str
    group: str
    group_values: Mapping[str, Any] = field(default_factory=dict, repr=False)
    run_variables: Mapping[str, Any] = field(default_factory=dict, repr=False)
    parameters: Mapping[str, Any] = field(default_factory=dict, repr=False)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    allowed_secrets: frozenset[str] = frozenset()
    locked_steps: frozenset[str] = frozenset()
    dependencies: Mapping[str, Dependency] = field(default_factory=dict)
    delivery: Path | None = None
    thread: Path | None = None
    route_id: str = ""
    task_id: str = ""
    session_token: str = field(default="", repr=False)
    tools_socket: Path | None = None
    ceiling: Limits | None = None
    ambient: Mapping[str, str] = field(default_factory=dict, repr=False)
    stopped: Callable[[], bool] = field(default=never, repr=False, compare=False)

    @property
    def attempt(self) -> AttemptPlaces:
        return self.workflow.attempt(self.run_id, self.step.id, self.attempt_number)


class ContractRefused(Exception):
    """Nothing ran: the attempt could not be resolved into a contract. `outcome` and `reason` are BEHAVIOUR 5's words.

    `findings` are preflight's, when it was preflight that refused.
    """

    def __init__(
        self, outcome: Outcome, reason: str, detail: str, findings: tuple[preflight.Finding, ...] = ()
    ) -> None:
        super().__init__(outcome, reason, detail)
        self.outcome = outcome
        self.reason = reason
        self.detail = detail
        self.findings = findings

    def __str__(self) -> str:
        return self.detail
