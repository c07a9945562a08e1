"""Cancel: a wish that reaches any run from any process. The status says cancelled only after the tree is gone."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from apps.runs import endings, events
from apps.runs.errors import RunRefused
from apps.runs.kinds import Kind
from apps.runs.models import Run
from engine.states import RunStatus


def cancel_run(run: Run, *, by: str) -> Run:
    """Ends a run that no worker holds; asks the worker of one that is held. Asking twice changes nothing.

    Raises RunRefused (409) for a run that has ended. Returns the run as it is then.
    """
    with transaction.atomic():
        now = Run.objects.locked().select_related("workflow", "team").get(pk=run.pk)
        if now.status in Run.TERMINAL:
            raise RunRefused(409, "run_ended", f"The run has ended already, as {now.status}. Nothing was cancelled.")
        if now.cancel_requested_at is None:
            Run.objects.filter(pk=now.pk).update(cancel_requested_at=timezone.now(), cancel_requested_by=by[:200])
            events.record(now, Kind.RUN_CANCEL_REQUESTED, data={"by": by})
        if now.status != Run.Status.RUNNING and not now.may_still_run:
            endings.finish(now, RunStatus.CANCELLED, reason=f"Cancelled by {by}.", reason_code="cancelled")
    return Run.objects.select_related("workflow", "team").get(pk=run.pk)
