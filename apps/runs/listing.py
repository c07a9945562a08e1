"""Lists of runs: a page of rows, and what can be filtered by."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from django.utils import timezone

from apps.accounts import access
from apps.accounts.models import User
from apps.rows import newest as newest_rows
from apps.runs import silence
from apps.runs.forms import RunFilter
from apps.runs.models import Run, RunQuerySet
from apps.runs.starting import OFFERED
from apps.workflows.models import Workflow

ROWS = 50
ROWS_OF_WORKFLOW = 20
BARS = 30
FULL_BAR = 40


@dataclass(frozen=True)
class RunRow:
    """One run in a list, at the moment the list was read."""

    run: Run
    at: datetime

    @property
    def state(self) -> str:
        return self.run.shown_status

    @property
    def seconds(self) -> float | None:
        """As long as it is known to have run; None, too, of one that stands still until a person decides."""
        if self.run.status == Run.Status.NEEDS_ATTENTION:
            return None
        run, end = self.run, self.run.finished_at or silence.since(self.run, self.at) or self.at
        return (end - run.started_at).total_seconds() if run.started_at else None

    @property
    def unheard(self) -> str:
        """What is said of a run whose worker is not heard of; else empty."""
        return silence.words(self.run, self.at)


@dataclass(frozen=True)
class RunRows:
    rows: list[RunRow]
    more: str  # the id the next page starts after; empty at the end
    workflows: list[Workflow]
    entry_paths: tuple[str, ...] = OFFERED


@dataclass(frozen=True)
class RunBar:
    """One of the last runs as a bar: its height says how long it took against the others."""

    row: RunRow
    x: int
    y: float
    height: float


def runs(user: User, wanted: RunFilter) -> RunRows:
    teams = access.team_ids(user)
    rows, more = _page([found for team in teams for found in wanted.streams(Run.objects.filter(team=team))], ROWS)
    workflows = Workflow.objects.filter(team__in=teams).select_related("team").order_by("slug")
    return RunRows(rows, more, list(workflows))


def of_workflow(workflow: Workflow, wanted: RunFilter) -> RunRows:
    rows, more = _page(wanted.streams(Run.objects.filter(workflow=workflow)), ROWS_OF_WORKFLOW)
    return RunRows(rows, more, [])


def newest(workflow: Workflow, count: int = BARS) -> list[RunRow]:
    found = Run.objects.filter(workflow=workflow).select_related("lease_worker").newest_first()[:count]
    at = timezone.now()
    return [RunRow(run, at) for run in found]


def bars(rows: list[RunRow]) -> list[RunBar]:
    """The last runs, oldest first, as bars of up to FULL_BAR units."""
    shown = rows[:BARS][::-1]
    seconds = [row.seconds or 0 for row in shown]
    full = min(max(seconds, default=0), 3 * median(seconds or [0])) or 1  # one that hangs must not flatten the others
    heights = [max(4.0, min(FULL_BAR, FULL_BAR * took / full)) for took in seconds]
    return [
        RunBar(row, 10 * place, round(FULL_BAR - height, 1), round(height, 1))
        for place, (row, height) in enumerate(zip(shown, heights, strict=True))
    ]


def _page(found: Iterable[RunQuerySet], size: int) -> tuple[list[RunRow], str]:
    """The first `size` runs, and the id of the last one when there are more."""
    streams = [runs.select_related("workflow__team", "owner", "lease_worker") for runs in found]
    rows = newest_rows(streams, size + 1, lambda run: (run.queued_at, run.pk))
    at = timezone.now()
    more = str(rows[size - 1].pk) if len(rows) > size else ""
    return [RunRow(run, at) for run in rows[:size]], more
