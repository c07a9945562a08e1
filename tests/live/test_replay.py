"""A page that reconnects says the last it has and gets the rest: none lost, none twice."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from apps.runs.kinds import Kind
from apps.runs.live import source, tailer
from apps.runs.models import Run
from tests.factories import Cast
from tests.live.conftest import commit, in_thread, tell, tell_at_once

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.databases]


def numbers(messages: list[dict[str, Any]]) -> list[int]:
    return [message["seq"] for message in messages if message["type"] == "event"]


async def test_a_page_gets_what_was_before_it_came_and_then_what_is_new(cast: Cast, run: Run, open_page: Any) -> None:
    await commit(run, Kind.RUN_QUEUED, Kind.RUN_STARTED)
    page = await open_page(cast.viewer)
    await page.subscribe(f"run:{run.pk}")
    before = await page.until_caught_up(2)
    await commit(run, Kind.STEP_STARTED)
    after = await page.until_caught_up(3)
    assert numbers(before) == [1, 2]
    assert numbers(after) == [3]


async def test_a_page_that_comes_back_gets_only_what_it_lacks(cast: Cast, run: Run, open_page: Any) -> None:
    await commit(run, *[Kind.STEP_STARTED] * 5)
    page = await open_page(cast.viewer)
    await page.subscribe(f"run:{run.pk}", after=3)
    assert numbers(await page.until_caught_up(5)) == [4, 5]


async def test_a_burst_while_pages_join_reaches_each_of_them_whole(cast: Cast, run: Run, open_page: Any) -> None:
    pages = [await open_page(cast.viewer) for _ in range(5)]
    burst = asyncio.create_task(commit(run, *[Kind.ATTEMPT_STARTED] * 200))
    for page in pages:
        await page.subscribe(f"run:{run.pk}")
        await asyncio.sleep(0.01)
    await burst
    for page in pages:
        got = numbers(await page.until_caught_up(200))
        assert sorted(set(got)) == list(range(1, 201))
        assert [number for at, number in enumerate(got) if number not in got[:at]] == list(range(1, 201)), (
            "out of order"
        )


async def test_a_slow_page_is_sent_no_more_and_then_caught_up(cast: Cast, run: Run, open_page: Any) -> None:
    page = await open_page(cast.viewer)
    await page.subscribe(f"run:{run.pk}")
    await page.until_caught_up(0)
    page.acknowledges = False
    for _ in range(6):
        await in_thread(tell_at_once, run, Kind.LOG_GREW, 400)
    got: set[int] = set()
    while max(got, default=0) < 2400:
        message = await page.next()
        if message["type"] == "event":
            got.add(message["seq"])
        if page.taken % 100 == 0:
            await page.acknowledge()
    assert got == set(range(1, 2401))


async def test_a_stranger_is_refused_the_same_as_for_no_run(cast: Cast, run: Run, open_page: Any) -> None:
    page = await open_page(cast.outsider)
    answers = []
    nobodys = ("run:01900000-0000-7000-8000-000000000000", "nonsense", "team:\ud800")
    for topic in (f"run:{run.pk}", f"team:{cast.team.slug}", *nobodys):
        await page.subscribe(topic)
        answers.append(await page.next())
    assert [answer["type"] for answer in answers] == ["refused"] * 5
    assert len({answer["reason"] for answer in answers}) == 1


async def test_a_team_is_told_once_for_many_changes(cast: Cast, run: Run, open_page: Any) -> None:
    page = await open_page(cast.viewer)
    await page.subscribe(f"team:{cast.team.slug}")
    await page.until_silent(1.5)
    began = time.monotonic()
    await commit(run, *[Kind.STEP_STARTED] * 50)
    told = await page.until_silent(1.5)
    assert told
    assert all(message["names"] == ["step.started"] for message in told)
    assert len(told) <= (time.monotonic() - began) / tailer.TEAM_EVERY_S


async def test_what_is_committed_before_the_source_looks_reaches_a_team(
    cast: Cast, run: Run, open_page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, may_begin = source.make, threading.Event()

    def begin_late() -> source.Source:
        assert may_begin.wait(60)
        return begin()

    monkeypatch.setattr(source, "make", begin_late)
    page = await open_page(cast.viewer)
    await page.subscribe(f"team:{cast.team.slug}")
    await page.until_caught_up(0)
    await commit(run, Kind.STEP_STARTED)
    may_begin.set()
    told = (await page.until(lambda message: message["type"] == "stale"))[-1]
    assert any("step.started".startswith(name) for name in told["names"])


def test_numbers_have_no_gaps(run: Run) -> None:
    assert tell(run, *[Kind.STEP_STARTED] * 3) == 3
    assert list(run.events.order_by("seq").values_list("seq", flat=True)) == [1, 2, 3]
