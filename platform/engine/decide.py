"""What a run does next: a pure function of its plan, its steps' states and its inputs (BEHAVIOUR 3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from engine.document import BranchStep, Dependency, Plan
from engine.outcomes import Outcome
from engine.states import RunStatus, StepStatus

Source = Literal["caller", "file", "default"]


@dataclass(frozen=True)
class StepView:
    """What the decision needs to know of one step of the run. `next_step_id` is what a finished branch decided."""

    status: StepStatus
    next_step_id: str = ""


class RouteFileUnreadable(Exception):
    """The route file is there but may not be read: no regular file, too large, not text."""


def no_route_file(_: BranchStep, __: Dependency) -> str | None:
    return None


@dataclass(frozen=True)
class Inputs:
    """What the caller brought. `route_file` reads the text of a branch's `route_selection.json`.

    It is asked for at most one dependency, returns None when the producer's latest succeeded attempt of this run
    left no such file, and raises `RouteFileUnreadable` when the file is there but must not be read.
    """

    route_selections: Mapping[str, str] = field(default_factory=dict)
    route_file: Callable[[BranchStep, Dependency], str | None] = no_route_file
    only_step: str = ""


@dataclass(frozen=True)
class StartStep:
    """Start an attempt of this step. `skipped` lists steps that can no longer be reached."""

    step_id: str
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True)
class TakeRoute:
    """The branch has decided; record it, then ask again."""

    step_id: str
    route_id: str
    source: Source
    next_step_id: str
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fail:
    """This step fails without anything having run. `reason` is a word, `detail` is for people."""

    step_id: str
    outcome: Outcome
    reason: str
    detail: str


@dataclass(frozen=True)
class Finish:
    """The run ends so."""

    status: RunStatus
    reason: str = ""
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True)
class Hold:
    """Nothing to do now: this step runs, waits, or needs a person."""

    step_id: str
    status: StepStatus


Decision = StartStep | TakeRoute | Fail | Finish | Hold


def next_decision(plan: Plan, step_states: Mapping[str, StepView], inputs: Inputs) -> Decision:
    """Ask again after each answer was carried out. A step that is in no row yet counts as pending."""
    raise NotImplementedError
