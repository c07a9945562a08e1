"""Running runs whose worker is not heard of: what is said of them, in the same words everywhere.

Their status stays what the rows say. Whether they still run nobody knows, so no time of theirs counts on.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.utils import timezone

from apps.runs.models import Run, RunQuerySet
from apps.runs.timing import SILENT_S

CODE = "unheard"
FREES = "Its worker is heard of again, or is started anew: `manage.py up` does that by itself, within 30 s."


def since(run: Run, now: datetime | None = None) -> datetime | None:
    """When the run's worker was last heard of, once that is too long ago; None while all is well."""
    worker = run.lease_worker if run.status == Run.Status.RUNNING else None
    if worker is None or ((now or timezone.now()) - worker.heartbeat_at).total_seconds() <= SILENT_S:
        return None
    return worker.heartbeat_at


def unheard(now: datetime | None = None) -> RunQuerySet:
    """The running runs of which `since` says something."""
    bound = (now or timezone.now()) - timedelta(seconds=SILENT_S)
    return Run.objects.running().filter(lease_worker__heartbeat_at__lt=bound)


def words(run: Run, now: datetime | None = None) -> str:
    """What people are told; empty while all is well."""
    last = since(run, now)
    if last is None:
        return ""
    return f"Its worker was last heard of at {last:%Y-%m-%d %H:%M:%S} UTC; whether it still runs is not known."
