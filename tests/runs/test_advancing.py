"""A run from its start to its end, through the real sandbox."""

from __future__ import annotations

import pytest

from apps.runs import reading, tasks
from apps.runs.models import Attempt
from apps.tools.models import ToolSession
from apps.workflows.models import Workflow
from tests.runs.starts import fresh, kinds, start

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sandbox, pytest.mark.databases]


def test_one_step_runs_to_its_end_and_leaves_its_evidence(workflow: Workflow) -> None:
    run = start(workflow)
    tasks.advance_run(str(run.pk))
    run = fresh(run)
    attempt = Attempt.objects.get()
    assert (attempt.outcome, attempt.detail) == ("succeeded", "")
    assert (run.status, run.lease_pid) == ("succeeded", None)
    assert attempt.seal is not None
    assert attempt.seal["lines"] == 1
    assert attempt.fingerprint
    assert attempt.contract is not None
    assert attempt.pid is not None
    assert not ToolSession.objects.exclude(state="ended").exists()
    assert kinds(run) == [
        "run.queued",
        "run.started",
        "step.started",
        "attempt.started",
        "attempt.ended",
        "step.succeeded",
        "run.succeeded",
    ]
    shown = reading.run_json(run)
    assert shown["steps"][0]["attempts"][0]["outcome"] == "succeeded"
