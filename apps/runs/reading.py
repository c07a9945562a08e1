"""What pages and the API show of runs. Reading never changes anything."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from apps.runs.models import Run
from apps.workflows.models import Workflow


@dataclass(frozen=True)
class Standstill:
    """Why a run is not running, what holds what it needs, and what will free it. `code` is empty when it is running."""

    code: str
    text: str
    holders: tuple[Holder, ...] = ()
    frees: str = ""


@dataclass(frozen=True)
class Holder:
    """A run that holds a slot."""

    run_id: str
    step_id: str
    since: datetime | None


def run_json(run: Run) -> dict[str, object]:
    """`GET /runs/{id}`: {id, status, reason, trigger, steps: [{step_id, status, attempts: [...]}]}."""
    raise NotImplementedError


def events_json(run: Run, *, after: int = 0, limit: int = 200) -> list[dict[str, object]]:
    """The events of a run with a sequence number above `after`, in order."""
    raise NotImplementedError


def why_not_running(run: Run) -> Standstill:
    raise NotImplementedError


def slot_holders(workflow: Workflow) -> list[Holder]:
    raise NotImplementedError
