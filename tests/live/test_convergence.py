"""The page as it was, and what the socket told it since, are the page as it is: whatever happened in between."""

from __future__ import annotations

import random
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from apps.runs import events, fragments
from apps.runs.fragments import FRAGMENTS
from apps.runs.kinds import Kind
from apps.runs.models import Attempt, Run, StepRun
from tests.factories import Cast
from tests.live.conftest import in_thread

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.databases]


@pytest.fixture(autouse=True)
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bars and ages depend on when they are drawn; the page's own script moves them."""
    now = timezone.now() + timedelta(minutes=1)
    monkeypatch.setattr("apps.runs.page.timezone", SimpleNamespace(now=lambda: now))


def rendered(run_id: Any) -> dict[str, str]:
    run = Run.objects.select_related("workflow", "team", "owner").get(pk=run_id)
    return {name: fragments.render(name, run) for name in FRAGMENTS}


def make_steps(run: Run) -> None:
    for place, step_id in enumerate(("fetch", "check", "report")):
        StepRun.objects.create(run=run, step_id=step_id, position=place, kind="scripted", title=step_id.title())


def happen(run_id: Any, chance: random.Random) -> None:
    """One change of the kind that runs go through, committed with its event."""
    with transaction.atomic():
        step = chance.choice(list(StepRun.objects.filter(run_id=run_id)))
        now = timezone.now()
        match chance.randrange(5):
            case 0:
                status = chance.choice(["queued", "running", "waiting"])
                Run.objects.filter(pk=run_id).update(status=status, reason=f"because {chance.random()}", started_at=now)
                kind = Kind(f"run.{status if status != 'running' else 'started'}")
            case 1:
                status = chance.choice(["running", "succeeded", "failed", "skipped"])
                StepRun.objects.filter(pk=step.pk).update(status=status, started_at=now, reason=f"as {chance.random()}")
                kind = Kind(f"step.{status if status != 'running' else 'started'}")
            case 2:
                number = step.attempts.count() + 1
                Attempt.objects.create(step_run=step, number=number, plan_revision=1, queued_at=now, started_at=now)
                kind = Kind.ATTEMPT_STARTED
            case 3:
                Attempt.objects.filter(step_run=step).update(outcome="script_error", finished_at=now, exit_code=3)
                kind = Kind.ATTEMPT_ENDED
            case _:
                kind = Kind.LOG_GREW
        events.record(Run.objects.get(pk=run_id), kind, {"step_id": step.step_id})


def take(page: dict[str, str], message: dict[str, Any], run_id: Any) -> None:
    """What live.js does with a message: a fragment is put in, of what is stale the fresh one is fetched."""
    if message["type"] == "fragment":
        page[message["name"]] = message["html"]
    elif message["type"] == "stale":
        page.update({name: html for name, html in rendered(run_id).items() if name in message["names"]})


@pytest.mark.parametrize("seed", range(6))
async def test_the_old_page_and_the_events_are_the_fresh_page(cast: Cast, run: Run, open_page: Any, seed: int) -> None:
    chance = random.Random(seed)
    await in_thread(make_steps, run)
    for _ in range(chance.randrange(8)):
        await in_thread(happen, run.pk, chance)
    shown = await in_thread(rendered, run.pk)
    after = await in_thread(_last, run.pk)
    early = chance.random() < 0.5
    socket = await open_page(cast.viewer)
    if early:
        await socket.subscribe(f"run:{run.pk}", after)
    for _ in range(1 + chance.randrange(12)):
        await in_thread(happen, run.pk, chance)
    if not early:  # the page was away meanwhile
        await socket.subscribe(f"run:{run.pk}", after)
    for message in await socket.until_caught_up(await in_thread(_last, run.pk)):
        await in_thread(take, shown, message, run.pk)
    assert shown == await in_thread(rendered, run.pk)


def _last(run_id: Any) -> int:
    return int(Run.objects.get(pk=run_id).last_seq)
