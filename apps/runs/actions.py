"""Every write to a run that people and entry paths ask for. Each is atomic, and safe to call in the caller's transaction."""

from __future__ import annotations

import uuid
from typing import Literal, TypedDict, Unpack

from pydantic import JsonValue

from apps.accounts.models import User
from apps.runs.models import Run
from apps.workflows.models import Workflow

Choice = Literal["run_again", "mark_succeeded", "mark_failed"]


class StartFacts(TypedDict, total=False):
    """What a start may say. `parameters`, `route_selections` and `human_inputs` are keyed by step id."""

    group: str  # named by the caller; without it `trigger_group`, else the only enabled one, else `default`
    trigger_group: str
    initiator: User | None
    trigger_name: str
    delivery_id: uuid.UUID | None
    run_id: uuid.UUID | None  # the caller made it before, to name files by it
    variables: dict[str, JsonValue] | None
    parameters: dict[str, dict[str, JsonValue]] | None
    route_selections: dict[str, str] | None
    human_inputs: dict[str, JsonValue] | None
    only_step: str
    rerun_of: Run | None
    rerun_from: str


def start_run(*, workflow: Workflow, entry_path: str, initiated_by: str, **facts: Unpack[StartFacts]) -> Run:
    """Makes a run in the caller's transaction: run, encrypted input, steps, run session and first event; queued on commit.

    Raises RunRefused, and nothing was written. The group's values and `variables` are pinned from here on.
    """
    raise NotImplementedError


def check_start(*, workflow: Workflow, entry_path: str, **facts: Unpack[StartFacts]) -> None:
    """Everything `start_run` would refuse, without writing anything. Raises RunRefused."""
    raise NotImplementedError


def cancel_run(run: Run, *, by: str) -> Run:
    """Ends the run, or asks its worker to. The status says cancelled only after the process tree is gone."""
    raise NotImplementedError


def rerun(run: Run, *, by: User, from_step: str = "", only_failed: bool = False) -> Run:
    """A new run with this one's inputs: whole, from a step on with the earlier outputs copied in, or from what failed."""
    raise NotImplementedError


def settle_attention(run: Run, *, by: User, choice: Choice, step_id: str) -> Run:
    """A person's decision on a step whose end is not known."""
    raise NotImplementedError
