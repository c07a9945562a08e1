"""How the product is: alive, ready, and in numbers for Prometheus."""

from __future__ import annotations

import contextlib
import hmac
import os
import shutil
import tempfile
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from django.conf import settings
from django.core.cache import cache
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.db.models import Count, Min
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from apps.runs.models import Run, Worker
from apps.runs.timing import SILENT_S
from apps.tools.models import OwnershipDiagnostic

STARTED_AT = timezone.now()
WRITTEN = 64 * 1024  # to see whether anything can be stored


@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """Alive: 200 whenever this process answers. Names its release and each worker's; another release is a warning."""
    processes: list[dict[str, object]] = []
    warnings: list[str] = []
    try:
        for worker in _living():
            processes.append(_told(worker))
            if worker.release != settings.PULSE_RELEASE:
                warnings.append(
                    f"A {worker.role} runs release {worker.release}, this web process {settings.PULSE_RELEASE}."
                    " Restart the older one."
                )
    except DatabaseError:
        warnings.append("The database does not answer.")
    return JsonResponse(
        {
            "status": "ok",
            "release": settings.PULSE_RELEASE,
            "started_at": STARTED_AT.isoformat(),
            "pid": os.getpid(),
            "processes": processes,
            "warnings": warnings,
        }
    )


@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """Ready: 200 when requests can be served whole, else 503 and what is missing.

    `steps` says whether a worker can run steps; it fails nobody: pages are served and runs wait without one.
    """
    checks = {"database": _database(), "cache": _cache(), "data": _data()}
    ready = all(answer == "ok" for answer in checks.values())
    told = {"status": "ready" if ready else "not_ready", **checks, "steps": _steps()}
    return JsonResponse(told, status=200 if ready else 503)


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Prometheus text, for this machine or for who has `PULSE_METRICS_TOKEN`."""
    if not _may_read_metrics(request):
        return HttpResponse("Not found\n", status=404, content_type="text/plain")
    lines = "\n".join(_lines(timezone.now()))
    return HttpResponse(lines + "\n", content_type="text/plain; version=0.0.4; charset=utf-8")


def _living() -> list[Worker]:
    return list(Worker.objects.heard_since(timezone.now() - timedelta(seconds=SILENT_S)).order_by("started_at"))


def _told(worker: Worker) -> dict[str, object]:
    return {
        "role": worker.role,
        "pid": worker.pid,
        "release": worker.release,
        "started_at": worker.started_at.isoformat(),
        "heartbeat_at": worker.heartbeat_at.isoformat(),
    }


def _database() -> str:
    try:
        executor = MigrationExecutor(connection)
        if executor.migration_plan(executor.loader.graph.leaf_nodes()):
            return "migrations are missing: run manage.py migrate"
    except DatabaseError:
        return "does not answer"
    return "ok"


def _cache() -> str:
    try:
        cache.set("readyz", "1", 5)
        return "ok" if cache.get("readyz") == "1" else "does not keep what it is given"
    except OSError:
        return "does not answer"
    except Exception as wrong:  # noqa: BLE001 - redis raises errors of its own that are no OSError
        return f"does not answer ({type(wrong).__name__})"


def _data() -> str:
    """By writing: of a disk that is full, a quota, a disk gone read-only, permissions say nothing."""
    for folder in _disks():
        try:
            with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
                if file.write(os.urandom(WRITTEN)) < WRITTEN:
                    return f"{folder.name} cannot be written: No space left on device"
        except OSError as wrong:
            return f"{folder.name} cannot be written: {wrong.strerror}"
    return "ok"


def _disks() -> list[Path]:
    """The data folder, and those in it that lie on a disk of their own."""
    found: dict[int, Path] = {}
    for folder in (settings.PULSE_DATA, settings.PULSE_DATA / "database", settings.PULSE_DATA / "workspaces"):
        with contextlib.suppress(FileNotFoundError):
            found.setdefault(folder.stat().st_dev, folder)
    return [*found.values()] or [settings.PULSE_DATA]


def _steps() -> str:
    try:
        workers = [worker for worker in _living() if worker.role == "worker" and not worker.stopping_at]
    except DatabaseError:
        return "not known: the database does not answer"
    if sum(worker.slots for worker in workers):
        return "ok"
    if not workers:
        return "no worker is heard of (0 slots): runs wait"
    return "no worker can run steps (0 slots): runs wait; manage.py doctor says why"


def _may_read_metrics(request: HttpRequest) -> bool:
    if settings.PULSE_METRICS_TOKEN:
        given = request.headers.get("Authorization", "").encode()
        return hmac.compare_digest(given, f"Bearer {settings.PULSE_METRICS_TOKEN}".encode())
    return request.META.get("REMOTE_ADDR") in {"127.0.0.1", "::1"}


def _lines(now: datetime) -> Iterator[str]:
    yield "# HELP pulse_info The release of this web process."
    yield "# TYPE pulse_info gauge"
    yield f'pulse_info{{release="{settings.PULSE_RELEASE}"}} 1'
    counts = dict(Run.objects.unfinished().values_list("status").annotate(n=Count("id")).order_by())
    yield "# HELP pulse_runs_unfinished Runs that have not ended."
    yield "# TYPE pulse_runs_unfinished gauge"
    for status in Run.Status:
        if status not in Run.TERMINAL:
            yield f'pulse_runs_unfinished{{status="{status.value}"}} {counts.get(status.value, 0)}'
    oldest = Run.objects.queued().aggregate(oldest=Min("queued_at"))["oldest"]
    yield "# HELP pulse_queue_oldest_seconds How long the oldest queued run has waited."
    yield "# TYPE pulse_queue_oldest_seconds gauge"
    yield f"pulse_queue_oldest_seconds {(now - oldest).total_seconds() if oldest else 0:.3f}"
    yield "# HELP pulse_processes Processes that are heard of."
    yield "# TYPE pulse_processes gauge"
    living = _living()
    for role in sorted({worker.role for worker in living}):
        yield f'pulse_processes{{role="{role}"}} {sum(worker.role == role for worker in living)}'
    yield "# HELP pulse_slots Runs that the living workers can advance at once."
    yield "# TYPE pulse_slots gauge"
    yield f"pulse_slots {sum(worker.slots for worker in living)}"
    yield "# HELP pulse_data_writable Whether something can be stored in the data folder: 1 or 0."
    yield "# TYPE pulse_data_writable gauge"
    yield f"pulse_data_writable {int(_data() == 'ok')}"
    yield "# HELP pulse_data_free_bytes Room on the fullest of the disks of the data folder."
    yield "# TYPE pulse_data_free_bytes gauge"
    with contextlib.suppress(OSError):  # the folder is gone: not known
        yield f"pulse_data_free_bytes {min(shutil.disk_usage(folder).free for folder in _disks())}"
    yield "# HELP pulse_ownership_rejections_total Tool calls refused for reasons of ownership."
    yield "# TYPE pulse_ownership_rejections_total counter"
    yield f"pulse_ownership_rejections_total {OwnershipDiagnostic.objects.count()}"
