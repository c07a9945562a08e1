"""The scale and the clock of a run's page: round marks, and no time that is not known."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client

from apps.accounts.models import User
from apps.runs.models import Attempt, Run
from apps.runs.page import MOST_TICKS, RunPage
from tests.browser.demo import Demo


@pytest.mark.parametrize(
    ("seconds", "texts"),
    [
        (0.0004, ["0 ms", "1 ms"]),
        (0.34, ["0 ms", "100 ms", "200 ms", "300 ms"]),
        (5.0, ["0 s", "2 s", "4 s"]),
        (94.0, ["0 s", "30 s", "60 s", "90 s"]),
        (725.0, ["0 min", "5 min", "10 min"]),
        (20000.0, ["0 h", "2 h", "4 h"]),
        (700000.0, ["0 d", "2 d", "4 d", "6 d", "8 d"]),
    ],
)
def test_marks_stand_at_round_times(demo: Demo, seconds: float, texts: list[str]) -> None:
    run = Run.objects.get(pk=demo.runs["good"])
    run.finished_at = run.queued_at + timedelta(seconds=seconds)
    ticks = RunPage(run).ticks
    assert [tick.text for tick in ticks] == texts
    assert len(ticks) <= MOST_TICKS
    assert ticks[0].x == 0
    assert ticks[-1].x <= 1000


def test_the_time_of_a_run_that_needs_a_person_ends_with_its_last_attempt(
    demo: Demo, as_user: Callable[[User], Client]
) -> None:
    run = Run.objects.get(pk=demo.runs["lost"])
    attempt = Attempt.objects.get(step_run__run=run)
    page = RunPage(run)
    assert page.end == attempt.finished_at
    work = page.lines[0].attempts[0].work
    assert work is not None
    assert work.x + work.width == pytest.approx(1000)
    address = f"/runs/{run.pk}/"
    assert "data-since" not in as_user(demo.cast.viewer).get(address).text, "no clock of it counts on"
    Attempt.objects.filter(pk=attempt.pk).update(finished_at=None)
    assert RunPage(run).end > attempt.finished_at, "of an attempt that has not ended, the end is not known"


def test_a_run_that_has_not_started_has_no_duration(demo: Demo, as_user: Callable[[User], Client]) -> None:
    head = as_user(demo.cast.viewer).get(f"/runs/{demo.runs['held']}/").text.split("Started by")[0]
    assert "not started" in head
    assert "– +" not in head
