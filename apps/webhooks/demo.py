"""The demonstration: a real signed GitHub event to a real hook.

`manage.py up --demo` does it once on the first start, `manage.py demo` again. It goes the way GitHub goes: over HTTP,
with the bytes as they are and a signature over them.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from django.conf import settings

from apps.accounts import actions as accounts
from apps.accounts.models import Audit, Team, User
from apps.webhooks import actions
from apps.webhooks.judging import credentials_of
from apps.webhooks.kinds import github
from apps.webhooks.models import Delivery, Trigger
from apps.workflows import actions as workflows
from apps.workflows.models import Workflow

TEAM = "demo"
WORKFLOWS = ("pr-review", "market-checks", "noisy")
TRIGGER = "pull-requests"
BODY = "payloads/github__pull_request_opened.json"
POLL_S = 0.1
START_IT = "Nothing was sent. Start Pulse with `make up`; if it serves on another port, set PULSE_PORT to that one."


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
