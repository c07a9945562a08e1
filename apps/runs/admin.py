"""The platform's own processes for admins, to look at: which live, which release they run, and what they lack."""

from __future__ import annotations

from datetime import timedelta

from django.contrib import admin
from django.utils import timezone

from apps.accounts.admin_base import ReadOnlyAdmin
from apps.runs.models import Worker
from apps.runs.timing import SILENT_S


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin):
    list_display = ["role", "state", "host", "pid", "release", "slots", "heartbeat_at", "started_at", "refusal"]
    list_filter = ["role", "release"]
    ordering = ["-heartbeat_at"]

    @admin.display(description="State")
    def state(self, worker: Worker) -> str:
        """As far as it is known: of one that was not heard of lately nobody knows whether it lives."""
        if worker.stopped_at:
            return "stopped"
        if worker.heartbeat_at < timezone.now() - timedelta(seconds=SILENT_S):
            return "not heard of"
        return "stopping" if worker.stopping_at else "alive"
