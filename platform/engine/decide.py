"""What a run does next: a pure function of its plan, its steps' states and its inputs (BEHAVIOUR 3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from engine import routes
from engine.document import END, ROUTE_FILE, BranchStep, Dependency, Plan, Route, ScriptedStep, Step, ways_on
from engine.outcomes import Outcome
from engine.states import RunStatus, StepStatus

Source = Literal["caller", "file", "default"]


@dataclass(frozen=True)
class StepView:
    """What the decision needs to know of one step of the run. `next_step_id` is what a finished branch decided."""

    status: StepStatus
    next_step_id: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "status", StepStatus(self.status))  # a row holds it as plain text


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
    """Start an attempt of this step. `skipped`: steps that a change of the plan has put out of reach."""

    step_id: str
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True)
class TakeRoute:
    """The branch has decided; record it, then ask again. `skipped`: steps that can no longer be reached."""

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
    """The run ends so. `skipped`: steps that were never begun."""

    status: RunStatus
    reason: str = ""
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True)
class Hold:
    """Nothing to do now: this step runs, waits, or needs a person."""

    step_id: str
    status: StepStatus


Decision = StartStep | TakeRoute | Fail | Finish | Hold


PENDING = StepView(StepStatus.PENDING)


def next_decision(plan: Plan, step_states: Mapping[str, StepView], inputs: Inputs) -> Decision:
    """Ask again after each answer was carried out. A step that is in no row yet counts as pending.

    The run is walked from the plan's first step along what was done; the first step that is not done decides.
    """
    if inputs.only_step:
        return _single_step(plan, step_states, inputs)
    here, walked = plan.steps[0].id, set[str]()
    while here != END:
        step = plan.step(here)
        if step is None or here in walked:
            return _no_way_on(plan, here, step_states)
        walked.add(here)
        view = step_states.get(here, PENDING)
        if view.status is not StepStatus.SUCCEEDED:
            return _at(plan, step, step_states, inputs)
        here = view.next_step_id or plan.next_of(here)
    return Finish(RunStatus.SUCCEEDED, skipped=_pending(plan, step_states))


def _single_step(plan: Plan, step_states: Mapping[str, StepView], inputs: Inputs) -> Decision:
    step = plan.step(inputs.only_step)
    if step is None:
        return _no_way_on(plan, inputs.only_step, step_states)
    if step_states.get(step.id, PENDING).status is StepStatus.SUCCEEDED:
        return Finish(RunStatus.SUCCEEDED)
    decision = _at(plan, step, step_states, inputs)
    return replace(decision, skipped=()) if isinstance(decision, Finish | TakeRoute | StartStep) else decision


def _at(plan: Plan, step: Step, step_states: Mapping[str, StepView], inputs: Inputs) -> Decision:
    """The decision at the first step that did not succeed."""
    match step_states.get(step.id, PENDING).status:
        case StepStatus.PENDING:
            return _begin(plan, step, step_states, inputs)
        case StepStatus.FAILED:
            return Finish(RunStatus.FAILED, f"Step {step.id!r} failed.", _pending(plan, step_states))
        case StepStatus.CANCELLED:
            return Finish(RunStatus.CANCELLED, f"Step {step.id!r} was cancelled.", _pending(plan, step_states))
        case StepStatus.SKIPPED:
            reason = f"Step {step.id!r} was skipped before a change of the plan led back to it."
            return Finish(RunStatus.FAILED, reason, _pending(plan, step_states))
        case status:
            return Hold(step.id, status)


def _begin(plan: Plan, step: Step, step_states: Mapping[str, StepView], inputs: Inputs) -> Decision:
    if isinstance(step, ScriptedStep):
        return StartStep(step.id, _left_behind(plan, step.id, step_states))
    if not isinstance(step, BranchStep):
        detail = f"This release cannot run a step of kind {step.kind}."
        return Fail(step.id, Outcome.HARNESS_REJECTED, "not_supported_yet", detail)
    chosen = _route(step, inputs)
    if isinstance(chosen, Fail):
        return chosen
    route, source = chosen
    skipped = tuple(s for s in _left_behind(plan, route.next_step_id, step_states) if s != step.id)
    return TakeRoute(step.id, route.route_id, source, route.next_step_id, skipped)


def _route(branch: BranchStep, inputs: Inputs) -> tuple[Route, Source] | Fail:
    """The caller's word, else the file's, else the default. One that is there but invalid fails the step."""
    if branch.id in inputs.route_selections:
        route = routes.choose(branch, inputs.route_selections[branch.id])
        return (route, "caller") if route else _fail(branch, "route_invalid", "The caller selected no route of it.")
    dependency = branch.route_file
    text = None
    if dependency is not None:
        try:
            text = inputs.route_file(branch, dependency)
            if text is not None:
                return routes.read(branch, text), "file"
        except (RouteFileUnreadable, routes.SelectionInvalid) as error:
            return _fail(branch, "route_invalid", f"{dependency.path} selects no route: {error}.")
    default = next((route for route in branch.routes if route.route_id == branch.default_route_id), None)
    if default is not None:
        return default, "default"
    return _fail(branch, "no_route", _why_none(dependency))


def _why_none(dependency: Dependency | None) -> str:
    where = f"{dependency.path} is not there" if dependency else f"no {ROUTE_FILE} is among its dependencies"
    return f"Nobody selected a route: the caller did not, {where}, and it has no default."


def _fail(branch: BranchStep, reason: str, detail: str) -> Fail:
    return Fail(branch.id, Outcome.HARNESS_REJECTED, reason, f"{detail} {routes.options(branch)}")


def _left_behind(plan: Plan, here: str, step_states: Mapping[str, StepView]) -> tuple[str, ...]:
    ways = ways_on(plan)
    ahead: set[str] = set()
    waiting = [here]
    while waiting:
        step_id = waiting.pop()
        if step_id in ways and step_id not in ahead:
            ahead.add(step_id)
            waiting.extend(ways[step_id])
    return tuple(step_id for step_id in _pending(plan, step_states) if step_id not in ahead)


def _no_way_on(plan: Plan, step_id: str, step_states: Mapping[str, StepView]) -> Finish:
    reason = f"The plan was changed while the run was under way: it cannot go on to {step_id!r}."
    return Finish(RunStatus.FAILED, reason, _pending(plan, step_states))


def _pending(plan: Plan, step_states: Mapping[str, StepView]) -> tuple[str, ...]:
    """Steps that were never begun, in the plan's order; then those that a change took out of the plan."""
    known = dict.fromkeys([*(step.id for step in plan.steps), *step_states])
    return tuple(step_id for step_id in known if step_states.get(step_id, PENDING).status is StepStatus.PENDING)
