"""What the dashboard shows: what runs, what stands still and why, what fails grouped by fault, and who works."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, Max, Min, Q, QuerySet
from django.db.models.functions import TruncHour, TruncMinute
from django.utils import timezone

from apps.accounts.access import team_ids
from apps.accounts.models import User
from apps.dashboard.sparks import Spark, spark
from apps.rows import newest
from apps.runs import silence
from apps.runs.listing import RunRow
from apps.runs.models import Attempt, Run, RunQuerySet, StepRun, Worker
from apps.runs.timing import SILENT_S
from apps.tools import sessions_page
from apps.tools.models import OwnershipDiagnostic
from apps.webhooks.deliveries_page import Row
from apps.webhooks.models import Delivery

ROWS = 8
DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
FINE = ("", "succeeded", "cancelled")


@dataclass(frozen=True)
class Fault:
    """Runs that failed alike in the last day: the same step of the same workflow, for the same reason."""

    team: str
    workflow: str
    title: str
    step_id: str
    outcome: str
    reason: str
    runs: int
    first: datetime
    last: datetime


@dataclass(frozen=True)
class Seat:
    """A process that works for the platform."""

    worker: Worker
    busy: int
    age_s: float

    @property
    def heard(self) -> bool:
        return self.age_s < SILENT_S

    @property
    def state(self) -> str:
        if self.worker.stopped_at or not self.heard:
            return "failed"
        return "warning" if self.worker.refusal else "succeeded"


@dataclass(frozen=True)
class Counts:
    running: int
    unheard: int
    standing: int
    attention: int
    failed: int
    rejected: int
    calls: int
    refused: int


@dataclass(frozen=True)
class Board:
    """The dashboard at one moment."""

    counts: Counts
    running: list[RunRow]
    steps: dict[uuid.UUID, str]
    standing: list[RunRow]
    attention: list[RunRow]
    faults: list[Fault]
    rejections: list[OwnershipDiagnostic]
    refused: list[Row]
    seats: list[Seat]
    releases: tuple[str, ...]
    queue_age_s: float | None
    hour: Spark
    day: Spark
    empty: bool


def board(user: User, *, now: datetime | None = None) -> Board:
    """Everything of the reader's teams, in a fixed number of queries."""
    at = now or timezone.now()
    teams = team_ids(user)
    mine = Run.objects.filter(team__in=teams)
    by_status = _by_status(mine)
    rejections = sessions_page.rejections(user, since=at - DAY)
    refused = Delivery.objects.filter(team__in=teams, status__gte=400, received_at__gte=at - DAY)
    running = _rows([mine.running()], at)
    hour, day = _sparks(mine, at)
    seats = _seats(at)
    counts = Counts(
        running=by_status[Run.Status.RUNNING],
        unheard=silence.unheard(at).filter(team__in=teams).count(),
        standing=by_status[Run.Status.QUEUED] + by_status[Run.Status.WAITING],
        attention=by_status[Run.Status.NEEDS_ATTENTION],
        failed=mine.filter(status=Run.Status.FAILED, queued_at__gte=at - DAY).count(),
        rejected=rejections.count(),
        calls=sessions_page.calls_since(user, at - DAY),
        refused=refused.count(),
    )
    return Board(
        counts=counts,
        running=running,
        steps=_current_steps(running),
        standing=_rows([mine.filter(status=status) for status in (Run.Status.QUEUED, Run.Status.WAITING)], at),
        attention=_rows([mine.filter(status=Run.Status.NEEDS_ATTENTION)], at),
        faults=_faults(mine, at),
        rejections=list(rejections[:ROWS]),
        refused=[Row(delivery) for delivery in refused.with_names().newest_first()[:ROWS]],
        seats=seats,
        releases=tuple(sorted({seat.worker.release for seat in seats})),
        queue_age_s=_queue_age(mine, at),
        hour=hour,
        day=day,
        empty=not (by_status or day.total),
    )


def _by_status(mine: RunQuerySet) -> Counter[str]:
    return Counter(dict(mine.unfinished().values_list("status").annotate(Count("pk")).order_by()))


def _rows(streams: Iterable[RunQuerySet], at: datetime) -> list[RunRow]:
    listed = [runs.select_related("workflow__team", "owner", "lease_worker").newest_first() for runs in streams]
    return [RunRow(run, at) for run in newest(listed, ROWS, lambda run: (run.queued_at, run.pk))]


def _current_steps(rows: Iterable[RunRow]) -> dict[uuid.UUID, str]:
    steps = StepRun.objects.filter(run__in=[row.run.pk for row in rows], status=StepRun.Status.RUNNING)
    return dict(steps.values_list("run_id", "title"))


def _faults(mine: QuerySet[Run], at: datetime) -> list[Fault]:
    failed = (Run.Status.FAILED, Run.Status.NEEDS_ATTENTION)
    recent = mine.filter(status__in=failed, queued_at__gte=at - DAY).values("pk")
    workflow = "step_run__run__workflow"
    groups = (
        Attempt.objects.filter(step_run__run__in=recent, step_run__status__in=("failed", "needs_attention"))
        .exclude(outcome__in=FINE)
        .values_list(
            f"{workflow}__team__slug",
            f"{workflow}__slug",
            f"{workflow}__title",
            "step_run__step_id",
            "outcome",
            "reason",
        )
        .annotate(runs=Count("step_run__run", distinct=True), first=Min("queued_at"), last=Max("queued_at"))
        .order_by("-runs", "-last")
    )
    return [Fault(*row) for row in groups[:ROWS]]


def _queue_age(mine: RunQuerySet, at: datetime) -> float | None:
    """How long the oldest run has been waiting for a worker, not for a slot of its own workflow."""
    waits = mine.queued().exclude(reason_code=Run.NO_SLOT)
    oldest = waits.aggregate(oldest=Min("queued_at"))["oldest"]
    return (at - oldest).total_seconds() if oldest else None


def _seats(at: datetime) -> list[Seat]:
    there = Worker.objects.filter(Q(stopped_at=None) & Q(heartbeat_at__gte=at - HOUR))
    busy = Count("leases", filter=Q(leases__status=Run.Status.RUNNING))
    return [
        Seat(worker, getattr(worker, "busy", 0), (at - worker.heartbeat_at).total_seconds())
        for worker in there.annotate(busy=busy).order_by("role", "started_at")
    ]


def _sparks(mine: QuerySet[Run], at: datetime) -> tuple[Spark, Spark]:
    """Runs by when they were queued: a bar a minute for an hour, a bar an hour for a day."""
    minutes = mine.filter(queued_at__gte=at - HOUR).annotate(slot=TruncMinute("queued_at"))
    hours = mine.filter(queued_at__gte=at - DAY).annotate(slot=TruncHour("queued_at"))
    bad = Count("pk", filter=Q(status__in=(Run.Status.FAILED, Run.Status.NEEDS_ATTENTION)))
    by_minute = minutes.values_list("slot").annotate(all=Count("pk"), bad=bad).order_by()
    by_hour = hours.values_list("slot").annotate(all=Count("pk"), bad=bad).order_by()
    return (
        spark(by_minute, end=at.replace(second=0, microsecond=0), step=timedelta(minutes=1), bars=60),
        spark(by_hour, end=at.replace(minute=0, second=0, microsecond=0), step=HOUR, bars=24),
    )
