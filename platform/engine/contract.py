"""The execution contract: everything one attempt needs, resolved once, by one maker (BEHAVIOUR 4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.places import AttemptPlaces, DataPlaces, WorkflowPlaces

if TYPE_CHECKING:
    from engine.document import Step
    from engine.sandbox.host import HostTools


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
    served. `digest_key` keys the digests of secret values. `ambient` is the platform's own environment: nothing of
    it reaches the step, and what looks as if it was meant to is reported as dropped.
    """

    step: Step
    plan_revision: int
    data: DataPlaces
    workflow: WorkflowPlaces
    host: HostTools
    digest_key: bytes
    workflow_id: str
    run_id: str
    step_run_id: str
    attempt_id: str
    attempt_number: int
    entry_path: str
    group: str
    group_values: Mapping[str, Any] = field(default_factory=dict)
    run_variables: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
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
    ambient: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def attempt(self) -> AttemptPlaces:
        return self.workflow.attempt(self.run_id, self.step.id, self.attempt_number)


class ContractRefused(Exception):
    """Nothing ran: the attempt could not be resolved into a contract. `outcome` and `reason` are BEHAVIOUR 5's words.

    `findings` are preflight's, when it was preflight that refused.
    """

    def __init__(self, outcome: str, reason: str, detail: str, findings: tuple[Any, ...] = ()) -> None:
        super().__init__(outcome, reason, detail)
        self.outcome = outcome
        self.reason = reason
        self.detail = detail
        self.findings = findings

    def __str__(self) -> str:
        return self.detail


@dataclass(frozen=True)
class Dropped:
    """A configured name that does not reach the step, and the rule that says so."""

    name: str
    rule: str


@dataclass(frozen=True)
class Contract:
    """The resolved, complete, immutable specification of one attempt. Made by `resolve` alone."""

    ask: Ask
    fingerprint: str
    inputs_digest: str
    code_digest: str
    env: Mapping[str, str] = field(repr=False)
    argv: tuple[str, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    findings: tuple[Any, ...] = ()

    def record(self) -> dict[str, Any]:
        """What is stored and shown: no secret value, no parameter value."""
        raise NotImplementedError


@dataclass(frozen=True)
class Change:
    """One difference between two contract records: the path to it, and both sides (None: not there)."""

    path: str
    before: Any
    after: Any


def resolve(ask: Ask) -> Contract:
    """The one maker of contracts. Raises ContractRefused, and has started nothing when it does."""
    raise NotImplementedError


def diff(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """What differs between two contract records."""
    raise NotImplementedError
