"""Events: what changed, numbered without gaps within a run, committed with the change they tell of."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.db import connection, transaction
from django.utils import timezone

from apps import rows
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
    last, team_id = _take_numbers(run_id, len(news), fence)
    at = timezone.now()
    first = last - len(news) + 1
    rows.insert([_row(run_id, team_id, first + place, at, one) for place, one in enumerate(news)])
    _notify(team_id, run_id, last, news)
    return last


def record_first(news: Sequence[tuple[Run, News]]) -> None:
    """Writes the first event of each of these runs, in the transaction that made them with `last_seq` 1."""
    at = timezone.now()
    rows.insert([_row(run.pk, run.team_id, 1, at, one) for run, one in news])
    for run, one in news:
        _notify(run.team_id, run.pk, 1, [one])


def _take_numbers(run_id: uuid.UUID, count: int, fence: int | None) -> tuple[int, uuid.UUID]:
    """The last of `count` new numbers, and the run's team: one statement, which takes the run's row lock."""
    held = "" if fence is None else " AND fence = %s AND status = 'running'"
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE runs_run SET last_seq = last_seq + %s WHERE id = %s{held} RETURNING last_seq, team_id",  # noqa: S608
            [count, rows.key(run_id), *([] if fence is None else [fence])],
        )
        row = cursor.fetchone()
    if row is None:
        raise LeaseLost(f"Run {run_id} is no longer held under fence {fence}.")
    return int(row[0]), row[1] if isinstance(row[1], uuid.UUID) else uuid.UUID(row[1])


def _row(run_id: uuid.UUID, team_id: uuid.UUID, seq: int, at: datetime, one: News) -> RunEvent:
    ids = {name: value for name, value in one.ids.items() if value}
    return RunEvent(run_id=run_id, team_id=team_id, seq=seq, kind=one.kind, at=at, ids=ids, data=_bounded(one.data))


def _notify(team_id: uuid.UUID, run_id: uuid.UUID, last: int, news: Sequence[News]) -> None:
    if connection.vendor == "postgresql":
        kinds = ",".join(sorted({str(one.kind) for one in news}))
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_notify(%s, %s)", [CHANNEL, f"{team_id} {run_id} {last} {kinds}"])


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
