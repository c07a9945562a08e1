"""The demonstration: a real signed GitHub event to a real hook, and its run followed to the end.

`manage.py up --demo` does it once on the first start, `manage.py demo` again. It goes the way GitHub goes: over HTTP,
with the bytes as they are and a signature over them.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from django.conf import settings

from apps.accounts import actions as accounts
from apps.accounts.models import Audit, Team, User
from apps.runs import outputs, reading, tails
from apps.runs.models import Attempt, Run, RunEvent, StepRun
from apps.webhooks import actions
from apps.webhooks.judging import credentials_of
from apps.webhooks.kinds import github
from apps.webhooks.models import Delivery, Trigger
from apps.workflows import actions as workflows
from apps.workflows.models import Workflow
from engine.sandbox.errors import FileRefused
from engine.sandbox.files import Beneath

TEAM = "demo"
WORKFLOWS = ("pr-review", "market-checks", "noisy")
TRIGGER = "pull-requests"
BODY = "payloads/github__pull_request_opened.json"
LARGEST_REPORT = 64 * 1024
PATIENCE_S = 8.0  # so long a run may be queued before somebody is told that nobody takes it
POLL_S = 0.1
START_IT = "Nothing was sent. Start Pulse with `make up`; if it serves on another port, set PULSE_PORT to that one."

Say = Callable[[str], None]


class DemoFailed(Exception):
    """The demonstration could not go on. The text says what happened and what to do."""


@dataclass(frozen=True)
class Sent:
    """What the hook answered."""

    status: int
    run_id: uuid.UUID


def examples() -> Path:
    folder: Path = settings.BASE_DIR / "docs" / "examples"
    return folder


def prepare(by: User) -> Trigger:
    """The demo team with its three workflows, and the trigger that GitHub's events come to.

    What is there already stays as it is, also when somebody has changed it.
    """
    team = Team.objects.filter(slug=TEAM).first() or accounts.create_team(slug=TEAM, name="Demo", owner=by)
    for slug in WORKFLOWS:
        if not Workflow.objects.filter(team=team, slug=slug).exists():
            workflows.import_workflow(team, by, examples() / slug)
    hooks = Trigger.objects.filter(workflow__team=team, workflow__slug=WORKFLOWS[0], name=TRIGGER, enabled=True)
    for hook in hooks.select_related("workflow"):
        if not credentials_of(hook).secrets:
            actions.rotate(hook, by=by)
    return trigger()


def unfinished() -> bool:
    """Whether the demonstration was never laid out whole, or its sample never came: a fresh or a cut-off start.

    A team of another name, or a workflow that somebody deleted from the demo team, says that people have taken over.
    """
    team = Team.objects.filter(slug=TEAM).first()
    if team is None:
        return not Team.objects.exists()
    if Audit.objects.filter(team=team, action="workflow.deleted").exists():
        return False
    return not Delivery.objects.filter(workflow__team=team).exists()


def trigger() -> Trigger:
    """The demo's trigger. Raises DemoFailed when it is not there or is switched off."""
    rows = Trigger.objects.filter(workflow__team__slug=TEAM, workflow__slug=WORKFLOWS[0], name=TRIGGER, enabled=True)
    found = rows.select_related("workflow").first()
    if found is None or not credentials_of(found).secrets:
        raise DemoFailed(
            f"The workflow {WORKFLOWS[0]} of the team {TEAM} has no live trigger {TRIGGER!r}. Nothing was sent."
            " `manage.py up --demo` makes it on a fresh data folder; switch it on if somebody switched it off."
        )
    return found


def send(to: Trigger, *, base_url: str = "", within_s: float = 30) -> Sent:
    """Post the sample body to the hook, signed over the exact bytes; waits for a server that is just starting."""
    body = (examples() / BODY).read_bytes()
    request = Request(  # noqa: S310 - our own address
        f"{base_url or local_url()}/hooks/{to.key}",
        data=body,
        method="POST",
        headers={
            "Content-Type": "application/json",
            "User-Agent": "GitHub-Hookshot/demo",
            "X-GitHub-Event": "pull_request",
            "X-GitHub-Delivery": str(uuid.uuid4()),
            "X-Hub-Signature-256": github.sign(credentials_of(to).secrets[0], body),
        },
    )
    status, answer = _post(request, time.monotonic() + within_s)
    if status != HTTPStatus.ACCEPTED:
        raise DemoFailed(f"The hook answered {status}: {answer.get('detail', answer)}. No run was made.")
    return Sent(status, uuid.UUID(str(answer["run_id"])))


def follow(run_id: uuid.UUID, say: Say, *, within_s: float = 120, patience_s: float = PATIENCE_S) -> Run:
    """Tell each event of the run as it happens, until it ends, needs a person, or the time is up; the run as it is.

    Raises DemoFailed when for `patience_s` there is no worker to take it, or none that can confine a step.
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
                raise DemoFailed(f"{stands.text} The run stays queued. What frees it: {stands.frees}")
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


def local_url() -> str:
    """Where this machine's own web process listens, whatever proxy stands before it."""
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(settings.PULSE_HOST, settings.PULSE_HOST)  # noqa: S104
    return f"http://{host}:{settings.PULSE_PORT}"


def _post(request: Request, deadline: float) -> tuple[int, dict[str, object]]:
    while True:
        try:
            with urlopen(request, timeout=30) as response:  # noqa: S310
                return response.status, json.loads(response.read())
        except HTTPError as wrong:
            return wrong.code, _json_or_nothing(wrong.read())
        except (URLError, ConnectionError) as wrong:
            if time.monotonic() > deadline:
                raise DemoFailed(
                    f"No web process answers at {request.full_url.split('/hooks')[0]}: {wrong}. {START_IT}"
                ) from None
            time.sleep(POLL_S)


def _json_or_nothing(data: bytes) -> dict[str, object]:
    try:
        answer = json.loads(data)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


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
