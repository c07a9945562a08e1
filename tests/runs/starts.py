"""Short ways for these tests to start runs and to take them."""

from __future__ import annotations

from typing import Any

from apps.runs import actions, leases
from apps.runs.leases import Lease
from apps.runs.models import Run, RunEvent
from apps.workflows.models import Workflow


def start(workflow: Workflow, **facts: Any) -> Run:
    return actions.start_run(workflow=workflow, entry_path="manual", initiated_by="a test", **facts)


def running(workflow: Workflow) -> tuple[Run, Lease]:
    """A run that this process holds."""
    run = start(workflow)
    lease = leases.claim(run.pk)
    assert lease is not None
    return fresh(run), lease


def fresh(run: Run) -> Run:
    return Run.objects.get(pk=run.pk)


def kinds(run: Run) -> list[str]:
    rows = RunEvent.objects.filter(run=run).order_by("seq")
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1)), "events are numbered without gaps"
    return [row.kind for row in rows]
