"""Rows and files of runs that lie behind, as the runner would have left them."""

# ruff: noqa: E501 - rows as they would lie there, one a line
from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from apps.runs.models import Attempt, Run, RunEvent, StepRun
from apps.workflows.models import Workflow
from apps.workflows.places import make_way, places_of
from engine.ids import uuid7
from engine.logs import LogWriter, Masker, Stream
from engine.sandbox.limits import Limits
from tests.factories import Cast


def make_run(
    cast: Cast, workflow: Workflow, status: str, ago_s: float, took_s: float | None = None, **keys: Any
) -> Run:
    queued = timezone.now() - timedelta(seconds=ago_s)
    started = None if status == "queued" else queued + timedelta(seconds=0.4)
    ended = queued + timedelta(seconds=0.4 + took_s) if took_s is not None else None
    run = Run.objects.create(
        id=uuid7(), team=cast.team, workflow=workflow, status=status, owner=cast.owner, initiator=None,
        entry_path=keys.pop("entry_path", "github"), trigger_name=keys.pop("trigger_name", "pull-requests"),
        group=keys.pop("group", "default"), initiated_by=keys.pop("initiated_by", "GitHub: Codertocat"),
        plan_revision=workflow.revision, queued_at=queued, started_at=started, finished_at=ended, **keys,
    )  # fmt: skip
    RunEvent.objects.create(run=run, team_id=cast.team.pk, seq=1, kind="run.queued", at=queued)
    Run.objects.filter(pk=run.pk).update(last_seq=1)
    run.last_seq = 1
    return run


def make_step(run: Run, position: int, step_id: str, title: str, status: str, **keys: Any) -> StepRun:
    return StepRun.objects.create(
        run=run,
        step_id=step_id,
        title=title,
        position=position,
        status=status,
        kind=keys.pop("kind", "scripted"),
        **keys,
    )


def make_attempt(
    step: StepRun, number: int, at: datetime, wait_s: float, took_s: float | None, outcome: str, **keys: Any
) -> Attempt:
    started = at + timedelta(seconds=wait_s)
    log = keys.pop("log", [])
    files = keys.pop("files", {})
    fingerprint = hashlib.sha256(f"{step.step_id}{step.run.group}".encode()).hexdigest()
    attempt = Attempt.objects.create(
        step_run=step, number=number, plan_revision=step.run.plan_revision, outcome=outcome, queued_at=at,
        started_at=started, finished_at=started + timedelta(seconds=took_s) if took_s is not None else None,
        fingerprint=fingerprint, inputs_digest=hashlib.sha256(str(step.run.pk).encode()).hexdigest(),
        code_digest=hashlib.sha256(step.step_id.encode()).hexdigest(), contract=_contract(step, fingerprint),
        outputs=[{"path": p, "bytes": len(t.encode()), "sha256": hashlib.sha256(t.encode()).hexdigest()} for p, t in files.items()],
        **keys,
    )  # fmt: skip
    _write(step, attempt, log, files)
    return attempt


def _write(step: StepRun, attempt: Attempt, log: list[str], files: dict[str, str]) -> None:
    places = places_of(step.run.workflow).attempt(str(step.run_id), step.step_id, attempt.number)
    make_way(places.root)
    places.out.mkdir(mode=0o770, exist_ok=True)
    for name, text in files.items():
        (places.out / name).parent.mkdir(parents=True, exist_ok=True)
        (places.out / name).write_text(text)
    writer = LogWriter(places, Masker(), Limits())
    for place, line in enumerate(log):
        stream = Stream.ERR if line.startswith(("Traceback", "  File", "KeyError")) else Stream.OUT
        writer.write(stream, f"{line}\n".encode(), place * 40)
    if attempt.finished_at:
        seal = writer.seal(len(log) * 40)
        Attempt.objects.filter(pk=attempt.pk).update(seal=seal.record())


def _contract(step: StepRun, fingerprint: str) -> dict[str, Any]:
    return {
        "version": 1, "plan_revision": step.run.plan_revision, "group": step.run.group, "fingerprint": fingerprint,
        "entry": f"/pulse/code/{step.step_id}/main.py", "cwd": f"/pulse/code/{step.step_id}",
        "interpreter": {"version": "3.11.2", "sha256": "9c1e2f…"},
        "env": {"VAR_GROUP_NAME": step.run.group, "STEP_ID": step.step_id, "RUN_ID": "<run:RUN_ID>", "SECRET_GITHUB_TOKEN": "<secret:1f7a>"},
        "dropped": [{"name": "AWS_PROFILE", "rule": "nothing of the platform's own environment is inherited"}],
        "limits": {"timeout_s": 60, "memory_mb": 1024, "processes": 128},
        "network": {"hosts": []}, "argv": [], "step": {"id": step.step_id, "kind": step.kind, "tools": ["mutate_workflow_db"]},
        "attempt": {"run_id": str(step.run_id), "number": 1, "entry_path": step.run.entry_path},
    }  # fmt: skip
