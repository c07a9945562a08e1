"""Every write to a run that people and entry paths ask for. Each is atomic, also within a transaction of the caller."""

from __future__ import annotations

from apps.runs.cancelling import cancel_run
from apps.runs.reruns import rerun
from apps.runs.settling import Choice, settle_attention
from apps.runs.starting import Admitted, EntryPath, Start, StartFacts, check_start, is_full, start_run, start_runs

__all__ = [
    "Admitted",
    "Choice",
    "EntryPath",
    "Start",
    "StartFacts",
    "cancel_run",
    "check_start",
    "is_full",
    "rerun",
    "settle_attention",
    "start_run",
    "start_runs",
]
