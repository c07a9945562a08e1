"""The rows of processes: who works, when it was last heard of, who leads."""

from __future__ import annotations

import os
import uuid
from datetime import timedelta

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone

from apps.runs import whereabouts
from apps.runs.models import Leader, StartKey, Worker
from apps.runs.timing import LEADER_S
from engine.sandbox import processes

KEPT = timedelta(days=7)
WORKER = "worker"


def register(role: str, *, slots: int = 0, refusal: str = "") -> Worker:
    """A row for this process. `slots` is how many runs it can advance at once, `refusal` why it starts no step."""
    now = timezone.now()
    return Worker.objects.create(
        role=role,
        host=whereabouts.host(),
        pid=os.getpid(),
        pid_started=processes.started(os.getpid()) or "",
        release=settings.PULSE_RELEASE,
        slots=slots,
        refusal=refusal,
        started_at=now,
        heartbeat_at=now,
    )


def beat(worker_id: uuid.UUID) -> None:
    Worker.objects.filter(pk=worker_id).update(heartbeat_at=timezone.now())


def mark(worker_id: uuid.UUID, **fields: object) -> None:
    Worker.objects.filter(pk=worker_id).update(**fields)


def lead(worker_id: uuid.UUID, name: str = "leader") -> bool:
    """Becomes or stays the leader for a while; False when another is."""
    now = timezone.now()
    until = now + timedelta(seconds=LEADER_S)
    free = Q(worker_id=worker_id) | Q(worker_id=None) | Q(until__lt=now) | Q(until__gt=now + timedelta(minutes=1))
    if Leader.objects.filter(free, name=name).update(worker_id=worker_id, until=until):
        return True
    try:
        with transaction.atomic():
            Leader.objects.create(name=name, worker_id=worker_id, until=until)
    except IntegrityError:
        return False
    return True


def adopt_orphans() -> list[Worker]:
    """Workers of this host whose supervisor is gone: their runs go over to the next cluster after the running step.

    As long as their cluster lives they are heard of: by who adopted them.
    """
    left = []
    for row in Worker.objects.filter(role=WORKER, stopped_at=None):
        here = row.host == whereabouts.host()
        gone = whereabouts.gone_with_its_boot(row.host)
        if not gone and not (here and not processes.alive(row.pid, row.pid_started)):
            continue
        cluster = here and row.cluster_pid is not None and processes.alive(row.cluster_pid, row.cluster_started)
        now = timezone.now()
        ended = {"heartbeat_at": now} if cluster else {"stopped_at": now}
        mark(row.pk, stopping_at=row.stopping_at or now, **ended)
        if cluster:
            left.append(row)
    return left


def tidy() -> None:
    """Forgets processes and idempotency keys that are long past."""
    before = timezone.now() - KEPT
    Worker.objects.filter(Q(stopped_at__lt=before) | Q(heartbeat_at__lt=before)).delete()
    StartKey.objects.filter(made_at__lt=before).delete()
