"""What pages and the API show of runs. Reading never changes anything."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from apps.runs import silence
from apps.runs.models import Attempt, Run, RunEvent, StepRun, Worker
from apps.runs.texts import Texts
from apps.runs.timing import SILENT_S
from apps.workflows.models import Workflow

MAX_EVENTS = 1000


@dataclass(frozen=True)
class Holder:
    """A run that holds a slot, what it is at, and since when."""

    run_id: str
    step_id: str
    since: datetime | None


@dataclass(frozen=True)
class Standstill:
    """Why a run is not running, what holds what it needs, and what will free it. `code` is empty when it is running.

    Codes: slot, busy, no_worker, no_sandbox, stopping, backoff, waiting, needs_attention, starting, unheard, ended.
    """

    code: str
    text: str
    holders: tuple[Holder, ...] = ()
    frees: str = ""


def run_json(run: Run) -> dict[str, Any]:
    """`GET /runs/{id}`: the run, its steps and their attempts. No parameter value, no secret."""
    still, texts = why_not_running(run), Texts(run)
    return {
        "id": str(run.pk),
        "workflow": run.workflow.slug,
        "scope": run.scope,
        "status": run.status,
        "cancelling": run.is_cancelling,
        "reason": run.reason or still.text,
        "reason_code": run.reason_code or still.code,
        "may_still_run": run.may_still_run,
        "unheard_since": silence.since(run),
        "trigger": {
            "entry_path": run.entry_path,
            "name": run.trigger_name,
            "delivery_id": _text(run.delivery_id),
            "initiated_by": run.initiated_by,
        },
        "group": run.group,
        "plan_revision": run.plan_revision,
        "rerun_of": _text(run.rerun_of_id),
        "rerun_from": run.rerun_from,
        "queued_at": run.queued_at,
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "last_seq": run.last_seq,
        "artifacts_expired": run.artifacts_expired,
        "steps": [step_json(step, texts) for step in run.steps.prefetch_related("attempts")],
    }


def step_json(step: StepRun, texts: Texts) -> dict[str, Any]:
    attempts = list(step.attempts.all())
    return {
        "step_id": step.step_id,
        "kind": step.kind,
        "title": texts.title(step),
        "description": texts.description(step, attempts[-1].plan_revision if attempts else 0),
        "status": step.status,
        "reason": step.reason,
        "decision": step.decision,
        "reused_from": _text(step.reused_from),
        "reused_files": step.reused_files or [],
        "started_at": step.started_at,
        "finished_at": step.finished_at,
        "attempts": [attempt_json(attempt) for attempt in attempts],
    }


def attempt_json(attempt: Attempt) -> dict[str, Any]:
    return {
        "number": attempt.number,
        "outcome": attempt.outcome or "running",
        "reason": attempt.reason,
        "detail": attempt.detail,
        "exit_code": attempt.exit_code,
        "fingerprint": attempt.fingerprint,
        "inputs_digest": attempt.inputs_digest,
        "code_digest": attempt.code_digest,
        "code_changed": bool(attempt.code_digest_end and attempt.code_digest_end != attempt.code_digest),
        "plan_revision": attempt.plan_revision,
        "started_at": attempt.started_at,
        "finished_at": attempt.finished_at,
        "duration_ms": _milliseconds(attempt.started_at, attempt.finished_at),
        "log": {name: (attempt.seal or {}).get(name) for name in ("lines", "bytes", "sha256", "lost")},
        "outputs": attempt.outputs,
        "claims": attempt.claims,
        "validation": attempt.validation,
    }


def events_after(run: Run, after: int = 0, limit: int = 200) -> list[RunEvent]:
    """The events of a run with a sequence number above `after`, in order."""
    return list(run.events.filter(seq__gt=after).order_by("seq")[: min(max(limit, 1), MAX_EVENTS)])


def event_json(event: RunEvent) -> dict[str, Any]:
    return {
        "stream": f"run:{event.run_id}",
        "seq": event.seq,
        "kind": event.kind,
        "at": event.at,
        "ids": event.ids,
        "data": event.data,
    }


def attempt_of(run: Run, step_id: str, number: int = 0) -> Attempt | None:
    """The attempt of that number, or the latest; None when there is none."""
    rows = Attempt.objects.select_related("step_run").filter(step_run__run=run, step_run__step_id=step_id)
    found = (rows.filter(number=number) if number else rows.order_by("-number")).first()
    if found is not None:
        found.step_run.run = run  # one object, however it is reached
    return found


def slot_holders(workflow: Workflow) -> list[Holder]:
    """The runs that hold a slot of the workflow, the longest holder first."""
    runs = Run.objects.filter(workflow=workflow).running().order_by("started_at")
    return _holders(runs)


def why_not_running(run: Run) -> Standstill:
    """What a person who waits for this run wants to know."""
    if run.status == Run.Status.QUEUED:
        return _why_queued(run)
    if run.status == Run.Status.WAITING:
        return Standstill(run.reason_code or "waiting", run.reason, frees=_at(run.wake_at))
    if run.status == Run.Status.NEEDS_ATTENTION:
        text = run.reason or "It needs a person's decision."
        return Standstill("needs_attention", text, frees="A person decides: run again, mark succeeded, mark failed.")
    if run.status in Run.TERMINAL:
        return Standstill("ended", run.reason)
    unheard = silence.words(run)
    return Standstill(silence.CODE, unheard, frees=silence.FREES) if unheard else Standstill("", "")


def live_workers(now: datetime | None = None) -> list[Worker]:
    """The supervisors that are heard of, also those that start no step."""
    since = (now or timezone.now()) - timedelta(seconds=SILENT_S)
    return list(Worker.objects.filter(role="worker").heard_since(since).order_by("started_at"))


def _why_queued(run: Run) -> Standstill:
    if run.reason_code == Run.NO_SLOT:
        holders = tuple(slot_holders(run.workflow))
        return Standstill(Run.NO_SLOT, run.reason, holders, "The end of one of these runs.")
    workers = live_workers()
    able = [worker for worker in workers if worker.slots and worker.stopping_at is None]
    if not able:
        return _why_no_worker(run, workers)
    busy = Run.objects.running().filter(lease_worker__in=able)
    slots = sum(worker.slots for worker in able)
    if busy.count() >= slots:
        text = f"All {slots} places of the workers are taken."
        return Standstill(
            "busy", text, tuple(_holders(busy.order_by("started_at")[:20])), "The end of one of these runs."
        )
    return Standstill("starting", run.reason or "It is about to be taken by a worker.", frees="The next free worker.")


def _why_no_worker(run: Run, workers: list[Worker]) -> Standstill:
    refusals = [worker.refusal for worker in workers if worker.refusal]
    if refusals:
        text = f"No step can be confined on this host, so none is started. {refusals[0]}"
        return Standstill(
            "no_sandbox", text, frees="A host that can confine steps; `manage.py doctor` says what is missing."
        )
    if any(worker.stopping_at for worker in workers):
        return Standstill("stopping", "The workers are being stopped.", frees="The next start of a worker.")
    text = run.reason or "No worker is heard of."
    return Standstill("no_worker", text, frees="The start of one: `manage.py worker`, or `manage.py up` for all.")


def _holders(runs: Iterable[Run]) -> list[Holder]:
    found = list(runs)
    rows = StepRun.objects.filter(run__in=[run.pk for run in found], status=StepRun.Status.RUNNING)
    steps = dict(rows.values_list("run_id", "step_id"))
    return [Holder(str(run.pk), steps.get(run.pk, ""), run.started_at) for run in found]


def _at(moment: datetime | None) -> str:
    return f"The time {moment:%H:%M:%S} UTC." if moment else ""


def _milliseconds(start: datetime | None, end: datetime | None) -> int | None:
    return round((end - start).total_seconds() * 1000) if start and end else None


def _text(value: object) -> str | None:
    return str(value) if value else None
