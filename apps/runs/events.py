"""Events: what changed, numbered without gaps within a run, committed with the change they tell of."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from django.db import connection, transaction
from django.db.models import F
from django.utils import timezone

from apps.runs.errors import LeaseLost
from apps.runs.kinds import Kind
from apps.runs.models import Run, RunEvent

MAX_DATA_BYTES = 4096
CHANNEL = (
    "pulse_events"  # PostgreSQL's NOTIFY channel; the payload is "<team id> <run id> <last sequence number> <kinds>"
)


@dataclass(frozen=True)
class News:
    """One event that is about to be written. `ids` name rows, `data` says what a reader needs, never a secret."""

    kind: Kind
    ids: Mapping[str, str | None] = field(default_factory=dict)
    data: Mapping[str, object] = field(default_factory=dict)


def record(
    run: Run | uuid.UUID,
    kind: Kind,
    ids: Mapping[str, str | None] | None = None,
    data: Mapping[str, object] | None = None,
) -> int:
    """Writes one event under the run's row lock, in the caller's transaction; returns its sequence number."""
    return record_all(run, [News(kind, ids or {}, data or {})])


def record_all(run: Run | uuid.UUID, news: Sequence[News], *, fence: int | None = None) -> int:
    """Writes events in their order and returns the last sequence number.

    With a `fence` nothing is written unless the run is running under that fence: else `LeaseLost`.
    Must be called inside a transaction: the row lock it takes is what makes the numbers gapless.
    """
    if not transaction.get_connection().in_atomic_block:
        raise transaction.TransactionManagementError("Events are recorded in the transaction they tell of.")
    run_id = run.pk if isinstance(run, Run) else run
    rows = Run.objects.filter(pk=run_id)
    if fence is not None:
        rows = rows.filter(fence=fence, status=Run.Status.RUNNING)
    if not rows.update(last_seq=F("last_seq") + len(news)):
        raise LeaseLost(f"Run {run_id} is no longer held under fence {fence}.")
    last, team_id = Run.objects.values_list("last_seq", "team_id").get(pk=run_id)
    at = timezone.now()
    RunEvent.objects.bulk_create(
        RunEvent(
            run_id=run_id,
            team_id=team_id,
            seq=last - len(news) + 1 + place,
            kind=one.kind,
            at=at,
            ids={name: value for name, value in one.ids.items() if value},
            data=_bounded(one.data),
        )
        for place, one in enumerate(news)
    )
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            kinds = ",".join(sorted({str(one.kind) for one in news}))
            cursor.execute("SELECT pg_notify(%s, %s)", [CHANNEL, f"{team_id} {run_id} {last} {kinds}"])
    return last


def _bounded(data: Mapping[str, object]) -> dict[str, object]:
    """The data of an event, cut to what an event may carry: long texts first, else only the names that were there."""
    whole = dict(data)
    if len(json.dumps(whole, default=str)) <= MAX_DATA_BYTES:
        return whole
    cut = {
        name: value[:400] + "…" if isinstance(value, str) and len(value) > 400 else value
        for name, value in whole.items()
    }
    if len(json.dumps(cut, default=str)) <= MAX_DATA_BYTES:
        return cut
    return {"left_out": sorted(whole)}
