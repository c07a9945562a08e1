"""The live parts of a run's page: one template, one root id and one reader each, for page, htmx and socket alike.

What is pushed does not depend on who looks: buttons that need a role carry the class `needs-run` and the page's body
says what its reader may do. A `per_step` fragment shows one step of the reader's choice, so that the socket only
says it is stale and the page fetches it again from its own `hx-get`.

In the page: `<body data-topic="run:<id>" data-after="<last seq>">`; each root has `data-fragment="<name>"`, an `hx-get`
of itself and the htmx trigger `stale`; roots of team pages say with `data-stale-on="run. step."` which kinds of events
(by prefix) make them stale. live.js sets `body.dataset.live` to `live`, `catching-up` or `stale`, morphs pushed HTML in
with Idiomorph (outerHTML, by root id), then dispatches `pulse:fragment` on the body. Without a socket htmx polls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.template.loader import render_to_string

from apps.runs import artifacts, evidence
from apps.runs.kinds import Kind
from apps.runs.models import Run
from apps.runs.page import RunPage, StepLine

POLL_S = 4


@dataclass(frozen=True)
class Choice:
    """Which step and attempt a page shows; empty and 0: the one that opens by itself."""

    step_id: str = ""
    number: int = 0


@dataclass(frozen=True)
class Fragment:
    """One live part. `context` reads what the template needs, beside `page` and `run`."""

    template: str
    root_id: str
    context: Callable[[RunPage, Choice], dict[str, Any]]
    per_step: bool = False


def _nothing(page: RunPage, choice: Choice) -> dict[str, Any]:
    return {}


def _notice(page: RunPage, choice: Choice) -> dict[str, Any]:
    undecided = [(line, evidence.changes_of(page.run, line.step.step_id)) for line in page.needs_choice]
    return {"undecided": undecided}


def _calls(page: RunPage, choice: Choice) -> dict[str, Any]:
    return {"calls": evidence.calls(page.run)}


def _ownership(page: RunPage, choice: Choice) -> dict[str, Any]:
    return {"ownership": evidence.ownership(page.run)}


def _result(page: RunPage, choice: Choice) -> dict[str, Any]:
    line, shown = _chosen(page, choice)
    files = artifacts.listing(shown.attempt) if shown else []
    previews = artifacts.previews(shown.attempt, files) if shown else []
    return {"line": line, "shown": shown, "files": files, "previews": previews}


def _contract(page: RunPage, choice: Choice) -> dict[str, Any]:
    line, shown = _chosen(page, choice)
    return {"line": line, "shown": shown, "sections": evidence.sections(shown.attempt.contract if shown else None)}


def _chosen(page: RunPage, choice: Choice) -> tuple[StepLine | None, Any]:
    line = page.opened(choice.step_id)
    return line, line.attempt(choice.number) if line else None


FRAGMENTS: Mapping[str, Fragment] = {
    "head": Fragment("runs/_head.html", "run-head", _nothing),
    "notice": Fragment("runs/_notice.html", "run-notice", _notice),
    "steps": Fragment("runs/_steps.html", "run-steps", _nothing),
    "timeline": Fragment("runs/_timeline.html", "run-timeline", _nothing),
    "graph": Fragment("runs/_graph.html", "run-graph", _nothing),
    "calls": Fragment("runs/_calls.html", "run-calls", _calls),
    "ownership": Fragment("runs/_ownership.html", "run-ownership", _ownership),
    "result": Fragment("runs/_result.html", "run-result", _result, per_step=True),
    "contract": Fragment("runs/_contract.html", "run-contract", _contract, per_step=True),
}

_RUN = ("head", "notice", "steps", "timeline", "graph", "ownership")
_STEP = ("head", "notice", "steps", "timeline", "graph", "result", "contract")
_NOT_SHOWN = frozenset({Kind.LOG_GREW})
STALE: Mapping[Kind, tuple[str, ...]] = {
    kind: ()
    if kind in _NOT_SHOWN
    else ("calls",)
    if kind is Kind.TOOL_CALLED
    else ("ownership", "calls")
    if kind is Kind.TOOL_REJECTED
    else _RUN
    if kind.startswith("run.")
    else (*_STEP, "ownership")
    for kind in Kind
}


def stale_after(kinds: Iterable[str]) -> list[str]:
    """The names of the fragments that events of these kinds make stale, each once, in page order."""
    touched = {name for kind in kinds for name in STALE[Kind(kind)]}
    return [name for name in FRAGMENTS if name in touched]


def render(name: str, run: Run, choice: Choice | None = None) -> str:
    """One fragment as HTML, read now."""
    return render_of(name, RunPage(run), choice or Choice())


def render_all(names: Iterable[str], run: Run) -> dict[str, str]:
    """Several fragments of one reading of the run: what the socket pushes after a batch of events. Not per step."""
    page = RunPage(run)
    return {name: render_of(name, page, Choice()) for name in names if not FRAGMENTS[name].per_step}


def render_of(name: str, page: RunPage, choice: Choice) -> str:
    fragment = FRAGMENTS[name]
    return render_to_string(fragment.template, context_of(name, page, choice))


def context_of(name: str, page: RunPage, choice: Choice) -> dict[str, Any]:
    fragment = FRAGMENTS[name]
    base = {"page": page, "run": page.run, "choice": choice, "fragment": name, "root_id": fragment.root_id}
    return {**base, "poll_s": POLL_S, **fragment.context(page, choice)}
