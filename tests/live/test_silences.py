"""A page that is open when a worker falls silent says so, and says so no more when it is heard of again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.runs import silence
from apps.runs.live import silences
from apps.runs.models import Run
from apps.runs.supervisor import rows
from apps.runs.timing import SILENT_S
from tests.factories import Cast
from tests.live.conftest import in_thread

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.databases]


@pytest.fixture(autouse=True)
def looked_for_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silences, "EVERY_S", 0.2)


def hold(run: Run) -> Any:
    worker = rows.register("worker", slots=1)
    Run.objects.filter(pk=run.pk).update(status="running", started_at=timezone.now(), lease_worker=worker)
    return worker.pk


def fall_silent(worker: Any) -> None:
    rows.mark(worker, heartbeat_at=timezone.now() - timedelta(seconds=SILENT_S + 1))


def words(run: Run) -> str:
    return silence.words(Run.objects.get(pk=run.pk))


async def test_an_open_page_of_a_run_is_told(cast: Cast, run: Run, open_page: Any) -> None:
    worker = await in_thread(hold, run)
    page = await open_page(cast.viewer)
    await page.subscribe(f"run:{run.pk}")
    await page.until_caught_up(0)
    await in_thread(fall_silent, worker)
    (*_, notice) = await page.until(lambda message: message.get("name") == "notice" and "heard of" in message["html"])
    assert await in_thread(words, run) in notice["html"]
    (*_, head) = await page.until(lambda message: message.get("name") == "head")
    assert "data-since" not in head["html"]
    await in_thread(rows.beat, worker)
    (*_, head) = await page.until(lambda message: message.get("name") == "head" and "data-since" in message["html"])
    assert "not heard of" not in head["html"]


async def test_an_open_page_of_its_team_is_told_that_it_is_stale(cast: Cast, run: Run, open_page: Any) -> None:
    worker = await in_thread(hold, run)
    page = await open_page(cast.viewer)
    await page.subscribe(f"team:{cast.team.slug}")
    await page.until(lambda message: message["type"] == "caught_up")
    await page.until_silent(1.5)
    await in_thread(fall_silent, worker)
    (*_, stale) = await page.until(lambda message: message["type"] == "stale")
    assert "run." in stale["names"]
