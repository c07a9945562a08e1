"""Many pages watch one run: each gets each event once, is rendered for once, and none holds up another."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Any

import pytest

from apps.runs import fragments
from apps.runs.kinds import Kind
from apps.runs.live.consumer import READERS
from apps.runs.live.hub import HUB
from apps.runs.live.outbox import BACKLOG, WINDOW
from apps.runs.models import Run
from apps.runs.page import RunPage
from tests.factories import Cast
from tests.live.conftest import Page, commit, in_thread, make_run, tell_at_once
from tests.live.test_replay import numbers

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.databases]
PAGES = 50


async def all_joined(open_page: Any, cast: Cast, run: Run, count: int) -> list[Page]:
    pages = [await open_page(cast.viewer) for _ in range(count)]
    for page in pages:
        await page.subscribe(f"run:{run.pk}")
        await page.until_caught_up(0)
    return pages


async def test_fifty_pages_get_each_event_once(cast: Cast, run: Run, open_page: Any) -> None:
    pages = await all_joined(open_page, cast, run, PAGES)
    await commit(run, *[Kind.TOOL_CALLED] * 40)
    for page in pages:
        assert numbers(await page.until_caught_up(40)) == list(range(1, 41))


async def test_a_fragment_is_rendered_once_for_all(
    cast: Cast, run: Run, open_page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = await all_joined(open_page, cast, run, 10)
    rendered: list[str] = []
    render = fragments.render_of

    def counted(name: str, page: RunPage, choice: fragments.Choice) -> str:
        rendered.append(name)
        return render(name, page, choice)

    monkeypatch.setattr(fragments, "render_of", counted)
    await commit(run, Kind.TOOL_CALLED)
    for page in pages:
        seen = await page.until_caught_up(1)
        assert [message["name"] for message in seen if message["type"] == "fragment"] == ["calls"]
    assert rendered == ["calls"]


async def test_a_page_that_joins_twice_is_told_once(cast: Cast, run: Run, open_page: Any) -> None:
    (page,) = await all_joined(open_page, cast, run, 1)
    await page.subscribe(f"run:{run.pk}", 0)
    await page.until_caught_up(0)
    await commit(run, Kind.TOOL_CALLED)
    assert numbers(await page.until_caught_up(1)) == [1]


async def test_a_page_that_left_a_topic_is_told_no_more(cast: Cast, run: Run, open_page: Any) -> None:
    page, other = await all_joined(open_page, cast, run, 2)
    await page.say(type="unsubscribe", topic=f"run:{run.pk}")
    await commit(run, Kind.TOOL_CALLED)
    await other.until_caught_up(1)
    assert await page.until_silent(0.3) == []


async def test_a_page_that_takes_nothing_costs_bounded_memory(cast: Cast, run: Run, open_page: Any) -> None:
    slow, quick = await all_joined(open_page, cast, run, 2)
    slow.acknowledges = False
    last = 0
    for _ in range(8):
        await in_thread(tell_at_once, run, Kind.LOG_GREW, 400)
        last += 400
        await quick.until_caught_up(last)
    assert len(await slow.until_silent(0.2)) <= WINDOW
    slow.acknowledges = True
    await slow.acknowledge()
    await slow.until_caught_up(last)
    assert last > BACKLOG


async def test_a_run_with_very_many_events_is_replayed_in_pieces(cast: Cast, run: Run, open_page: Any) -> None:
    for _ in range(4):
        await in_thread(tell_at_once, run, Kind.LOG_GREW, 1_000)
    page = await open_page(cast.viewer)
    await page.subscribe(f"run:{run.pk}")
    seen = await page.until(lambda message: message["type"] == "caught_up" and not message["more"])
    assert numbers(seen) == list(range(1, 4_001))
    assert len([message for message in seen if message["type"] == "caught_up"]) > 4


async def test_a_mark_from_before_a_backup_is_not_believed(cast: Cast, run: Run, open_page: Any) -> None:
    await commit(run, *[Kind.TOOL_CALLED] * 2)
    page = await open_page(cast.viewer)
    await page.subscribe(f"run:{run.pk}", 500)
    assert (await page.until_caught_up(2))[-1]["seq"] == 2
    await commit(run, Kind.TOOL_CALLED)
    assert numbers(await page.until_caught_up(3)) == [3]


async def test_one_slow_query_holds_up_no_other_page(cast: Cast, run: Run, open_page: Any) -> None:
    page = await open_page(cast.viewer)
    let_go = threading.Event()
    slow = asyncio.get_running_loop().run_in_executor(READERS, let_go.wait, 20)
    began = time.monotonic()
    await page.subscribe(f"run:{run.pk}")
    await page.until_caught_up(0)
    await commit(run, Kind.TOOL_CALLED)
    await page.until_caught_up(1)
    assert time.monotonic() - began < 10
    assert not slow.done()
    let_go.set()
    await slow


async def test_no_socket_depends_on_redis(cast: Cast, run: Run, open_page: Any, settings: Any) -> None:
    nowhere = {"hosts": ["redis://127.0.0.1:1/0"]}
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": "channels_redis.core.RedisChannelLayer", "CONFIG": nowhere}}
    (page,) = await all_joined(open_page, cast, run, 1)
    await commit(run, Kind.TOOL_CALLED)
    assert numbers(await page.until_caught_up(1)) == [1]


async def test_pages_that_came_and_went_leave_nothing(cast: Cast, run: Run, open_page: Any) -> None:
    tasks = len(asyncio.all_tasks())
    for _ in range(200):
        (page,) = await all_joined(open_page, cast, run, 1)
        await page.close()
    assert not HUB.watched()
    assert len(asyncio.all_tasks()) <= tasks + 1


async def test_a_page_is_told_only_of_the_run_that_it_watches(cast: Cast, run: Run, open_page: Any) -> None:
    other = await in_thread(make_run, cast)
    page = await open_page(cast.viewer)
    await page.subscribe(f"run:{run.pk}")
    await page.until_caught_up(0)
    await commit(other, Kind.RUN_STARTED, Kind.STEP_STARTED)
    await commit(run, Kind.STEP_FAILED)
    told = await page.until_caught_up(1)
    assert {message["topic"] for message in told} == {f"run:{run.pk}"}
    assert str(other.pk) not in json.dumps(told)
