"""A run followed in a terminal: what happens, how it ends, and the end of its log."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

from django.conf import settings

from apps.runs import outputs, reading, tails
from apps.runs.models import Attempt, Run, RunEvent, StepRun
from engine.sandbox.errors import FileRefused
from engine.sandbox.files import Beneath

LARGEST_REPORT = 64 * 1024
PATIENCE_S = 8.0  # so long a run may be queued before somebody is told that nobody takes it
POLL_S = 0.1

Say = Callable[[str], None]


class NotTaken(Exception):
    """The run stays queued: nobody is there to take it. The text says why and what frees it."""


def follow(run_id: uuid.UUID, say: Say, *, within_s: float = 120, patience_s: float = PATIENCE_S) -> Run:
    """Tell each event of the run as it happens, until it ends, needs a person, or the time is up; the run as it is.

    Raises NotTaken when for `patience_s` there is no worker to take it, or none that can confine a step.
    """
    after, deadline, impatient = 0, time.monotonic() + within_s, time.monotonic() + patience_s
    while True:
        run = Run.objects.select_related("workflow").get(pk=run_id)
        for event in RunEvent.objects.filter(run_id=run_id, seq__gt=after).order_by("seq"):
            after = event.seq
            if line := _told(event):
                say(line)
        still = run.status in {Run.Status.QUEUED, Run.Status.RUNNING, Run.Status.WAITING}
        if after >= run.last_seq and not still:
            return run
        if time.monotonic() > deadline:
            return run
        if run.status == Run.Status.QUEUED and time.monotonic() > impatient:
            stands = reading.why_not_running(run)
            if stands.code in {"no_worker", "no_sandbox"}:
                raise NotTaken(f"{stands.text} The run stays queued. What frees it: {stands.frees}")
        time.sleep(POLL_S)


def tell_result(run: Run, say: Say) -> None:
    """The run's end, its report or why there is none, and where to look at it."""
    say("")
    say(f"The run is {run.status}{f': {run.reason}' if run.reason else ''}.")
    report = _report(run)
    for line in report.splitlines():
        say(f"    {tails.plain(line)}")
    attempts = Attempt.objects.filter(step_run__run=run).select_related("step_run")
    for attempt in attempts.exclude(outcome__in=["", "succeeded"]):
        say(f"    {attempt.step_run.step_id}: {attempt.outcome} {attempt.reason} {attempt.detail}".rstrip())
    _tell_log(run, say)
    say("")
    say(f"Dashboard  {settings.PULSE_BASE_URL}/")
    say(f"This run   {settings.PULSE_BASE_URL}/runs/{run.pk}/")


def _tell_log(run: Run, say: Say) -> None:
    if (tail := tails.of_run(run)) is None:
        return
    say("")
    say(f"The last lines of the step {tail.step_id}:" if tail.earlier else f"What the step {tail.step_id} printed:")
    for line in tail.lines:
        say(f"    {line}")


def _told(event: RunEvent) -> str:
    """One event as a line, or nothing for those that are too many to tell."""
    if event.kind in {"log.grew", "tool.called"}:
        return ""
    step = event.ids.get("step_id") or event.data.get("step_id") or ""
    more = event.data.get("outcome") or event.data.get("route_id") or event.data.get("reason") or ""
    return f"  {event.at:%H:%M:%S}  {event.kind:<22} {step} {more}".rstrip()


def _report(run: Run) -> str:
    step = StepRun.objects.filter(run=run, step_id="review").select_related("run__workflow").first()
    places = outputs.of_step(step) if step else None
    if places is None:
        return ""
    try:
        with Beneath(places.out) as folder:
            return folder.read("report.md", LARGEST_REPORT).decode("utf-8", "replace")
    except FileRefused:
        return ""
