"""What the sessions page shows: the live tree of authorities and their children, and every refusal of ownership."""

from __future__ import annotations

import uuid
from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, Q, QuerySet
from django.utils import timezone

from apps.accounts.access import team_ids
from apps.accounts.models import User
from apps.rows import newest
from apps.tools.models import OwnershipDiagnostic, ToolCall, ToolSession
from apps.workflows.models import Workflow
from engine.ids import first_of

SESSIONS = 200
REJECTIONS = 50
CALLS = 25
KEPT = timedelta(days=1)


@dataclass(frozen=True)
class Branch:
    """One session with how often it was used, and the sessions that act with its identity."""

    session: ToolSession
    calls: int
    refused: int
    children: tuple[Branch, ...]


@dataclass(frozen=True)
class Tree:
    branches: tuple[Branch, ...]
    live: int
    rejections: list[OwnershipDiagnostic]
    with_ended: bool


@dataclass(frozen=True)
class CallList:
    session: ToolSession
    rows: list[ToolCall]
    total: int


def tree(user: User, *, with_ended: bool = False) -> Tree:
    """The sessions that have not ended, or also those of the last day, as authorities with their children."""
    since: dict[str, dict[str, uuid.UUID]] = {
        state: {} for state in ToolSession.State if state != ToolSession.State.ENDED
    }
    if with_ended:
        since[ToolSession.State.ENDED] = {"id__gte": first_of(timezone.now() - KEPT)}
    visible = ToolSession.objects.select_related("workflow__team", "acting_user").order_by("-id")
    streams = [
        visible.filter(team_id=team, state=state, **bound) for team in team_ids(user) for state, bound in since.items()
    ]
    rows = newest(streams, SESSIONS, lambda session: session.pk)
    counts = _counts(rows)
    shown = {row.pk for row in rows}
    below: dict[uuid.UUID | None, list[ToolSession]] = defaultdict(list)
    for row in rows:
        below[row.parent_id if row.parent_id in shown else None].append(row)
    branches = tuple(_branch(row, below, counts) for row in below[None])
    live = sum(row.state == ToolSession.State.LIVE for row in rows)
    return Tree(branches, live, list(rejections(user)[:REJECTIONS]), with_ended)


def rejections(user: User, *, since: datetime | None = None) -> QuerySet[OwnershipDiagnostic]:
    """Refusals of ownership with a workflow of the reader's on either side, newest first."""
    mine = Workflow.objects.for_user(user).values("pk")
    rows = OwnershipDiagnostic.objects.filter(Q(workflow__in=mine) | Q(owner_workflow__in=mine))
    if since is not None:
        rows = rows.filter(at__gte=since)
    return rows.select_related("workflow__team", "owner_workflow__team").order_by("-at")


def calls_since(user: User, since: datetime) -> int:
    """How many calls of sessions of the reader's workflows are on record from then on."""
    mine = Workflow.objects.for_user(user).values("pk")
    return ToolCall.objects.filter(workflow_id__in=mine, started_at__gte=since).count()


def calls_of(session: ToolSession) -> CallList:
    """The newest calls that one session made."""
    rows = ToolCall.objects.filter(session=session)
    return CallList(session, list(rows.order_by("-seq")[:CALLS]), rows.count())


def _counts(rows: list[ToolSession]) -> dict[uuid.UUID, tuple[int, int]]:
    counted = (
        ToolCall.objects.filter(session__in=[row.pk for row in rows])
        .values("session")
        .annotate(total=Count("pk"), refused=Count("pk", filter=~Q(verdict="allowed")))
    )
    return {row["session"]: (row["total"], row["refused"]) for row in counted}


def _branch(
    row: ToolSession, below: dict[uuid.UUID | None, list[ToolSession]], counts: dict[uuid.UUID, tuple[int, int]]
) -> Branch:
    total, refused = counts.get(row.pk, (0, 0))
    return Branch(row, total, refused, tuple(_branch(child, below, counts) for child in below[row.pk]))
